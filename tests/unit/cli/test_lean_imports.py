"""Importing a module while others stand in for what it takes names from."""

from __future__ import annotations

import subprocess
import sys

import pytest

LEAN = "import sys; from hpcrun.cli.lean_imports import *; import_lean()\n"


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        pytest.param(
            "import pydantic.plugin._loader, importlib.metadata\n"
            "print(importlib.metadata.version('typer') != '')",
            "True",
            id="a stand-in is gone once the module is imported",
        ),
        pytest.param(
            "import importlib.metadata; before = importlib.metadata; import "
            "pydantic.plugin._loader as loader\n"
            "print(sys.modules['importlib.metadata'] is before, list(loader.get_plugins()))",
            "True []",
            id="a module that was imported before stays as it was",
        ),
        pytest.param(
            "import submitit; print('asyncio' in sys.modules, 'importlib.metadata' in "
            "sys.modules)\n"
            "import asyncio; from hpcrun.schedulers.sbatch import ScriptExecutor\n"
            "print(asyncio.run(asyncio.sleep(0, 'awaited')), issubclass(ScriptExecutor, "
            "submitit.SlurmExecutor))",
            "False False awaited True",
            id="submitit is whole but for what submitting does not need",
        ),
        pytest.param(
            "sys.meta_path.insert(0, LeanFinder({'colorsys': {'json': {}}, 'tokenize': {'token': "
            "{'no_name': 1}}}))\n"
            "import colorsys, tokenize; print(tokenize.NAME == 1, colorsys.__loader__ is "
            "colorsys.__spec__.loader)",
            "True True",
            id="a version that takes other names is imported whole",
        ),
    ],
)
def test_a_library_is_imported_without_modules_that_it_does_not_need(
    code: str, printed: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAN + code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == printed.split()
