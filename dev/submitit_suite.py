"""Run submitit's own tests, which its wheel contains, and print a table: alone, beside hpcrun, and
through hpcrun.

    python -m dev.submitit_suite [--profile NAME] [TEST...]

``alone`` hides hpcrun's plug-in; ``beside`` is submitit as it is once hpcrun is installed. For
``hpcrun`` every test that makes submitit's LocalExecutor or DebugExecutor gets the executor of
``AutoExecutor(cluster="hpcrun")`` instead, with the profile. docs/submitit.md explains the
differences.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MODES = ("alone", "beside", "hpcrun")
THROUGH = (
    "local/test_local.py",
    "local/test_debug.py",
    "auto/test_auto.py",
    "test_helpers.py",
    "test_pickle.py",
)
"""The tests that make an executor which runs something; the others test submitit's own Slurm,
watcher and pickles.
"""
_MODE, _PROFILE, _RESULTS = (
    "SUBMITIT_SUITE_MODE",
    "SUBMITIT_SUITE_PROFILE",
    "SUBMITIT_SUITE_RESULTS",
)
LIMIT_S = 60
"""How long a test may take: a test that waits for what hpcrun does otherwise waits for ever."""


def main() -> None:
    """Run the three passes and print their outcomes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--profile", default="local", help="profile of the third pass")
    parser.add_argument("tests", nargs="*", help="words of pytest -k, joined by or")
    options = parser.parse_args()
    outcomes = {mode: _run(mode, options.profile, options.tests) for mode in MODES}
    tests = sorted(set().union(*outcomes.values()))
    width = max(map(len, tests), default=0)
    print(f"{'TEST':{width}}  " + "  ".join(f"{mode.upper():8}" for mode in MODES))
    for test in tests:
        print(
            f"{test:{width}}  "
            + "  ".join(f"{outcomes[mode].get(test, '-'):8}" for mode in MODES).rstrip()
        )


def _run(mode: str, profile: str, words: list[str]) -> dict[str, str]:
    import submitit

    # compute nodes see the home folder
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        package = Path(shutil.copytree(Path(submitit.__file__).parent, Path(folder, "submitit")))
        files = [str(package / name) for name in THROUGH] if mode == "hpcrun" else [str(package)]
        for git in (["init", "-q"], ["add", "submitit"]):  # its snapshots are of a git repository
            subprocess.run(["git", "-C", folder, *git], check=True)
        results = Path(folder, "results")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            __spec__.name if __spec__ else "dev.submitit_suite",
        ]
        command += [
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            "--rootdir",
            str(package),
            "--tb=line",
        ]
        command += ["--basetemp", f"{folder}/tests"]
        command += ["-k", " or ".join(words)] if words else []
        home = Path(__file__).parents[1]
        env = {
            **os.environ,
            _MODE: mode,
            _PROFILE: profile,
            _RESULTS: str(results),
            "PYTHONPATH": str(home),
        }
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"  # its tests start "python"
        done = subprocess.run(
            [*command, *files], cwd=folder, env=env, stdout=subprocess.PIPE, text=True
        )
        print(f"--- {mode}\n{done.stdout}", file=sys.stderr)
        lines = results.read_text().splitlines() if results.exists() else []
        return {row["test"]: row["outcome"] for row in map(json.loads, lines)}


# --- in pytest: this module is its plug-in -------------------------------------------------------


def pytest_configure() -> None:
    """Hide hpcrun from submitit, or put hpcrun's executor into the place of submitit's."""
    mode = os.environ[_MODE]
    if mode == "alone":
        from submitit.core import plugins

        entry_points: Any = plugins._iter_submitit_entrypoints
        setattr(  # noqa: B010 - mypy
            plugins,
            "_iter_submitit_entrypoints",
            lambda: [entry for entry in entry_points() if not entry.value.startswith("hpcrun.")],
        )
    if mode == "hpcrun":
        from submitit.local import debug, local

        for module, name in ((local, "LocalExecutor"), (debug, "DebugExecutor")):
            setattr(module, name, _executor(name.removesuffix("Executor").lower()))


def _executor(cluster: str) -> type[Any]:
    from hpcrun.api.submitit_plugin import HpcrunExecutor

    profile = os.environ[_PROFILE]
    defaults = {"profile": profile, "time": "10m", **({"gpus": 0} if profile == "local" else {})}

    class Replacement(HpcrunExecutor):
        """hpcrun's executor under the name and with the arguments of submitit's."""

        def __init__(
            self, folder: Path | str, max_num_timeout: int | None = None, **more: Any
        ) -> None:
            requeue = {} if max_num_timeout is None else {"requeue": max_num_timeout}
            super().__init__(folder, **{**defaults, **requeue, **more})

        @classmethod
        def name(cls) -> str:
            return cluster

    return Replacement


def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    """Run a coroutine, for which submitit's developers have pytest-asyncio."""
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(tmp_path=pyfuncitem.funcargs["tmp_path"]))
    return True


def pytest_runtest_setup() -> None:
    """Limit the time of a test."""
    import signal

    def stop(*_: object) -> None:
        raise TimeoutError(f"the test takes more than {LIMIT_S} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT_S)


def pytest_runtest_logreport(report: Any) -> None:
    """Note the outcome of a test."""
    if report.when == "call" or report.outcome != "passed":
        outcome = (
            "xfailed" if getattr(report, "wasxfail", None) and report.skipped else report.outcome
        )
        with open(os.environ[_RESULTS], "a", encoding="utf-8") as file:
            file.write(json.dumps({"test": report.nodeid, "outcome": outcome}) + "\n")


if __name__ == "__main__":
    main()
