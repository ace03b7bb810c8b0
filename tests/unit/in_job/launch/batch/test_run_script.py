"""What the job keeps of a launch that it does not run: nothing, so that a reader gets its end."""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch.batch.run_script import ScriptRules, ScriptStep, _check_export, _same_file

ENDS_S = 5.0


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptStep]:
    monkeypatch.setenv("HPCRUN_RUN_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    rules = ScriptRules(managed=False, together=False, srun=[], added=[])
    created = ScriptStep(None, [], lambda _: None, lambda: False, rules)
    yield created
    created._server.close()
    created._leave(0)


def request(**changes: Any) -> bytes:
    """What hpcrun_launch sends, as far as a refusal reads it."""
    words = ["srun", "::", "python", "train.py"]
    sent = {"words": words, "env": {"SLURM_EXPORT_ENV": "NONE"}, "folder": "."}
    return json.dumps({**sent, **changes}).encode()


def hand_over(step: ScriptStep, data: bytes) -> tuple[socket.socket, int]:
    """Hand a pipe over as the launch's output; return the launch's socket, and the read end."""
    read, write = os.pipe()
    launch = socket.socket(socket.AF_UNIX)
    launch.connect(os.path.join(step._folder, "socket"))
    socket.send_fds(launch, [len(data).to_bytes(8, "big")], [write])
    launch.sendall(data)
    os.close(write)
    return launch, read


def has_end(read: int) -> bool:
    """Whether nobody holds the write end of a pipe any more."""
    readable, _, _ = select.select([read], [], [], ENDS_S)
    return bool(readable) and os.read(read, 1) == b""


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({}, b"alone\n"),
        ({"words": ["srun", "::", "-x"]}, b"alone\n"),
        ({"folder": "missing"}, b""),
    ],
    ids=["export", "no-program", "no-folder"],
)
def test_a_refused_launch_leaves_no_descriptor_with_the_job(
    step: ScriptStep, changes: dict[str, Any], answer: bytes
) -> None:
    launch, read = hand_over(step, request(**changes))
    with closing(launch):
        assert step._accept() is None
        assert launch.recv(64) == answer
    assert has_end(read)
    os.close(read)


def test_a_launch_beside_another_leaves_no_descriptor_with_the_job(step: ScriptStep) -> None:
    launch, read = hand_over(step, request())
    with closing(launch):
        step._refuse_more()
        assert launch.recv(64) == b"alone\n"
    assert has_end(read)
    os.close(read)


@pytest.mark.parametrize(
    ("srun", "export"),
    [
        pytest.param([], "NONE", id="no srun"),
        pytest.param(["srun"], None, id="not set"),
        pytest.param(["srun"], "A,ALL", id="all"),
        pytest.param(["srun", "--export=ALL"], "NONE", id="by an option"),
    ],
)
def test_srun_passes_the_variables_of_the_job_on(srun: list[str], export: str | None) -> None:
    _check_export(srun, export)


@pytest.mark.parametrize("export", ["NONE", "A,B", "SMALL"])
def test_an_export_without_the_variables_of_the_job_is_refused(export: str) -> None:
    problem = f"^SLURM_EXPORT_ENV={export} keeps the variables of the job from srun$"
    with pytest.raises(ValueError, match=problem):
        _check_export(["srun", "-N2"], export)


def test_two_descriptors_of_one_file_are_the_same(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as one, (tmp_path / "b").open("w") as other:
        with (tmp_path / "a").open("a") as again:
            assert _same_file(one.fileno(), again.fileno())
        assert not _same_file(one.fileno(), other.fileno())
        closed = 1 << 20
        assert not _same_file(one.fileno(), closed)
