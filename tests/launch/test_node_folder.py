"""The folder of the ranks of a node, and what becomes of ranks whose wrapper, launcher or node
program is killed.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcrun.in_job.launch.node_folder import NETWORK, PLACES, PREFIX, YOUNG_S, network_mount
from tests.harness import wait_for
from tests.launch.jobs import (
    LAUNCH,
    ONCE,
    command,
    descendants,
    job,
    parent,
    python,
    remove_node_folders,
    send,
    wait_for_ends,
)
from tests.launch.test_ends import agent

SHOWS = ["sh", "-c", "echo $HPCRUN_NODE_DIR; sleep 900 & wait"]


def wrapper_of(pids: Sequence[int], part: str) -> int:
    """The process of a part of launch: the canary that it has forked has the same command line."""
    own = [pid for pid in pids if command(pid).split("\0")[2:4] == [LAUNCH[2], part]]
    return next(pid for pid in own if parent(pid) not in own)


@pytest.mark.parametrize("launcher", ["agent", "once"])
@pytest.mark.parametrize("part", ["rank", "node"])
def test_what_a_killed_part_has_started_ends(tmp_path: Path, launcher: str, part: str) -> None:
    chain = ONCE if launcher == "once" else agent(tmp_path, 2)
    with job(tmp_path, SHOWS, chain=chain) as running:
        for rank in (0,) if launcher == "once" else (0, 1):
            running.until("/", rank)
        pids = running.processes()
        folder = Path(running.out().strip())
        wait_for(lambda: list(folder.glob("rank-0.*")), 20, "the wrapper to know its program")
        os.kill(wrapper_of(pids, part), signal.SIGKILL)
        assert running.end() == 137
        wait_for_ends(pids[1:])
        wait_for(lambda: not folder.exists(), 20, "the node's folder to go")
        killed = "wrapper" if part == "rank" or launcher == "once" else "launcher"
        rank = next(rank for rank in (0, 1) if "was killed" in running.err(rank))
        assert f"hpcrun: the {killed} of this rank on local-0 was killed" in running.err(rank)
        assert running.rank(rank)["status"] == 137


def test_a_launcher_that_is_killed_takes_its_ranks_along(tmp_path: Path) -> None:
    with job(tmp_path, SHOWS, chain=agent(tmp_path, 2)) as running:
        for rank in (0, 1):
            running.until("/", rank)
        pids = running.processes()
        os.kill(
            next(pid for pid in pids if command(pid).split("\0")[1].endswith("agent.py")),
            signal.SIGKILL,
        )
        assert running.end() == 137
        wait_for_ends(pids[1:])
        assert [running.rank(rank)["told"] for rank in (0, 1)] == ["cleared"] * 2


# --- tasks of srun, which no process of hpcrun has started ---------------------------------------


@contextmanager
def tasks(
    folder: Path, count: int, program: Sequence[str], job_id: str = ""
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the tasks of a job, by default one of which nothing can be left; leave nothing."""
    (folder / "stop").mkdir(exist_ok=True)
    env = {
        **os.environ,
        "HPCRUN_ATTEMPT_DIR": str(folder),
        "HPCRUN_HEAD_ADDR": "127.0.0.1",
        "HPCRUN_HEAD": "127.0.0.1",
        "HPCRUN_PORT": "1",
        "HPCRUN_JOB_ID": job_id or secrets.token_hex(8),
        "SLURMD_NODENAME": "n1",
        "SLURM_NODEID": "0",
        "SLURM_NTASKS": str(count),
        "HPCRUN_MANAGED": "1",
        "SLURM_NTASKS_PER_NODE": str(count),
    }
    argv = [*LAUNCH, "rank", "--task", "--", *program]
    ranks = [{"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(count)]
    started = [
        subprocess.Popen(argv, env={**env, **rank}, text=True, stderr=subprocess.PIPE)
        for rank in ranks
    ]
    try:
        wait_for(
            lambda: (
                len([out for out in folder.glob("rank-*.out") if "/" in out.read_text()]) == count
            ),
            20,
            "tasks",
        )
        yield started
    finally:
        for process in started:
            for pid in descendants(process.pid):
                send(pid, signal.SIGKILL)
            process.communicate()
        remove_node_folders(folder)


def node_dirs(folder: Path) -> set[Path]:
    return {Path(out.read_text().split()[0]) for out in folder.glob("rank-*.out")}


def test_tasks_share_a_folder(tmp_path: Path) -> None:
    with tasks(tmp_path, 4, ["sh", "-c", "echo $HPCRUN_NODE_DIR; exec sleep 900"]) as started:
        (shared,) = node_dirs(tmp_path)
        assert shared.parent in map(Path, PLACES)
        assert stat.S_IMODE(shared.stat().st_mode) == 0o700
        pids = [pid for process in started for pid in descendants(process.pid)]
        for process in started:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(20) for process in started] == [143] * 4
        wait_for_ends(pids)
        assert not shared.exists()


def test_a_task_is_ended_after_its_wrapper_and_another_watches(tmp_path: Path) -> None:
    program = python(
        tmp_path,
        "import os, signal, time\nprint(os.environ['HPCRUN_NODE_DIR'])\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('warned'))\ntime.sleep(900)",
    )
    with tasks(tmp_path, 3, program) as started:
        (shared,) = node_dirs(tmp_path)
        watch = wait_for(lambda: next(iter(watchers(shared)), 0), 20, "one to watch")
        (watcher,) = [rank for rank, process in enumerate(started) if process.pid == watch]
        pids = descendants(watch)
        os.kill(watch, signal.SIGKILL)
        wait_for_ends(pids)
        assert json.loads((tmp_path / f"rank-{watcher}.exit").read_text())["status"] == 137
        (tmp_path / "stop/time_limit").touch()
        others = {0, 1, 2} - {watcher}
        wait_for(
            lambda: all("warned" in (tmp_path / f"rank-{rank}.out").read_text() for rank in others),
            20,
            "a warning",
        )
        time.sleep(2.5)
        assert [(tmp_path / f"rank-{rank}.out").read_text().count("warned") for rank in others] == [
            1,
            1,
        ]


def watchers(folder: Path) -> set[int]:
    """The processes that hold the lock on a folder's file ``watch``."""
    file = folder / "watch"
    number = file.stat().st_ino if file.exists() else -1
    locks = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return {
        int(words[4]) for words in locks if words[1] == "FLOCK" and words[5].endswith(f":{number}")
    }


def test_folders_of_killed_jobs_are_removed_and_those_of_others_are_not(tmp_path: Path) -> None:
    places = [Path(PLACES[0], f"{PREFIX}{secrets.token_hex(8)}") for _ in range(2)]
    target = tmp_path / "kept"
    target.mkdir()
    (target / "file").touch()
    link = Path(PLACES[0], f"{PREFIX}{secrets.token_hex(8)}")
    try:
        link.symlink_to(target)
        for place in places:
            place.mkdir(0o700)
            (place / "rank-0.1").touch()
            os.utime(place, (0, time.time() - YOUNG_S - 1))
        os.utime(link, (0, 0), follow_symlinks=False)
        if os.geteuid() == 0:
            os.chown(places[1], 65534, 65534)
        with job(tmp_path, ["true"]) as running:
            assert running.end() == 0
        assert not places[0].exists()
        assert places[1].exists() == (os.geteuid() == 0)
        assert (target / "file").exists()
    finally:
        subprocess.run(["rm", "-rf", *map(str, places), str(link)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_another_user_has_made_in_its_place_is_not_used(tmp_path: Path, kind: str) -> None:
    job_id = secrets.token_hex(8)
    with tasks(tmp_path, 1, SHOWS, job_id):
        (first,) = node_dirs(tmp_path)
    assert first.parent == Path(PLACES[0])
    subprocess.run(["rm", "-rf", *map(str, tmp_path.glob("rank-*"))], check=True)
    target = tmp_path / "kept"
    target.mkdir()
    try:
        first.mkdir() if kind == "folder" else first.symlink_to(target)
        os.chown(first, 65534, 65534, follow_symlinks=False)
        with tasks(tmp_path, 2, SHOWS, job_id):
            (shared,) = node_dirs(tmp_path)
            assert shared.parent == Path(PLACES[1])
    finally:
        subprocess.run(["rm", "-rf", str(first)], check=True)
    assert not list(target.iterdir())


def test_a_folder_in_use_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with tasks(tmp_path / "a", 1, SHOWS):
        (shared,) = node_dirs(tmp_path / "a")
        os.utime(shared, (0, 0))
        with job(tmp_path / "b", ["true"]) as running:
            assert running.end() == 0
        assert list(shared.glob("rank-0.*"))


# Full file systems for the node's folder. The job's own folder and the launch programs, which may
# lie in one of them, are elsewhere.
FULL = """
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt && mkdir /mnt/job /mnt/launch
mount --bind "$1" /mnt/job && mount --bind "$2" /mnt/launch
for place in /tmp /dev/shm; do mount -t tmpfs -o size=4k,nr_inodes="$3" tmpfs $place; done
shift 3
exec "$@"
"""
ELSEWHERE = {LAUNCH[0]: os.path.realpath(LAUNCH[0]), LAUNCH[2]: "/mnt/launch"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.parametrize("inodes", [1, 2], ids=["from the start", "soon"])
def test_on_a_full_disk_the_training_runs_on(tmp_path: Path, inodes: int) -> None:
    attempt = tmp_path / "attempt"
    (attempt / "stop").mkdir(parents=True)
    env = {
        **os.environ,
        "HPCRUN_RUN_DIR": "/mnt/job",
        "HPCRUN_ATTEMPT_DIR": "/mnt/job/attempt",
        "HPCRUN_JOB_ID": "L1",
        "HPCRUN_ELEMENT": "0",
        "HPCRUN_ATTEMPT": "0",
    }
    stop = "touch $HPCRUN_ATTEMPT_DIR/stop/time_limit" if inodes == 1 else "true"
    program = f"{stop}; sleep 3; ls $HPCRUN_NODE_DIR; echo trained"
    argv = [*LAUNCH, "job", "--nodes", "1", "--grace", "60", "--", *ONCE, "sh", "-c", program]
    setup = ["unshare", "--mount", "sh", "-ec", FULL, "sh", str(tmp_path), LAUNCH[2], str(inodes)]
    done = subprocess.run(
        [*setup, *(ELSEWHERE.get(word, word) for word in argv)],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    *marks, last = (attempt / "rank-0.out").read_text().split()
    # in the run's folder it arrives
    assert last == "trained"
    assert ("stop-time_limit" in marks) == (inodes == 1)
    message = "cannot use /tmp or /dev/shm" if inodes == 1 else "cannot write to /tmp/"
    assert done.stderr.count("No space left on device") == 1, done.stderr
    assert message in done.stderr
    assert not list(attempt.glob(f"{PREFIX}*"))


@pytest.mark.parametrize("kind", [*NETWORK, "tmpfs", "ext4"])
def test_a_network_file_system_is_recognised(kind: str) -> None:
    mounts = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n36 22 0:41 / /tmp rw - "
        f"{kind} server:/tmp rw\n"
    )
    assert network_mount(mounts, "0:41") == (kind in NETWORK)
    assert not network_mount(mounts, "8:1")
    assert not network_mount("", "8:1")
