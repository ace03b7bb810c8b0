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


def make_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a generation, for a job of two nodes whose srun is a script that hangs."""
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
    return generation


def test_a_node_that_does_not_answer_keeps_no_job_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    generation = make_generation(tmp_path, monkeypatch)
    monkeypatch.setattr(unpack_compiled, "_WITHIN_S", 0.3)
    assert unpack_compiled.main(["node-1,node-2", str(generation)]) == 1
    why = f"not all nodes have unpacked {generation} within 0 s"
    assert f"--warm: this attempt starts cold: {why}" in capfd.readouterr().err
    record = records.read("warm", str(tmp_path / "attempt"))
    assert record
    assert record["cold"] == why


@pytest.mark.parametrize(
    ("lines", "status", "cold"),
    [
        pytest.param(
            "node-1 ready 0; node-2 ready 0; node-1 done 4; node-2 done 4", 0, "", id="all"
        ),
        pytest.param("node-1 ready 0; node-2 failed no room", 0, "node-2: no room", id="one fails"),
        pytest.param(
            "node-1 ready 0; node-2 ready 0",
            0,
            "the step that unpacks {} ended with status 0",
            id="no file",
        ),
        pytest.param(
            "node-1 ready 0", 7, "the step that unpacks {} ended with status 7", id="step"
        ),
    ],
)
def test_all_nodes_begin_with_the_files_or_none_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, status: int, cold: str
) -> None:
    generation = make_generation(tmp_path, monkeypatch)
    text = "\n".join(f"echo {line}" for line in lines.split("; "))
    (tmp_path / "srun").write_text(f"#!/bin/sh\n{text}\nexit {status}\n")
    expected = int(bool(cold))
    assert unpack_compiled.main(["node-1,node-2", str(generation)]) == expected
    record = records.read("warm", str(tmp_path / "attempt"))
    assert record
    if cold:
        assert record["cold"] == cold.format(generation)
    else:
        assert (record["run"], record["files"]) == ("run-1", 4)
