"""The nodes of a job: which run the step, which replace failed ones, and what srun is told."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from hpcrun.in_job.launch import slurm_requests
from hpcrun.in_job.launch.per_job.job_arguments import parse_options
from hpcrun.in_job.launch.per_job.job_nodes import JobNodes, ask_nodes
from hpcrun.in_job.launch.slurm_requests import JobSays


def of_job(monkeypatch: pytest.MonkeyPatch, *options: str, nodes: str = "n[1-4]") -> JobNodes:
    """Return the nodes of a job of Slurm, with those of its first step chosen."""
    monkeypatch.setenv("SLURM_JOB_NODELIST", nodes)
    monkeypatch.setenv("SLURM_GPUS", "8")
    chosen = JobNodes(parse_options([*options]))
    chosen.set_hosts()
    return chosen


@pytest.mark.parametrize(
    ("options", "hosts", "gpus"),
    [
        pytest.param((), ["n1", "n2", "n3", "n4"], "8", id="all"),
        pytest.param(("--spares", "1"), ["n1", "n2", "n3"], None, id="a spare"),
        pytest.param(("--nodes", "2"), ["local-0", "local-1"], "8", id="local"),
        pytest.param(("--nodes", "1", "--within", "n9"), ["n9"], "8", id="element of a pack"),
    ],
)
def test_the_step_has_the_nodes_without_the_spares(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], hosts: list[str], gpus: str | None
) -> None:
    nodes = of_job(monkeypatch, *options)
    assert nodes.hosts == hosts
    assert nodes.script_host == hosts[0]
    assert os.environ.get("SLURM_GPUS") == gpus


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes are well, and start a step."""
    monkeypatch.setattr(slurm_requests, "nodes_dead", lambda nodes: dict.fromkeys(nodes, False))
    monkeypatch.setattr(slurm_requests, "starts_step", lambda _: True)


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(
    ("left_out", "last_resort", "hosts"),
    [
        pytest.param(["n2"], [], ["n1", "n3", "n4"], id="a spare"),
        pytest.param(["n2", "n3"], [], None, id="too few"),
        pytest.param(["n2", "n3"], ["n3"], ["n1", "n3", "n4"], id="rather than too few"),
        pytest.param(["n2", "n3"], ["n4"], None, id="not the last resort"),
    ],
)
def test_a_spare_replaces_a_node_that_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
    left_out: list[str],
    last_resort: list[str],
    hosts: list[str] | None,
) -> None:
    nodes = of_job(monkeypatch, "--spares", "1")
    nodes.left_out = left_out
    all_nodes = ["n1", "n2", "n3", "n4"]
    assert nodes.set_restart_hosts(all_nodes, last_resort) == (hosts is not None)
    assert nodes.hosts == (hosts or ["n1", "n2", "n3"])
    nodes.set_hosts()
    assert nodes.hosts == (hosts or ["n1", "n2", "n3"])


def test_the_guard_is_not_on_the_node_that_it_watches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = of_job(monkeypatch, "--spares", "1")
    nodes.left_out = ["n2"]
    assert nodes.guard_hosts() == ["n3", "n4"]


@pytest.mark.parametrize(
    ("options", "is_restart", "command"),
    [
        pytest.param((), False, ["srun", "x"], id="all nodes"),
        pytest.param((), True, ["srun", "--nodelist=n1,n2", "--overlap", "x"], id="restart"),
        pytest.param(
            ("--spares", "1"), False, ["srun", "--nodelist=n1", "--overlap", "x"], id="spares"
        ),
        pytest.param(("--script",), True, ["srun", "x"], id="script"),
        pytest.param(("--nodes", "2"), True, ["srun", "x"], id="local"),
    ],
)
def test_srun_is_told_its_nodes_if_they_are_not_all(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], is_restart: bool, command: list[str]
) -> None:
    nodes = of_job(monkeypatch, *options, nodes="n[1-2]")
    assert nodes.place(["srun", "x"], is_restart=is_restart) == command


@pytest.mark.parametrize(
    ("answers", "expected", "waited_s"),
    [
        pytest.param([JobSays("RUNNING", nodes="n[1-2]")], (["n1", "n2"], ""), 0, id="running"),
        pytest.param(
            [JobSays("RUNNING", restarts=2, nodes="n1")],
            ([], "Slurm has requeued the job"),
            0,
            id="requeued",
        ),
        pytest.param(
            [JobSays("RUNNING", restarts=1, nodes="n1")], (["n1"], ""), 0, id="requeued before"
        ),
        pytest.param(
            [JobSays("COMPLETING", nodes="n1")],
            ([], "Slurm reports the job as COMPLETING"),
            0,
            id="ended",
        ),
        pytest.param(
            [JobSays(), JobSays("RUNNING", nodes="n1")], (["n1"], ""), 1, id="the second time"
        ),
        pytest.param([JobSays()] * 9, ([], "Slurm does not respond"), 15, id="never"),
    ],
)
def test_slurm_is_asked_for_the_nodes_of_the_job(
    monkeypatch: pytest.MonkeyPatch,
    answers: list[JobSays],
    expected: tuple[list[str], str],
    waited_s: int,
) -> None:
    given: Iterator[JobSays] = iter(answers)
    pauses: list[float] = []
    monkeypatch.setattr(slurm_requests, "job", lambda: next(given))
    monkeypatch.setattr(time, "sleep", pauses.append)
    assert ask_nodes(1) == expected
    assert sum(pauses) == waited_s


def test_a_job_without_options_continues_in_no_way() -> None:
    options = parse_options([])
    assert (options.requeue, options.restarts, options.spares, options.keep) == (0, 0, 0, 0)
    assert (options.is_managed, options.is_local, options.in_slurm) == (False, False, True)
    assert (options.sample_s, options.cancel_idle, options.warm, options.stage) == (10, 0, "", [])


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        pytest.param(["--grace", "0"], (True, False, True), id="managed"),
        pytest.param(["--nodes", "1"], (False, True, False), id="local"),
        pytest.param(["--nodes", "1", "--within", "n1"], (False, True, True), id="in a pack"),
    ],
)
def test_what_follows_from_the_options(words: list[str], facts: tuple[bool, bool, bool]) -> None:
    options = parse_options(words)
    assert (options.is_managed, options.is_local, options.in_slurm) == facts


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        (["--sample", "20"], 20),
        (["--sample", "20", "--cancel-idle", "100"], 10),
        (["--sample", "20", "--cancel-idle", "900"], 20),
    ],
)
def test_a_short_limit_on_idle_gpus_needs_samples_sooner(words: list[str], seconds: float) -> None:
    assert parse_options(words).sample_s == seconds
