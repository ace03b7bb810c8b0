"""What commands import: every module is time that a person waits for an answer."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import pytest

from hpcrun.runs.store import RunStore
from tests.harness import Hpcrun
from tests.unit.builders import run

HEAVY = {"torch", "pandas", "numpy", "matplotlib", "submitit", "jinja2", "textual"}
# pydantic builds their validators as they are imported
MODELS = {"hpcrun.job.request.role_options", "hpcrun.job.profile_model"}
DRAWING = {"rich", "pygments", "markdown_it"}  # what draws tables: help has none
READERS = {"ruamel.yaml"}  # pydantic itself is imported by typer, where it is installed
IMPORTED = re.compile(r"^import time:.*\|\s*(\S+)$", re.MULTILINE)


def imported_by(hpcrun: Hpcrun, *args: str, status: int = 0, path: Path | None = None) -> set[str]:
    """The modules that the real command imports, as Python itself reports them."""
    env = {} if path is None else {"PATH": str(path)}
    python, *command = hpcrun.argv(*args)
    done = hpcrun.run(python, "-X", "importtime", *command, env=env, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    modules = set(IMPORTED.findall(done.stderr))
    assert "hpcrun.cli.main" in modules, "Python's report was not understood"
    return modules


def test_a_dry_run_imports_what_plans_and_nothing_that_submits_and_no_plugins_of_pydantic(
    hpcrun: Hpcrun,
) -> None:
    (hpcrun.folder / "train.py").touch()
    modules = imported_by(hpcrun, "submit", "-P", "a100", "--gpus", "1", "--dry-run", "train.py")
    assert modules >= {"jinja2", *MODELS}
    assert not {
        name
        for name in modules
        if name.startswith(("hpcrun.runs.", "hpcrun.actions.status", "submitit"))
    }
    assert "importlib.metadata" not in modules


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "profile --help",
        "submit --help",
        "scale run --list",
        "preflight --help",
        "scale plan --help",
        "doctor --help",
        "--version",
    ],
)
def test_help_imports_nothing_heavy(hpcrun: Hpcrun, line: str) -> None:
    modules = imported_by(hpcrun, *line.split())
    assert not modules & (HEAVY | MODELS | READERS)
    if line.endswith("--help"):
        assert not modules & DRAWING
    if line in ("--help", "profile --help"):
        assert not modules & {
            "hpcrun.cli.submit",
            "hpcrun.cli.status",
            "hpcrun.cli.context",
            "hpcrun.cli.profile",
            "hpcrun.cli.options",
        }


def test_status_imports_nothing_heavy(hpcrun: Hpcrun, tmp_path: Path) -> None:
    store = RunStore(hpcrun.runs)
    for scheduler in ("local", "slurm"):
        run_id = f"20260101-120000-{scheduler}-0000"
        store.create(
            run(run_id, scheduler=scheduler, cluster=None, host=socket.gethostname()),
            "#!/bin/bash\n",
        )
    no_slurm = tmp_path / "bin"
    no_slurm.mkdir()
    modules = imported_by(hpcrun, "status", status=5, path=no_slurm)
    assert modules >= {"hpcrun.schedulers.local", "hpcrun.schedulers.slurm"}
    assert not modules & (HEAVY | MODELS | READERS)


@pytest.mark.parametrize(
    ("words", "completed"),
    [("hpcrun logs tri", "trial"), ("hpcrun profile show a10", "a100")],
    ids=["run", "profile"],
)
def test_completing_a_name_imports_nothing_heavy(
    hpcrun: Hpcrun, words: str, completed: str
) -> None:
    RunStore(hpcrun.runs).create(run("20260101-120000-trial-0000"), "#!/bin/bash\n")
    python, *_ = hpcrun.argv()
    start = "import sys; sys.argv = ['hpcrun']; from hpcrun.cli.main import main; main()"
    env = {
        "_HPCRUN_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = hpcrun.run(python, "-X", "importtime", "-c", start, env=env, check=False)
    assert completed in done.stdout.split()
    modules = set(IMPORTED.findall(done.stderr))
    assert "hpcrun.cli.complete" in modules
    assert not modules & (HEAVY | MODELS | READERS)


def test_no_module_switches_off_what_python_keeps_of_compiled_modules() -> None:
    # pytest has imported this test's module, and those of all other tests that it runs
    assert sys.dont_write_bytecode is False  # as tests/conftest.py sets it
