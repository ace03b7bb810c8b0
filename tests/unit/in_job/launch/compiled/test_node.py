"""The folder of compiled files of a node: when it is used, and when its files are old enough."""

from __future__ import annotations

import os
import tarfile
import time
from pathlib import Path

import pytest

from hpcrun.in_job.launch import node_folder
from hpcrun.in_job.launch.compiled import folder, generations, node, saving
from hpcrun.in_job.launch.compiled.folder import CPU, FILLED, INTO, QUIET_S
from tests.unit.in_job.attempts import Attempt


def test_a_filled_folder_is_used_whatever_room_it_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "LEAST_ROOM", 1 << 60)
    path = tmp_path / "hpcrun-compiled-1-0"
    path.mkdir(mode=0o700)
    monkeypatch.setenv(FILLED, "1")
    node._make(str(path))
    monkeypatch.setenv(FILLED, "")
    with pytest.raises(OSError, match="MiB free"):
        node._make(str(path))


@pytest.mark.parametrize(
    ("ages_s", "is_quiet"),
    [
        pytest.param([QUIET_S + 5], True, id="old"),
        pytest.param([QUIET_S + 5, 1], False, id="one young"),
        pytest.param([QUIET_S + 5, -86400], True, id="one of a clock that is ahead"),
        pytest.param([-86400], True, id="all of a clock that is ahead"),
    ],
)
def test_a_time_to_come_keeps_no_file_young(ages_s: list[float], is_quiet: bool) -> None:
    now = time.time()
    assert (node._age_s([now - age_s for age_s in ages_s]) > QUIET_S) is is_quiet


def test_more_files_than_a_start_gains_by_are_not_saved(tmp_path: Path) -> None:
    names = [str(number) for number in range(saving.MOST_FILES + 1)]
    with pytest.raises(OSError, match="there are 20,001, and more than 20,000 start no job sooner"):
        saving._save(str(tmp_path / "generation"), str(tmp_path), names, 1, None)
    assert list(tmp_path.iterdir()) == []


# --- the folder while ranks run ------------------------------------------------------------------

VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_HOME": "triton"}
VARIABLES |= {"CUDA_CACHE_PATH": "cuda", "MORE_CACHE": "more_cache"}


