"""What is known of the compiled files of an attempt, and what status says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.actions.runs.compiled_text import compiled_row, compiling_sentence
from hpcrun.explain import warm_start
from hpcrun.in_job.launch import node_folder
from hpcrun.in_job.launch.compiled import generations
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.attempt import Attempt, ExitRecord
from hpcrun.runs.compiled_files import CompiledFiles, NewFiles, compiled_files
from tests.unit.builders import write

STARTED_S = 1000.0
CODE = "0123456789abcdef"


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    folder = RunFolder(tmp_path / "run").element(0).attempt(0)
    folder.path.mkdir(parents=True)
    return Attempt(
        folder, 0, job_id="1", host="n0", started_s=STARTED_S, exit=None, alive_s=STARTED_S
    )


def generation(attempt: Attempt) -> Path:
    """The generation of the attempt beside its run."""
    path = attempt.folder.run.parent / ".compiled/program/gen"
    path.mkdir(parents=True)
    return path


def started(attempt: Attempt, **record: object) -> None:
    """Write with which compiled files the attempt has started."""
    into = str(attempt.folder.run.parent / ".compiled/program/gen")
    write(attempt.folder.warm, json.dumps({"into": into, **record}))


def compiled(attempt: Attempt, node: str, **record: float) -> None:
    """Write what the compilers of a node have made."""
    write(attempt.folder.node_file(node, "compiled"), json.dumps(record))


def files(**facts: object) -> CompiledFiles:
    known = {"run": "", "unpacked": 0, "why_cold": "", "new": {}, "chosen": (), "saved": None}
    return CompiledFiles(**{**known, **facts})  # type: ignore[arg-type]


def test_an_attempt_without_a_record_keeps_none(attempt: Attempt) -> None:
    assert compiled_files(attempt) is None


@pytest.mark.parametrize(
    "text", ["", "{", '{"files": -1}', '{"files": "two"}'], ids=["empty", "cut", "minus", "text"]
)
def test_a_damaged_record_is_none(attempt: Attempt, text: str) -> None:
    write(attempt.folder.warm, text)
    assert compiled_files(attempt) is None


def test_explain_knows_the_folder_of_a_node_by_its_name() -> None:
    assert warm_start._FOLDER == node_folder.COMPILED_PREFIX


def test_a_warm_start_names_its_run(attempt: Attempt) -> None:
    started(attempt, run="run-1", files=66)
    found = compiled_files(attempt)
    assert found == files(run="run-1", unpacked=66)


def test_new_files_are_those_of_each_node(attempt: Attempt) -> None:
    started(attempt)
    compiled(attempt, "n0", files=3, first=1001.0, last=1080.5)
    compiled(attempt, "n1", files=4)  # without its times: not whole
    found = compiled_files(attempt)
    assert found
    assert found.new == {"n0": NewFiles(3, 1001.0, 1080.5)}


@pytest.mark.parametrize(
    "size", [100, generations.MOST_BYTES, generations.MOST_BYTES + 1], ids=["small", "most", "more"]
)
def test_what_is_said_to_be_saved_is_what_a_job_can_begin_with(attempt: Attempt, size: int) -> None:
    started(attempt)
    folder = generation(attempt)
    for path in (folder.parent.parent, folder.parent, folder):
        path.chmod(0o700)
    assert generations.enter(str(folder), "node-1.site", CODE, size)
    write(Path(generations.part(str(folder), CODE)), "12345")
    found = compiled_files(attempt)
    assert found
    assert (found.saved == 5) == (generations.complete(str(folder)) is not None)
    assert (found.saved == 5) == (size <= generations.MOST_BYTES)


def test_saved_are_the_bytes_of_all_archives(attempt: Attempt) -> None:
    started(attempt)
    folder = generation(attempt)
    write(folder / f"n0.{CODE}.100.set", "")
    write(folder / f"a.b.{CODE[::-1]}.100.set", "")
    write(folder / f"{CODE}.tar.gz", "12345")
    write(folder / f"{CODE[::-1]}.tar.gz", "123")
    found = compiled_files(attempt)
    assert found
    assert found.saved == 8


def test_nothing_is_saved_while_an_archive_is_missing(attempt: Attempt) -> None:
    started(attempt)
    folder = generation(attempt)
    write(folder / f"n0.{CODE}.100.set", "")
    found = compiled_files(attempt)
    assert found
    assert found.saved is None


def test_nothing_is_saved_that_is_too_large_to_be_used(attempt: Attempt) -> None:
    started(attempt)
    folder = generation(attempt)
    write(folder / f"n0.{CODE}.{(2 << 30) + 1}.set", "")
    write(folder / f"{CODE}.tar.gz", "12345")
    found = compiled_files(attempt)
    assert found
    assert found.saved is None


def test_a_record_leads_to_no_folder_elsewhere(attempt: Attempt, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere/program/gen"
    elsewhere.mkdir(parents=True)
    write(elsewhere / f"n0.{CODE}.100.set", "")
    write(elsewhere / f"{CODE}.tar.gz", "12345")
    write(attempt.folder.warm, json.dumps({"into": str(elsewhere)}))
    found = compiled_files(attempt)
    assert found
    assert found.saved is None


SIXTY_SIX = {"n0": NewFiles(66, 1001.0, 1080.0), "n1": NewFiles(66, 1002.0, 1070.0)}
UNEQUAL = {"n0": NewFiles(66, 1001.0, 1080.0), "n1": NewFiles(60, 1002.0, 1070.0)}
ROWS = [
    pytest.param(files(), "cold", "nothing compiled so far", id="nothing"),
    pytest.param(
        files(run="r", unpacked=66),
        "warm",
        "66 compiled files of run r; nothing compiled so far",
        id="warm",
    ),
    pytest.param(
        files(new={"n0": NewFiles(1, 1001.0, 1080.0)}),
        "cold",
        "1 new file in the first 80 s",
        id="not saved",
    ),
    pytest.param(
        files(new=SIXTY_SIX, saved=1_040_000),
        "cold",
        "66 new files on each of 2 nodes in the first 80 s; saved, 1.0 MB: the next run starts "
        "warm",
        id="saved",
    ),
    pytest.param(
        files(new=UNEQUAL, why_cold="damaged"),
        "cold",
        "damaged; 60 to 66 new files on each of 2 nodes in the first 80 s",
        id="unequal",
    ),
]


@pytest.mark.parametrize(("known", "label", "text"), ROWS)
def test_status_says_how_an_attempt_started(
    attempt: Attempt, known: CompiledFiles, label: str, text: str
) -> None:
    assert compiled_row(attempt, known) == (label, text)


def test_an_ended_attempt_has_compiled_nothing(attempt: Attempt) -> None:
    ended = Attempt(
        attempt.folder,
        0,
        job_id="1",
        host="n0",
        started_s=STARTED_S,
        exit=ExitRecord(0, "", 1100.0),
        alive_s=STARTED_S,
    )
    assert compiled_row(ended, files()) == ("cold", "nothing compiled")


@pytest.mark.parametrize(
    ("now_s", "sentence"),
    [
        (1084.0, "the ranks compile (66 new files on each of 2 nodes, the last 4 s ago)"),
        (1200.0, "the ranks compile (66 new files on each of 2 nodes, the last 2 min ago)"),
        (1200.1, ""),
    ],
    ids=["now", "still", "no longer"],
)
def test_ranks_compile_while_new_files_come(now_s: float, sentence: str) -> None:
    assert compiling_sentence(files(new=SIXTY_SIX), now_s) == sentence


def test_an_attempt_that_failed_may_have_compiled(attempt: Attempt) -> None:
    ended = replace(attempt, exit=ExitRecord(143, "TERM", 1100.0))
    assert compiled_row(ended, files()) == ("cold", "no new file is known")


def test_a_variable_that_is_set_is_not_counted(attempt: Attempt) -> None:
    known = files(chosen=("TRITON_HOME",))
    text = "nothing compiled so far; not counted, since it is set: TRITON_HOME"
    assert compiled_row(attempt, known) == ("cold", text)


def test_ranks_without_new_files_do_not_compile() -> None:
    assert compiling_sentence(files(run="r"), 1000.0) == ""
