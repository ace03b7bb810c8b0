"""Deleting a folder tree: hostile ones too, and never a file outside of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcrun.runs.record import run_to_json
from hpcrun.runs.removal import NotRemovedError, holds_record, remove_tree, why_not_ours
from tests.harness import REPO
from tests.unit.builders import run, write

RUN_ID = "20260101-000000-a-0000"
MARKER = ".made-by-hpcrun"
NOBODY = 65534


def aside(folder: Path, name: str = f".{RUN_ID}.gone") -> Path:
    """A folder as a process leaves it that is killed while it deletes a run."""
    write(folder / name / MARKER, "")
    write(folder / name / "script.sh", "")
    return folder / name


def precious(folder: Path) -> Path:
    return write(folder / "precious" / "thesis.tex", "years").parent


def content(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    "name", [f".{RUN_ID}", f".{RUN_ID}.gone", ".20260101-000000-a.b_c+d-e-0000"]
)
def test_what_hpcrun_made_goes_with_all_that_is_in_it(name: str, tmp_path: Path) -> None:
    folder = aside(tmp_path, name)
    write(folder / "elements/0/attempts/0/rank-0.out", "x")
    write(folder / "elements/1/attempts/0/rank-0.out", "x")
    assert why_not_ours(folder) is None
    remove_tree(folder)
    assert list(tmp_path.iterdir()) == []
    remove_tree(folder)


@pytest.mark.parametrize(
    "name",
    [
        ".ssh",
        ".git",
        ".config",
        RUN_ID,
        "runs",
        f".{RUN_ID}.old",
        f".{RUN_ID}.gone.gone",
        ".20260101-000000-a-00",
        "..",
        f".{RUN_ID}\n",
        ".٢٠٢٦0101-000000-a-0000",
    ],
)
def test_a_name_that_hpcrun_does_not_give_is_left_alone(name: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    if name == "..":
        write(tmp_path / MARKER, "")
    else:
        aside(inside, name)
    before = content(tmp_path)
    with pytest.raises(NotRemovedError, match="its name is not the name of a run"):
        remove_tree(inside / name)
    assert content(tmp_path) == before


NO_SIGNS: dict[str, Callable[[Path], object]] = {
    "none": lambda folder: None,
    "record of another": lambda folder: write(
        folder / "run.json", run_to_json(run("20260101-000000-b-0000"))
    ),
    "link": lambda folder: (folder / MARKER).symlink_to(folder / "script.sh"),
    "linked record": lambda folder: (folder / "run.json").symlink_to(
        write(folder / "my.json", run_to_json(run(RUN_ID)))
    ),
    "fifo": lambda folder: os.mkfifo(folder / MARKER),
    "fifo for a record": lambda folder: os.mkfifo(folder / "run.json"),
    "folder": lambda folder: (folder / MARKER).mkdir(),
}


@pytest.mark.parametrize("sign", NO_SIGNS)
def test_a_folder_without_a_sign_of_hpcrun_is_left_alone(sign: str, tmp_path: Path) -> None:
    folder = aside(tmp_path)
    (folder / MARKER).unlink()
    NO_SIGNS[sign](folder)
    before = content(tmp_path)
    assert why_not_ours(folder) == "it has no record of hpcrun"
    with pytest.raises(NotRemovedError, match="it has no record of hpcrun"):
        remove_tree(folder)
    assert content(tmp_path) == before


def test_a_damaged_record_is_as_good_as_a_marker_and_an_empty_folder_needs_none(
    tmp_path: Path,
) -> None:
    (tmp_path / f".{RUN_ID}").mkdir()
    remove_tree(tmp_path / f".{RUN_ID}")
    folder = aside(tmp_path)
    (folder / MARKER).unlink()
    write(folder / "run.json", run_to_json(run(RUN_ID))[:200])
    assert holds_record(folder, RUN_ID)
    remove_tree(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_its_place_is_left_alone(tmp_path: Path) -> None:
    target = aside(tmp_path / "elsewhere")
    link = tmp_path / target.name
    link.symlink_to(target)
    with pytest.raises(NotRemovedError, match="a symbolic link"):
        remove_tree(link)
    assert (target / "script.sh").exists()
    assert why_not_ours(link) == "not a folder, or a symbolic link"
    assert why_not_ours(tmp_path / f".{RUN_ID}") == "No such file or directory"
    assert not holds_record(tmp_path / RUN_ID, RUN_ID)


def test_links_fifos_and_strange_names_go_and_what_links_lead_to_stays(tmp_path: Path) -> None:
    folder, kept = aside(tmp_path), precious(tmp_path)
    (folder / "deep").mkdir()
    for name, target in (
        ("deep/data", kept),
        ("file", kept / "thesis.tex"),
        ("root", "/"),
        ("up", ".."),
    ):
        (folder / name).symlink_to(target)
    os.link(kept / "thesis.tex", folder / "hard")
    os.mkfifo(folder / "fifo")
    write(folder / "-rf", "")
    write(folder / "a\nb" / "\x1b[2J", "")
    os.mkdir(os.fsencode(folder) + b"/\xff")
    remove_tree(folder)
    assert content(tmp_path) == ["precious", "precious/thesis.tex"]


def test_a_tree_that_is_too_deep_remains_and_the_message_says_so(tmp_path: Path) -> None:
    folder = aside(tmp_path)
    here = os.open(folder, os.O_RDONLY)
    for _ in range(250):
        os.mkdir("d", dir_fd=here)
        above, here = here, os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(above)
    os.close(here)
    with pytest.raises(
        NotRemovedError, match=r"was not removed wholly: d: more than 200 folders deep\n"
    ):
        remove_tree(folder)
    assert why_not_ours(folder) is None


SWAPPED = """
import os, sys
from pathlib import Path
from hpcrun.runs.removal import NotRemovedError, remove_tree

