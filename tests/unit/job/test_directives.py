"""Directives: which may be set freely, which are hpcrun's, which are unknown."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.errors import UsageError
from hpcrun.job.launch_options import (
    ESSENTIAL,
    EXCLUSIVE,
    KNOWN,
    OPTIONS,
    OWNED,
    Directives,
    check_option,
    directive_line,
    normalise_key,
    remove_directive,
    set_directive,
    unknown_note,
)
from hpcrun.job.request.job_request import JOB_FIELDS
from tests.harness import REPO

RECORDED = sorted((REPO / "tests/data").glob("*/sbatch-options.txt"))
PRINTS_AND_ENDS = {"help", "usage", "version"}  # these options of sbatch submit nothing


def unknown(names: set[str]) -> set[str]:
    return {name for name in names - PRINTS_AND_ENDS if unknown_note(name)}


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.parent.name)
def test_every_option_of_sbatch_s_manual_page_is_known(file: Path) -> None:
    names = set(file.read_text().split())
    assert len(names) > 90
    assert unknown(names) == set()


@pytest.mark.needs("sbatch")
def test_every_option_of_the_installed_sbatch_is_known() -> None:
    """``sbatch --help`` asks slurmctld for nothing, but wants a configuration: its text is read
    from the program.
    """
    program = Path(subprocess.check_output(["which", "sbatch"], text=True).strip()).read_bytes()
    names = {name.decode() for name in re.findall(rb"\n +(?:-\w, )?--([a-z][a-z-]*[a-z])", program)}
    assert len(names) > 60
    assert unknown(names) == set()


def test_a_key_may_be_written_with_dashes_or_underscores(subtests: pytest.Subtests) -> None:
    for key in ("mem-per-cpu", "--mem-per-cpu", "mem_per_cpu", " mem-per-cpu ", "-mem-per-cpu"):
        with subtests.test(key=key):
            assert normalise_key(key) == "mem-per-cpu"


def test_a_directive_that_hpcrun_owns_is_refused_with_what_to_do_instead() -> None:
    for key in OWNED:
        with pytest.raises(
            UsageError, match=f"--sbatch {key}: hpcrun sets --{key} itself"
        ) as refused:
            check_option("sbatch", key, None, f"--sbatch {key}")
        assert OWNED[key] in (refused.value.hint or "")
    with pytest.raises(UsageError, match="sbatch takes --outpu for --output, which hpcrun sets"):
        check_option("sbatch", "outpu", "x", "--sbatch outpu=x")


def test_what_cannot_be_an_option_of_sbatch_is_refused() -> None:
    for key in ("", "--", "a b", "é", "a;b", "x\n#SBATCH --uid", "a/b"):
        with pytest.raises(UsageError, match="cannot be an option of sbatch"):
            check_option("sbatch", key, None, f"--sbatch {key}")


@given(st.text(max_size=20))
def test_any_key_is_taken_or_refused_in_words(key: str) -> None:
    try:
        name = check_option("sbatch", key, None, "--sbatch")
    except UsageError as error:
        assert error.hint
    else:
        assert directive_line(name, None).isascii()


def test_an_unknown_directive_is_left_to_sbatch_with_the_nearest_name(
    subtests: pytest.Subtests,
) -> None:
    for key, more in (
        *(
            (key, None)
            for key in "exclusive mem-per-gpu dependency partition licenses comment nice".split()
        ),
        ("exclusiv", "; did you mean 'exclusive'?"),
        ("dependancy", "; did you mean 'dependency'?"),
        ("zzz-bowl", ""),
    ):
        with subtests.test(key=key):
            assert check_option("sbatch", key, None, "--sbatch") == key
            assert unknown_note(key) == (
                None if more is None else f"sbatch option '{key}' is unknown{more}"
            )


@pytest.mark.parametrize("wanted", ["mem", "mem-per-cpu", "mem-per-gpu"])
def test_the_forms_of_memory_exclude_each_other(wanted: str) -> None:
    directives: Directives = {"mem": "1G", "time": "1:00:00"}
    set_directive(directives, wanted, "2G")
    assert directives == {"time": "1:00:00", wanted: "2G"}


def test_a_directive_can_be_removed_unless_the_script_needs_it_or_nothing_sets_it(
    subtests: pytest.Subtests,
) -> None:
    for key in ("mem", "--mem", " mem"):
        with subtests.test(key=key):
            directives: Directives = {"mem": "1G", "time": "1:00:00"}
            remove_directive(directives, key)
            assert directives == {"time": "1:00:00"}
    for key in ESSENTIAL:
        with pytest.raises(UsageError, match=f"--no-sbatch {key}: the script needs it"):
            remove_directive({key: "x"}, key)
    for key, hint in (("tim", "did you mean 'time'?"), ("zzz", "set are: mem, time")):
        with pytest.raises(UsageError, match="it is not set") as refused:
            remove_directive({"mem": "1G", "time": "1", "nodes": "1"}, key)
        assert refused.value.hint == hint


def test_a_line_is_written_as_sbatch_reads_it() -> None:
    assert directive_line("exclusive", None) == "--exclusive"
    assert directive_line("partition", "gpu") == "--partition=gpu"
    assert directive_line("comment", "my project") == '--comment="my project"'
    assert directive_line("comment", "") == '--comment=""'
    for value in ("a\n#SBATCH --uid=0", "é", "a hetjob"):
        with pytest.raises(UsageError, match="directive 'comment', value"):
            directive_line("comment", value)


def test_no_directive_is_both_owned_and_free_and_none_is_half_a_word() -> None:
    assert not set(OWNED) & set(OPTIONS)
    assert set(OPTIONS.values()) <= set(JOB_FIELDS)
    assert {*KNOWN, *OPTIONS} >= EXCLUSIVE
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", name) for name in (*KNOWN, *OPTIONS, *OWNED))
