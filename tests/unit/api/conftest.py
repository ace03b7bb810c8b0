"""A person without hpcrun's variables, whose home and runs are a folder of the test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "HPCRUN_PROFILE", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HPCRUN_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("HPCRUN_SITE", str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