@pytest.fixture
def path(attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this node, which is not there yet."""
    place = tmp_path / "disk"
    place.mkdir(mode=0o700)
    for name in (*VARIABLES, *(f"HPCRUN_PUT_{name}" for name in VARIABLES)):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HPCRUN_COMPILED", str(place / "hpcrun-compiled-7"))
    monkeypatch.setenv("HPCRUN_COMPILED_SECRET", "secret")
    monkeypatch.setenv("HPCRUN_COMPILED_VARIABLES", "MORE_CACHE")
    monkeypatch.setenv(FILLED, "")
    program = tmp_path / ".compiled/train-1"
    program.mkdir(parents=True, mode=0o700)
    program.parent.chmod(0o700)
    monkeypatch.setenv(INTO, str(program / f"{10**18}.run-1.0"))
    monkeypatch.setenv(CPU, folder.cpu_kind())
    return Path(folder.path_on("n1"))


def used() -> node.CompiledFolder:
    """Return the folder of this node."""
    compiled = node.use()
    assert compiled is not None
    return compiled


def compile_file(path: Path, name: str, age_s: float = 0.0) -> None:
    """Leave a file as a compiler does."""
    file = path / "files" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    os.utime(file, (0, time.time() - age_s))


def is_saved() -> bool:
    return generations.complete(os.environ[INTO]) is not None


def test_compilers_write_to_the_folder_of_the_node(path: Path) -> None:
    used().leave(ended_well=True, may_save=False)
    for name, place in VARIABLES.items():
        assert os.environ[name] == os.environ[f"HPCRUN_PUT_{name}"] == f"{path}/files/{place}"


def test_a_variable_of_a_compiler_that_is_set_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_HOME", "/own")
    used().leave(ended_well=True, may_save=False)
    assert os.environ["TRITON_HOME"] == "/own"
    assert "HPCRUN_PUT_TRITON_HOME" not in os.environ


def test_the_last_process_of_the_node_saves_and_removes(path: Path) -> None:
    first = used()
    second = used()
    compile_file(path, "inductor/a")
    first.leave(ended_well=True, may_save=True)
    assert path.exists()
    assert not is_saved()
    second.leave(ended_well=True, may_save=True)
    assert not path.exists()
    assert is_saved()


@pytest.mark.parametrize(
    ("ended_well", "may_save", "age_s", "saved"),
    [
        pytest.param(True, True, 0, True, id="well"),
        pytest.param(True, False, 0, False, id="no time"),
        pytest.param(False, True, 0, False, id="failed"),
        pytest.param(False, True, QUIET_S + 5, True, id="failed later"),
    ],
)
def test_complete_files_are_saved_if_there_is_time(
    path: Path, ended_well: bool, may_save: bool, age_s: float, saved: bool
) -> None:
    compiled = used()
    compile_file(path, "inductor/a", age_s)
    compiled.leave(ended_well=ended_well, may_save=may_save)
    assert is_saved() == saved
    assert not path.exists()


def test_new_files_are_counted_at_the_end(attempt: Attempt, path: Path) -> None:
    path.mkdir()
    (path / "unpacked").write_text("inductor/earlier")
    compiled = used()
    now = time.time()
    for name, age_s in (("earlier", 900), ("a", 30), ("b", 10)):
        compile_file(path, f"inductor/{name}", age_s)
    compiled.leave(ended_well=True, may_save=False)
    record = attempt.record("node-n1.compiled")
    assert record["files"] == 2
    assert abs(record["first"] - (now - 30)) < 5
    assert abs(record["last"] - (now - 10)) < 5


def test_without_new_files_there_is_no_count(attempt: Attempt, path: Path) -> None:
    used().leave(ended_well=True, may_save=True)
    assert not (attempt.folder / "node-n1.compiled").exists()


def test_while_ranks_run_new_files_are_counted(
    attempt: Attempt, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = used()
    compile_file(path, "inductor/a")
    compiled.tick()
    assert not (attempt.folder / "node-n1.compiled").exists()
    later = time.monotonic() + 20
    monkeypatch.setattr(time, "monotonic", lambda: later)
    compiled.tick()
    assert attempt.record("node-n1.compiled")["files"] == 1
    compile_file(path, "inductor/b")
    compiled.tick()
    assert attempt.record("node-n1.compiled")["files"] == 1
    compiled.leave(ended_well=True, may_save=False)


@pytest.mark.parametrize(("age_s", "saved"), [(QUIET_S + 5, True), (QUIET_S - 5, False)])
def test_once_nothing_new_comes_the_files_are_saved(
    path: Path, monkeypatch: pytest.MonkeyPatch, age_s: float, saved: bool
) -> None:
    monkeypatch.setattr(node, "LOOK_S", 0.0)
    compiled = used()
    compile_file(path, "inductor/a", age_s)
    compiled.tick()
    compiled.leave(ended_well=False, may_save=False)  # it waits for what saves
    assert is_saved() == saved


def test_what_a_killed_process_writes_is_not_saved(path: Path) -> None:
    compiled = used()
    compile_file(path, "inductor/b")
    with (path / "files/cut").open("w"):
        compiled.note_writers([os.getpid()])
    compiled.leave(ended_well=True, may_save=True)
    (part,) = Path(os.environ[INTO]).glob("*.tar.gz")
    with tarfile.open(part) as tar:
        assert tar.getnames() == ["inductor/b"]


def test_a_filled_folder_that_is_gone_is_said(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(FILLED, "1")
    used().leave(ended_well=True, may_save=False)
    message = f"--warm: {path} of n1 is gone: its ranks compile what others have"
    assert capsys.readouterr().err == f"hpcrun: {message}\n"


def test_a_disk_that_cannot_be_used_is_said(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.parent.chmod(0o777)
    assert node.use() is None
    start = "hpcrun: --warm: n1 keeps nothing compiled: others can move what lies in "
    assert capsys.readouterr().err.startswith(start)


def test_folders_that_killed_jobs_have_left_are_removed(path: Path) -> None:
    old = path.with_name("hpcrun-compiled-6-x")
    young = path.with_name("hpcrun-compiled-8-x")
    for left, age_s in ((old, 601), (young, 590)):
        left.mkdir()
        os.utime(left, (0, time.time() - age_s))
    used().leave(ended_well=True, may_save=False)
    assert (old.exists(), young.exists()) == (False, True)


def test_a_disk_without_room_is_said(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(node_folder, "room", lambda _: (64 << 20) - 1)
    assert node.use() is None
    assert capsys.readouterr().err.endswith(f": {path.parent} has less than 64 MiB free\n")
