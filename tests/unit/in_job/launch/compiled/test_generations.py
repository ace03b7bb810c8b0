"""The generations of compiled files on the shared storage: which one is used, and which ones go."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hpcrun.in_job.launch.compiled import generations

CODE = "0123456789abcdef"
OTHER = "fedcba9876543210"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The folder of a program, below that of all programs."""
    path = tmp_path / ".compiled/train-1"
    path.mkdir(parents=True, mode=0o700)
    path.parent.chmod(0o700)
    return path


def made(program: Path, number: int, *, code: str = CODE, whole: bool = True) -> Path:
    """A generation, complete or without its archive."""
    path = program / f"{10**18 + number}.run-{number}.0"
    assert generations.enter(str(path), "node-1", code, 100)
    if whole:
        Path(generations.part(str(path), code)).write_bytes(b"12345")
    return path


def names(program: Path) -> list[str]:
    return sorted(path.name.split(".")[1] for path in program.iterdir())


def newest(program: Path) -> str:
    found = generations.newest(str(program))
    return found.run if found else ""


def test_a_program_without_generations_has_none(tmp_path: Path) -> None:
    assert generations.newest(str(tmp_path / "missing")) is None


def test_the_newest_complete_one_is_used(program: Path) -> None:
    made(program, 1)
    made(program, 2)
    made(program, 3, whole=False)
    assert newest(program) == "run-2"


def test_a_generation_tells_its_parts_and_their_size(program: Path) -> None:
    path = made(program, 1)
    assert generations.enter(str(path), "node-2", OTHER, 50)
    Path(generations.part(str(path), OTHER)).write_bytes(b"1")
    found = generations.newest(str(program))
    assert found
    assert [Path(part).name for part in found.parts] == [f"{CODE}.tar.gz", f"{OTHER}.tar.gz"]
    assert found.size == 150


def test_a_set_that_one_node_has_named_is_needed(program: Path) -> None:
    path = made(program, 1)
    generations.enter(str(path), "node-2", OTHER, 50)
    assert newest(program) == ""


def test_only_the_first_node_saves_a_set(program: Path) -> None:
    path = made(program, 1)
    assert not generations.enter(str(path), "node-2", CODE, 100)


def test_a_node_that_has_more_now_names_its_new_set_alone(program: Path) -> None:
    path = made(program, 1)
    assert generations.enter(str(path), "node-1", OTHER, 200)
    sets = [name for name in os.listdir(path) if name.endswith(".set")]
    assert sets == [f"node-1.{OTHER}.200.set"]


def test_names_of_nodes_that_begin_alike_are_two(program: Path) -> None:
    path = made(program, 1)
    generations.enter(str(path), "node-1.local", OTHER, 50)
    generations.enter(str(path), "node-1", CODE, 100)
    assert len([name for name in os.listdir(path) if name.endswith(".set")]) == 2


def test_one_that_is_too_large_is_not_used(program: Path) -> None:
    path = program / f"{10**18}.run-1.0"
    generations.enter(str(path), "node-1", CODE, generations.MOST_BYTES + 1)
    Path(generations.part(str(path), CODE)).write_bytes(b"1")
    assert newest(program) == ""


def test_too_many_sets_are_refused(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "MOST_SETS", 1)
    path = made(program, 1)
    with pytest.raises(OSError, match="more than 1 different sets"):
        generations.enter(str(path), "node-2", OTHER, 50)


@pytest.mark.parametrize("of_parent", [0, 1, 2], ids=["generation", "program", "all"])
def test_one_that_others_can_write_is_not_used(program: Path, of_parent: int) -> None:
    path = made(program, 1)
    [path, *path.parents][of_parent].chmod(0o770)
    assert newest(program) == ""


def test_one_behind_a_link_is_not_used(program: Path) -> None:
    path = made(program, 1)
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")
    assert newest(program) == ""


def test_nothing_is_written_where_others_can(program: Path) -> None:
    program.chmod(0o777)
    with pytest.raises(PermissionError, match="is no folder that only you can write to"):
        made(program, 1)


def test_the_last_two_stay(program: Path) -> None:
    for number in range(4):
        made(program, number)
    generations.evict(str(program))
    assert names(program) == ["run-2", "run-3"]


def test_an_incomplete_one_stays_for_an_hour(program: Path) -> None:
    young = made(program, 1, whole=False)
    old = made(program, 2, whole=False)
    an_hour_ago = time.time() - 3601
    os.utime(old, (an_hour_ago, an_hour_ago))
    generations.evict(str(program))
    assert list(program.iterdir()) == [young]


def test_the_oldest_of_all_programs_goes_first(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "MOST_OF_ALL_BYTES", 9)
    other = program.with_name("other-1")
    other.mkdir(mode=0o700)
    made(other, 1)
    made(program, 2)
    generations.evict(str(program))
    assert list(other.iterdir()) == []
    assert names(program) == ["run-2"]


def test_what_is_no_generation_stays(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "MOST_OF_ALL_BYTES", 0)
    (program / "notes").mkdir()
    (program / "notes/mine").touch()
    made(program, 1)
    made(program, 2)
    generations.evict(str(program))
    assert (program / "notes/mine").exists()


def test_a_new_generation_is_newer_than_those_of_a_clock_that_was_ahead(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCRUN_RUN_DIR", "/runs/run-2")
    monkeypatch.setenv("HPCRUN_ATTEMPT", "0")
    ahead_ns = time.time_ns() + 10**18
    ahead = program / f"{ahead_ns}.run-1.0"
    ahead.mkdir(mode=0o700)
    assert generations.new(str(program)) == str(program / f"{ahead_ns + 1}.run-2.0")
