"""What a person is told whose runs have no metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from hpcrun.cli.metrics import how_to_record


def test_the_hint_names_the_file_and_an_example_that_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    text, example = how_to_record().split("config.yaml: ")
    assert str(tmp_path / "hpcrun") in text
    assert YAML(typ="safe").load(example) == {"metrics": {"loss": "loss ([0-9.]+)"}}
