"""Nodes that do not unpack compiled files: all begin without them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.in_job.launch import records
from hpcrun.in_job.launch.compiled import generations
from hpcrun.in_job.launch.compiled.folder import INTO
from hpcrun.in_job.launch.per_job import unpack_compiled

CODE = "0123456789abcdef"


def test_a_node_that_does_not_answer_keeps_no_job_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / ".compiled/train-1"
    program.mkdir(parents=True, mode=0o700)
    program.parent.chmod(0o700)
    generation = program / f"{10**18}.run-1.0"
    assert generations.enter(str(generation), "node-1", CODE, 100)
    Path(generations.part(str(generation), CODE)).touch()
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\necho node-1 ready 0\nexec sleep 60\n")
    srun.chmod(0o755)
    attempt = tmp_path / "attempt"
    attempt.mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("HPCRUN_JOB_ID", "7")
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(attempt))
    monkeypatch.setenv(INTO, str(generation))
    monkeypatch.setattr(unpack_compiled, "_WITHIN_S", 0.3)
    assert unpack_compiled.main(["node-1,node-2", str(generation)]) == 1
    why = f"not all nodes have unpacked {generation} within 0 s"
    assert f"--warm: this attempt starts cold: {why}" in capfd.readouterr().err
    record = records.read("warm", str(attempt))
    assert record
    assert record["cold"] == why
