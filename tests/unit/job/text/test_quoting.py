"""Hostile text, through a real bash."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpcrun.job.text.quoting import (
    check_env_name,
    check_job_name,
    job_name_from,
    quote_bash,
    quote_directive,
    run_name_note,
)

# every byte an argument can hold, and the ones shells trip over more often than chance would have
# them
NASTY = b"'\"\\$`!*?[]{}()<>|&;#~= \t\n\r\x01\x1b\x7f\x80\xc3\xa9\xff0afx"
ARGUMENT = st.one_of(
    st.binary(max_size=40).map(lambda raw: raw.replace(b"\0", b"")),
    st.lists(st.sampled_from(list(NASTY)), max_size=20).map(bytes),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10).map(
        str.encode
    ),
)
LOCALES = ["C", "C.UTF-8"]


def run_bash(script: str, locale: str) -> list[bytes]:
    """What a script prints, each with a NUL behind it, and nothing on stderr."""
    env = {"PATH": os.defpath, "LC_ALL": locale}
    done = subprocess.run(
        ["bash"], input=script.encode("ascii"), env=env, capture_output=True, check=True
    )
    assert done.stderr == b""
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.parametrize("locale", LOCALES)
@settings(max_examples=60)
@given(words=st.lists(ARGUMENT, min_size=1, max_size=40))
@example(
    words=[
        b"",
        b" ",
        b"-n",
        b"~",
        b"a=b",
        b"[x]=y",
        b"*",
        b"{a,b}",
        b"$HOME",
        b"$(id)",
        b"`id`",
        b"!!",
        b"\\",
    ]
)
@example(
    words=[
        b"\n",
        b"\\x41",
        b"\x01\x01",
        b"\x7f",
        b"\xe9",
        b"\xc3",
        b"\xc3\xa9a",
        b"it's",
        b"'",
        b"\xffabc",
        b"\x1fa",
    ]
)
@example(words=[bytes([byte]) for byte in range(1, 256)])
@example(words=[bytes([byte]) + b"0f" for byte in range(1, 256)])
def test_an_argument_comes_through_bash_byte_for_byte(words: list[bytes], locale: str) -> None:
    quoted = " ".join(quote_bash(os.fsdecode(word)) for word in words)
    assert run_bash(f"command=({quoted})\nprintf '%s\\0' \"${{command[@]}}\"\n", locale) == words


@pytest.mark.parametrize("locale", LOCALES)
@settings(max_examples=20)
@given(values=st.lists(ARGUMENT, min_size=1, max_size=20))
def test_a_variable_s_value_reaches_a_program_byte_for_byte(
    values: list[bytes], locale: str
) -> None:
    lines = [
        f"export V{number}={quote_bash(os.fsdecode(value))}" for number, value in enumerate(values)
    ]
    seen = dict(
        item.split(b"=", 1) for item in run_bash("\n".join([*lines, "exec env -0"]), locale)
    )
    assert [seen[f"V{number}".encode()] for number in range(len(values))] == values


@given(ARGUMENT)
def test_a_quoted_word_is_one_line_of_printable_ascii(raw: bytes) -> None:
    assert all(0x20 <= ord(char) < 0x7F for char in quote_bash(os.fsdecode(raw)))


def test_a_word_is_quoted_no_more_than_it_needs_and_a_nul_is_refused() -> None:
    words = {
        "train.py": "train.py",
        "a=b": "a=b",
        "=ls": "'=ls'",  # zsh would look for the program ls
        "": "''",
        "a b": "'a b'",
        "it's": "'it'\\''s'",
        "é": "$'\\xc3\\xa9'",
        "a\nb": "$'a\\x0ab'",
    }
    assert {text: quote_bash(text) for text in words} == words
    with pytest.raises(ValueError, match="NUL"):
        quote_bash("a\0b")


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=60))
@example('a"b\\')
@example("a # b")
def test_a_directive_s_value_is_read_back_by_the_rules_of_quotes_and_backslashes(
    value: str,
) -> None:
    if "hetjob" in value or "packjob" in value:
        return
    assert shlex.split(quote_directive(value)) == [value]


def test_an_ordinary_directive_stands_as_it_is_and_one_that_sbatch_cannot_read_is_refused(
    subtests: pytest.Subtests,
) -> None:
    for value in (
        "gpu",
        "gpu:a100:4",
        "a100|h100",
        "node[1-4,7]",
        "1-12:00:00",
        "/data/a,b",
        "a&b",
    ):
        with subtests.test(value=value):
            assert quote_directive(value) == value
    for value, why in (
        ("a\nb", "printable ASCII"),
        ("café", "printable ASCII"),
        ("my hetjob", "heterogeneous"),
        ("x" * 5000, "longer than"),
    ):
        with pytest.raises(ValueError, match=why):
            quote_directive(value)


@pytest.mark.parametrize(
    ("name", "proposed"),
    [
        ("my job", "my-job"),
        ('say "hi"', "say-hi"),
        ("a\nb", "a-b"),
        ("a\n", "a"),
        ("-x", "x"),
        (".hidden", "hidden"),
        ("", "job"),
        ("é", "job"),
        ("my-hetjob", "my-het-job"),
        ("packjob", "pack-job"),
        ("47", "job-47"),
        ("L47", "job-L47"),
        ("47_3", "job-47_3"),
        ("1" * 100, "job-" + "1" * 96),
        ("last", "job-last"),
        ("20260102-030405-train-0a1b", "job-20260102-030405-train-0a1b"),
    ],
)
def test_the_run_of_a_job_with_a_hostile_name_has_a_usable_one(name: str, proposed: str) -> None:
    assert job_name_from(name) == proposed
    assert run_name_note(proposed) is None
    assert f"the run's name is {proposed}, " in (run_name_note(name) or "")


@pytest.mark.parametrize("name", ["", " ", "a\nb", "é", "my-hetjob", "packjob", "x" * 5000])
def test_a_name_that_sbatch_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a job's name") as refused:
        check_job_name(name)
    assert str(refused.value).endswith(f"{job_name_from(name)!r} could")


@pytest.mark.parametrize("name", ["my job", "47", "last", "a/b", 'say "hi"', "-x"])
def test_slurm_has_a_name_as_it_was_given(name: str) -> None:
    assert check_job_name(name) == name


@example("resnet50-lr0.1")
@example("a+b")
@example("_x")
@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}", fullmatch=True))
def test_a_plain_name_can_be_a_job_s(name: str) -> None:
    chooses_a_run = name == "last" or name.lstrip("L")[:1].isdigit()
    if not chooses_a_run and "hetjob" not in name and "packjob" not in name:
        assert job_name_from(name) == name


@given(st.text(max_size=150) | st.text("hetjobpack-. ", max_size=150))
@example("x" * 94 + "hetjob")
@example("hetjob" * 20)
@example("-" * 120 + "a")
@example("a" * 99 + ". b")
@example("hehetjobtjob")
def test_a_name_made_from_any_text_can_be_a_job_s(text: str) -> None:
    name = job_name_from(text)
    assert job_name_from(name) == name
    assert check_job_name(name) == name


def test_a_variable_has_the_name_of_a_shell_s(subtests: pytest.Subtests) -> None:
    for name in ("A", "_x", "NCCL_DEBUG", "a1"):
        with subtests.test(name=name):
            assert check_env_name(name) == name
    for name in ("", "1A", "A-B", "A B", "A\n", "É", "A;id", "A[0]"):
        with pytest.raises(ValueError, match="cannot be a variable's name"):
            check_env_name(name)
