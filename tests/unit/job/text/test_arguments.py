"""The arguments of a program by name, and those that set a run apart from others."""

from __future__ import annotations

import pytest

from hpcrun.job.text.arguments import (
    arguments_of,
    command_of,
    named_arguments,
    short_arguments,
    telling_names,
)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--lr", "0.1", "--fp16", "--name=a b"], {"lr": "0.1", "fp16": "yes", "name": "a b"}),
        (["--lr=", "-n", "3"], {"lr": "yes", "n": "3"}),
        (["--shift", "-1", "--scale", "-1e-3"], {"shift": "-1", "scale": "-1e-3"}),
        (["train", "model.lr=0.1", "2"], {"1": "train", "model.lr": "0.1", "2": "2"}),
        (["+extra=1", "~gone"], {"+extra": "1", "1": "~gone"}),
        (["--layers", "3", "4", "--tag", "a", "--tag", "b"], {"layers": "3 4", "tag": "a b"}),
        (["--", "x", "--=x", ""], {"1": "x", "2": "--=x", "3": "yes"}),
        (["--api-key", "c0ffee-c0ffee-c0ffee"], {"api-key": "***"}),
        ([], {}),
    ],
)
def test_arguments_have_names_or_positions(words: list[str], named: dict[str, str]) -> None:
    assert named_arguments(words) == named


def test_the_words_of_wrap_and_of_roles_are_arguments() -> None:
    assert arguments_of({"wrap": "python t.py --lr 1"}) == {"1": "python", "2": "t.py", "lr": "1"}
    assert arguments_of({"wrap": "echo 'x"}) == {"1": "echo", "2": "'x"}
    roles = [{"name": "server", "command": ["serve.py", "--port", "1"]}, {"name": "trainer"}]
    assert arguments_of({"roles": roles, "args": ["--lr", "1"]}) == {
        "server 1": "serve.py",
        "server port": "1",
        "lr": "1",
    }


def test_the_value_of_most_runs_sets_none_apart() -> None:
    two = [{"lr": "0.1", "seed": "1"}, {"lr": "0.2", "seed": "1", "width": "8"}]
    assert telling_names(two) == [["lr"], ["lr", "width"]]
    assert telling_names([*two, two[0]]) == [[], ["lr", "width"], []]
    assert telling_names(two[:1]) == [[]]
    assert telling_names([]) == []


def test_long_arguments_are_cut_and_many_are_counted() -> None:
    arguments = {"data": "/a/very/long/folder/of/train.pt", "fp16": "yes", "1": "go", "t": "x" * 40}
    assert short_arguments(arguments, ["data", "fp16", "1"]) == "data=…/train.pt --fp16 go"
    assert short_arguments(arguments, ["t"]) == f"t={'x' * 23}…"
    many = {f"{'n' * 50}{number}": "x" * 100 for number in range(9)}
    assert short_arguments(many, [*many]).endswith(" and 5 more")
    assert len(short_arguments(many, [*many])) < 400


def test_a_command_is_quoted_for_a_shell() -> None:
    assert command_of({"script": "a b.py", "args": ["--x", "$HOME"]}) == "'a b.py' --x '$HOME'"
    assert command_of({"script": "pkg.train", "module": True}) == "-m pkg.train"
    assert command_of({"script": "--wrap", "wrap": "echo $HOME"}) == "echo $HOME"
    roles = [{"name": "server", "command": ["serve.py"]}, {"name": "trainer"}]
    assert command_of({"roles": roles, "script": "t.py"}) == "server: serve.py; t.py"
