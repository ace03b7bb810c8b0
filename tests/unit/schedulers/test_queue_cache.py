"""One answer of squeue for all processes of a user."""

from __future__ import annotations

import os
import stat
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hpcrun.errors import SchedulerError
from hpcrun.machine.process import Completed
from hpcrun.schedulers.protocol import JobRef
from hpcrun.schedulers.queue_cache import QueueCache
from hpcrun.schedulers.slurm import SlurmScheduler

SEPARATOR = "\x1f"


@dataclass
class Controller:
    """A controller that counts who asks, and a clock for both sides."""

    folder: Path
    now_s: float = 1000.0
    asked: list[float] = field(default_factory=list)
    ok: bool = True

    def ask(self) -> Completed:
        self.asked.append(self.now_s)
        return Completed(
            "squeue",
            0 if self.ok else 1,
            f"answer {len(self.asked)}\n\udcff",
            "" if self.ok else "away",
        )

    def process(self, cluster: str = "alpha") -> QueueCache:
        return QueueCache(self.folder / "cache", cluster, clock=lambda: self.now_s)


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    return Controller(tmp_path)


def test_ten_processes_ask_once_in_ten_seconds(controller: Controller) -> None:
    for _ in range(30):
        answers = {controller.process().shared(controller.ask) for _ in range(10)}
        assert len(answers) == 1
        controller.now_s += 1
    assert controller.asked == [1000, 1010, 1020]


def test_processes_that_ask_at_the_same_moment_ask_once(controller: Controller) -> None:
    def slow() -> Completed:
        time.sleep(0.3)
        return controller.ask()

    threads = [threading.Thread(target=controller.process().shared, args=(slow,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(controller.asked) == 1


def test_a_plain_status_asks_afresh_and_leaves_its_answer_and_clusters_have_their_own(
    controller: Controller,
) -> None:
    controller.process().shared(controller.ask)
    assert controller.process().afresh(controller.ask).done.stdout == "answer 2\n\udcff"
    assert controller.process().shared(controller.ask).done.stdout == "answer 2\n\udcff"
    assert controller.process("../beta").shared(controller.ask).done.stdout.startswith("answer 3")
    assert {path.parent for path in controller.folder.rglob("squeue-*")} == {
        controller.folder / "cache"
    }


def test_one_asks_less_and_less_while_the_controller_is_away(controller: Controller) -> None:
    controller.ok = False
    for _ in range(250):
        assert not controller.process().shared(controller.ask).done.ok
        controller.now_s += 1
    assert controller.asked == [1000, 1020, 1060, 1120, 1180, 1240]
    controller.ok = True
    controller.now_s += 60
    assert controller.process().shared(controller.ask).done.ok
    controller.now_s += 10
    controller.process().shared(controller.ask)
    assert controller.asked[-1] - controller.asked[-2] == 10


@pytest.mark.parametrize("jump_s", [-5000, 5000])
def test_a_clock_that_jumps_does_not_keep_an_old_answer(
    controller: Controller, jump_s: float
) -> None:
    controller.process().shared(controller.ask)
    controller.now_s += jump_s
    for _ in range(3):
        assert controller.process().shared(controller.ask).done.stdout.startswith("answer 2")


def test_the_file_is_the_users_own(controller: Controller) -> None:
    process = controller.process()
    process.shared(controller.ask)
    assert stat.S_IMODE(process.path.stat().st_mode) == 0o600
    process.path.chmod(0o666)
    assert process.shared(controller.ask).done.stdout.startswith("answer 2")
    process.path.write_text("{")
    assert process.shared(controller.ask).done.stdout.startswith("answer 3")
    os.truncate(process.path, 33 << 20)
    assert process.shared(controller.ask).done.stdout.startswith("answer 4")
    process.path.unlink()
    process.path.symlink_to("/etc/passwd")
    assert process.shared(controller.ask).done.stdout.startswith("answer 5")


def test_no_other_user_can_write_to_the_folders_above_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        QueueCache(tmp_path / "home/.cache/hpcrun", "dev").write(b"answer")
    finally:
        os.umask(before)
    modes = {
        stat.S_IMODE((tmp_path / name).stat().st_mode)
        for name in ("home", "home/.cache", "home/.cache/hpcrun")
    }
    assert modes == {0o700}


def test_where_nothing_can_be_written_one_asks(controller: Controller) -> None:
    (controller.folder / "cache").write_text("no folder")
    for _ in range(2):
        controller.process().shared(controller.ask)
    assert len(controller.asked) == 2


def test_submissions_and_cancellations_make_nobody_ask_sooner(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=alpha\n")
    for name in ("squeue", "sacct", "scancel"):
        script = f"echo {name} >>{tmp_path}/calls; [ {name} != squeue ] || cat {tmp_path}/answer"
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.defpath}", "SLURM_CONF": str(tmp_path / "slurm.conf")}
    plain, poller = (
        SlurmScheduler(env, cache=tmp_path / "cache", polls=polls) for polls in (False, True)
    )
    job = JobRef(tmp_path / "run", "7")

    def states(*words: str) -> None:
        (tmp_path / "answer").write_text(
            SEPARATOR.join(
                ("7", *words, "None", "0:10", "1:00", "n1", "/r/run/.submission_file_1.sh", "N/A")
            )
        )

    def calls() -> list[str]:
        return (tmp_path / "calls").read_text().split()

    states("RUNNING")
    infos = [poller.poll([job])[job.folder] for _ in range(3)]
    assert [info.state for info in infos] == ["RUNNING"] * 3
    assert 0 <= time.time() - infos[0].asked_s < 10
    states("COMPLETED")
    plain.change("cancel", [job])
    new = JobRef(tmp_path / "new", "8", submitted_s=time.time())
    assert {folder.name: info.state for folder, info in poller.poll([job, new]).items()} == {
        "run": "RUNNING",
        "new": "PENDING",  # sbatch has said so since, and accounting is not asked about it
    }
    assert calls() == ["squeue", "scancel"]
    # whether there is a job of a submission without an answer is decided by answers of now
    assert (
        poller.poll([job, JobRef(tmp_path / "lost", None, since_s=0.0)])[job.folder].state
        == "COMPLETED"
    )
    assert calls() == ["squeue", "scancel", "squeue", "sacct"]
    (tmp_path / "answer").unlink()
    for scheduler in (plain, poller):
        with pytest.raises(SchedulerError, match="Slurm does not respond"):
            scheduler.poll([job])
    assert calls().count("squeue") == 3
