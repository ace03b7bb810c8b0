"""When a job's GPUs are idle: from the samples of its nodes; and what is not known never ends a
job.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcrun.in_job.launch import records
from hpcrun.in_job.launch.per_job import idle_watch
from hpcrun.in_job.launch.per_job.idle_watch import IdleWatch, idle_seconds, span
from hpcrun.in_job.launch.sampler import line
from hpcrun.runs.use_samples import IDLE

HEAD = '{"started": 1000.0, "cpus": 4, "memory_limit": null}\n'


def samples(busy: Sequence[Sequence[float]]) -> str:
    """A node's file with a sample every ten seconds, each with the busy shares of its GPUs."""
    rows = [
        line(
            1010 + 10 * place,
            1,
            1,
            1,
            None,
            [(index, share, 1, 1, None) for index, share in enumerate(shares)],
        )
        for place, shares in enumerate(busy)
    ]
    return HEAD + "".join(rows)


def test_for_how_long_a_node_is_idle(subtests: pytest.Subtests) -> None:
    for text, idle_s in (
        (samples([[0.0], [0.0], [0.0]]), 30),
        (samples([[0.5], [0.0], [0.0]]), 20),
        (samples([[0.5, 0.0], [0.01, 0.0], [0.0, 0.0]]), 20),
        (samples([[0.0, 0.0], [0.0, 0.0], [0.0, 0.4]]), 0),
        (samples([[0.0], [], [0.0]]), 10),  # nvidia-smi did not respond
        (samples([[0.0], [0.0], []]), None),
        (samples([[0.5], [0.0]]) + '{"time": 1030.00, "cpus": 1.00, "mem', 10),
        (samples([[0.5], [0.0]]) + "\0\0\0\n[]\n7\n", 10),
        (HEAD, None),
        ("nonsense\n", None),
    ):
        with subtests.test(text=text):
            assert idle_seconds(text, 1000) == idle_s
            assert idle_seconds(samples([[0.0], [0.0]]), 1025) is None  # old samples
            assert idle_watch.BUSY == IDLE  # status and the job agree


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1800, "30 min"), (5400, "1 h 30 min"), (7200, "2 h"), (45, "45 s"), (90, "1 min 30 s")],
)
def test_a_time_in_words(seconds: float, words: str) -> None:
    assert span(seconds) == words


class Site:
    """Nodes of a job, at a time that passes when a test says so.

    Attributes:
        busy_at: node → when its GPU was last busy.
        frozen_at: node → when it wrote its last sample.
        reads: the nodes whose samples were read.
    """

    def __init__(self) -> None:
        self.began = self.now = 1_000_000.0
        self.busy_at: dict[str, float] = {}
        self.frozen_at: dict[str, float] = {}
        self.without_gpus: set[str] = set()
        self.reads: list[str] = []

    def text(self, name: str) -> str:
        """The samples of a node."""
        node = name.removeprefix("node-").removesuffix(".use")
        self.reads.append(node)
        if node not in self.busy_at:
            return ""
        now, busy_at = self.frozen_at.get(node, self.now), self.busy_at[node]
        rows = [(busy_at - 10, 0.9), (busy_at, 0.9), ((busy_at + now) / 2, 0.0), (now, 0.0)]
        known = [(at, busy) for at, busy in rows if at <= busy_at or busy_at < now]
        found = {
            at: [] if node in self.without_gpus else [(0, busy, 1, 1, None)] for at, busy in known
        }
        return HEAD + "".join(line(at, 1, 1, 1, None, gpus) for at, gpus in found.items())


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    site = Site()
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    monkeypatch.setattr(time, "monotonic", lambda: site.now)
    monkeypatch.setattr(time, "time", lambda: site.now)
    monkeypatch.setattr(records, "read_text", site.text)
    return site


def test_a_busy_job_costs_one_read_per_limit(site: Site) -> None:
    hosts = [f"n{number}" for number in range(64)]
    site.busy_at = dict.fromkeys(hosts, site.now - 5000)
    watch = IdleWatch(1800, 10, hosts)
    while site.now < site.began + 6 * 3600:
        site.now += 10
        site.busy_at["n63"] = site.now
        assert not watch.check()
    assert len(site.reads) < 64 + 6 * 3600 / 1500
    assert set(site.reads[64:]) == {"n63"}  # it is asked first from then on


