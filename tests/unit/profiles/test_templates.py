"""Template sources: a person's own come before the shipped ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.errors import ProfileError
from hpcrun.profiles.folders import load_templates, shipped_folder
from tests.unit.builders import write

SHIPPED = shipped_folder("templates")


def test_the_shipped_templates_are_named_by_their_path() -> None:
    names = set(load_templates([SHIPPED]))
    assert {"job.sh.j2", "allocation/slurm.sh.j2", "allocation/local.sh.j2"} <= names
    assert {
        f"launch/{launcher}.sh.j2" for launcher in ("torchrun", "srun", "python", "command", "ray")
    } <= names


def test_one_s_own_template_hides_the_shipped_one_and_no_other(tmp_path: Path) -> None:
    mine = write(tmp_path / "launch/torchrun.sh.j2", "mine\n")
    sources = load_templates([tmp_path, SHIPPED])
    assert sources["launch/torchrun.sh.j2"] == ("mine\n", str(mine))
    assert sources["job.sh.j2"][1] == str(SHIPPED / "job.sh.j2")
    # other files and missing folders are passed over
    write(tmp_path / "other/README.md", "hello\n")
    assert load_templates([tmp_path / "other", tmp_path / "none"]) == {}


def test_a_template_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "job.sh.j2").write_bytes(b"caf\xe9")
    with pytest.raises(ProfileError, match=r"template .*job\.sh\.j2: "):
        load_templates([tmp_path])
