"""An archive of compiled files: what it keeps of each file, and what makes it unusable."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
import time
from pathlib import Path

import pytest

from hpcrun.in_job.launch.compiled import archive
from hpcrun.in_job.launch.compiled.archive import DamagedArchiveError


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with two compiled files."""
    folder = tmp_path / "files"
    (folder / "triton/ab").mkdir(parents=True)
    (folder / "inductor.so").write_bytes(b"\x7fELF")
    (folder / "inductor.so").chmod(0o755)
    (folder / "triton/ab/kernel").write_text("kernel")
    (folder / "triton/ab/kernel").chmod(0o640)
    os.utime(folder / "triton/ab/kernel", (0, 1000.5))
    return folder


NAMES = ["inductor.so", "triton/ab/kernel"]


def packed(files: Path, names: list[str], within_s: float | None = None) -> Path:
    """Write an archive of some files."""
    path = files.parent / "a.tar.gz"
    archive.write(str(path), str(path) + ".part", str(files), names, within_s)
    return path


def unpack(path: Path, root: str = "/root") -> tuple[list[str], Path]:
    """Unpack an archive; return the names of the new files, and the folder."""
    folder = path.parent / "unpacked"
    folder.mkdir(exist_ok=True)
    return archive.unpack(str(path), str(folder), root), folder


def test_the_files_come_back_for_this_user_alone(files: Path) -> None:
    path = packed(files, NAMES)
    names, folder = unpack(path)
    assert names == NAMES
    assert (folder / "inductor.so").read_bytes() == b"\x7fELF"
    kernel = folder / "triton/ab/kernel"
    assert kernel.read_text() == "kernel"
    assert kernel.stat().st_mtime == 1000.5
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, folder / "inductor.so", kernel)]
    assert modes == [0o600, 0o700, 0o600]
    assert stat.S_IMODE((folder / "triton/ab").stat().st_mode) == 0o700


def test_a_file_that_is_gone_is_left_out(files: Path) -> None:
    names, _ = unpack(packed(files, ["gone", *NAMES]))
    assert names == NAMES


def test_a_file_that_is_there_stays(files: Path) -> None:
    path = packed(files, NAMES)
    (path.parent / "unpacked").mkdir()
    (path.parent / "unpacked/inductor.so").write_text("earlier")
    names, folder = unpack(path)
    assert names == ["triton/ab/kernel"]
    assert (folder / "inductor.so").read_text() == "earlier"


def test_of_an_archive_that_takes_too_long_nothing_is_left(files: Path) -> None:
    with pytest.raises(TimeoutError, match="that takes too long"):
        packed(files, NAMES, within_s=-1)
    assert [path.name for path in files.parent.iterdir()] == ["files"]
    assert packed(files, NAMES, within_s=60).exists()


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_an_archive_that_others_may_write_is_not_used(files: Path, mode: int) -> None:
    path = packed(files, NAMES)
    path.chmod(mode)
    with pytest.raises(DamagedArchiveError, match=r"^others may have written it$"):
        unpack(path)


def test_a_link_to_an_archive_is_not_used(files: Path) -> None:
    path = packed(files, NAMES)
    link = path.with_name("link")
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        unpack(link)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:-1], id="cut"),
        pytest.param(lambda data: data[: len(data) // 2], id="cut in two"),
        pytest.param(lambda data: data[:-6] + b"\0" + data[-5:], id="another checksum"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: b"no archive", id="something else"),
    ],
)
def test_a_damaged_archive_is_not_used(files: Path, damage: object) -> None:
    path = packed(files, NAMES)
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DamagedArchiveError, match=r"^it is damaged "):
        unpack(path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("/etc/x", tarfile.REGTYPE, id="absolute"),
        pytest.param("a/../../x", tarfile.REGTYPE, id="above"),
        pytest.param("a\x1b", tarfile.REGTYPE, id="unprintable"),
        pytest.param("link", tarfile.SYMTYPE, id="link"),
        pytest.param("folder", tarfile.DIRTYPE, id="folder"),
    ],
)
def test_what_no_compiler_makes_is_not_unpacked(tmp_path: Path, name: str, kind: bytes) -> None:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.type = kind
        member.linkname = "/etc"
        tar.addfile(member, io.BytesIO())
    path.chmod(0o600)
    with pytest.raises(DamagedArchiveError, match=r"^it has "):
        unpack(path)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        pytest.param(
            {"child_paths": {"k": "{old}/triton/ab/k", "out": "/tmp/k", "up": "{old}/../k"}},
            {"k": "/new/triton/ab/k"},
            id="paths",
        ),
        pytest.param({"child_paths": {"k": "{old}-other/k"}}, {}, id="a name that begins so"),
        pytest.param({"children": 1}, {}, id="other fields"),
        pytest.param({"child_paths": ["k"]}, {}, id="a list"),
        pytest.param([], {}, id="no object"),
    ],
)
def test_a_list_of_triton_names_the_moved_files(
    files: Path, group: object, expected: dict[str, str]
) -> None:
    text = json.dumps(group).replace("{old}", str(files))
    (files / "triton/ab/__grp__k.json").write_text(text)
    _, folder = unpack(packed(files, ["triton/ab/__grp__k.json"]), "/new")
    moved = json.loads((folder / "triton/ab/__grp__k.json").read_text())
    assert moved == {"child_paths": expected}


def test_a_file_is_read_until_the_time_is_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("12345")
    with (tmp_path / "a").open("rb") as file:
        timed = archive._Timed(file, time.monotonic() + 60)
        assert (timed.read(2), timed.read()) == (b"12", b"345")
        with pytest.raises(TimeoutError):
            archive._Timed(file, time.monotonic() - 1).read()
