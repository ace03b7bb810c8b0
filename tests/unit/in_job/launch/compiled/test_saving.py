"""Which compiled files of a node are saved, and under which code."""

from __future__ import annotations

import os
import tarfile
import time
from pathlib import Path

import pytest

from hpcrun.in_job.launch.compiled import folder, generations, saving
from hpcrun.in_job.launch.compiled.folder import CPU, INTO, QUIET_S


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of node n1, with an old file and a young one; "unpacked" is an earlier one."""
    path = tmp_path / "node"
    (path / "files").mkdir(parents=True)
    now = time.time()
    for name, age_s in (("old", QUIET_S + 5), ("young", QUIET_S - 5), ("earlier", 1000)):
        (path / "files" / name).write_text("x")
        os.utime(path / "files" / name, (now, now - age_s))
    (path / "unpacked").write_text("earlier")
    program = tmp_path / ".compiled/train-1"
    program.mkdir(parents=True, mode=0o700)
    program.parent.chmod(0o700)
    monkeypatch.setenv(INTO, str(program / f"{10**18}.run-1.0"))
    monkeypatch.setenv(CPU, folder.cpu_kind())
    monkeypatch.setenv("HPCRUN_NODE", "n1")
    return path


def saved() -> list[str]:
    """Return the names of the files in the archive; none if nothing was saved."""
    generation = generations.complete(os.environ[INTO])
    if generation is None:
        return []
    (path,) = generation.parts
    with tarfile.open(path) as tar:
        return tar.getnames()


def test_at_a_good_end_all_files_are_saved(compiled: Path) -> None:
    saving.save(str(compiled), at_end=True)
    assert saved() == ["earlier", "old", "young"]
    generation = generations.complete(os.environ[INTO])
    assert generation
    assert generation.size == 3 * 4096


def test_while_the_ranks_run_young_files_are_not_saved(compiled: Path) -> None:
    saving.save(str(compiled), at_end=False)
    assert saved() == ["earlier", "old"]


def test_after_a_failure_young_files_are_not_saved(compiled: Path) -> None:
    (compiled / "unclean").touch()
    saving.save(str(compiled), at_end=True)
    assert saved() == ["earlier", "old"]


def test_a_file_whose_writer_was_killed_is_not_saved(compiled: Path) -> None:
    (compiled / "unfinished").write_text("old\n")
    saving.save(str(compiled), at_end=True)
    assert saved() == ["earlier", "young"]


@pytest.mark.parametrize("notes", ["unpacked", "unfinished"])
def test_without_a_new_complete_file_nothing_is_saved(compiled: Path, notes: str) -> None:
    (compiled / notes).write_text("old\nyoung\nearlier\n")
    saving.save(str(compiled), at_end=True)
    assert saved() == []


def test_a_node_of_another_kind_saves_nothing(
    compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CPU, "another")
    saving.save(str(compiled), at_end=True)
    assert saved() == []


@pytest.mark.parametrize(
    ("bytes_limit", "files_limit", "names"),
    [
        pytest.param(3 * 4096, 3, ["earlier", "old", "young"], id="just"),
        pytest.param(3 * 4096 - 1, 3, ["old", "young"], id="too large"),
        pytest.param(3 * 4096, 2, ["old", "young"], id="too many"),
    ],
)
def test_if_all_is_too_much_the_new_files_are_saved(
    compiled: Path,
    monkeypatch: pytest.MonkeyPatch,
    bytes_limit: int,
    files_limit: int,
    names: list[str],
) -> None:
    monkeypatch.setattr(generations, "MOST_BYTES", bytes_limit)
    monkeypatch.setattr(saving, "MOST_FILES", files_limit)
    saving.save(str(compiled), at_end=True)
    assert saved() == names


def test_what_cannot_be_saved_is_said(
    compiled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generations, "MOST_BYTES", 0)
    saving.save(str(compiled), at_end=True)
    message = "hpcrun: --warm: n1 cannot save compiled files: they have more than 0 GiB\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("first", "second", "is_equal"),
    [
        pytest.param(["inductor/a.so"], ["inductor/a.so"], True, id="same"),
        pytest.param(["inductor/a.so"], ["inductor/b.so"], False, id="other"),
        pytest.param(["a", "b"], ["b", "a"], True, id="order"),
        pytest.param(
            ["inductor/fxgraph/ab/key/p1"], ["inductor/fxgraph/ab/key/p2"], True, id="process"
        ),
        pytest.param(
            ["inductor/aotautograd/key/p1"], ["inductor/aotautograd/key/p2"], True, id="autograd"
        ),
        pytest.param(["inductor/fxgraph/ab/key/p"], ["inductor/fxgraph/ab/kex/p"], False, id="key"),
        pytest.param(["inductor/dynamo/x"], ["inductor/dynamo/y"], True, id="state"),
        pytest.param(["fxgraph/key/p1"], ["fxgraph/key/p2"], False, id="of another compiler"),
    ],
)
def test_nodes_that_compile_alike_have_one_code(
    first: list[str], second: list[str], is_equal: bool
) -> None:
    assert (saving.code_of(first) == saving.code_of(second)) == is_equal
