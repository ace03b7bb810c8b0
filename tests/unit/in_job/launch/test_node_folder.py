"""The folders of nodes on their own disk: which are removed, and where a new one is made."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from hpcrun.in_job.launch import node_folder
from hpcrun.in_job.launch.node_folder import PREFIX, YOUNG_S, enter, make
from tests.harness import wait_for

NAME = f"{PREFIX}4711-n1-00000000"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node's own disk, and the attempt's folder elsewhere."""
    place = tmp_path / "tmp"
    place.mkdir()
    (tmp_path / "attempt").mkdir()
    monkeypatch.setattr(node_folder, "PLACES", (str(place), str(tmp_path / "shm")))
    monkeypatch.setattr(node_folder, "is_shared", lambda _: False)
    for name, value in (("JOB_ID", "4711"), ("NODE", "n1"), ("ATTEMPT_DIR", tmp_path / "attempt")):
        monkeypatch.setenv(f"HPCRUN_{name}", str(value))
    return place


def left_by(place: Path, name: str, age_s: float = YOUNG_S + 1) -> Path:
    """A folder with a file, without a process that uses it."""
    folder = place / name
    folder.mkdir()
    (folder / "rank-0.17").touch()
    os.utime(folder, (0, time.time() - age_s))
    return folder


def test_the_folder_of_a_killed_job_is_removed(place: Path) -> None:
    folder = left_by(place, f"{PREFIX}12-n1-0")
    enter(NAME).leave()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "age_s"),
    [(f"{PREFIX}12-n1-0", YOUNG_S - 5), ("data-of-somebody", 1e6)],
    ids=["a young one", "another name"],
)
def test_another_folder_stays(place: Path, name: str, age_s: float) -> None:
    folder = left_by(place, name, age_s)
    enter(NAME).leave()
    assert folder.exists()


def test_a_folder_that_a_process_uses_stays(place: Path) -> None:
    folder = left_by(place, f"{PREFIX}12-n1-0")
    used = os.open(folder, os.O_RDONLY)
    fcntl.flock(used, fcntl.LOCK_SH)
    enter(NAME).leave()
    os.close(used)
    assert folder.exists()


def test_in_the_folder_of_a_run_nothing_is_removed(place: Path) -> None:
    place.rmdir()
    attempt = place.parent / "attempt"
    folder = left_by(attempt, f"{PREFIX}12-n1-0")
    make().leave()
    assert folder.exists()


def test_the_last_process_to_leave_removes_the_folder(place: Path) -> None:
    first = enter(NAME)
    second = enter(NAME)
    assert first.path == second.path == str(place / NAME)
    first.leave()
    assert (place / NAME).exists()
    second.leave()
    assert not (place / NAME).exists()


def test_the_second_place_is_used_if_the_first_is_missing(place: Path) -> None:
    place.rmdir()
    (place.parent / "shm").mkdir()
    folder = make()
    assert Path(folder.path).parent == place.parent / "shm"
    folder.leave()


def test_without_a_place_the_ranks_use_the_folder_of_the_run(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.rmdir()
    folder = make()
    assert Path(folder.path).parent == place.parent / "attempt"
    message = "hpcrun: n1 cannot use {} or {} (No such file or directory); its ranks use"
    assert message.format(*node_folder.PLACES) in capsys.readouterr().err
    folder.leave()


def test_a_network_file_system_is_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.parent / "shm").mkdir()
    monkeypatch.setattr(node_folder, "is_shared", lambda path: path == str(place))
    folder = make()
    assert Path(folder.path).parent == place.parent / "shm"
    folder.leave()


def test_each_attempt_and_node_has_its_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make()
    monkeypatch.setenv("HPCRUN_NODE", "n2")
    second = make()
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(place.parent))
    third = make()
    assert len({first.path, second.path, third.path}) == 3
    for folder in (first, second, third):
        folder.leave()


