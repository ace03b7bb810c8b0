"""The size of the house's parts: one name, one thing; no file that nobody reads to its end."""

from __future__ import annotations

import re
from collections import Counter

from tests.harness import REPO


def test_no_two_classes_have_the_same_name() -> None:
    names: Counter[str] = Counter()
    for path in (REPO / "hpcrun").rglob("*.py"):
        names.update(re.findall(r"^class (\w+)", path.read_text("utf-8"), re.MULTILINE))
    assert len(names) > 500
    assert [name for name, count in names.items() if count > 1] == []


def test_no_file_has_over_600_lines() -> None:
    lengths = {
        path: len(path.read_text("utf-8").splitlines()) for path in (REPO / "hpcrun").rglob("*.py")
    }
    assert {
        str(path.relative_to(REPO)): length for path, length in lengths.items() if length > 600
    } == {}


def test_folders_with_their_parents_are_made_by_the_one_function_that_ignores_the_umask() -> None:
    """Path.mkdir makes parents with the umask, and another user may write to them."""
    others = {
        "hpcrun/in_job/hpcrun_runtime.py",  # the folder of checkpoints of a program
        "hpcrun/schedulers/supervisor.py",  # after os.umask
        "hpcrun/api/submitit_plugin.py",  # links, in a folder that the program names
    }
    makers = {
        str(path.relative_to(REPO))
        for path in (REPO / "hpcrun").rglob("*.py")
        if "parents=True" in path.read_text()
    }
    assert makers == others


def test_a_file_that_a_comment_names_exists() -> None:
    """A path of hpcrun in prose begins with one of its folders: per_job/chain.py."""
    files = list((REPO / "hpcrun").rglob("*.py"))
    folders = {path.parent.name for path in files}
    paths = {f"/{path.relative_to(REPO)}" for path in files}
    wrong = []
    for file in files:
        for named in re.findall(r"(?<![\w/.-])(?:\w+/)+\w+\.py\b", file.read_text("utf-8")):
            is_own = named.partition("/")[0] in folders
            if is_own and not any(path.endswith(f"/{named}") for path in paths):
                wrong.append(f"{file.name}: {named}")
    assert wrong == []
