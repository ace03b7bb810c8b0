"""Kept copies of data: when one is used, which go first for room, and how one is begun."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.in_job.launch import node_folder
from hpcrun.in_job.launch.per_job import kept_data
from hpcrun.in_job.launch.per_job.kept_data import UnusableError

DAY_S = 86400
PREFIX = f"hpcrun-kept-{os.getuid()}-"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """The disk of a node; what is kept there is removed, although it is read-only."""
    place = tmp_path / "disk"
    place.mkdir()
    yield place
    for folder in place.iterdir():
        node_folder.remove(str(folder))


def keep(place: Path, source: str, *, used_days: float = 0, more_days: float = 1) -> Path:
    """Keep a folder with a file of 5 bytes, as a copy of a source leaves it.

    Args:
        place: where.
        source: of what it is a copy.
        used_days: so long ago it was used last.
        more_days: so long it is kept from now.
    """
    part = place / "new"
    (part / "data/data").mkdir(parents=True)
    (part / "data/data/a").write_text("12345")
    os.utime(part / "data/data/a", (0, 1000))
    lines = [kept_data.source_record(source)]
    for name in ("data", "data/a"):
        info = (part / "data" / name).stat()
        lines.append(kept_data.entry_record(f"./{name}".encode(), info))
    (part / "list").write_bytes(b"".join(lines))
    code = kept_data.ListCode()
    for line in lines:
        code.add(line)
    folder = Path(kept_data.path_of(str(place), code.text()))
    part.rename(folder)
    now_s = time.time()
    os.utime(folder / "list", (now_s, now_s + more_days * DAY_S))
    folder.chmod(0o500)
    os.utime(folder, (now_s, now_s - used_days * DAY_S))
    return folder


def verified(folder: Path, days: int = 1) -> tuple[bool, list[str]]:
    """Return whether a folder can be used, and what the log says."""
    log: list[str] = []
    held = kept_data.hold_verified(str(folder), days, log.append)
    if held is not None:
        os.close(held)
    return held is not None, log


# --- whether one is used -------------------------------------------------------------------------


def test_data_as_listed_are_used(place: Path) -> None:
    assert verified(keep(place, "/data")) == (True, [])


def test_data_that_are_not_there_are_not_used(place: Path) -> None:
    assert verified(place / f"{PREFIX}abc") == (False, [])


DATA = "data/data"


def replace(path: Path, text: str, time_ns: int = 1_000_000_000_000) -> None:
    path.write_text(text)
    os.utime(path, ns=(0, time_ns))


def lose_list(folder: Path) -> None:
    """Remove the list of a kept folder, which is read-only."""
    folder.chmod(0o700)
    (folder / "list").unlink()
    folder.chmod(0o500)


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(
            lambda kept: replace(kept / DATA / "a", "1234"),
            "./data/a is not as in the list",
            id="size",
        ),
        pytest.param(
            lambda kept: replace(kept / DATA / "a", "12345", 1_001_000_000_000),
            "./data/a is not as in the list",
            id="seconds",
        ),
        pytest.param(
            lambda kept: replace(kept / DATA / "a", "12345", 1_000_000_000_001),
            "./data/a is not as in the list",
            id="nanoseconds",
        ),
        pytest.param(
            lambda kept: to_folder(kept / DATA / "a"), "./data/a is not as in the list", id="kind"
        ),
        pytest.param(
            lambda kept: (kept / DATA / "b\n").touch(), "./data/b? is not as in the list", id="more"
        ),
        pytest.param(lambda kept: (kept / DATA / "a").unlink(), "./data/a is missing", id="fewer"),
        pytest.param(
            lambda kept: replace(kept / "list", "/other\0"), "its list has changed", id="list"
        ),
        pytest.param(
            lambda kept: (kept / "list").unlink(),
            "its list cannot be read (No such file or directory)",
            id="no list",
        ),
    ],
)
def test_data_that_are_not_as_listed_are_removed(place: Path, change: object, problem: str) -> None:
    folder = keep(place, "/data")
    folder.chmod(0o700)
    assert callable(change)
    change(folder)
    folder.chmod(0o500)
    assert verified(folder) == (False, [f"{problem} in {folder}: copied anew"])
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("listed_ns", "copy_ns", "is_equal"),
    [
        pytest.param(5_000_000_007, 5_000_000_000, True, id="a file system of seconds"),
        pytest.param(5_000_000_000, 5_000_000_000, True, id="whole seconds"),
        pytest.param(5_000_000_007, 5_000_000_008, False, id="another time"),
        pytest.param(5_000_000_007, 6_000_000_000, False, id="another second"),
    ],
)
def test_a_file_system_of_whole_seconds_keeps_no_more(
    tmp_path: Path, listed_ns: int, copy_ns: int, is_equal: bool
) -> None:
    path = tmp_path / "a"
    replace(path, "12345", copy_ns)
    record = (b"5", b"%d" % listed_ns)
    assert kept_data._is_as_listed(path.stat(), record) == is_equal


@pytest.mark.parametrize(
    ("before_days", "days", "expected"), [(1, 3, 3), (5, 3, 5)], ids=["longer", "no shorter"]
)
def test_a_use_keeps_data_for_its_days(
    place: Path, before_days: int, days: int, expected: int
) -> None:
    folder = keep(place, "/data", used_days=9, more_days=before_days)
    verified(folder, days)
    assert abs((folder / "list").stat().st_mtime - time.time() - expected * DAY_S) < 60
    assert abs(folder.stat().st_mtime - time.time()) < 60


def test_a_name_that_is_taken_is_said(place: Path) -> None:
    (place / f"{PREFIX}abc").touch()
    with pytest.raises(UnusableError, match=r"-abc is no folder: remove it$"):
        verified(place / f"{PREFIX}abc")


def test_a_folder_that_somebody_has_opened_up_is_said(place: Path) -> None:
    folder = keep(place, "/data")
    folder.chmod(0o750)
    with pytest.raises(UnusableError, match=r"has the mode 750 instead of 500: remove it$"):
        verified(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_said(place: Path) -> None:
    folder = keep(place, "/data")
    os.chown(folder, 12, -1)
    with pytest.raises(UnusableError, match=r"belongs to the user with the id 12$"):
        verified(folder)
    os.chown(folder, 0, -1)


def test_damaged_data_that_another_job_uses_stay(place: Path) -> None:
    folder = keep(place, "/data")
    lose_list(folder)
    held = node_folder.hold(str(folder))
    with pytest.raises(UnusableError, match=r" in .*, which another job uses$"):
        verified(folder)
    os.close(held)
    assert (folder / "data/data/a").exists()


# --- room ----------------------------------------------------------------------------------------


def test_data_whose_days_are_over_go_first(place: Path) -> None:
    new = keep(place, "/new", used_days=1)
    old = keep(place, "/old", used_days=3)
    over = keep(place, "/over", used_days=2, more_days=-1)
    (place / f"{PREFIX}x.part").mkdir()
    (place / f"{PREFIX}y.1234.old").mkdir()
    (place / "hpcrun-kept-another").mkdir()
    kept = kept_data.kept_here(str(place))
    assert [Path(folder.path) for folder in kept] == [over, old, new]
    assert [folder.source for folder in kept] == ["/over", "/old", "/new"]
    assert abs(kept[2].used_s - time.time() + DAY_S) < 60
    assert abs(kept[2].until_s - time.time() - DAY_S) < 60
    blocks = [path.stat().st_blocks for path in (new / "list", new / "data/data/a")]
    assert kept[2].size == 512 * sum(blocks)


def test_a_folder_with_a_damaged_list_goes_first(place: Path) -> None:
    keep(place, "/old", used_days=9)
    damaged = keep(place, "/data")
    lose_list(damaged)
    first = kept_data.kept_here(str(place))[0]
    assert (first.path, first.source, first.until_s) == (str(damaged), str(damaged), 0)


def free_after(place: Path, folders: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a disk of this many folders have one byte for each that is removed."""
    monkeypatch.setattr(node_folder, "room", lambda _: folders - len(list(place.iterdir())))


