"""Whether a feature can be taken away: ``python -m dev.apart [NAME...]``, without names all
features that can.

A copy of the checkout loses the folder of the feature, its rows in the table of commands, the tests
that import it or run its commands, and the golden files that name its commands. Then every module
of the rest is imported, and the unit and golden tests of the rest pass.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dev.copies import make_environment

REPO = Path(__file__).resolve().parents[1]
_IMPORT_ALL = (
    "import importlib, pkgutil, hpcrun\n"
    "for module in pkgutil.walk_packages(hpcrun.__path__, 'hpcrun.'):\n"
    "    if not module.name.startswith('hpcrun.in_job'):\n"
    "        module.name.endswith('__main__') or importlib.import_module(module.name)\n"
)


def features() -> list[str]:
    """Return the names of all features."""
    return sorted(
        path.name
        for path in (REPO / "hpcrun/features").iterdir()
        if (path / "__init__.py").exists()
    )


def main() -> int:
    """Take each feature away in turn; return the exit status."""
    names = sys.argv[1:] or features()
    if unknown := sorted(set(names) - set(features())):
        print(
            f"{', '.join(unknown)}: no such feature; there are {', '.join(features())}",
            file=sys.stderr,
        )
        return 2
    failed = [name for name in names if not stands_without(name)]
    print(
        f"needed after all: {', '.join(failed)}"
        if failed
        else f"each can be taken away: {', '.join(names)}"
    )
    return bool(failed)


def stands_without(name: str) -> bool:
    """Whether the rest passes its tests without a feature, and without those that are known to use
    it.
    """
    with tempfile.TemporaryDirectory(prefix=f"without-{name}-") as temporary:
        copy = Path(temporary) / "hpcrun"
        tracked = subprocess.run(
            ["git", "ls-files", "-z"], cwd=REPO, check=True, capture_output=True, text=True
        ).stdout
        for path in filter(None, tracked.split("\0")):
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / path, copy / path)
        gone = [name, *(user for user, used in USED_BY.items() if name in used)]
        commands = [command for feature in gone for command in take_away(copy, feature)]
        print(f"without {' and '.join(gone)} ({', '.join(commands)}):", flush=True)
        make_environment(copy)
        python = str(copy / ".venv/bin/python")
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        for command in (
            ["-c", _IMPORT_ALL],
            [
                "-m",
                "pytest",
                "-q",
                "-n",
                "2",
                "-p",
                "no:cacheprovider",
                "tests/unit",
                "tests/golden",
            ],
        ):
            if subprocess.run([python, *command], cwd=copy, env=env, check=False).returncode:
                return False
    return True


USED_BY = {"share": ("sweep", "trackers"), "top": ("scaling",)}
"""Features that use others, as pyproject.toml lists them: they go with these."""


def take_away(copy: Path, name: str) -> list[str]:
    """Remove a feature from a copy of the checkout; return the names of its commands."""
    shutil.rmtree(copy / "hpcrun/features" / name)
    table = copy / "hpcrun/cli/commands.py"
    hooks = copy / "hpcrun/actions/hooks.py"
    hooks.write_text(
        re.sub(rf'    "\w+": "hpcrun\.features\.{name}\..*\n', "", hooks.read_text("utf-8")),
        "utf-8",
    )
    text = table.read_text("utf-8")
    of_feature = re.compile(
        rf'^    "(?P<command>[\w ]+)": Command\(\s*"hpcrun\.features\.{name}\..*?\),\n(?=    "|}})',
        re.DOTALL | re.MULTILINE,
    )
    commands = [match["command"] for match in of_feature.finditer(text)]
    for command in commands:
        schema = copy / "docs/schemas" / f"{command.replace(' ', '-')}.json"
        schema.unlink(missing_ok=True)
    text = of_feature.sub("", text)
    # the purpose of a long example stands on the next line
    either = "|".join(commands) or "-"
    example = rf"^(?!    ).*hpcrun (?:{either})\b(?!.*hpcrun )(?:.*\\\n)?.*\n"
    table.write_text(re.sub(example, "", text, flags=re.MULTILINE), "utf-8")
    runs = "|".join(
        [
            rf"hpcrun\.features\.{name}\b|features import {name}\b",
            *(rf'\("{one}"[,)]' for one in commands),
        ]
    )
    for test in [*copy.glob("tests/unit/**/test_*.py"), *copy.glob("tests/golden/test_*.py")]:
        if re.search(runs, test.read_text("utf-8")):
            test.unlink()
    named = re.compile(rf"hpcrun (?:{either})\b|^  (?:{either})  ", re.MULTILINE)
    for golden in [*copy.glob("tests/golden/commands/*"), *copy.glob("tests/golden/sessions/*")]:
        if commands and named.search(golden.read_text("utf-8")):
            golden.unlink()
    return commands


if __name__ == "__main__":
    sys.exit(main())