event, folder, victim, into = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
done = False

def swap(name, args):
    global done
    if done or name != event or args[0] != "deep":
        return
    done = True
    (folder / "deep").rename(folder.parent / "away")
    if into == "link":
        (folder / "deep").symlink_to(victim)
    else:
        (folder.parent / "away").rename(victim / "away")

def watch(name, args):
    # a folder's descriptor comes with os.scandir and os.listdir: "deep" is open by then
    if name == "os.scandir" and isinstance(args[0], int):
        args = (os.path.basename(os.readlink(f"/proc/self/fd/{args[0]}")),)
    swap(name, args)

sys.addaudithook(watch)
try:
    remove_tree(folder)
except NotRemovedError as error:
    print(error)
assert done
"""


@pytest.mark.parametrize("event", ["open", "os.scandir"])
@pytest.mark.parametrize("into", ["link", "other folder"])
def test_a_folder_that_is_swapped_while_it_is_deleted_leads_nowhere_else(
    event: str, into: str, tmp_path: Path
) -> None:
    folder, kept = aside(tmp_path), precious(tmp_path)
    write(folder / "deep" / "below" / "file", "")
    argv = [sys.executable, "-c", SWAPPED, event, str(folder), str(kept), into]
    done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert (kept / "thesis.tex").read_text() == "years"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_user_s_folder_is_left_alone_and_one_within_is_emptied_where_that_can_be(
    tmp_path: Path,
) -> None:
    folder = aside(tmp_path)
    os.chown(folder, NOBODY, -1)
    with pytest.raises(NotRemovedError, match="it belongs to another user"):
        remove_tree(folder)
    assert (folder / "script.sh").exists()
    os.chown(folder, 0, -1)
    os.chown(folder / MARKER, NOBODY, -1)
    with pytest.raises(NotRemovedError, match="no record of hpcrun"):
        remove_tree(folder)


REMOVE = """
import os, sys
from pathlib import Path
from hpcrun.runs.removal import NotRemovedError, remove_tree

os.chdir(sys.argv[1])  # first: pytest's folders are closed to other users
os.setuid(int(sys.argv[2]))
try:
    remove_tree(Path(sys.argv[3]))
except NotRemovedError as error:
    print(error)
"""


def removed_by_nobody(folder: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", REMOVE, str(folder.parent), str(NOBODY), folder.name]
    return subprocess.run(argv, cwd=REPO, capture_output=True, text=True, timeout=30)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_cannot_be_deleted_is_said_and_can_be_tried_again(tmp_path: Path) -> None:
    place = tmp_path / "runs"
    folder = aside(place)
    write(folder / "theirs" / "file", "")
    (folder / "theirs").chmod(0o755)
    for path in (place, folder, folder / MARKER, folder / "script.sh"):
        os.chown(path, NOBODY, -1)
    done = removed_by_nobody(folder)
    assert done.returncode == 0, done.stderr
    assert "was not removed wholly: file: Permission denied\n" in done.stdout
    assert content(folder) == [MARKER, "theirs", "theirs/file"]
    for path in (folder, folder / MARKER):
        os.chown(path, 0, -1)
    remove_tree(folder)
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_user_s_own_closed_folders_go(tmp_path: Path) -> None:
    """Root is stopped by no mode, and so sees nothing of this."""
    place = tmp_path / "runs"
    folder = aside(place)
    for mode in (0o000, 0o100, 0o500):
        write(folder / f"closed-{mode:o}" / "deeper" / "file", "")
    for path in (place, *place.rglob("*")):
        os.chown(path, NOBODY, -1)
    for mode in (0o000, 0o100, 0o500):
        (folder / f"closed-{mode:o}" / "deeper").chmod(mode)
        (folder / f"closed-{mode:o}").chmod(mode)
    done = removed_by_nobody(folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(place.iterdir()) == []


MOUNT = """
mount -t tmpfs none "$1/$3/below/mounted" && touch "$1/$3/below/mounted/file" || exit 77
exec "$4" -c "$5" "$1" "$2" "$3"
"""


def can_mount() -> bool:
    probe = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(
    not can_mount(), reason="this machine lets nobody mount in a namespace of one's own"
)
def test_a_mounted_file_system_is_not_emptied(tmp_path: Path) -> None:
    folder = aside(tmp_path)
    (folder / "below" / "mounted").mkdir(parents=True)
    command = ["bash", "-c", MOUNT, "-", str(tmp_path), "0", folder.name, sys.executable, REMOVE]
    argv = ["unshare", "--user", "--map-root-user", "--mount", *command]
    done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, timeout=30)
    assert f"another file system is mounted at {folder}/below/mounted" in done.stdout, done.stderr
    assert (folder / "script.sh").exists()


def test_nothing_else_in_hpcrun_deletes_a_folder_tree() -> None:
    texts = {path: path.read_text("utf-8") for path in (REPO / "hpcrun").rglob("*.py")}
    assert [
        path for path, text in texts.items() if re.search("rmtree|removedirs|rm -r", text)
    ] == []
