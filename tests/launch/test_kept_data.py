"""--stage with --keep in jobs of real processes on this machine.

tests/slurm/test_stage.py has nodes with disks of their own, and a user for whom a mode counts.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch.per_job.kept_data import DAY_S, MODE
from hpcrun.in_job.preflight.node import kept_data
from tests.harness import wait_for
from tests.launch.jobs import Running, job
from tests.launch.test_copied_data import path_with_tar

READS = ("bash", "-c", 'cat "$HPCRUN_STAGE/set/file"')
STAYS = ("bash", "-c", 'cat "$HPCRUN_STAGE/set/file"; exec sleep 600')
NOBODY = 65534


def make_source(tmp_path: Path, text: str = "content\n", name: str = "source") -> Path:
    """A folder with a file in a folder."""
    source = tmp_path / name
    (source / "deep").mkdir(parents=True)
    (source / "file").write_text(text)
    (source / "deep/file").write_text(text)
    (source / "deep/file").chmod(0o755)
    return source


@contextmanager
def keeping(
    tmp_path: Path,
    number: int,
    *sources: Path,
    program: Sequence[str] = READS,
    days: int = 7,
    **env: str,
) -> Iterator[Running]:
    """A job that copies folders to this machine, the first as ``set``, and keeps the copies."""
    place = tmp_path / "disk"
    place.mkdir(exist_ok=True)
    folder = tmp_path / f"job-{number}"
    folder.mkdir()
    stages = []
    for index, source in enumerate(sources):
        stages.append(f"--stage={f'set{index}' if index else 'set'}/{source}")
    more: dict[str, Any] = {
        "options": [*stages, f"--keep={days}"],
        "env": {
            "HPCRUN_JOB_ID": f"L{number}",
            "HPCRUN_STAGE": str(place / f"hpcrun-stage-L{number}-0"),
            **env,
        },
    }
    log = folder / "log"
    with log.open("w") as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            started = job(folder, program, **more)
            running = started.__enter__()
        finally:
            os.dup2(before, 2)
            os.close(before)
    try:
        yield running
    finally:
        started.__exit__(None, None, None)


def run(tmp_path: Path, number: int, *sources: Path, **more: Any) -> str:
    """The log of a job that has ended well, and its output."""
    with keeping(tmp_path, number, *sources, **more) as running:
        status = running.end(60)
        log = (tmp_path / f"job-{number}/log").read_text()
        assert status == 0, log
        return log + running.out()


def kept(tmp_path: Path) -> list[Path]:
    """All on the disk of this machine that a job has left."""
    return sorted((tmp_path / "disk").iterdir())


def kill(running: Running) -> None:
    for pid in running.processes():
        with suppress(ProcessLookupError):  # it has ended with those before it
            os.kill(pid, signal.SIGKILL)


def writable(path: Path) -> Path:
    """A file of a kept folder that its owner has made writable, as no job does by accident."""
    path.parent.chmod(0o700)
    path.chmod(0o600)
    return path


def test_the_next_job_copies_nothing(tmp_path: Path) -> None:
    source = make_source(tmp_path)
    first = run(tmp_path, 1, source)
    assert "--stage: 0 of 1 node has it already" in first
    assert "--stage copies 2 files, 0 MB, to 1 node" in first
    (folder,) = kept(tmp_path)
    inode = (folder / "data/set/file").stat().st_ino
    second = run(tmp_path, 2, source)
    assert "--stage: 1 of 1 node has it already" in second
    assert "copies" not in second
    assert second.endswith("content\n")
    assert kept(tmp_path) == [folder]
    assert (folder / "data/set/file").stat().st_ino == inode


def test_the_copy_is_read_only_and_closed_to_others(tmp_path: Path) -> None:
    run(tmp_path, 1, make_source(tmp_path))
    (folder,) = kept(tmp_path)
    modes = {}
    for path in (folder, *folder.rglob("*")):
        modes[str(path.relative_to(folder))] = oct(path.stat().st_mode & 0o7777)
    assert modes == {
        ".": "0o500",
        "list": "0o400",
        "data": "0o500",
        "data/set": "0o500",
        "data/set/file": "0o400",
        "data/set/deep": "0o500",
        "data/set/deep/file": "0o500",
    }


def test_a_source_that_has_changed_is_another_folder(tmp_path: Path) -> None:
    source = make_source(tmp_path)
    run(tmp_path, 1, source)
    (source / "file").write_text("changed\n")
    log = run(tmp_path, 2, source)
    assert "--stage: 0 of 1 node has it already" in log
    assert log.endswith("changed\n")
    assert len(kept(tmp_path)) == 2


def test_a_link_that_leads_elsewhere_is_another_source(tmp_path: Path) -> None:
    link = tmp_path / "current"
    for number in (1, 2):
        source = make_source(tmp_path, name=f"version-{number}")
        (source / "file").write_text(f"version {number}\n")
        for path in (source / "file", source / "deep/file", source / "deep", source):
            os.utime(path, (1, 1))
        link.unlink(missing_ok=True)
        link.symlink_to(source)
        assert run(tmp_path, number, link).endswith(f"version {number}\n")


def test_a_disk_on_which_others_can_move_things_has_no_data(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    disk.chmod(0o777)
    with keeping(tmp_path, 1, make_source(tmp_path)) as running:
        assert running.end(60) == 1
    log = (tmp_path / "job-1/log").read_text()
    assert f"others can move what lies in {disk}, which has no sticky bit" in log
    assert kept(tmp_path) == []


def test_jobs_share_the_source_that_both_have(tmp_path: Path) -> None:
    large = make_source(tmp_path)
    run(tmp_path, 1, large, make_source(tmp_path, name="one"))
    before = kept(tmp_path)
    log = run(tmp_path, 2, large, make_source(tmp_path, name="two"))
    assert "--stage: 0 of 1 node has it already" in log
    assert len(before) == 2
    assert len(kept(tmp_path)) == 3


@pytest.mark.parametrize(
    ("change", "what"),
    [
        pytest.param(
            lambda data: writable(data / "file").write_text("hostile\n"),
            "./set/file is not as in the list",
            id="content",
        ),
        pytest.param(
            lambda data: writable(data / "file").unlink(), "./set/file is missing", id="missing"
        ),
        pytest.param(
            lambda data: (writable(data / "file").parent / "new").touch(),
            "./set/new is not as in the list",
            id="new",
        ),
        pytest.param(
            lambda data: subprocess.run(["ln", "-sf", "/etc", writable(data / "file")], check=True),
            "./set/file is not as in the list",
            id="link",
        ),
        pytest.param(
            lambda data: writable(data.parent.parent / "list").write_bytes(b"/\0- - ./set\0"),
            "its list has changed",
            id="list",
        ),
        pytest.param(
            lambda data: writable(data.parent.parent / "list").unlink(),
            "its list cannot be read (No such file or directory)",
            id="no list",
        ),
        pytest.param(
            lambda data: subprocess.run(
                ["sh", "-c", "rm $0 && mkfifo $0", writable(data.parent.parent / "list")],
                check=True,
            ),
            "its list has changed",
            id="FIFO",
        ),
    ],
)
def test_a_copy_that_was_changed_is_made_anew(tmp_path: Path, change: Any, what: str) -> None:
    source = make_source(tmp_path)
    run(tmp_path, 1, source)
    (folder,) = kept(tmp_path)
    change(folder / "data/set")
    folder.chmod(MODE)
    log = run(tmp_path, 2, source)
    assert f"{what} in {folder}: copied anew" in log
    assert "--stage: 0 of 1 node has it already" in log
    assert log.endswith("content\n")
    assert kept(tmp_path) == [folder]
    assert "1 of 1 node has it already" in run(tmp_path, 3, source)


def test_a_changed_copy_that_another_job_reads_stays(tmp_path: Path) -> None:
    source = make_source(tmp_path)
    with keeping(tmp_path, 1, source, program=STAYS) as running:
        running.until("content")
        folder = next(path for path in kept(tmp_path) if "kept" in path.name)
        writable(folder / "data/set/file").write_text("changed\n")
        log = run(tmp_path, 2, source)
        assert "which another job uses; this job gets a copy of its own" in log
        assert log.endswith("content\n")
        assert (folder / "data/set/file").read_text() == "changed\n"


def test_two_jobs_at_once_copy_once(tmp_path: Path) -> None:
    source = make_source(tmp_path)
    go = tmp_path / "go"
    wait = f"until [ -e {go} ]; do sleep 0.1; done"
    slow = path_with_tar(tmp_path, f"{wait}; echo x >>{tmp_path}/tars")
    with keeping(tmp_path, 1, source, PATH=slow) as first:
        wait_for(lambda: list((tmp_path / "disk").glob("*.part")), 20, "the first job to copy")
        with keeping(tmp_path, 2, source, PATH=slow) as second:
            log = tmp_path / "job-2/log"
            wait_for(lambda: "another job copies the same data" in log.read_text(), 20, "the line")
            go.touch()
            assert (first.end(), second.end()) == (0, 0)
            assert first.out() == second.out() == "content\n"
    assert (tmp_path / "tars").read_text() == "x\n" * 2  # one reads, one writes
    assert len(kept(tmp_path)) == 1


def test_a_job_does_not_wait_for_a_copy_that_stands_still(tmp_path: Path) -> None:
    """Slurm may have suspended the other job until this one ends."""
    source = make_source(tmp_path)
    slow = path_with_tar(tmp_path, "sleep 600")
    with keeping(tmp_path, 1, source, PATH=slow) as first:
        wait_for(lambda: list((tmp_path / "disk").glob("*.part")), 20, "the first job to copy")
        for pid in first.processes():
            os.kill(pid, signal.SIGSTOP)
        with keeping(tmp_path, 2, source) as second:
            assert second.end(120) == 0
            assert second.out() == "content\n"
        log = (tmp_path / "job-2/log").read_text()
        assert ".part stands still; this job gets a copy of its own" in log


def test_what_a_killed_job_has_begun_to_copy_is_not_used(tmp_path: Path) -> None:
    source = make_source(tmp_path)
    slow = path_with_tar(tmp_path, "[ $1 = --create ] || { cat | head -c 2000 >&2; sleep 600; }")
    with keeping(tmp_path, 1, source, PATH=slow) as running:
        wait_for(lambda: list((tmp_path / "disk").glob("*.part/data")), 20, "the copying")
        kill(running)
    (part,) = [path for path in kept(tmp_path) if "kept" in path.name]
    assert part.suffix == ".part"
    removed = part.with_suffix(".0a1b.old")  # of a job that was killed while it made room
    removed.mkdir()
    (removed / "file").touch()
    log = run(tmp_path, 2, source)
    assert "--stage: 0 of 1 node has it already" in log
    assert log.endswith("content\n")
    (folder,) = [path for path in kept(tmp_path) if "kept" in path.name]
    assert folder.suffix == ""


def test_a_source_that_changes_while_it_is_copied_is_not_kept(tmp_path: Path) -> None:
    source = make_source(tmp_path)
    change = f"[ $1 = --extract ] || echo more >>{source}/file"
    log = run(tmp_path, 1, source, PATH=path_with_tar(tmp_path, change))
    assert "./set/file is not as in the list after copying" in log
    assert log.endswith("content\nmore\n")
    assert kept(tmp_path) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")
@pytest.mark.parametrize(
    ("squat", "why"),
    [
        pytest.param(
            lambda path: subprocess.run(["install", "-d", "-o", str(NOBODY), path], check=True),
            f"belongs to the user with the id {NOBODY}",
            id="another user",
        ),
        pytest.param(lambda path: path.symlink_to("/etc"), "is no folder", id="link"),
        pytest.param(lambda path: path.touch(), "is no folder", id="file"),
        pytest.param(lambda path: (path.mkdir(), path.chmod(0o777)), "has the mode 777", id="mode"),
    ],
)
@pytest.mark.parametrize("ending", ["", ".part"])
def test_what_another_has_put_there_is_not_used(
    tmp_path: Path, squat: Any, why: str, ending: str
) -> None:
    source = make_source(tmp_path)
    run(tmp_path, 1, source)
    (folder,) = kept(tmp_path)
    shutil.rmtree(folder)
    path = Path(f"{folder}{ending}")
    squat(path)
    before = path.lstat()
    log = run(tmp_path, 2, source)
    assert log.endswith("content\n")
    if ending and why.startswith("has the mode"):
        assert kept(tmp_path) == [folder]  # what a killed job has left is removed
        return
    assert f"{path} {why}" in log
    assert "this job gets a copy of its own" in log
    assert kept(tmp_path) == [path]
    assert path.lstat().st_ino == before.st_ino


def old(folder: Path, *, used_days: float, kept_days: float) -> None:
    """Make a kept folder look as if its last use, and its days, were that long ago."""
    now_s = time.time()
    os.utime(folder / "list", (0, now_s - kept_days * DAY_S))
    os.utime(folder, (0, now_s - used_days * DAY_S))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with 8 MB for jobs."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=1777", "tmpfs", str(disk)]
    if os.getuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def sized(tmp_path: Path, name: str, megabytes: int) -> Path:
    source = make_source(tmp_path, name=name)
    (source / "bytes").write_bytes(os.urandom(megabytes << 20))
    return source


@pytest.mark.usefixtures("small_disk")
def test_what_is_kept_gives_way_when_its_days_are_over_and_then_the_oldest(
    tmp_path: Path,
) -> None:
    sources = [sized(tmp_path, f"s{number}", 2) for number in range(3)]
    folders = []
    for number, source in enumerate(sources):
        run(tmp_path, number, source)
        folders += [path for path in kept(tmp_path) if path not in folders]
    old(folders[0], used_days=9, kept_days=-1)
    old(folders[1], used_days=2, kept_days=1)  # the only one whose days are over
    old(folders[2], used_days=3, kept_days=-4)
    log = run(tmp_path, 3, sized(tmp_path, "s3", 2))
    assert f"removed {sources[1]} (2 MB, last used 2.0 days ago) for room" in log
    assert folders[0].exists()
    assert not folders[1].exists()
    assert folders[2].exists()
    run(tmp_path, 4, sized(tmp_path, "s4", 2))
    assert not folders[0].exists()
    assert folders[2].exists()


def test_what_another_job_reads_and_what_another_user_keeps_does_not_give_way(
    tmp_path: Path, small_disk: Path
) -> None:
    foreign = small_disk / f"hpcrun-kept-{os.getuid()}-{'0' * 32}"
    source = sized(tmp_path, "s0", 3)
    shutil.copytree(source, foreign)
    os.chown(foreign, NOBODY, NOBODY)
    with keeping(tmp_path, 1, sized(tmp_path, "s1", 3), program=STAYS) as running:
        running.until("content")
        (folder,) = set(small_disk.glob("hpcrun-kept-*")) - {foreign}
        old(folder, used_days=9, kept_days=8)
        with keeping(tmp_path, 2, sized(tmp_path, "s2", 3)) as second:
            assert second.end() == 1
            assert "MB are needed in " in second.record["message"]
        assert folder.exists()
        assert foreign.exists()
        assert (folder / "data/set/file").read_text() == "content\n"


@pytest.mark.usefixtures("small_disk")
def test_what_is_kept_gives_way_to_a_copy_that_is_not_kept(tmp_path: Path) -> None:
    run(tmp_path, 1, sized(tmp_path, "s1", 5))
    log = run(tmp_path, 2, sized(tmp_path, "s2", 5), days=0)
    assert f"removed {tmp_path}/s1 (5 MB, " in log
    assert kept(tmp_path) == []


def test_another_user_cannot_make_a_copy_look_used(tmp_path: Path, small_disk: Path) -> None:
    run(tmp_path, 1, sized(tmp_path, "s1", 5))
    (folder,) = kept(tmp_path)
    squat = small_disk / "hpcrun-stage-1-1"
    squat.mkdir()
    (squat / "set").symlink_to(folder / "data/set")
    os.chown(squat, NOBODY, NOBODY)
    run(tmp_path, 2, sized(tmp_path, "s2", 5))
    assert not folder.exists()


@pytest.mark.usefixtures("small_disk")
def test_nothing_gives_way_if_that_would_not_be_enough(tmp_path: Path) -> None:
    run(tmp_path, 1, sized(tmp_path, "s1", 2))
    (folder,) = kept(tmp_path)
    with keeping(tmp_path, 2, sized(tmp_path, "s2", 9)) as running:
        assert running.end() == 1
        assert "MB are needed in " in running.record["message"]
    assert kept(tmp_path) == [folder]


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_fills_while_a_copy_is_made_has_nothing_left_of_it(tmp_path: Path) -> None:
    source = sized(tmp_path, "s1", 4)
    fill = f"[ $1 = --create ] || head -c 6M /dev/zero >{tmp_path}/disk/other"
    with keeping(tmp_path, 1, source, PATH=path_with_tar(tmp_path, fill)) as running:
        assert running.end() == 1
        assert "tar cannot write to " in running.record["message"]
    assert kept(tmp_path) == [tmp_path / "disk/other"]


def holders(folder: Path) -> set[int]:
    """The processes that hold a lock on a folder."""
    inode = folder.stat().st_ino
    pids = set()
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5].endswith(f":{inode}"):
            pids.add(int(words[4]))
    return pids


def test_a_preflight_lists_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_source(tmp_path)
    run(tmp_path, 1, source)
    disk = tmp_path / "disk"
    (copy,) = kept(tmp_path)
    other = Path(f"{copy}0")
    other.mkdir()
    Path(f"{copy}.part").mkdir()
    old(copy, used_days=2, kept_days=-5)
    monkeypatch.setenv("HPCRUN_STAGE_DIR", str(disk))
    listed, damaged = kept_data() or []
    assert listed["used"] == pytest.approx(time.time() - 2 * DAY_S, abs=60)
    assert (listed["source"], listed["bytes"]) == (str(source), 16)
    assert (damaged["folder"], damaged["source"], damaged["bytes"]) == (str(other), None, None)
    monkeypatch.setenv("HPCRUN_STAGE_DIR", str(disk / "nowhere"))
    assert kept_data() is None


def test_the_processes_of_the_job_the_node_and_the_rank_hold_the_copy(tmp_path: Path) -> None:
    """A program may remove its job's folder with the links."""
    source = make_source(tmp_path)
    program = ("bash", "-c", 'cat "$HPCRUN_STAGE/set/file"; rm -r "$HPCRUN_STAGE"; exec sleep 600')
    with keeping(tmp_path, 1, source, program=program) as running:
        running.until("content")
        wait_for(lambda: len(kept(tmp_path)) == 1, 20, "the folder of the job to go")
        (folder,) = kept(tmp_path)
        commands = set()
        for pid in holders(folder):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            commands.add(words[words.index("-ISB") + 2])
        assert commands == {"job", "node", "rank"}
