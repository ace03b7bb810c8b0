"""Importing a module while others stand in for what it takes names from."""

from __future__ import annotations

import subprocess
import sys


def output_of(code: str) -> list[str]:
    """Run Python code in a process that has imported nothing yet; returns the words that it prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_a_stand_in_is_gone_once_the_module_is_imported() -> None:
    code = """
import sys
from hpcrun.cli.lean_imports import import_help, import_pydantic
import_help()
import_pydantic()
import importlib.metadata, rich.markdown, typer.rich_utils
print(importlib.metadata.version("typer") != "", rich.markdown.Markdown is not typer.rich_utils.Markdown)
"""
    assert output_of(code) == ["True", "True"]


def test_a_module_that_was_imported_before_stays_as_it_was() -> None:
    code = """
import importlib.metadata, sys
before = importlib.metadata
from hpcrun.cli.lean_imports import import_pydantic
import_pydantic()
import pydantic.plugin._loader as loader
print(sys.modules["importlib.metadata"] is before, list(loader.get_plugins()))
"""
    assert output_of(code) == ["True", "[]"]


def test_submitit_is_whole_but_for_what_submitting_does_not_need() -> None:
    code = """
import sys
from hpcrun.cli.lean_imports import import_submitit
import_submitit()
print("asyncio" in sys.modules, "importlib.metadata" in sys.modules)
import asyncio, submitit
from hpcrun.schedulers.sbatch import ScriptExecutor
print(asyncio.run(asyncio.sleep(0, "awaited")), issubclass(ScriptExecutor, submitit.SlurmExecutor))
"""
    assert output_of(code) == ["False", "False", "awaited", "True"]


def test_a_version_that_takes_other_names_is_imported_whole() -> None:
    code = """
import sys
from hpcrun.cli.lean_imports import _import_with
_import_with("colorsys", {"json": {}})
_import_with("tokenize", {"token": {"none_of_its_names": 1}})
print("tokenize" in sys.modules, "token" in sys.modules, "colorsys" in sys.modules)
import tokenize
print(tokenize.NAME == 1)
"""
    assert output_of(code) == ["False", "False", "True", "True"]
