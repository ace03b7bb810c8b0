"""Failures as a person sees them: one message and a hint, harmless, and folded between words on a
terminal.
"""

from __future__ import annotations

import re
import shlex

import pytest

from tests.harness import Hpcrun


def test_an_option_without_its_value_leads_to_the_help_of_its_command(hpcrun: Hpcrun) -> None:
    shown = hpcrun("profile", "unset").stderr
    assert re.search(
        r"\nhint: for example: hpcrun profile unset .*; `hpcrun profile unset --help` shows all "
        r"options\n$",
        shown,
    )
    assert hpcrun("logs", "--rank").stderr.endswith("\nhint: hpcrun logs --help\n")


def test_an_unknown_command_names_the_one_that_was_meant(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    for typed, meant in (
        ("stauts", "status"),
        ("squeue", "status"),
        ("run", "submit"),
        ("rm", "clean"),
    ):
        with subtests.test(typed=typed):
            done = hpcrun(typed)
            assert done.returncode == 2
            assert (
                f"hint: did you mean hpcrun {meant}? `hpcrun --help` lists the commands\n"
                in done.stderr
            )


def test_what_was_typed_cannot_act_on_the_terminal(hpcrun: Hpcrun) -> None:
    done = hpcrun("submit", "-P", "local", "evil\x1b[2J\x07.py")
    assert done.stderr.startswith("hpcrun: there is no script evil?[2J?.py\n")


def test_a_terminal_gets_a_long_message_folded_between_words(hpcrun: Hpcrun) -> None:
    args = [
        "submit",
        "-P",
        "a100",
        "--gpus",
        "4",
        "--mem",
        "lots of it, more than there is",
        "train.py",
    ]
    message, *_ = hpcrun(*args).stderr.splitlines()
    lines = hpcrun.screen(*args, columns=40).partition("hint: ")[0].splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(line.strip() for line in lines) == message
    assert len(lines) > 1


def test_a_word_of_hundreds_of_digits_is_one_short_message(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    for option, digits in (("--nodes", 5000), ("--mem", 5000)):
        with subtests.test(option=option):
            done = hpcrun("submit", "-P", "a100", "--dry-run", f"{option}={'9' * digits}", "true")
            assert done.returncode == 2
            assert f"hpcrun: {option}: " in done.stderr or f"'{option}'" in done.stderr
            assert (len(done.stderr) < 600, "9" * 101 in done.stderr) == (True, False)


def test_a_result_that_cannot_be_printed_is_one_message(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    hpcrun("submit", "-P", "local", "--gpus", "0", "--wait", "true", check=True)
    for command in (
        "--help",
        "submit --help",
        "status --json",
        "profile list",
        "submit -P local --dry-run true",
    ):
        with subtests.test(command=command):
            argv = shlex.join(hpcrun.argv(*command.split()))
            done = hpcrun.run("sh", "-c", f"{argv} >/dev/full", check=False)
            assert done.returncode == 4, command
            assert done.stderr.splitlines()[-2:] == [
                "hpcrun: cannot print the result: No space left on device",
                "hint: `hpcrun status` shows what was submitted",
            ]
            assert "Traceback" not in done.stderr


def test_all_unknown_options_of_a_line_are_named_at_once(hpcrun: Hpcrun) -> None:
    done = hpcrun("submit", "--export=ALL", "--chdir", "/tmp", "--gpu", "4", "train.py")
    assert done.returncode == 2
    assert done.stderr == (
        "hpcrun: No such options:\n"
        "  --export: use --env NAME=VALUE; other variables are exported\n"
        "  --chdir: use --workdir DIR\n"
        "  --gpu: did you mean --gpus?\n"
        "hint: `hpcrun submit --help` lists all options\n"
    )
    one = hpcrun("profile", "list", "--foo").stderr
    assert one == "hpcrun: No such option: --foo\nhint: hpcrun profile list --help\n"
    one = hpcrun("submit", "--gpu", "4", "train.py").stderr
    hint = "hint: did you mean --gpus? `hpcrun submit --help` lists all options\n"
    assert one == f"hpcrun: No such option: --gpu\n{hint}"


@pytest.mark.parametrize("closed", ["2>&-", "<&-", "2>&- <&-"])
def test_a_stream_that_the_caller_has_closed_is_no_bug(hpcrun: Hpcrun, closed: str) -> None:
    command = shlex.join(hpcrun.argv("profile", "show", "local"))
    done = hpcrun.run("sh", "-c", f"{command} {closed}")
    assert done.returncode == 0, done.stderr
    assert not done.stderr


@pytest.mark.parametrize("words", ["status --json", "profile show local", "--version", "--help"])
def test_a_result_for_a_closed_stdout_is_an_error(hpcrun: Hpcrun, words: str) -> None:
    command = shlex.join(hpcrun.argv(*words.split()))
    done = hpcrun.run("sh", "-c", f"{command} >&-", check=False)
    assert done.returncode == 4
    assert "hpcrun: cannot print the result: Bad file descriptor\n" in done.stderr


def test_a_submission_whose_result_cannot_be_printed_is_no_refusal(hpcrun: Hpcrun) -> None:
    command = shlex.join(hpcrun.argv("submit", "-P", "local", "--gpus", "0", "--json", "true"))
    for stdout in (">&-", ">/dev/full"):
        done = hpcrun.run("sh", "-c", f"{command} {stdout}", check=False)
        assert done.returncode == 5
        assert "hint: hpcrun status " + hpcrun.status()["job_id"] in done.stderr
