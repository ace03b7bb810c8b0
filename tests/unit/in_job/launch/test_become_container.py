"""What a node lacks for a container, and what it becomes otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.in_job.launch.become_container import missing
from tests.unit.in_job.attempts import Attempt


def test_a_node_without_the_runtime_says_so() -> None:
    assert missing("no-such-runtime", "image").startswith("has no no-such-runtime on its PATH; ")


@pytest.mark.parametrize(("image", "lacks"), [("{}/missing", True), ("{}", False), ("x", False)])
def test_a_node_without_the_image_says_so(tmp_path: Path, image: str, lacks: bool) -> None:
    path = image.format(tmp_path)
    message = missing("sh", path)
    assert message.startswith(f"has no image {path}; ") == lacks
    assert bool(message) == lacks


def test_a_node_that_lacks_nothing_becomes_the_container(attempt: Attempt) -> None:
    show = ["sh", "-c", "echo $HPCRUN_CONTAINER; exit 3"]
    done = attempt.launch("container", "image", "--", *show)
    assert (done.returncode, done.stdout) == (3, "sh\n")


@pytest.mark.parametrize(
    ("env", "node"),
    [
        pytest.param({"SLURMD_NODENAME": "n2"}, "n1", id="of the job"),
        pytest.param({"SLURMD_NODENAME": "n2", "HPCRUN_NODE": ""}, "n2", id="of Slurm"),
    ],
)
def test_a_node_that_lacks_the_runtime_is_named(
    attempt: Attempt, env: dict[str, str], node: str
) -> None:
    done = attempt.launch("container", "image", "--", "no-such-runtime", **env)
    assert done.returncode == 127
    assert done.stderr.startswith(f"hpcrun: {node} has no no-such-runtime on its PATH")


def test_torchrun_in_a_container_receives_no_signal(attempt: Attempt) -> None:
    show = ["grep", "SigBlk", "/proc/self/status"]  # a shell would unblock signals
    done = attempt.launch("container", "--deaf", "--", *show)
    blocked = int(done.stdout.split()[1], 16)
    assert [number for number in (15, 2, 10, 17) if blocked >> (number - 1) & 1] == [15, 2, 10]


def test_the_environment_of_a_container_is_its_own(attempt: Attempt) -> None:
    done = attempt.launch("container", "--deaf", "--", "sh", "-c", "echo ${HPCRUN_CONTAINER-none}")
    assert done.stdout == "none\n"
