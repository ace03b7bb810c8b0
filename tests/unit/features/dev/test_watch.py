"""The watch of an interactive job: when it counts as used, when it is warned, and when it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hpcrun.features.dev import hpcrun_dev_watch
from hpcrun.features.dev.hpcrun_dev_watch import (
    LIMIT,
    Watch,
    cpu_and_terminal,
    gpu_used_at,
    job_processes,
    last_samples,
    minutes,
    parse_time_left,
    read_json,
    terminal_of,
    time_left,
    write_json,
)

HOUR = 3600.0


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def time(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(hpcrun_dev_watch, "time", clock)
    return clock


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the attempt's folder of job 999777, of which Slurm knows no time limit."""
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "999777")
    squeue(tmp_path, monkeypatch, "UNLIMITED")
    return tmp_path


def squeue(folder: Path, monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    program = programs / "squeue"
    program.write_text(f'#!/bin/sh\necho "{left}"\necho "$*" >"{folder}/asked"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")


def step(watch: Watch, clock: Clock, seconds: float, connections: int = 0) -> bool:
    clock.now_s += seconds
    return watch.is_over(connections)


def test_an_unused_job_is_warned_and_ends(
    attempt: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = Watch(str(attempt), HOUR)
    assert not step(watch, clock, 2999)
    assert capsys.readouterr().out == ""
    assert not step(watch, clock, 16)
    assert capsys.readouterr().out == (
        "hpcrun: this job is unused since 50 min: it ends in 10 min. To keep it, use it, or: "
        "hpcrun dev 999777 --idle 3h\n"
    )
    record = read_json(str(attempt / "idle"))
    assert record["since"] == clock.now_s - 3015
    assert (record["warned"], record["ends"]) == (clock.now_s, clock.now_s + 600)
    assert not step(watch, clock, 599)
    assert step(watch, clock, 16)
    assert capsys.readouterr().out == "hpcrun: this job was unused for 60 min (--idle): it ends\n"


def test_an_unused_job_ends_at_the_moment_that_was_said(attempt: Path, clock: Clock) -> None:
    watch = Watch(str(attempt), HOUR)
    assert not step(watch, clock, 3000)
    ends_s = read_json(str(attempt / "idle"))["ends"]
    assert step(watch, clock, ends_s - clock.now_s)


def test_use_takes_the_warning_back(attempt: Path, clock: Clock) -> None:
    watch = Watch(str(attempt), HOUR)
    step(watch, clock, 3100)
    assert (attempt / "idle").exists()
    assert not step(watch, clock, 16, connections=1)
    assert not (attempt / "idle").exists()
    assert not step(watch, clock, 2990)
    assert not (attempt / "idle").exists()


def test_a_warning_comes_before_each_end(attempt: Path, clock: Clock) -> None:
    watch = Watch(str(attempt), HOUR)
    assert not step(watch, clock, 2 * HOUR)
    assert not step(watch, clock, 590)
    assert step(watch, clock, 15)


def test_a_short_limit_is_warned_a_third_before(attempt: Path, clock: Clock) -> None:
    watch = Watch(str(attempt), 90.0)
    assert not step(watch, clock, 59)
    assert not (attempt / "idle").exists()
    assert not step(watch, clock, 12)
    record = read_json(str(attempt / "idle"))
    assert record["ends"] - record["warned"] == 30


def test_a_job_without_a_limit_never_ends(attempt: Path, clock: Clock) -> None:
    watch = Watch(str(attempt), 0.0)
    write_json(str(attempt / LIMIT), {"seconds": 5})
    assert not step(watch, clock, 100 * HOUR)
    assert not step(watch, clock, 100 * HOUR)


@pytest.mark.parametrize(
    ("limit", "warned"), [({"seconds": 300}, True), ({"seconds": "x"}, False), ({}, False)]
)
def test_the_limit_can_be_changed(
    attempt: Path, clock: Clock, limit: dict[str, Any], warned: bool
) -> None:
    watch = Watch(str(attempt), HOUR)
    write_json(str(attempt / LIMIT), limit)
    step(watch, clock, 250)
    assert (attempt / "idle").exists() is warned


def test_it_looks_from_time_to_time(attempt: Path, clock: Clock) -> None:
    watch = Watch(str(attempt), 240.0)
    step(watch, clock, 0)
    clock.now_s += 14.9
    watch.is_over(1)
    assert watch._looked_at == clock.now_s - 14.9
    step(watch, clock, 0.1)
    assert watch._looked_at == clock.now_s
    assert Watch(str(attempt), 40.0)._period_s == 5.0


@contextmanager
def program(code: str, **env: str) -> Iterator[int]:
    """Start a program of the job that has begun, and yield its process id."""
    env = {"SLURM_JOB_ID": "999777", **env}
    argv = [sys.executable, "-c", f"{code}\nprint('up', flush=True)\nimport sys; sys.stdin.read()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def test_a_program_that_computes_is_use(attempt: Path, clock: Clock) -> None:
    watch = Watch(str(attempt), HOUR)
    with program("import time\nwhile time.process_time() < 0.5: pass"):
        clock.now_s += 3.0
        assert watch._is_used(clock.now_s, job_processes(watch._job))
        watch._looked_at = clock.now_s
        assert not watch._is_used(clock.now_s + 3, job_processes(watch._job))


def test_a_program_that_waits_is_no_use(attempt: Path, clock: Clock) -> None:
    watch = Watch(str(attempt), HOUR)
    with program("") as pid:
        processes = job_processes(watch._job)
        assert pid in processes
        assert not watch._is_used(clock.now_s + 100, processes)


def test_programs_of_the_job_itself_are_no_use(attempt: Path, clock: Clock) -> None:
    with program("import time\nwhile time.process_time() < 0.5: pass") as pid:
        watch = Watch(str(attempt), HOUR)
        assert pid in watch._own
        assert not watch._is_used(clock.now_s, job_processes(watch._job))


def test_only_programs_of_the_job_are_found(attempt: Path) -> None:
    with program("", SLURM_JOB_ID="9997771") as other, program("") as own:
        found = job_processes(b"SLURM_JOB_ID=999777\0")
        assert own in found
        assert other not in found


def use(attempt: Path, name: str, *lines: object) -> None:
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    (attempt / name).write_text(text)


@pytest.mark.parametrize(
    ("lines", "used_at"),
    [
        ([{"time": 50, "gpus": [[0, 0.5]]}], 50),
        ([{"time": 50, "gpus": [[0, 0.01]]}], 0),
        ([{"time": 50, "gpus": [[0, 0.0], [1, 0.02]]}, {"time": 60, "gpus": [[0, 0]]}], 50),
        ([{"time": 50, "gpus": [[0, 1]]}, {"time": 40, "gpus": [[0, 1]]}], 50),
        (["x\n", {"time": 50, "gpus": [[0, 1]]}, '{"time'], 50),
        ([{"time": 50, "gpus": []}, {"time": 50}, {"gpus": [[0, 1]]}], 0),
        ([{"time": 1e12, "gpus": [[0, 1]]}], None),
    ],
    ids="busy idle one-of-two older cut no-gpus future".split(),
)
def test_gpus_are_used_by_the_samples(
    attempt: Path, clock: Clock, lines: list[object], used_at: float | None
) -> None:
    use(attempt, "node-a.use", *lines)
    assert gpu_used_at() == (clock.now_s if used_at is None else used_at)


def test_samples_of_all_nodes_are_read(attempt: Path) -> None:
    use(attempt, "node-a.use", {"time": 50, "gpus": [[0, 1]]})
    use(attempt, "node-b.use", {"time": 70, "gpus": [[0, 1]]})
    use(attempt, "other.use", {"time": 90, "gpus": [[0, 1]]})
    use(attempt, "node-b.start", {"time": 90, "gpus": [[0, 1]]})
    assert gpu_used_at() == 70


def test_a_busy_gpu_keeps_the_job(attempt: Path, clock: Clock) -> None:
    watch = Watch(str(attempt), HOUR)
    use(attempt, "node-a.use", {"time": clock.now_s + 3000, "gpus": [[0, 1]]})
    assert not step(watch, clock, 3100)
    assert not (attempt / "idle").exists()


def test_the_end_of_the_samples_is_read(attempt: Path) -> None:
    (attempt / "node-a.use").write_bytes(b"x" * 70000 + b"\nlast\n")
    lines = last_samples(str(attempt / "node-a.use"))
    assert lines[1:] == [b"last"]
    assert len(lines[0]) == 64 * 1024 - len("\nlast\n")
    assert last_samples(str(attempt / "none")) == []


def test_users_are_told_of_the_time_limit(
    attempt: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    squeue(attempt, monkeypatch, "20:00")
    watch = Watch(str(attempt), 0.0)
    step(watch, clock, 0)
    assert capsys.readouterr().out == ""
    squeue(attempt, monkeypatch, "15:30")
    step(watch, clock, 60)
    assert capsys.readouterr().out.startswith("hpcrun: job 999777 ends in 16 min, at its time")
    step(watch, clock, 60)
    assert capsys.readouterr().out == ""
    squeue(attempt, monkeypatch, "5:30")
    step(watch, clock, 60)
    assert "ends in 6 min" in capsys.readouterr().out


def test_a_far_limit_is_asked_for_seldom(
    attempt: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue(attempt, monkeypatch, "10:00:00")
    watch = Watch(str(attempt), 0.0)
    step(watch, clock, 0)
    (attempt / "asked").unlink()
    step(watch, clock, 299)
    assert not (attempt / "asked").exists()
    step(watch, clock, 16)
    assert (attempt / "asked").exists()


def test_slurm_is_asked_for_this_job(attempt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squeue(attempt, monkeypatch, "1-00:00:10")
    assert time_left() == 86410
    assert (attempt / "asked").read_text() == "--noheader --jobs=999777 --format=%L\n"
    monkeypatch.delenv("SLURM_JOB_ID")
    assert time_left() is None
    monkeypatch.setenv("PATH", "")
    assert time_left() is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("1:30", 90),
        ("2:00:01", 7201),
        ("1-02:00:00", 93600),
        ("UNLIMITED", None),
        ("", None),
        ("NOT_SET", None),
    ],
)
def test_a_time_of_squeue(text: str, seconds: float | None) -> None:
    assert parse_time_left(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (89, "1 min"), (91, "2 min"), (3600, "60 min")],
)
def test_a_time_in_words(seconds: float, text: str) -> None:
    assert minutes(seconds) == text


def test_a_file_of_its_own_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    assert read_json(path) == {}
    write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    assert read_json(path) == {"a": 2}
    assert os.listdir(tmp_path) == ["a"]
    (tmp_path / "a").write_text("[1")
    assert read_json(path) == {}
    (tmp_path / "a").write_text("3")
    assert read_json(path) == {}


def test_a_process_without_a_terminal(tmp_path: Path) -> None:
    with program("") as pid:
        ticks, terminal = cpu_and_terminal(pid)
        assert ticks >= 0
        assert terminal_of(pid) == ""
        assert isinstance(terminal, int)
    assert cpu_and_terminal(2**22 + 1) == (0, 0)
    assert terminal_of(2**22 + 1) == ""


def test_a_warning_is_written_to_the_terminals(
    attempt: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    leader, follower = os.openpty()
    env = {"SLURM_JOB_ID": "999777"}
    with subprocess.Popen(["sleep", "60"], env=env, stdin=follower) as process:
        while not job_processes(b"SLURM_JOB_ID=999777\0").get(process.pid):
            time.sleep(0.01)
        assert terminal_of(process.pid) == os.ttyname(follower)
        watch = Watch(str(attempt), HOUR)
        watch._warn("use JOB", job_processes(watch._job))
        assert os.read(leader, 100).strip() == b"hpcrun: use 999777"
        process.kill()
    os.close(leader)
    os.close(follower)
    assert capsys.readouterr().out == "hpcrun: use 999777\n"
