"""Which files fetch copies from a host, and where it refuses to."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.errors import HpcrunError, NotFoundError, PlanError, SchedulerError, UsageError
from hpcrun.features.remote.connection import Connection
from hpcrun.features.remote.copy_home import Copied, Copy
from hpcrun.features.remote.fetch import (
    _carry_out,
    _check_pattern,
    _check_size,
    _element_rules,
    _is_new,
    _outcome,
    _pattern_rules,
    _Source,
    _source_of,
    _usual_rules,
)
from tests.unit.builders import write

RUN_ID = "20260102-030405-train-0a1b"
FOLDER = f"/scratch/me/runs/{RUN_ID}"
COPY = Copy(Connection("far", "/run/far"), FOLDER, Path("/nonexistent"), [])
GIB = 1 << 30


def source(run: str = "last", **changed: Any) -> _Source:
    """The run that a host names, with other fields."""
    answer = {"run_id": RUN_ID, "folder": FOLDER, **changed}
    return _source_of("far", {"runs": [answer]}, run)


@pytest.mark.parametrize(
    ("run", "element"),
    [("last", None), ("4711/3", 3), ("grid/0", 0), ("a/b/12", 12), ("/3", None), ("x/y", None)],
)
def test_one_element_of_a_sweep_may_be_named(run: str, element: int | None) -> None:
    assert source(run) == _Source(RUN_ID, FOLDER, element)


@pytest.mark.parametrize(
    "run_id", [None, 4711, "", "train", f"../{RUN_ID}", f"{RUN_ID}/..", f"{RUN_ID}\n", "1-2-x"]
)
def test_an_id_that_names_no_folder_is_refused(run_id: object) -> None:
    with pytest.raises(SchedulerError, match="far: hpcrun named a run without a valid run id"):
        source(run_id=run_id)


@pytest.mark.parametrize("folder", [None, "", "runs/x", "/runs/\x1b[2J", 7])
def test_a_folder_without_an_absolute_path_is_refused(folder: object) -> None:
    with pytest.raises(SchedulerError, match="far: hpcrun named no absolute path"):
        source(folder=folder)


@pytest.mark.parametrize("runs", [None, [], "x", ["x"]])
def test_an_answer_without_a_run_is_refused(runs: object) -> None:
    with pytest.raises(SchedulerError, match="far: hpcrun named no run"):
        _source_of("far", {"runs": runs}, "last")


def test_an_error_of_the_host_comes_first() -> None:
    answer = {"error": {"message": "there is no run 'x'", "exit_code": 6}}
    with pytest.raises(HpcrunError, match="far: there is no run 'x'") as caught:
        _source_of("far", answer, "x")
    assert caught.value.exit_code == 6


def test_a_folder_is_new_until_it_has_files(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert _is_new(folder, RUN_ID)
    folder.mkdir()
    assert _is_new(folder, RUN_ID)
    write(folder / "run.json", f'{{"run_id": "{RUN_ID}"}}')
    assert not _is_new(folder, RUN_ID)


@pytest.mark.parametrize("record", ["", '{"run_id": "20260102-030405-train-9999"}', RUN_ID])
def test_a_folder_with_files_of_something_else_is_refused(tmp_path: Path, record: str) -> None:
    write(tmp_path / "out/run.json", record)
    with pytest.raises(PlanError, match=f"contains files that are not of {RUN_ID}") as caught:
        _is_new(tmp_path / "out", RUN_ID)
    assert caught.value.hint == "choose another folder with --out FOLDER"


def test_a_folder_with_files_and_no_record_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "out/notes.txt", "mine")
    with pytest.raises(PlanError, match="contains files"):
        _is_new(tmp_path / "out", RUN_ID)


def test_a_file_or_a_broken_link_is_no_folder(tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "link"):
        with pytest.raises(PlanError, match=f"{name} is not a folder"):
            _is_new(tmp_path / name, RUN_ID)


def test_the_other_elements_of_a_sweep_are_left_out() -> None:
    assert _element_rules(3) == ["+ /elements/3/", "- /elements/*"]
    assert _element_rules(0) == ["+ /elements/0/", "- /elements/*"]
    assert _element_rules(None) == []


def test_files_that_people_read_are_copied() -> None:
    rules = _usual_rules()
    for path in ("run.json", "code.diff", "script.sh", "elements/*/attempts/*/rank-*.out"):
        assert f"+ /{path}" in rules
    for folder in ("elements", "elements/*", "elements/*/attempts", "elements/*/attempts/*"):
        assert rules.count(f"+ /{folder}/") == 1
    assert "+ /./" not in rules


def test_a_pattern_adds_a_file_or_a_whole_folder() -> None:
    assert _pattern_rules([]) == []
    assert _pattern_rules(["*.pt", "data/"]) == [
        "+ *.pt",
        "+ *.pt/***",
        "+ data",
        "+ data/***",
        "+ */",
    ]


@pytest.mark.parametrize("pattern", ["", "/", "//"])
def test_a_pattern_that_is_empty_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="is empty") as caught:
        _pattern_rules([pattern])
    assert caught.value.hint == "all files: '*'"


def test_a_pattern_without_a_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Copy, "measure", lambda _: Copied(1, 0))
    _check_pattern("*.pt", COPY.connection, source())
    monkeypatch.setattr(Copy, "measure", lambda _: Copied(0, 0))
    with pytest.raises(NotFoundError, match=rf"no file matches '\*.pt' in far:{FOLDER}"):
        _check_pattern("*.pt", COPY.connection, source())


def test_up_to_one_gibibyte_is_copied_without_a_question() -> None:
    _check_size(Copied(1, GIB), "far", yes=False)
    _check_size(Copied(1, 9 * GIB), "far", yes=True)


def test_more_is_refused_where_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["hpcrun", "fetch", "last", "*.pt"])
    with pytest.raises(UsageError, match=r"2 files, 1.* on far: .* needs --yes") as caught:
        _check_size(Copied(2, GIB + 1), "far", yes=False)
    assert caught.value.hint == "hpcrun fetch --yes last '*.pt'"


def test_files_do_not_go_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(PlanError, match="link is a link"):
        _carry_out(replace(COPY, target=tmp_path / "link"), Copied(1, 1))


def test_a_folder_that_cannot_be_made_is_one_message(tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    with pytest.raises(PlanError, match="file/out cannot be made: Not a directory"):
        _carry_out(replace(COPY, target=tmp_path / "file/out"), Copied(1, 1))


@pytest.mark.parametrize("hint", [None, "hpcrun login far"])
def test_what_has_arrived_before_an_error_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hint: str | None
) -> None:
    def carry_out(*_: object, **__: object) -> Copied:
        raise SchedulerError("the connection is lost", hint=hint)

    monkeypatch.setattr(Copy, "carry_out", carry_out)
    target = tmp_path / "runs/out"
    with pytest.raises(SchedulerError) as caught:
        _carry_out(replace(COPY, target=target), Copied(1, 1))
    assert caught.value.message == (
        f"the connection is lost; the files that have arrived are in {target}"
    )
    assert caught.value.hint == (hint or "the same command continues")
    assert target.stat().st_mode & 0o777 == 0o700


def test_what_was_copied_is_told() -> None:
    document = _outcome(Copied(3, 2048), "far", RUN_ID, Path("/here/out")).document
    assert document
    assert document() == {
        "kind": "fetch",
        "host": "far",
        "run_id": RUN_ID,
        "folder": "/here/out",
        "files": 3,
        "bytes": 2048,
    }


@pytest.mark.parametrize(
    ("copied", "line"),
    [
        (Copied(0, 0), "nothing to copy: /here/out has these files"),
        (Copied(1, 2048), "written  /here/out (1 file, 2"),
    ],
    ids=["nothing", "a file"],
)
def test_a_person_reads_how_much_was_copied(copied: Copied, line: str) -> None:
    text = _outcome(copied, "far", RUN_ID, Path("/here/out")).text
    assert text
    (part,) = text()
    assert part.lines[0].startswith(line)
