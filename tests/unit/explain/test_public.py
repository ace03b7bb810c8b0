"""Is explain right about failures in the wording of public issue threads? What has been reached is asserted, no more.

The cases of the set ``test`` are not read while rules are made (docs/explain.md): only their numbers are compared here.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hpcrun.explain.diagnosis.rules import load_rules
from tests.unit.explain.public import PUBLIC, Verdict, judge_log, judge_set, load_public, scores


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    return judge_set(PUBLIC / "build")


def share(found: list[Verdict], of: list[Verdict]) -> float:
    return len(found) / len(of)


def test_the_scores_of_the_cases_from_which_rules_were_made(
    verdicts: list[Verdict], capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print("\nexplain, public cases:", *(f"{name}: {score}" for name, score in scores(verdicts).items()), sep="\n  ")
    failures = [one for one in verdicts if not one.case.healthy]
    assert share([one for one in failures if one.right], failures) >= 0.99
    assert [one.case.name for one in failures if one.wrong] == []
    ranked = [one for one in failures if one.rank is not None]
    assert share([one for one in ranked if one.rank], ranked) >= 0.96
    assert [one.case.name for one in failures if one.silent is False] == []


def test_a_rank_with_records_is_named_rightly_and_a_healthy_log_has_no_claim(verdicts: list[Verdict]) -> None:
    assert [one.case.name for one in verdicts if one.recorded and one.rank is False] == []
    assert [one.case.name for one in verdicts if one.case.healthy and one.wrong] == []


def test_a_log_alone_without_the_run_has_no_wrong_cause_and_no_wrong_rank_either(tmp_path: Path) -> None:
    rules = load_rules([])
    alone = [case for case in load_public(PUBLIC / "build") if list(case.said["logs"]) == ["batch"]]
    found = [judge_log(case, tmp_path / f"{case.name}.log", rules) for case in alone]
    assert [one.case.name for one in found if one.wrong or one.silent is False] == []
    ranked = [one for one in found if one.rank is not None]
    assert share([one for one in ranked if one.rank], ranked) >= 0.95


def test_the_scores_of_the_cases_that_nobody_read() -> None:
    unseen = judge_set(PUBLIC / "test")
    failures = [one for one in unseen if not one.case.healthy]
    ranked = [one.rank for one in failures if one.rank is not None]
    right, rank, wrong = (
        sum(found) for found in ([one.right for one in failures], ranked, [one.wrong for one in failures])
    )
    claimed = sum(one.wrong for one in unseen if one.case.healthy)
    assert (right >= 147, rank >= 24, wrong <= 4, claimed == 0) == (True,) * 4


def test_the_scores_of_the_cases_that_came_last() -> None:
    found = judge_set(PUBLIC / "later")
    ranks = [one.rank for one in found if one.rank is not None]
    assert len(found) == 101
    right, wrong = sum(one.right for one in found), sum(one.wrong for one in found)
    assert (right >= 100, wrong <= 1, sum(ranks) >= 23) == (True, True, True)
    assert sum(one.silent is False for one in found) == 0


@pytest.mark.parametrize("name", ["build", "test"])
def test_every_case_is_in_the_set_of_its_thread(name: str) -> None:
    cases = load_public(PUBLIC / name)
    assert len(cases) >= 150
    for case in cases:
        number = int(hashlib.sha256(case.said["thread"].lower().encode()).hexdigest(), 16)
        assert name == ("test" if number % 3 == 0 else "build"), case.name
        lines = [line for text in case.said["logs"].values() for line in text.replace("\r", "\n").splitlines()]
        assert bool(case.said["key"]) != case.healthy, case.name
        for key in (*case.said["key"], *case.said["not"]):
            assert any(key in line for line in lines), (case.name, key)