def test_a_folder_goes_with_all_in_it_however_deep_and_whatever_its_modes(tmp_path: Path) -> None:
    outside = tmp_path / "outside/file"
    outside.parent.mkdir()
    outside.touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    for mode in (0o000, 0o100, 0o500):
        closed = folder / f"closed-{mode:o}/inside"
        closed.mkdir(parents=True)
        (closed / "file").touch()
        closed.parent.chmod(mode)
    here = os.open(folder, os.O_RDONLY)
    for number in range(1100):
        os.mkdir("d", dir_fd=here)
        os.symlink(outside.parent, "link", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.fchmod(here, 0o700 if number % 3 else 0o500)
        os.close(here)
        here = below
    os.close(here)
    node_folder.remove(str(folder))
    assert not folder.exists()
    assert outside.exists()


# --- what the ranks of a node share --------------------------------------------------------------


def test_one_process_does_the_action_that_a_file_stands_for(place: Path) -> None:
    first = enter(NAME)
    second = enter(NAME)
    assert first.claim("warned-17")
    assert not second.claim("warned-17")
    assert not first.claim("warned-17")
    assert (second.has("warned-17"), second.has("warned-18")) == (True, False)
    first.leave("warned-17")
    assert not second.has("warned-17")
    second.leave()


@pytest.mark.parametrize(("local_rank", "times"), [("0", 1), ("1", 0)])
def test_a_file_that_cannot_be_made_is_said_once(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    local_rank: str,
    times: int,
) -> None:
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    folder = enter(NAME)
    (place / NAME).rmdir()
    assert folder.claim("stop-terminated")
    assert folder.claim("stop-time_limit")
    message = (
        f"hpcrun: n1 cannot write to {place / NAME}: No such file or directory; its ranks may not"
        " learn of requests to stop, and run on\n"
    )
    assert capsys.readouterr().err == message * times


def test_a_request_to_stop_is_seen_by_all(place: Path) -> None:
    first = enter(NAME)
    first.claim("heard-1")
    assert not first.is_stopping()
    first.claim("stop-terminated")
    assert first.is_stopping()
    first.leave("heard-1", "stop-terminated")


def test_running_programs_are_known_by_their_ranks(place: Path) -> None:
    folder = enter(NAME)
    for name in ("rank-3.17", "rank-12.18", "stop-x", "heard-3"):
        folder.claim(name)
    assert folder.programs() == {3: 17, 12: 18}
    folder.leave()


def test_one_process_at_a_time_watches_for_its_node(place: Path) -> None:
    first = enter(NAME)
    second = enter(NAME)
    assert first.leads()
    assert not second.leads()
    assert first.leads()
    first.leave()
    second.leave()


@pytest.mark.parametrize(
    ("text", "number", "learns"),
    [
        pytest.param("", signal.SIGTERM, True, id="ended by SIGTERM"),
        pytest.param("trap '' TERM;", signal.SIGTERM, False, id="ignores SIGTERM"),
        pytest.param("", signal.SIGUSR1, False, id="no handler"),
        pytest.param("trap : USR1;", signal.SIGUSR1, True, id="handler"),
    ],
)
def test_a_program_learns_of_the_stop_by_a_signal(
    place: Path, text: str, number: int, learns: bool
) -> None:
    program = subprocess.Popen(["sh", "-c", f"{text} echo; read x"], stdin=-1, stdout=-1)
    with program:
        assert program.stdout
        program.stdout.readline()
        folder = enter(NAME)
        folder.note_heard(5, program.pid, number)
        assert folder.has("heard-5") == learns
        folder.leave()
        program.kill()


def test_a_rank_s_processes_are_those_with_its_number(place: Path) -> None:
    folder = enter(NAME)
    env = {**os.environ, "HPCRUN_NODE_DIR": folder.path, "HPCRUN_RANK": "3"}
    other = {**env, "HPCRUN_RANK": "4"}  # which has ended, as far as the folder tells
    elsewhere = {**env, "HPCRUN_NODE_DIR": "/elsewhere"}
    programs = [subprocess.Popen(["sleep", "60"], env=each) for each in (env, other, elsewhere)]
    folder.claim(f"rank-3.{programs[0].pid}")
    wait_for(lambda: programs[0].pid in folder.rank_processes(), 20, "the program")
    processes = folder.rank_processes()
    for program in programs:
        program.kill()
        program.wait()
    folder.leave()
    assert processes == {programs[0].pid: 3}


# --- its data and its disk -----------------------------------------------------------------------


@pytest.fixture
def data(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data of the job: a link to a kept folder."""
    kept = place / "hpcrun-kept-0-abc"
    (kept / "data/x").mkdir(parents=True)
    stage = place / "hpcrun-stage-7-x"
    stage.mkdir()
    (stage / "x").symlink_to(kept / "data/x")
    (stage / "other").symlink_to(place / "elsewhere/data/x")
    (stage / "file").touch()
    monkeypatch.setenv("HPCRUN_STAGE", str(stage))
    return stage


@pytest.mark.parametrize(
    ("stop", "launch", "goes"),
    [
        pytest.param("stop-terminated", None, True, id="terminated"),
        pytest.param("stop-time_limit", None, False, id="another attempt follows"),
        pytest.param("stop-terminated", "1", False, id="the script goes on"),
    ],
)
def test_the_data_go_with_a_node_that_is_terminated(
    data: Path, monkeypatch: pytest.MonkeyPatch, stop: str, launch: str | None, goes: bool
) -> None:
    if launch:
        monkeypatch.setenv("HPCRUN_LAUNCH", launch)
    folder = enter(NAME)
    folder.claim(stop)
    folder.leave()
    assert data.exists() != goes


def test_only_the_last_process_removes_the_data(data: Path) -> None:
    first = enter(NAME)
    second = enter(NAME)
    first.claim("stop-terminated")
    first.leave()
    assert data.exists()
    second.leave()
    assert not data.exists()


def test_the_node_holds_the_kept_data_of_its_job(data: Path) -> None:
    kept = data.parent / "hpcrun-kept-0-abc"
    folder = make()
    node_folder.remove(str(kept))
    assert kept.exists()
    folder.leave()
    for descriptor in folder._data:
        os.close(descriptor)
    node_folder.remove(str(kept))
    assert not kept.exists()


def test_kept_data_of_jobs_here_are_known(data: Path) -> None:
    assert node_folder.kept_of_jobs(str(data.parent)) == {"hpcrun-kept-0-abc"}
    data.rename(data.with_name("of-something-else"))
    assert node_folder.kept_of_jobs(str(data.parent)) == set()


@pytest.mark.parametrize(
    ("kind", "is_network"),
    [
        ("nfs4 server:/home rw", True),
        ("fuse.sshfs host: rw", True),
        ("lustre x rw", True),
        ("ext4 /dev/sda1 rw", False),
        ("tmpfs tmpfs rw", False),
        ("xfs nfs rw", False),
    ],
)
def test_a_network_file_system_is_known_by_its_type(kind: str, is_network: bool) -> None:
    line = f"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - {kind}\n"
    assert node_folder.network_mount(line, "98:0") == is_network
    assert not node_folder.network_mount(line, "98:1")


@pytest.mark.parametrize(
    ("mode", "is_safe"), [(0o755, True), (0o1777, True), (0o777, False), (0o770, True)]
)
def test_others_can_move_data_where_all_may_write(tmp_path: Path, mode: int, is_safe: bool) -> None:
    tmp_path.chmod(mode)
    assert (node_folder.swap_problem(str(tmp_path)) == "") == is_safe


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used(place: Path) -> None:
    (place / NAME).mkdir()
    os.chown(place / NAME, 12, -1)
    (place.parent / "shm").mkdir()
    folder = enter(NAME)
    assert Path(folder.path).parent == place.parent / "shm"
    folder.leave()
    assert (place / NAME).exists()


def test_a_folder_is_held_by_many_or_by_one_alone(place: Path) -> None:
    path = str(place / "held")
    first = node_folder.create(path)
    second = node_folder.hold(path)
    with pytest.raises(BlockingIOError):
        node_folder.hold_alone(path)
    os.close(first)
    os.close(second)
    alone = node_folder.hold_alone(path)
    with pytest.raises(BlockingIOError):
        node_folder.hold(path)
    os.close(alone)


def test_a_link_to_a_folder_is_not_held(place: Path) -> None:
    (place / "link").symlink_to(place)
    with pytest.raises(OSError, match="link"):
        node_folder.hold(str(place / "link"))


@pytest.mark.parametrize(("age_s", "young"), [(50, True), (70, False)])
def test_a_folder_is_young_for_a_minute(place: Path, age_s: float, young: bool) -> None:
    folder = left_by(place, "x", age_s)
    assert node_folder.is_young(str(folder)) == young
    assert not node_folder.is_young(str(place / "missing"))


def test_a_folder_without_locks_is_used_and_stays(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", lock)
    folder = enter(NAME)
    assert folder.leads()
    folder.claim("stop-terminated")
    assert folder.is_stopping()
    folder.leave()
    assert (place / NAME).exists()
