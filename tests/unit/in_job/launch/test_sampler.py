"""The sampler of a node: what it reads of the kernel and of nvidia-smi, and how its file stays
small.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcrun.in_job.launch import sample_gpus, sampler
from hpcrun.in_job.launch.rank_environment import SAMPLE
from hpcrun.in_job.launch.sample_gpus import Gpus, parse
from hpcrun.in_job.launch.sample_node import Cgroup, Traffic, allocated, use_of_processes
from hpcrun.job.run_paths import AttemptFolder
from hpcrun.runs.use_samples import read_use
from tests.unit.builders import write


def test_the_cgroup_of_the_job_version_2_or_none(tmp_path: Path) -> None:
    job = tmp_path / "system.slice/slurmstepd.scope/job_12"
    write(job / "cpu.stat", "usage_usec 2500000\nuser_usec 1\n")
    write(job / "memory.stat", "anon 1000\nfile 999999\nshmem 200\nkernel_stack 30\n")
    write(job / "memory.max", "16000\n")
    found = Cgroup("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n", str(tmp_path))
    assert found.cpu_s() == 2.5
    assert found.memory_used() == 1230
    assert found.memory_limit() == 16000
    write(job / "memory.max", "max\n")
    assert found.memory_limit() is None
    none = Cgroup("0::/user.slice/user-1000.slice/session-3.scope\n", str(tmp_path))
    assert none.cpu_s() is None
    assert none.memory_used() is None
    assert none.memory_limit() is None
    write(tmp_path / "job_13/cpu.stat", "usage_usec 1000000\n")
    only_cpu = Cgroup("0::/job_13/step_0\n", str(tmp_path))
    assert only_cpu.cpu_s() == 1.0
    assert only_cpu.memory_used() is None


def test_the_cgroup_of_the_job_version_1(tmp_path: Path) -> None:
    path = "slurm/uid_1000/job_12"
    write(tmp_path / "cpu,cpuacct" / path / "cpuacct.usage", "2500000000\n")
    write(
        tmp_path / "memory" / path / "memory.stat",
        "rss 5\ntotal_rss 1000\ntotal_shmem 200\ntotal_cache 9999\n",
    )
    write(tmp_path / "memory" / path / "memory.limit_in_bytes", f"{(1 << 63) - 4096}\n")
    text = (
        f"4:cpu,cpuacct:/{path}/step_0/task_0\n3:memory:/{path}/step_0\n"
        "1:name=systemd:/\n0::/user.slice\n"
    )
    found = Cgroup(text, str(tmp_path))
    assert found.cpu_s() == 2.5
    assert found.memory_used() == 1200
    assert found.memory_limit() is None


def test_descendants_count_with_their_ended_children_and_a_gone_process_as_nothing() -> None:
    text = (
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'sum(range(20_000_000))'])\n"
    )
    text += (
        "child = subprocess.Popen([sys.executable, '-c', \"x = b'1' * (64 << 20); print('up', "
        "flush=True); "
    )
    text += 'input()"], stdin=subprocess.PIPE)\nchild.wait()\n'
    argv, pipe = [sys.executable, "-c", text], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        cpu_s, memory = use_of_processes([process.pid])
        process.kill()
    assert cpu_s > 0.1
    assert 64 << 20 < memory < 1 << 30
    assert use_of_processes([process.pid]) == (0.0, 0)


NET = """Inter-|   Receive               |  Transmit
 face |bytes    packets errs ... |bytes    packets errs ...
    lo: 999999 1 0 0 0 0 0 0 999999 1 0 0 0 0 0 0
  eth0: 1000 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0
 bond0: 1000 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0
