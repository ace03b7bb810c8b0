"""One renderer: outcomes as text on the right stream, or as one JSON document; Ctrl-C in one
place.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import typer

from hpcrun.cli import output
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.main import CliCommand
from hpcrun.cli.output import (
    Outcome,
    Outcomes,
    finish,
    note,
    printed,
    render,
    show,
    stderr,
    table,
    verbatim,
    want_json,
    wants_json,
)
from hpcrun.errors import InterruptedByUser, JobFailedError, PlanError
from hpcrun.features.remote import TypedHost
from hpcrun.views.text import text_table

FAILED = JobFailedError("job 7 ended as FAILED", hint="hpcrun explain 7")


@pytest.fixture(autouse=True)
def _own_handler() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


def never() -> Any:
    raise AssertionError("made, and not asked for")


def submitted(*, document: Any = lambda: {"job_id": "7"}) -> Outcomes:
    """A command that says something first, submits a job, and tells how that ended."""
    yield note(["the newest of two", None])
    yield printed(["submitted job 7"], document)
    yield Outcome(
        lambda: [stderr(["job 7 FAILED"]), verbatim("#!/bin/bash\n")],
        lambda: {"job_id": "7", "state": "FAILED"},
        notes=[stderr(["rank 1: KeyError"])],
        failure=FAILED,
    )


def test_text_goes_to_its_stream_and_no_document_is_made(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert render(submitted(document=never)) == 7
    finish(7)
    said = capsys.readouterr()
    assert said.out == "submitted job 7\n#!/bin/bash\n"
    failure = ["hpcrun: job 7 ended as FAILED", "hint: hpcrun explain 7"]
    assert said.err.splitlines() == [
        "the newest of two",
        "rank 1: KeyError",
        "job 7 FAILED",
        *failure,
    ]


def test_json_is_the_last_document_with_its_failure_and_no_text_is_made(
    capsys: pytest.CaptureFixture[str],
) -> None:
    want_json(True)
    assert render(Outcome(never, lambda: {"job_id": "7"})) == 0
    assert render(submitted()) == 7
    finish(7)
    said = capsys.readouterr()
    failure = {"message": "job 7 ended as FAILED", "hint": "hpcrun explain 7", "exit_code": 7}
    assert json.loads(said.out) == {"schema": 1, "job_id": "7", "state": "FAILED", "error": failure}
    assert said.err.splitlines() == ["the newest of two", "rank 1: KeyError"]


def test_a_failure_on_the_way_keeps_the_document_of_what_was_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused() -> Outcomes:
        yield printed(["submitted job 7"], lambda: {"job_id": "7"})
        raise FAILED

    want_json(True)
    with pytest.raises(JobFailedError) as raised:
        render(refused())
    finish(show(Outcome(failure=raised.value)))
    document = json.loads(capsys.readouterr().out)
    assert document["job_id"] == "7"
    assert document["error"]["exit_code"] == 7


def test_an_exit_status_without_a_failure_is_an_error_in_the_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    want_json(True)
    finish(render(Outcome(document=dict, status=3)))
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "exit status 3"


def test_at_ctrl_c_the_command_says_what_goes_on_and_other_failures_stay() -> None:
    with (
        pytest.raises(InterruptedByUser, match="goes on"),
        interrupted_as(InterruptedByUser("the job goes on")),
    ):
        raise KeyboardInterrupt
    with interrupted_as(never):
        left = 2
    with (
        pytest.raises(InterruptedByUser, match="2 of 3"),
        interrupted_as(lambda: InterruptedByUser(f"{left} of 3")),
    ):
        raise KeyboardInterrupt
    with pytest.raises(JobFailedError), interrupted_as(InterruptedByUser("the job goes on")):
        raise FAILED


def test_ctrl_c_while_an_outcome_is_printed_is_the_commands_too() -> None:
    def interrupt() -> Any:
        raise KeyboardInterrupt

    def watch() -> Outcomes:
        with interrupted_as(InterruptedByUser("no longer watching")):
            while True:
                yield Outcome(interrupt)

    with pytest.raises(InterruptedByUser, match="no longer watching"):
        render(watch())


def test_a_command_is_rendered_and_its_status_returned(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer()

    @app.command(cls=CliCommand)
    def command(status: Annotated[int, typer.Argument()]) -> Outcomes:
        yield printed(["begun"])
        if status == 130:
            raise KeyboardInterrupt
        yield Outcome(status=status)

    assert app(["3"], standalone_mode=False) == 3
    assert capsys.readouterr().out == "begun\n"
    with pytest.raises(InterruptedByUser, match=r"\Ainterrupted\Z"):
        app(["130"], standalone_mode=False)


def test_a_remark_on_configuration_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # of --on, and of the command
        output.hold(["hpcrun: /p/.hpcrun is not used"])
    output.tell(["next"])
    assert capsys.readouterr().err == "hpcrun: /p/.hpcrun is not used\nnext\n"


def test_proposed_commands_have_what_was_typed_and_a_document_has_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TypedHost, "name", "far")
    show(Outcome(failure=FAILED))
    assert capsys.readouterr().err.endswith("hint: hpcrun --on far explain 7\n")
    want_json(True)
    show(Outcome(failure=FAILED))
    finish()
    assert json.loads(capsys.readouterr().out)["error"]["hint"] == "hpcrun explain 7"


def test_a_command_without_outcomes_has_succeeded(capsys: pytest.CaptureFixture[str]) -> None:
    def silent() -> Outcomes:
        yield from ()

    assert render(silent()) == 0
    finish()
    assert capsys.readouterr().out == ""


def test_the_status_is_that_of_the_last_outcome() -> None:
    def command() -> Outcomes:
        yield Outcome(status=3)
        yield printed(["done"])

    assert render(command()) == 0


def test_json_once_wanted_stays_wanted() -> None:
    assert want_json(True) is True
    assert want_json(False) is False
    assert wants_json()


def test_a_table_in_a_pipe_is_as_wide_as_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a" * 150, "1"), ("b", "22")]
    show(Outcome(lambda: [table(text_table(("NAME", "N"), rows, right=("N",)))]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "a" * 150 + "   1"
    assert lines[2] == "b" + " " * 149 + "  22"


def test_the_first_fields_of_a_document_are_printed_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    want_json(True)
    output.begin_document({"job_id": "7"})
    begun = capsys.readouterr().out
    assert begun == '{\n  "schema": 1,\n  "job_id": "7",\n'
    show(Outcome(document=lambda: {"job_id": "7", "state": "COMPLETED"}))
    finish()
    document = json.loads(begun + capsys.readouterr().out)
    assert document == {"schema": 1, "job_id": "7", "state": "COMPLETED"}


def test_without_json_no_document_is_begun(capsys: pytest.CaptureFixture[str]) -> None:
    output.begin_document({"job_id": "7"})
    assert capsys.readouterr().out == ""


def test_an_error_of_the_document_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    want_json(True)
    finish(render(Outcome(document=lambda: {"error": {"message": "mine"}}, status=3)))
    assert json.loads(capsys.readouterr().out)["error"] == {"message": "mine"}


@pytest.mark.parametrize(
    ("length", "shown"), [(299, "x" * 299), (300, f"{'x' * 40}... (300 characters)")]
)
def test_a_word_that_is_too_long_is_shortened(
    capsys: pytest.CaptureFixture[str], length: int, shown: str
) -> None:
    show(Outcome(failure=PlanError(f"no {'x' * length} there")))
    assert capsys.readouterr().err == f"hpcrun: no {shown} there\n"


@pytest.mark.parametrize(
    ("message", "held"),
    [("/p/.hpcrun/a.yaml is not trusted", False), ("/q/a.yaml is not there", True)],
)
def test_a_remark_that_a_failure_repeats_is_left_out(
    capsys: pytest.CaptureFixture[str], message: str, held: bool
) -> None:
    output.hold(["hpcrun: /p/.hpcrun is not used: you have not trusted it"])
    show(Outcome(failure=PlanError(message)))
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == f"hpcrun: {message}"
    assert len(lines) == 1 + held


def test_a_proposed_command_has_the_option_of_this_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.propose_with("--runs /r", ["logs", "explain"])
    output.tell(["hpcrun logs 7", "hpcrun cancel 7", "my-hpcrun logs 7", "hpcrun logs"])
    assert capsys.readouterr().err.splitlines() == [
        "hpcrun logs --runs /r 7",
        "hpcrun cancel 7",
        "my-hpcrun logs 7",
        "hpcrun logs",
    ]


def test_a_failure_of_several_lines_keeps_them(capsys: pytest.CaptureFixture[str]) -> None:
    show(Outcome(failure=PlanError("one\n\ttwo", hint="three")))
    assert capsys.readouterr().err == "hpcrun: one\n        two\nhint: three\n"
