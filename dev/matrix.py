"""The Slurm tests with several Slurms and Pythons: this machine's, and those of newer Debians
(``make matrix``).

What was seen is kept in dev/matrix.json, from which the last part of docs/measured.md is written.
Standard library only: it is run before there is an environment.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
DEBIAN = str(REPO / "dev" / "debian.sh")
SEEN, PAGE = REPO / "dev" / "matrix.json", REPO / "docs" / "measured.md"
HERE = "here"
SUITES = {"trixie": "Debian 13", "sid": "Debian sid"}
PACKAGES = """
    slurmctld slurmd slurmdbd slurm-client munge mariadb-server iproute2 python3-torch
    openssh-server openssh-client rsync tcsh fish
""".split()
REPORT = ".matrix.xml"

# Debian's torch has no libuv. USE_LIBUV=0 turns it off, but for torchrun's own store and the ranks'
# way to it.
NO_LIBUV = (
    "cd /usr/lib/python3/dist-packages/torch/distributed && "
    "sed -i 's/multi_tenant=True,$/& use_libuv=False,/' elastic/rendezvous/*.py && "
    "sed -i 's/is_master=False,$/& use_libuv=False,/' rendezvous.py"
)
VERSIONS = (
    'printf "%s " $(slurmctld -V); .venv/bin/python -c "import platform, torch; '
    'print(platform.python_version(), torch.__version__)"'
)
HEADING = "## Versions of Slurm and Python\n"
PAGE_TEXT = """
The tests that need Slurm, in their last run. `make matrix` writes this table, `ARGS='-m versions' SUITES=sid` the most important part.
For the newer two it makes a Debian of 2 GB, without libuv.

"""  # noqa: E501
KINDS = ("passed", "failed", "skipped")
Modules = dict[str, dict[str, str]]
Seen = dict[str, dict[str, Any]]


def main() -> int:
    """Run, write, tell; returns 1 where a test has failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument(
        "--suites", default=f"{HERE} trixie sid", help="which of: here, trixie, sid"
    )
    parser.add_argument("--make", action="store_true", help="only make the Debians")
    parser.add_argument("--write", action="store_true", help="only write the tables anew")
    options, arguments = parser.parse_known_args()
    suites = [] if options.write else options.suites.split()
    if options.make:
        for suite in suites:
            make(suite)
        return 0
    failed, seen = False, read()
    whole = not any(argument in ("-m", "-k") or "::" in argument for argument in arguments)
    for suite in suites:
        failed |= not note(seen, suite, *run(suite, arguments), whole=whole)
        write(seen)
    if options.write:
        write(seen)
    print(summary(seen))
    return int(failed)


def read() -> Seen:
    """Return what was seen so far."""
    return dict(json.loads(SEEN.read_text(encoding="utf-8"))) if SEEN.exists() else {}


# --- running -------------------------------------------------------------------------------------


def make(suite: str) -> None:
    """Make the Debian of a suite, where it is not there yet, with this checkout and its
    environment.
    """
    begun = time.monotonic()
    subprocess.run([DEBIAN, "keep", suite, *PACKAGES], check=True)
    made = time.monotonic()
    subprocess.run([DEBIAN, "online", suite, "sh", "-c", NO_LIBUV], check=True)
    subprocess.run(
        [DEBIAN, "online", suite, "make", ".venv/installed-dev", "TORCH_INDEX=system"], check=True
    )
    print(
        f"{suite}: made in {made - begun:.0f} s, its Python in {time.monotonic() - made:.0f} s",
        flush=True,
    )