"""


def test_the_network_without_lo_and_with_rdma(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/net/dev", NET)
    assert Traffic(str(tmp_path / "proc"), str(tmp_path / "sys")).read() == (2040, None)
    (tmp_path / "sys/class/net/eth0/device").mkdir(parents=True)  # bond0 stands for it
    for port, name, value in (
        (1, "port_rcv_data", "10"),
        (1, "port_xmit_data", "5"),
        (2, "port_rcv_data", "N/A"),
    ):
        write(tmp_path / f"sys/class/infiniband/mlx5_0/ports/{port}/counters/{name}", f"{value}\n")
    assert Traffic(str(tmp_path / "proc"), str(tmp_path / "sys")).read() == (1020, 60)
    assert Traffic(str(tmp_path / "none"), str(tmp_path / "none")).read() == (0, None)


@pytest.mark.parametrize(
    "line",
    ["eth0: 1 2 3", "eth0: 1 2 3 4 5 6 7 8", "eth0: 1 2 3 4 5 6 7 8 x", "eth0: x 2 3 4 5 6 7 8 9"],
)
def test_an_interface_without_its_counters_is_left_out(tmp_path: Path, line: str) -> None:
    write(tmp_path / "proc/self/net/dev", f"{line}\neth1: 1 2 3 4 5 6 7 8 9\n")
    assert Traffic(str(tmp_path / "proc"), str(tmp_path / "sys")).read() == (10, None)


def test_what_is_allocated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    none = Cgroup("", str(tmp_path))
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "6")
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "1024")
    monkeypatch.delenv("SLURM_MEM_PER_NODE", raising=False)
    assert allocated(none) == (6, 6 << 30)
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "4096")
    assert allocated(none) == (6, 4 << 30)
    for name in ("SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU"):
        monkeypatch.delenv(name, raising=False)
    assert allocated(none) == (len(os.sched_getaffinity(0)), None)


def test_a_line_of_nvidia_smi(subtests: pytest.Subtests) -> None:
    for text, reading in (
        ("0, 97, 40536, 81559, 401.20", (0, 0.97, 40536 << 20, 81559 << 20, 401.2)),
        ("7, 0, 0, 81559, [N/A]", (7, 0.0, 0, 81559 << 20, None)),
        ("0, [N/A], 40536, 81559, 401.20", None),  # MIG
        ("0, nan, 1, 1, 1", None),
        ("Unable to determine the device handle for GPU0000:C1:00.0: Unknown Error", None),
        ("", None),
    ):
        with subtests.test(text=text):
            assert parse(text) == reading


@pytest.mark.parametrize(
    ("env", "chosen"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": ""}, None),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles", "SLURM_JOB_GPUS": "0"}, None),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, ["-i", "2,3"]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1"}, []),
        ({"SLURM_GPUS_ON_NODE": "4"}, []),
        ({"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": ""}, None),
    ],
)
def test_only_the_gpus_of_the_job(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], chosen: list[str]
) -> None:
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    command = sample_gpus.query(10)
    assert (
        command == [] if chosen is None else command[: 1 + len(chosen)] == ["nvidia-smi", *chosen]
    )
    assert chosen is None or command[-1] == "--loop-ms=10000"


def stand_in(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a stand-in for nvidia-smi on PATH."""
    write(folder / "nvidia-smi", f"#!/bin/bash\n{body}\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")


