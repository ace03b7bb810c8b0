"""The samples of the hardware: what a job writes is read, and nothing else that lies there does
harm.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.in_job.launch.sampler import line
from hpcrun.job.run_paths import AttemptFolder
from hpcrun.runs.use_samples import (
    GpuUse,
    NodeUse,
    UseSample,
    UseSummary,
    idle_unknown,
    idle_warning,
    mean_over_time,
    only_gpu,
    read_use,
    summarise,
)

BAD = '{"time": 115, "cpus": %s, "memory": %s, "network": 1, "rdma": null, "gpus": %s}\n'
GPU = (0, 0.5, 1 << 30, 80 << 30, 300.0)


def written(folder: Path, text: str, node: str = "gpu-1") -> AttemptFolder:
    (folder / f"node-{node}.use").write_text(text)
    return AttemptFolder(folder)


def head(started: float = 100.0) -> str:
    return json.dumps({"started": started, "cpus": 8, "memory_limit": 16 << 30}) + "\n"


def sample(
    at: float, cpus: float = 2.0, busy: float | None = 0.5, memory: int = 1 << 30
) -> UseSample:
    gpus = () if busy is None else (GpuUse(0, busy, 1 << 30, 80 << 30, 300.0),)
    return UseSample(at, cpus, memory, 1000.0, None, gpus)


def summary(*uses: NodeUse) -> UseSummary:
    summary = summarise(uses)
    assert summary is not None
    return summary


def test_what_the_job_writes_is_read_and_a_run_without_samples_has_none(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("gpu-2\ngpu-1\n")
    written(
        tmp_path,
        head() + line(110, 2.5, 1 << 30, 1000, None, [GPU]) + line(120, 3, 2 << 30, 0, 5e9, []),
    )
    folder = written(tmp_path, head(), "gpu-2")
    first, second = read_use(folder)
    assert first.node == "gpu-2"
    assert first.samples == ()
    assert second.cpus == 8
    assert second.memory_limit == 16 << 30
    assert second.spans() == [10, 10]
    assert second.samples[0] == UseSample(
        110, 2.5, 1 << 30, 1000, None, (GpuUse(0, 0.5, 1 << 30, 80 << 30, 300),)
    )
    assert second.samples[1].rdma == 5e9
    assert second.samples[1].gpus == ()
    assert read_use(AttemptFolder(tmp_path / "missing")) == ()
    assert summarise([NodeUse("a", 4, None, ())]) is None


def test_a_damaged_line_is_left_out(tmp_path: Path, subtests: pytest.Subtests) -> None:
    good = [line(at, 1, 1, 1, None, []) * 2 for at in (110, 120)]  # written twice, counted once
    for bad in (
        '{"time": 115, "cpus": 1, "mem\n',  # the node died while it wrote
        "\0\xff\n",
        "[1, 2]\n",
        '{"time": 1e400}\n',
        '{"started": 5, "cpus": "many"}\n',
        "[" * 100_000 + "\n",
        BAD % ("NaN", "1", "[]"),
        BAD % ("-1", "1", "[]"),
        BAD % ("1", "1e9999", "[]"),
        BAD % ("1", "1", "7"),
        BAD % ("1", "1", '[[0, "a", 1, 1, 1]]'),
        BAD % ("1", "1", "[[0, 1]]"),
    ):
        with subtests.test(bad=bad):
            (use,) = read_use(written(tmp_path, head() + good[0] + bad + good[1]))
            assert [each.time for each in use.samples] == [110, 120], bad
            assert use.cpus == 8


def test_only_a_regular_file_of_a_sensible_size_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "node-fifo.use")
    (tmp_path / "node-link.use").symlink_to("/dev/zero")
    (tmp_path / "node-folder.use").mkdir()
    with (tmp_path / "node-large.use").open("w") as file:
        file.write(head())
        file.truncate(1 << 40)
    assert [(use.node, len(use.samples)) for use in read_use(AttemptFolder(tmp_path))] == [
        ("large", 0)
    ]


@given(st.binary(max_size=300))
def test_no_bytes_raise(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("use")
    (folder / "node-a.use").write_bytes(data)
    assert len(read_use(AttemptFolder(folder))) == 1


def test_the_summary_weighs_samples_by_their_time_and_counts_all_attempts() -> None:
    one = NodeUse(
        "a",
        8,
        16 << 30,
        (sample(110, cpus=1, busy=0.0), sample(140, cpus=5, busy=0.8)),
        started=100,
    )
    result = summary(one)
    assert result.seconds == 40
    assert result.nodes == 1
    assert result.gpus == 1
    assert result.cpus == 4
    assert result.cpus_peak == 5
    assert result.cpus_asked == 8
    assert result.gpu_busy == 0.6
    assert result.gpu_idle == 0.25
    assert result.idle_cpus == 1
    first = NodeUse("a", 8, 16 << 30, (sample(110, busy=None, memory=3 << 30),), started=100)
    second = NodeUse("a", 8, 16 << 30, (sample(520, busy=None),), started=500)
    other = NodeUse("b", 4, 8 << 30, (sample(520, busy=None),), started=500)
    result = summary(first, second, other)
    assert result.seconds == 30
    assert result.nodes == 2
    assert result.memory_peak == 3 << 30
    assert result.cpus_asked == 4
    assert result.memory_asked == 8 << 30
    assert result.gpus == 0
    assert result.gpu_busy is None
    assert result.gpu_idle is None
    assert result.gpu_memory is None


def test_the_seconds_of_attempts_on_different_nodes_add_up() -> None:
    first = NodeUse("a", 8, None, (sample(110), sample(120)), started=100)
    second = NodeUse("b", 8, None, (sample(530),), started=500)
    assert summary(first, second).seconds == 50


def test_the_time_between_two_attempts_on_a_node_is_not_sampled() -> None:
    first = NodeUse("a", 8, None, (sample(110),), started=100)
    second = NodeUse("a", 8, None, (sample(530),), started=500)
    assert summary(second, first).seconds == 40


def test_seconds_that_several_nodes_sampled_count_once() -> None:
    long = NodeUse("a", 8, None, (sample(160),), started=100)
    within = NodeUse("b", 8, None, (sample(130),), started=120)
    longer = NodeUse("c", 8, None, (sample(170),), started=150)
    assert summary(long, within, longer).seconds == 70


def test_samples_without_a_start_count_from_the_first_of_them() -> None:
    unknown = NodeUse("a", 8, None, (sample(110), sample(125)))
    assert summary(unknown).seconds == 15


def test_the_cpus_count_as_those_of_idle_gpus_only_while_all_gpus_of_the_node_are_idle() -> None:
    def both(at: float, cpus: float, first: float, second: float) -> UseSample:
        gpus = tuple(GpuUse(index, busy, 1, 1, None) for index, busy in enumerate((first, second)))
        return UseSample(at, cpus, 1, 0.0, None, gpus)

    samples = (both(110, 7, 0.0, 0.9), both(120, 2, 0.0, 0.0), both(130, 7, 0.9, 0.9))
    result = summary(NodeUse("a", 8, None, samples, started=100))
    assert result.idle_cpus == 2
    assert result.gpu_idle == 0.5


NUMBERS: dict[str, object] = {
    "time": 110,
    "cpus": 1,
    "memory": 1,
    "network": 1,
    "rdma": None,
    "gpus": [],
}


def cpus_read(folder: Path, value: float) -> list[float]:
    text = head() + json.dumps({**NUMBERS, "cpus": value}) + "\n"
    (use,) = read_use(written(folder, text))
    return [each.cpus for each in use.samples]


def test_an_amount_is_below_a_quadrillion(tmp_path: Path) -> None:
    assert cpus_read(tmp_path, 9.9e14) == [9.9e14]
    assert cpus_read(tmp_path, 1e15) == []
    assert cpus_read(tmp_path, 0) == [0]
    assert cpus_read(tmp_path, -0.1) == []


@pytest.mark.parametrize(
    ("place", "most"),
    [(0, 10**6), (2, 1 << 60), (3, 1 << 60)],
    ids=["index", "memory used", "memory"],
)
def test_a_number_of_a_gpu_has_its_limits(tmp_path: Path, place: int, most: int) -> None:
    text = head()
    for at, value in enumerate((-1, 0, most, most + 1), start=110):
        gpu = [0, 0.5, 1, 1, 300.0]
        gpu[place] = value
        text += json.dumps({**NUMBERS, "time": at, "gpus": [gpu]}) + "\n"
    (use,) = read_use(written(tmp_path, text))
    assert [each.time for each in use.samples] == [111, 112]


def test_a_node_has_at_most_256_gpus(tmp_path: Path) -> None:
    text = head()
    for at, count in ((110, 256), (120, 257)):
        gpus = [[index, 0.5, 1, 1, 300.0] for index in range(count)]
        text += json.dumps({**NUMBERS, "time": at, "gpus": gpus}) + "\n"
    (use,) = read_use(written(tmp_path, text))
    assert [each.time for each in use.samples] == [110]


@pytest.mark.parametrize(("cpus", "read"), [(0, None), (1, 1), (10**6, 10**6), (10**6 + 1, None)])
def test_a_node_has_at_least_one_cpu(tmp_path: Path, cpus: int, read: int | None) -> None:
    text = json.dumps({"started": 100.0, "cpus": cpus}) + "\n"
    (use,) = read_use(written(tmp_path, text))
    assert use.cpus == read


def test_a_gpu_is_never_busier_than_whole(tmp_path: Path) -> None:
    text = head() + line(110, 1, 1, 1, None, [(0, 1.2, 1, 1, None)])
    (use,) = read_use(written(tmp_path, text))
    assert use.samples[0].gpus[0].busy == 1.0


def test_the_summary_has_the_peaks_of_gpus_and_the_means_of_the_network() -> None:
    first = GpuUse(0, 0.0, 20, 80, 100.0)
    second = GpuUse(1, 0.5, 60, 80, None)
    samples = (
        UseSample(110, 1, 1, 300.0, 10.0, (first, second)),
        UseSample(140, 1, 1, 100.0, 50.0, (first, second)),
    )
    result = summary(NodeUse("a", 8, None, samples, started=100))
    assert result.gpus == 2
    assert result.gpus_unused == 1
    assert result.gpu_memory == 0.75
    assert result.watts == 100
    assert result.network == 150
    assert result.rdma == 40


def test_a_gpu_without_a_known_memory_has_no_share() -> None:
    samples = (UseSample(110, 1, 1, 1.0, None, (GpuUse(0, 0.5, 20, 0, None),)),)
    result = summary(NodeUse("a", 8, None, samples, started=100))
    assert result.gpu_memory is None
    assert result.watts is None


def test_the_samples_of_one_gpu_are_those_that_have_it() -> None:
    own = GpuUse(1, 0.5, 1, 1, None)
    both = UseSample(110, 1, 1, 1.0, None, (GpuUse(0, 0.9, 1, 1, None), own))
    without = UseSample(120, 1, 1, 1.0, None, ())
    (sample,) = only_gpu(NodeUse("a", 8, None, (both, without)), 1).samples
    assert sample.time == 110
    assert sample.gpus == (own,)


@pytest.mark.parametrize(
    ("pairs", "mean"), [([], None), ([(0, 2.0), (0, 4.0)], 3.0), ([(1, 2.0), (3, 6.0)], 5.0)]
)
def test_a_mean_over_time_weighs_by_seconds(
    pairs: list[tuple[float, float]], mean: float | None
) -> None:
    assert mean_over_time(pairs) == mean


def test_the_warning_of_idle_gpus_needs_all_its_times(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    assert idle_warning(folder) is None
    folder.idle.write_text('{"since": 10, "warned": 20}')
    assert idle_warning(folder) is None
    folder.idle.write_text('{"since": 10, "warned": 20, "ends": 30}')
    warning = idle_warning(folder)
    assert warning is not None
    assert (warning.since, warning.warned, warning.ends) == (10, 20, 30)


@pytest.mark.parametrize(
    ("text", "node"), [("{", None), ('{"node": 3}', None), ('{"node": "a"}', "a")]
)
def test_the_node_without_samples_is_named(tmp_path: Path, text: str, node: str | None) -> None:
    folder = AttemptFolder(tmp_path)
    assert idle_unknown(folder) is None
    folder.idle_unknown.write_text(text)
    assert idle_unknown(folder) == node
