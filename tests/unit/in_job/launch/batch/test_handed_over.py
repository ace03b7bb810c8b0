"""What a launch inherits from its script: files and limits of the script, not of the job."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from hpcrun.in_job.launch.batch.handed_over import (
    limit,
    own_descriptors,
    read_limits,
    take_descriptors,
    with_limits,
)
from hpcrun.in_job.launch.processes import reap, start


def run(line: str, streams: dict[int, int]) -> None:
    """Run a line of bash to its end with these descriptors."""
    reap(start(["bash", "-c", line], dict(os.environ), streams=streams))


def test_a_program_gets_descriptors_by_the_numbers_that_they_had(tmp_path: Path) -> None:
    paths = (tmp_path / "five", tmp_path / "four")
    received = [os.open(path, os.O_WRONLY | os.O_CREAT) for path in paths]
    streams = take_descriptors([5, 4], received)
    run("echo five >&5; echo four >&4", streams)
    for descriptor in streams.values():
        os.close(descriptor)
    assert [path.read_text() for path in paths] == ["five\n", "four\n"]


def test_another_program_does_not_inherit_them(tmp_path: Path) -> None:
    received = [os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)]
    (descriptor,) = take_descriptors([9], received).values()
    assert not os.get_inheritable(descriptor)
    assert descriptor not in own_descriptors()
    os.close(descriptor)


def test_limits_are_those_of_the_program_alone(tmp_path: Path) -> None:
    before = read_limits()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limits = {**before, "RLIMIT_NOFILE": (64, hard - 1)}
    with with_limits(limits):
        pid = start(["sleep", "9"], dict(os.environ))
    limit(pid, limits)
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (64, hard - 1)
    os.kill(pid, 9)
    reap(pid)
    assert read_limits() == before
