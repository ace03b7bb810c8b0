"""What the listener of a dev job watches: the use of GPUs on all nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.features.dev import hpcrun_dev_watch
from tests.unit.builders import write


def test_samples_of_a_node_that_cannot_be_read_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    write(tmp_path / "node-1.use", '{"time": 50.0, "gpus": [[0, 0.9]]}\n')
    (tmp_path / "node-0.use").mkdir()
    (tmp_path / "node-2.use").symlink_to("gone")
    assert hpcrun_dev_watch.gpu_used_at() == 50.0
