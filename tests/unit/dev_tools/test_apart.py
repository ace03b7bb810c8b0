"""What `make apart` takes away with a feature."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path

import pytest

from dev.apart import features, take_away
from hpcrun.cli.commands import COMMANDS
from tests.harness import REPO


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The parts of the checkout that know features by their names."""
    unwanted = shutil.ignore_patterns("__pycache__")
    for folder in ("hpcrun/features", "hpcrun/cli", "hpcrun/actions", "tests/unit/cli"):
        shutil.copytree(REPO / folder, tmp_path / folder, ignore=unwanted)
    return tmp_path


@pytest.mark.parametrize("name", features())
def test_a_feature_goes_with_its_commands_their_examples_and_its_hooks(
    copy: Path, name: str
) -> None:
    its_own = [
        command
        for command, row in COMMANDS.items()
        if row.module.startswith(f"hpcrun.features.{name}.")
    ]
    assert take_away(copy, name) == its_own
    assert not (copy / "hpcrun/features" / name).exists()
    left = runpy.run_path(str(copy / "hpcrun/cli/commands.py"))
    assert list(left["COMMANDS"]) == [command for command in COMMANDS if command not in its_own]
    assert not set(its_own) & set(left["EXAMPLES"])
    hooks = (copy / "hpcrun/actions/hooks.py").read_text()
    assert not re.search(rf"hpcrun\.features\.{name}\b", hooks)
