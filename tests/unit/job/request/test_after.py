"""What --after and --chain mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.errors import UsageError
from hpcrun.job.request.after import (
    After,
    Chain,
    Condition,
    Dependency,
    dependency_option,
    fulfils,
    link_name,
    parse_after,
    parse_chain,
)
from hpcrun.job.text.quoting import check_job_name


def test_a_run_or_a_number_and_perhaps_a_condition() -> None:
    assert [parse_after(text) for text in ("train", "4711:any", "a.b-2:fail")] == [
        After("train", "ok"),
        After("4711", "any"),
        After("a.b-2", "fail"),
    ]
    assert [parse_chain(text) for text in ("4", "2:any")] == [Chain(4, "fail"), Chain(2, "any")]


def test_anything_else_is_refused(subtests: pytest.Subtests) -> None:
    for text in (
        "",
        ":ok",
        "train:",
        "train:done",
        "train:ok:any",
        "a:OK",
        "afterok:1",
        "1:afterok",
        "afterok:1:2",
    ):
        with subtests.test(text=text):
            with pytest.raises(UsageError, match="--after") as refused:
                parse_after(text)
            assert str(refused.value.hint).startswith("write --after RUN, ")
    for text in ("", "1", "0", "-2", "x", "101", "4:", "4:often", "²"):
        with pytest.raises(UsageError, match="--chain"):
            parse_chain(text)


def test_what_fulfils_a_condition(subtests: pytest.Subtests) -> None:
    for state, ok, fail in (
        ("COMPLETED", True, False),
        ("FAILED", False, True),
        ("TIMEOUT", False, True),
        ("CANCELLED", False, True),
        ("NOT_SUBMITTED", False, False),
    ):
        with subtests.test(state=state):
            assert fulfils(state, "ok") == ok
            assert fulfils(state, "any") is True
            assert fulfils(state, "fail") == fail


def test_sbatch_is_told_of_all_that_are_not_over() -> None:
    conditions: tuple[Condition, ...] = ("ok", "any", "fail")
    waits = [
        Dependency("run", str(number), condition) for number, condition in enumerate(conditions, 1)
    ]
    over = Dependency("run", "4", "ok", True)
    assert dependency_option([*waits, over]) == "afterok:1,afterany:2,afternotok:3"
    assert dependency_option([over]) == ""


@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}", fullmatch=True), st.integers(2, 100))
def test_a_links_name_is_a_jobs_name_of_its_own(name: str, link: int) -> None:
    if "hetjob" in name or "packjob" in name:
        return
    assert link_name(name, 1) == name
    assert check_job_name(link_name(name, link)).endswith(f"-{link}")
