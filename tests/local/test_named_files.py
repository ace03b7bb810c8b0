"""Files that a person names or a project brings: a FIFO or an endless device there is refused at
once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.harness import Hpcrun

WITHIN_S = 60
"""Of commands that take half a second on an idle machine."""

# command, exit status; ODD is the path that is no regular file
NAMED: dict[str, tuple[Sequence[str], int]] = {
    "table": (("scale", "report", "--from-csv", "ODD"), 2),
    "sweep": (("submit", "-P", "local", "--sweep-file", "ODD", "--dry-run", "true"), 2),
    "script": (("submit", "-P", "local", "--dry-run", "./ODD"), 2),
    "python script": (("submit", "-P", "local", "--dry-run", "python", "ODD"), 0),
    "profile shown": (("profile", "show", "./ODD"), 3),
    "profile used": (("submit", "-P", "./ODD", "--dry-run", "true"), 3),
    "report": (("scale", "report", "--from-csv", "table.csv", "-o", "ODD"), 4),
}
# file in ~/.config/hpcrun, command, exit status
BROUGHT: dict[str, tuple[str, Sequence[str], int]] = {
    "configuration": ("config.yaml", ("profile", "show", "local"), 3),
    "profile": ("profiles/ODD.yaml", ("submit", "-P", "ODD", "--dry-run", "true"), 3),
    "template": ("templates/job.sh.j2", ("submit", "-P", "local", "--dry-run", "true"), 3),
}


@pytest.mark.parametrize(("words", "status"), NAMED.values(), ids=NAMED)
def test_what_is_no_file_is_refused_where_a_person_names_it(
    hpcrun: Hpcrun, words: Sequence[str], status: int
) -> None:
    hpcrun.write("table.csv", "gpus,time_s\n1,10\n2,6\n")
    odd = hpcrun.folder / "ODD"
    for make in (partial(os.mkfifo, odd, 0o700), partial(odd.symlink_to, "/dev/zero")):
        make()
        done = hpcrun(*words, timeout=WITHIN_S)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        odd.unlink()


@pytest.mark.parametrize(("name", "words", "status"), BROUGHT.values(), ids=BROUGHT)
@pytest.mark.parametrize("place", ["home/.config/hpcrun", ".hpcrun"])
def test_what_is_no_file_is_refused_where_a_folder_brings_it(
    hpcrun: Hpcrun, place: str, name: str, words: Sequence[str], status: int
) -> None:
    odd: Path = hpcrun.folder / place / name
    odd.parent.mkdir(parents=True)
    os.mkfifo(odd)
    done = hpcrun(*words, timeout=WITHIN_S)
    # of a project that nobody trusted nothing is read
    assert done.returncode in ((status,) if place != ".hpcrun" else (0, status)), done.stderr


@pytest.mark.parametrize("target", ["table", "sweep"])
def test_a_link_to_a_file_is_followed_where_a_person_names_it(hpcrun: Hpcrun, target: str) -> None:
    hpcrun.write("real.csv", "gpus,time_s\n1,10\n2,6\n")
    (hpcrun.folder / "ODD.csv").symlink_to("real.csv")
    words = [word.replace("ODD", "ODD.csv") for word in NAMED[target][0]]
    assert hpcrun(*words, timeout=60).returncode == 0