def run(suite: str, arguments: list[str]) -> tuple[str, str]:
    """Run the tests of one suite; returns its versions, and pytest's report."""
    some = any(argument.startswith("tests/") for argument in arguments)
    wanted = shlex.join(arguments if some else ["tests/slurm", *arguments])
    test = ["make", "test", f"ARGS={wanted} --junitxml={REPORT}"]
    prefix: list[str] = []
    if suite != HERE:
        make(suite)
        prefix = [DEBIAN, "apart", suite]
        test = ["env", "USE_LIBUV=0", *test, "TORCH_INDEX=system"]
    begun = time.monotonic()
    subprocess.run(
        [*prefix, *test], cwd=REPO, env={**os.environ, "HPCRUN_REQUIRE_SLURM": "1"}, check=False
    )
    print(f"{suite}: tested in {time.monotonic() - begun:.0f} s", flush=True)
    ask = [*prefix, "sh", "-c", f"{VERSIONS}; cat {REPORT}; rm {REPORT}"]
    done = subprocess.run(ask, cwd=REPO, stdout=subprocess.PIPE, encoding="utf-8", check=True)
    versions, _, report = done.stdout.partition("\n")
    return versions, report


def note(seen: Seen, suite: str, versions: str, report: str, *, whole: bool) -> bool:
    """Add what was seen; returns whether nothing has failed.

    Args:
        whole: all tests of these modules were run: what was known of others is forgotten.
    """
    _, slurm, python, torch = versions.split()
    key = slurm.rpartition(".")[0]
    before = seen.get(key, {}).get("modules", {})
    outcomes = results(report)
    before = {
        module: kept for module, tests in before.items() if (kept := _still_there(module, tests))
    }
    about = {
        "slurm": slurm,
        "python": python,
        "torch": torch,
        "debian": SUITES.get(suite, "this machine"),
    }
    modules = {
        name: tests if whole else {**before.get(name, {}), **tests}
        for name, tests in outcomes.items()
    }
    seen[key] = {**about, "modules": {**before, **modules}}
    return not any("failed" in tests.values() for tests in outcomes.values())


def _still_there(module: str, tests: dict[str, str]) -> dict[str, str]:
    """Return the tests that a module has today: a test of another name is another test."""
    path = REPO / "tests" / "slurm" / f"{module}.py"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return {
        name: ended for name, ended in tests.items() if f"def {name.partition('[')[0]}(" in text
    }


def results(report: str) -> Modules:
    """Return how each test of each module ended, from pytest's report."""
    missing: Modules = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        kinds = {child.tag for child in case}
        ended = (
            "failed"
            if kinds & {"failure", "error"}
            else "skipped"
            if "skipped" in kinds
            else "passed"
        )
        tests = missing.setdefault(case.get("classname", "").split(".")[2], {})
        # an error after the test is a case of its own
        if tests.get(case.get("name", "")) != "failed":
            tests[case.get("name", "")] = ended
    return missing


# --- telling -------------------------------------------------------------------------------------


def _all(modules: Modules) -> list[str]:
    return [ended for tests in modules.values() for ended in tests.values()]


def summary(seen: Seen) -> str:
    """Return the first table of the page: one line for each version."""
    lines = [
        "| Slurm | Python | torch | on | tests | passed | failed | skipped |",
        "|---|---|---|---|---:|---:|---:|---:|",
    ]
    for version in sorted(seen):
        about, ended = seen[version], _all(seen[version]["modules"])
        cells = [about["slurm"], about["python"], about["torch"], about["debian"], str(len(ended))]
        lines.append(
            "| " + " | ".join([*cells, *(str(ended.count(kind)) for kind in KINDS)]) + " |"
        )
    return "\n".join(lines) + "\n"


def page(seen: Seen) -> str:
    """Return the part of docs/measured.md below its heading."""
    failures = [
        f"* {version}, {module}: "
        + ", ".join(f"`{name}`" for name, ended in tests.items() if ended == "failed")
        for version in sorted(seen)
        for module, tests in sorted(seen[version]["modules"].items())
        if "failed" in tests.values()
    ]
    return PAGE_TEXT + (
        f"{summary(seen)}\n"
        + ("What failed:\n\n" + "\n".join(failures) + "\n" if failures else "Nothing failed.\n")
    )


def write(seen: Seen) -> None:
    """Write what was seen, and what is made from it."""
    SEEN.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    before, heading, _ = PAGE.read_text("utf-8").partition(HEADING)
    PAGE.write_text(f"{before}{heading}{page(seen)}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