def test_it_is_warned_first_and_then_ended(
    tmp_path: Path, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = IdleWatch(1800, 10, ["a", "b"])
    site.busy_at = {"a": site.now, "b": site.now}
    warned_at = ended_at = 0.0
    while not ended_at:
        site.now += 10
        ended_at = site.now if watch.check() else 0.0
        warned_at = warned_at or (site.now if (tmp_path / "idle").exists() else 0.0)
    assert 1500 <= warned_at - site.began < 1600
    assert 1800 <= ended_at - site.began < 1900
    assert watch.message == "cancelled: its GPUs were idle for 30 min"
    assert capsys.readouterr().err == (
        "hpcrun: all GPUs have been idle for 25 min: the job ends in 5 min if they stay idle\n"
    )


@pytest.mark.parametrize("hosts", [["a", "b"], ["b", "a"]])
def test_the_node_that_is_idle_for_the_shortest_time_decides(
    site: Site, capsys: pytest.CaptureFixture[str], hosts: list[str]
) -> None:
    watch = IdleWatch(1800, 10, hosts)
    site.busy_at = {"a": site.now, "b": site.now - 1200}
    site.now += 1500
    assert not watch.check()
    warning = "all GPUs have been idle for 25 min: the job ends in 5 min if they stay idle"
    assert capsys.readouterr().err == f"hpcrun: {warning}\n"
    site.now += 290
    assert not watch.check()


def test_a_job_that_becomes_busy_after_the_warning_continues(
    tmp_path: Path, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = IdleWatch(1800, 10, ["a"])
    site.busy_at = {"a": site.now}
    site.now += 1700
    assert not watch.check()
    assert (tmp_path / "idle").exists()
    site.now += 300
    site.busy_at["a"] = site.now
    assert not watch.check()
    assert not (tmp_path / "idle").exists()
    assert capsys.readouterr().err.endswith("hpcrun: the GPUs are busy again: the job continues\n")
    site.now += 1600
    assert not watch.check()
    assert (tmp_path / "idle").exists()


def test_a_warning_comes_first_even_if_the_limit_has_passed(site: Site) -> None:
    """The shared file system was away for an hour."""
    watch = IdleWatch(1800, 10, ["a"])
    site.busy_at = {"a": site.now}
    site.now += 3600
    assert not watch.check()
    site.now += 200
    assert not watch.check()
    site.now += 200
    assert watch.check()


def test_the_next_look_is_when_the_limit_could_be_near(tmp_path: Path, site: Site) -> None:
    """The GPU was busy for the first hundred seconds only: so the warning comes a hundred seconds
    later.
    """
    watch = IdleWatch(1800, 10, ["a"])
    site.busy_at = {"a": site.now + 100}
    while not (tmp_path / "idle").exists():
        site.now += 10
        assert not watch.check()
        assert site.now <= site.began + 1600
    assert site.now == site.began + 1600
    assert len(site.reads) == 2


def test_samples_that_are_late_do_not_end_the_job_before_they_show_the_limit(site: Site) -> None:
    watch = IdleWatch(1800, 10, ["a"])
    site.busy_at = {"a": site.now}
    site.now += 1500
    assert not watch.check()  # the warning
    site.frozen_at = {"a": site.now + 150}
    site.now += 300
    assert not watch.check()  # the newest sample is from 1650 s
    site.frozen_at = {}
    site.now += 10
    assert watch.check()
    assert watch.message == "cancelled: its GPUs were idle for 30 min"


@pytest.mark.parametrize("missing", ["no file", "old", "no gpus"])
def test_a_node_of_which_nothing_is_known_keeps_the_job(
    tmp_path: Path, site: Site, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = IdleWatch(1800, 10, ["a", "b"])
    site.busy_at = {"a": site.now, **({} if missing == "no file" else {"b": site.now})}
    site.frozen_at = {"b": site.now} if missing == "old" else {}
    site.without_gpus = {"b"} if missing == "no gpus" else set()
    for _ in range(1000):
        site.now += 10
        assert not watch.check()
    assert not (tmp_path / "idle").exists()
    assert '"b"' in (tmp_path / "idle-unknown").read_text()
    assert capsys.readouterr().err == (
        "hpcrun: b reports no use of its GPUs (nvidia-smi): --cancel-idle has no effect until it "
        "does\n"
    )
    site.busy_at, site.frozen_at, site.without_gpus = {"a": site.now, "b": site.now}, {}, set()
    site.now += 1700
    assert not watch.check()
    assert not (tmp_path / "idle-unknown").exists()