def first_reading(gpus: Gpus) -> list[sample_gpus.Reading]:
    deadline = time.monotonic() + 10
    while not (found := gpus.read()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def has_ended(pid: int) -> bool:
    """Wait for the end of a child process, which was perhaps reaped already."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
        except ChildProcessError:
            return True
        time.sleep(0.01)
    return False


def test_one_nvidia_smi_reports_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "while :; do echo '0, 50, 1, 2, 3'; sleep 0.05; done", monkeypatch)
    gpus = Gpus(60)
    assert first_reading(gpus) == [(0, 0.5, 1 << 20, 2 << 20, 3.0)]
    assert gpus.read()  # the last values stand for some periods
    pid = gpus._pid
    gpus.end()
    assert has_ended(pid)


def test_an_nvidia_smi_that_ends_is_started_again_a_few_times_each_after_a_longer_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"now": 0}
    monkeypatch.setattr(sample_gpus, "time", SimpleNamespace(monotonic=lambda: float(clock["now"])))
    stand_in(tmp_path, f"echo start >>{tmp_path}/starts; exit 9", monkeypatch)
    gpus = Gpus(10)
    started = [0]
    for now in range(0, 3600, 10):
        clock["now"] = now
        if gpus._pid:
            assert has_ended(gpus._pid)
        assert gpus.read() == []
        if gpus._pid:
            started.append(now)
    gpus.end()
    assert started == [0, 60, 180, 360, 600]
    assert (
        (tmp_path / "starts").read_text().count("start") == len(started) == sample_gpus.MOST_STARTS
    )


def test_an_nvidia_smi_that_hangs_delays_nothing_and_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, f"trap '' TERM INT; echo >{tmp_path}/hangs; exec sleep 600", monkeypatch)
    gpus = Gpus(60)
    while not (tmp_path / "hangs").exists():
        assert gpus.read() == []
        time.sleep(0.01)
    assert gpus.read() == []  # it returns, although nothing was reported
    pid = gpus._pid
    gpus.end()
    assert has_ended(pid)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert Gpus(0.1).read() == []


def test_a_file_of_weeks_stays_small_and_keeps_the_means_and_the_peak(tmp_path: Path) -> None:
    path, samples = tmp_path / "node-a.use", 6000
    path.write_text('{"started": 1000.0, "cpus": 4, "memory_limit": null}\n')
    lines = 1
    for number in range(1, samples + 1):
        memory, busy = 9 if number == 700 else 1, float(number % 2)
        with path.open("a") as file:
            file.write(
                sampler.line(
                    1000 + number * 10, number % 4, memory, 5, None, [(0, busy, memory, 9, 100.0)]
                )
            )
        lines += 1
        if lines > sampler.MOST_LINES:
            lines = sampler.join(str(path))
            assert lines == len(path.read_text().splitlines())
            assert lines < sampler.MOST_LINES - 200
    (use,) = read_use(AttemptFolder(tmp_path))
    assert sum(use.spans()) == samples * 10
    assert [each.time for each in use.samples[-3:]] == [60980, 60990, 61000]
    assert max(use.spans()) < 200
    over_time = sum(span * each.cpus for span, each in zip(use.spans(), use.samples, strict=True))
    assert over_time / (samples * 10) == pytest.approx(1.5, abs=0.02)
    assert (
        max(each.memory for each in use.samples)
        == max(each.gpus[0].memory for each in use.samples)
        == 9
    )


def sampled(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    roots: Callable[[], list[int]] = lambda: [os.getpid()],
) -> sampler.Sampler:
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(folder))
    monkeypatch.setenv("HPCRUN_NODE", "a")
    monkeypatch.setenv(SAMPLE, "0.01")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return sampler.Sampler(roots)


def tick(this: sampler.Sampler, times: int) -> None:
    for _ in range(times):
        this._at = 0.0
        this.tick()


def at(monkeypatch: pytest.MonkeyPatch, **clocks: Callable[[], float]) -> None:
    """Give the sampler other clocks."""
    monkeypatch.setattr(sampler, "time", SimpleNamespace(**{**vars(time), **clocks}))


def test_the_first_sample_is_written_at_once_and_then_six_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    this, path = sampled(tmp_path, monkeypatch), tmp_path / "node-a.use"
    clock = count(1, 0.01)  # the period of this sampler
    at(monkeypatch, monotonic=lambda: next(clock))
    tick(this, 1)
    assert not path.exists()  # a rate needs two readings
    seen = []
    for _ in range(14):
        tick(this, 1)
        seen.append(len(path.read_text().splitlines()) - 1)
    assert seen == [1, 1, 1, 1, 1, 1, 7, 7, 7, 7, 7, 7, 13, 13]
    this.end()
    assert len(path.read_text().splitlines()) == 15
    assert "started" in json.loads(path.read_text().splitlines()[0])


def test_a_full_disk_is_reported_once_and_loses_the_oldest_samples_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, clock = tmp_path / "node-a.use", {"now": 0.0}
    path.symlink_to("/dev/full")
    monkeypatch.setattr(sampler, "MOST_UNWRITTEN", 12)  # each sample reads all processes
    this = sampled(tmp_path, monkeypatch)
    at(monkeypatch, monotonic=lambda: clock["now"], time=lambda: clock["now"])
    for number in range(31):
        clock["now"] = float(number)
        tick(this, 1)
    assert (
        capsys.readouterr().err
        == "hpcrun: cannot record the use of a: [Errno 28] No space left on device\n"
    )
    path.unlink()
    this.end()
    head, *rest = (json.loads(text) for text in path.read_text().splitlines() if text)
    assert "started" in head
    assert [sample["time"] for sample in rest] == [*range(19, 31)]


def test_the_past_of_a_process_that_is_found_late_is_no_use_of_more_cpus_than_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots: list[int] = []
    this = sampled(tmp_path, monkeypatch, lambda: roots)
    clock = count(1, 1e-6)  # in this time, no process can have used the CPU seconds of this one
    at(monkeypatch, monotonic=lambda: next(clock))
    tick(this, 1)
    roots.append(os.getpid())
    tick(this, 1)
    this.end()
    assert (
        json.loads((tmp_path / "node-a.use").read_text().splitlines()[1])["cpus"] == os.cpu_count()
    )


def test_another_process_of_the_node_goes_on_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        this = sampled(tmp_path, monkeypatch)
        tick(this, 4)
        this.end()
    text = (tmp_path / "node-a.use").read_text()
    assert text.count("started") == 1
    assert len(text.splitlines()) == 7


def test_an_error_ends_the_samples_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    this = sampled(tmp_path, monkeypatch)
    monkeypatch.setattr(sampler, "Traffic", None)
    tick(this, 1)
    this.tick()
    this.end()
    assert capsys.readouterr().err.count("is not recorded any more: TypeError") == 1


def test_expensive_samples_are_rare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    this = sampled(tmp_path, monkeypatch)
    clock = count(0, 2)  # each sample takes two seconds of CPU time
    monkeypatch.setattr(time, "process_time", lambda: float(next(clock)))
    tick(this, 4)
    assert this._at - time.monotonic() > 1000


@pytest.mark.parametrize(("period", "is_sampled"), [("0.5", True), ("10", True), ("0", False)])
def test_a_period_of_zero_takes_no_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, period: str, is_sampled: bool
) -> None:
    sampled(tmp_path, monkeypatch)
    monkeypatch.setenv(SAMPLE, period)
    this = sampler.Sampler(lambda: [os.getpid()])
    at(monkeypatch, monotonic=lambda: 5.0, process_time=lambda: 0.0)
    this.tick()
    this.end()
    assert (this._before is not None) == is_sampled
    assert this._at == (5 + float(period) if is_sampled else float("inf"))


def test_joined_samples_have_the_mean_use_and_the_most_memory() -> None:
    first = {"time": 10.0, "span": 10.0, "memory": 5, "cpus": 1.0, "network": 0, "rdma": None}
    second = {"time": 40.0, "span": 30.0, "memory": 4, "cpus": 2.0, "network": 8, "rdma": 6.0}
    group: list[dict[str, Any]] = [
        {**first, "gpus": [[0, 1.0, 50, 80, 300.0]]},
        {**second, "gpus": [[0, 0.2, 40, 81, None], [1, 0.5, 7, 80, 100.0]]},
    ]
    assert sampler._one(group) == {
        "time": 40.0,
        "memory": 5,
        "cpus": 1.75,
        "network": 6.0,
        "rdma": 6.0,
        "gpus": [[0, pytest.approx(0.4), 50, 81, 300.0], [1, 0.5, 7, 80, 100.0]],
    }


@pytest.mark.parametrize(
    ("readings", "network", "rdma"),
    [
        pytest.param([(100, 10), (300, 50)], 100, 20, id="both"),
        pytest.param([(100, None), (300, None)], 100, None, id="no device"),
        pytest.param([(100, None), (300, 50)], 100, None, id="a new device"),
        pytest.param([(300, 50), (100, 10)], 0, 0, id="counters begin again"),
    ],
)
def test_a_rate_is_the_difference_of_two_readings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    readings: list[tuple[int, int | None]],
    network: int,
    rdma: int | None,
) -> None:
    this = sampled(tmp_path, monkeypatch, list)
    clock = count(1, 2)
    at(monkeypatch, monotonic=lambda: next(clock))
    given = iter(readings)
    monkeypatch.setattr(Traffic, "read", lambda _: next(given))
    tick(this, 2)
    sample = json.loads((tmp_path / "node-a.use").read_text().splitlines()[1])
    assert (sample["network"], sample["rdma"]) == (network, rdma)
    this.end()
