"""Is explain right about failures in the wording of public issue threads?

What has been reached is asserted, no more.

The cases of the set ``test`` are not read while rules are made (docs/explain.md): only their
numbers are compared here.
"""

from __future__ import annotations

import hashlib

import pytest

from tests.unit.explain.public import PUBLIC, judge_log, judge_set, load_public, scores


@pytest.mark.parametrize(
    ("name", "right", "rank_right", "wrong", "guessed"),
    [("build", 355, 110, 0, 0), ("test", 147, 24, 4, 99), ("later", 100, 23, 1, 0)],
)
def test_the_scores_of_a_set(
    name: str,
    right: int,
    rank_right: int,
    wrong: int,
    guessed: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdicts = judge_set(PUBLIC / name)
    if name == "build":
        with capsys.disabled():
            shown = (f"{label}: {score}" for label, score in scores(verdicts).items())
            print("\nexplain, public cases:", *shown, sep="\n  ")
        assert [one.case.name for one in verdicts if one.recorded and one.rank is False] == []
    failures = [one for one in verdicts if not one.case.healthy]
    assert sum(one.right for one in failures) >= right
    assert sum(bool(one.rank) for one in failures) >= rank_right
    assert sum(one.wrong for one in failures) <= wrong
    assert sum(one.silent is False for one in failures) <= guessed
    assert sum(one.wrong for one in verdicts if one.case.healthy) == 0


def test_a_log_alone_without_the_run_has_no_wrong_cause_and_no_wrong_rank_either() -> None:
    alone = [
        judge_log(case)
        for case in load_public(PUBLIC / "build")
        if list(case.said["logs"]) == ["batch"]
    ]
    assert [one.case.name for one in alone if one.wrong or one.silent is False] == []
    ranked = [one.rank for one in alone if one.rank is not None]
    assert sum(ranked) / len(ranked) >= 0.95


@pytest.mark.parametrize(("name", "least"), [("build", 400), ("test", 150), ("later", 101)])
def test_every_case_is_in_the_set_of_its_thread(name: str, least: int) -> None:
    cases = load_public(PUBLIC / name)
    assert len(cases) >= least
    for case in cases:
        number = int(hashlib.sha256(case.said["thread"].lower().encode()).hexdigest(), 16)
        assert name == "later" or name == ("test" if number % 3 == 0 else "build"), case.name
        lines = [
            line
            for text in case.said["logs"].values()
            for line in text.replace("\r", "\n").splitlines()
        ]
        assert bool(case.said["key"]) != case.healthy, case.name
        for key in (*case.said["key"], *case.said["not"]):
            assert any(key in line for line in lines), (case.name, key)
