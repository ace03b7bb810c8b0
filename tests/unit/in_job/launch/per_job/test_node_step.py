"""What a node of a step obeys that waits for its turn or for the last word of the head node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.in_job.launch.per_job.node_step import NodeLine, NodeStep

WAITS = "from hpcrun.in_job.launch.per_job import node_step; print(repr(node_step.{}()))"


def answer(function: str, head: str, job_id: str = "7") -> str:
    """What the third node learns from what the head node writes; empty if the node ends."""
    env = {"HPCRUN_JOB_ID": job_id, "SLURM_PROCID": "2"}
    argv = [sys.executable, "-c", WAITS.format(function)]
    done = subprocess.run(argv, input=head, env=env, text=True, stdout=subprocess.PIPE, timeout=60)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("head", "word"),
    [
        pytest.param("1\n3\n", "''", id="its turn"),
        pytest.param("1\n2\nempty\n", "'empty'", id="the last word before its turn"),
        pytest.param("1\n2\n", "", id="the head node has ended"),
    ],
)
def test_a_node_works_at_its_turn_unless_the_last_word_comes_first(head: str, word: str) -> None:
    assert answer("wait_for_turn", head) == word


def test_this_machine_is_the_first_node() -> None:
    assert answer("wait_for_turn", "1\n", "L7") == "''"


@pytest.mark.parametrize(
    ("head", "word"),
    [
        pytest.param("4\n5\nuse\n", "'use'", id="after the turns of other nodes"),
        pytest.param("4\n", "", id="the head node has ended"),
    ],
)
def test_a_node_obeys_the_last_word(head: str, word: str) -> None:
    assert answer("wait_for_last_word", head) == word


def test_a_line_for_the_head_node_has_no_line_break_and_no_byte_of_a_name() -> None:
    program = "from hpcrun.in_job.launch.per_job import node_step; node_step.tell('note', {!a})"
    tell = program.format("a\nb\udcff")
    env = {"SLURMD_NODENAME": "node-1"}
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", tell], env=env, stdout=subprocess.PIPE, timeout=60
    )
    assert done.stdout == b"node-1 note a b?\n"


def test_lines_that_no_node_has_written_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TaskProlog can print to a task's stdout."""
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\necho welcome\necho welcome to this site\necho node-1 done 5 MB\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("HPCRUN_JOB_ID", "7")
    with NodeStep(["node-1"], ["stage"]) as step:
        assert list(step.reports()) == [NodeLine("node-1", "done", "5 MB")]
        assert (step.done, step.wait()) == (1, 0)
