"""What a person is told whose command line cannot be read."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer

from hpcrun.cli.command_line import usage_error
from hpcrun.errors import UsageError


def refusal(*words: str) -> UsageError:
    """Return the error of ``hpcrun submit`` with these words."""
    app = typer.Typer()

    @app.command()
    def submit(
        script: str,
        requeue: Annotated[int | None, typer.Option("--requeue")] = None,
        nodes: Annotated[int | None, typer.Option("--nodes", "-N")] = None,
        lines: Annotated[int, typer.Option("--lines", min=1)] = 20,
        share: Annotated[float, typer.Option("--share")] = 1.0,
    ) -> None:
        raise AssertionError((script, requeue, nodes, lines, share))

    with pytest.raises(typer.TyperException) as caught:
        app(list(words), standalone_mode=False)
    return usage_error(caught.value, ["submit", *words], ["submit"])


def test_an_option_that_took_the_script_as_its_number_says_what_to_write() -> None:
    error = refusal("--requeue", "train.py")
    assert str(error) == "--requeue: 'train.py' is not a number of times"
    assert str(error.hint).startswith("write --requeue 3")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-N", "abc", "train.py"], "--nodes: 'abc' is not a whole number"),
        (["--nodes", "1.5", "train.py"], "--nodes: '1.5' is not a whole number"),
        (["--share", "half", "train.py"], "--share: 'half' is not a number"),
        (["--lines", "0", "train.py"], "--lines: '0' must be 1 or more"),
    ],
)
def test_a_value_that_is_no_number_is_named_with_its_option(words: list[str], message: str) -> None:
    error = refusal(*words)
    assert str(error) == message
    assert "--help" in str(error.hint)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train.py", "--lr", "1"], "to submit it: hpcrun submit train.py --lr 1"),
        (["--gpus", "2", "a b.py"], "to submit a script: hpcrun submit --gpus 2 'a b.py'"),
    ],
)
def test_a_script_in_place_of_a_command_is_submitted_by_submit(words: list[str], hint: str) -> None:
    app = typer.Typer()
    app.command("status")(lambda: None)
    app.command("logs")(lambda: None)
    with pytest.raises(typer.TyperException) as caught:
        app(words, standalone_mode=False)
    assert usage_error(caught.value, words, ["status", "logs"]).hint == hint