@pytest.mark.parametrize(
    ("need", "sources"),
    [
        pytest.param(0, [], id="there is room"),
        pytest.param(1, ["/old"], id="one is enough"),
        pytest.param(2, ["/old", "/new"], id="both"),
        pytest.param(10**9, [], id="not enough at all"),
    ],
)
def test_as_much_is_removed_as_is_needed(
    place: Path, monkeypatch: pytest.MonkeyPatch, need: int, sources: list[str]
) -> None:
    new = keep(place, "/new", used_days=1)
    old = keep(place, "/old", used_days=2.5)
    free_after(place, 2, monkeypatch)
    days = {"/old": "2.5", "/new": "1.0"}
    expected = [
        f"removed {source} (0 MB, last used {days[source]} days ago) for room" for source in sources
    ]
    assert kept_data.make_room(str(place), need) == expected
    left = {folder for folder, source in ((new, "/new"), (old, "/old")) if source not in sources}
    assert {*place.iterdir()} == left


def test_data_of_running_jobs_stay(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked = keep(place, "/linked", used_days=3)
    held = keep(place, "/held", used_days=2)
    keep(place, "/unused", used_days=1)
    job = place / "hpcrun-stage-7-x"
    job.mkdir()
    (job / "data").symlink_to(linked / "data/data")
    descriptor = node_folder.hold(str(held))
    free_after(place, 4, monkeypatch)
    removed = kept_data.make_room(str(place), 1)
    os.close(descriptor)
    assert [line.split()[1] for line in removed] == ["/unused"]
    assert linked.exists()
    assert held.exists()


def test_what_killed_jobs_have_left_of_copies_goes(place: Path) -> None:
    kept = keep(place, "/data")
    for name in (f"{PREFIX}x.part", f"{PREFIX}y.1234.old", "hpcrun-kept-other.part"):
        (place / name).mkdir()
    kept_data.sweep(str(place))
    assert {path.name for path in place.iterdir()} == {kept.name, "hpcrun-kept-other.part"}


# --- a copy --------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often whether another job goes on, and not for long."""
    monkeypatch.setattr(kept_data, "LOOK_S", 0.01)
    monkeypatch.setattr(kept_data, "STALLED_S", 0.05)


def test_a_copy_begins_where_a_killed_job_left_one(place: Path) -> None:
    path = str(place / f"{PREFIX}abc")
    os.mkdir(path + ".part")
    (place / f"{PREFIX}abc.part/data").mkdir()
    part = kept_data.begin_copy(path, print)
    assert part is not None
    assert part.make_data() == f"{path}.part/data"
    assert stat.S_IMODE(os.stat(part.path).st_mode) == 0o700
    assert kept_data.is_being_copied(path)
    part.close()
    assert not kept_data.is_being_copied(path)


@pytest.mark.usefixtures("quick")
def test_a_copy_that_stands_still_is_not_waited_for(place: Path) -> None:
    path = str(place / f"{PREFIX}abc")
    part = kept_data.begin_copy(path, print)
    assert part is not None
    log: list[str] = []
    began = time.monotonic()
    with pytest.raises(UnusableError, match=r"the copy of another job to .*-abc.part stands still"):
        kept_data.begin_copy(path, log.append)
    assert time.monotonic() - began >= 0.05
    assert log == ["another job copies the same data"]
    part.close()


@pytest.mark.usefixtures("quick")
def test_another_job_s_copy_is_used_when_complete(place: Path) -> None:
    path = place / f"{PREFIX}abc"
    part = kept_data.begin_copy(str(path), print)
    assert part is not None
    assert kept_data.begin_copy(str(path), lambda _: path.mkdir()) is None
    part.close()


def test_the_name_of_a_copy_may_be_taken(place: Path) -> None:
    (place / f"{PREFIX}abc.part").touch()
    with pytest.raises(UnusableError, match=r"-abc.part is no folder: remove it$"):
        kept_data.begin_copy(str(place / f"{PREFIX}abc"), print)


def test_a_folder_that_has_just_gone_is_said(place: Path) -> None:
    path = str(place / f"{PREFIX}abc")
    assert kept_data._what_is_wrong(path) == f"{path}: No such file or directory"
    os.mkdir(path)
    assert kept_data._what_is_wrong(path) == f"{path} cannot be opened: remove it"
