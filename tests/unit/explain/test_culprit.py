"""Which rank ended a run, whatever order the records of the ranks are in."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.explain.diagnosis.culprit import (
    before_signal,
    failure_order,
    find_culprit,
    first_leaver,
)
from hpcrun.explain.diagnosis.facts import (
    CLEARED_AWAY_AFTER_S,
    SAME_MOMENT_S,
    Culprit,
    LogSubject,
    RankEnd,
)

OWN, NOTHING, NETWORK, WAITED, GONE = LogSubject
End = tuple[int, float, LogSubject]
"""Exit status, when, what its log speaks of: of the ranks 0, 1, 2 ..."""


def judged(*ends: End) -> Culprit | None:
    """The culprit, the same for every order of the records."""
    records = [
        RankEnd(rank, f"n{rank // 2}", status, when) for rank, (status, when, _) in enumerate(ends)
    ]
    subjects = {rank: said for rank, (_, _, said) in enumerate(ends)}
    answers = {find_culprit(order, subjects) for order in permutations(records)}
    assert len(answers) == 1
    return answers.pop()


CASES: dict[str, tuple[list[End], Culprit | None]] = {
    "all wait for rank 2, which is terminated": (
        [(134, 10.0, WAITED), (134, 10.1, WAITED), (143, 12.0, NOTHING), (134, 10.2, WAITED)],
        Culprit(2, missing=True),
    ),
    "all wait for rank 2, which finds them gone": (
        [(134, 10.0, WAITED), (134, 10.1, WAITED), (1, 12.0, GONE)],
        Culprit(2, missing=True),
    ),
    "of two ranks the other one may have waited, too": (
        [(134, 10.0, WAITED), (143, 12.0, NOTHING)],
        Culprit(0),
    ),
    "two ranks say nothing, and who was missing is unknown": (
        [(134, 10.0, WAITED), (134, 10.1, WAITED), (143, 12.0, NOTHING), (143, 12.0, NOTHING)],
        Culprit(0),
    ),
    "rank 0 raises, the others are terminated": (
        [(1, 10.0, OWN), (143, 10.1, NOTHING), (143, 11.0, GONE), (143, 11.0, GONE)],
        Culprit(0),
    ),
    "rank 3 raises and takes longer to end than those that notice": (
        [(1, 10.0, GONE), (1, 10.0, GONE), (143, 10.1, GONE), (1, 11.5, OWN)],
        Culprit(3),
    ),
    "rank 3 raises and is so slow to end that it is terminated with the others": (
        [(1, 10.0, GONE), (143, 10.2, GONE), (143, 10.4, NOTHING), (143, 10.4, OWN)],
        Culprit(3),
    ),
    "one that failed by itself comes before one that was terminated": (
        [(143, 10.0, OWN), (1, 10.2, OWN)],
        Culprit(1),
    ),
    "sys.exit(3) is noted after the others noticed": (
        [(1, 10.0, GONE), (3, 10.4, NOTHING), (1, 10.1, GONE), (143, 10.5, NOTHING)],
        Culprit(1),
    ),
    "a crash in native code": (
        [(1, 10.2, GONE), (143, 10.3, GONE), (139, 10.0, NOTHING), (143, 10.1, GONE)],
        Culprit(2),
    ),
    "an exception comes before an abort in the same moment": (
        [(134, 10.0, NOTHING), (1, 10.5, OWN)],
        Culprit(1),
    ),
    "and before a connection that failed": ([(1, 10.0, NETWORK), (1, 10.5, OWN)], Culprit(1)),
    "but not long after": ([(1, 10.0, NETWORK), (1, 10.5 + SAME_MOMENT_S, OWN)], Culprit(0)),
    "of two exceptions the first counts": (
        [(1, 10.5, OWN), (1, 10.0, OWN), (143, 10.7, NOTHING)],
        Culprit(1),
    ),
    "one that waited for ten minutes is no culprit beside one that raised": (
        [(134, 600.0, WAITED), (1, 900.0, OWN)],
        Culprit(1),
    ),
    "of those that blame others the one that waited counts": (
        [(1, 9.9, GONE), (134, 10.0, WAITED)],
        Culprit(1),
    ),
    "a rank killed with the others' end was cleared away": (
        [(0, 5.0, NOTHING), (1, 10.0, GONE), (137, 11.0 + CLEARED_AWAY_AFTER_S, NOTHING)],
        Culprit(0, left=True),
    ),
    "one killed in the same moment was not": ([(1, 10.0, GONE), (137, 10.3, NOTHING)], Culprit(1)),
    "rank 1 leaves with 0": (
        [(1, 10.5, GONE), (0, 10.0, NOTHING), (1, 10.4, GONE), (143, 10.6, GONE)],
        Culprit(1, left=True),
    ),
    "rank 1 leaves with 0 and takes longer to end": (
        [(1, 10.5, GONE), (0, 11.0, NOTHING), (1, 10.4, GONE), (143, 10.6, GONE)],
        Culprit(1, left=True),
    ),
    "rank 1 leaves with 0, and the others wait until the end": (
        [(143, 600.0, NOTHING), (0, 10.0, NOTHING), (143, 600.0, NOTHING)],
        Culprit(1, left=True),
    ),
    "a rank that ended well long before an exception is not to blame": (
        [(0, 10.0, NOTHING), (1, 50.0, OWN)],
        Culprit(1),
    ),
    "all ended well": ([(0, 1.0, NOTHING), (0, 2.0, NOTHING)], None),
    "all were terminated": ([(143, 1.0, NOTHING), (143, 2.0, GONE)], None),
    "terminated before others ended well": ([(143, 1.0, NOTHING), (0, 2.0, NOTHING)], None),
    "no records": ([], None),
}


@pytest.mark.parametrize("case", CASES)
def test_the_rank_that_ended_the_run(case: str) -> None:
    ends, culprit = CASES[case]
    assert judged(*ends) == culprit


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 3, 134, 137, 139, 143]),
            st.floats(0, 60),
            st.sampled_from(LogSubject),
        ),
        max_size=5,
    )
)
def test_the_order_of_the_records_never_matters(ends: list[End]) -> None:
    culprit = judged(*ends)
    if culprit is None:
        assert all(status in (0, 143) for status, _, _ in ends)
        return
    assert culprit.rank is not None
    status, _, words = ends[culprit.rank]
    assert (status == 0) == culprit.left
    assert status != 143 or words is OWN or culprit.missing
    own = [
        when for status, when, said in ends if status not in (0, 137, 143) and not said.of_others
    ]
    if own and status not in (137, 143):
        assert not culprit.left
        assert ends[culprit.rank][1] <= min(own) + SAME_MOMENT_S


def test_a_terminated_rank_comes_after_one_that_was_not_unless_the_others_name_it() -> None:
    """A handler of SIGTERM may end with any status, and one that is slow to fail is told to end
    once others notice.
    """
    told, failed = RankEnd(0, "n0", 1, 10.1, signalled=True), RankEnd(1, "n0", 139, 10.3)
    assert find_culprit([told, failed], {0: OWN}) == Culprit(1)
    assert failure_order([told, failed], {}) == [1, 0]
    noticed, slow = RankEnd(0, "n0", 1, 10.0), RankEnd(1, "n0", 3, 10.4, signalled=True)
    assert find_culprit([noticed, slow], {0: GONE}) == Culprit(1)


def test_the_rank_that_called_mpi_abort_may_have_no_record() -> None:
    """srun kills the step at once: here one rank of its node could still write how its program
    ended.
    """
    killed = [RankEnd(2, "n1", 137, 10.0)]
    assert find_culprit(killed, {2: NOTHING, 3: OWN}) == Culprit(3)
    assert find_culprit(killed, {1: OWN, 3: OWN}) == Culprit(2)
    assert find_culprit([*killed, RankEnd(3, "n1", 143, 10.1)], {3: NOTHING}) == Culprit(2)
    assert find_culprit([RankEnd(2, "n1", 1, 10.0)], {3: OWN}) == Culprit(2)


def test_what_ranks_did_after_the_signal_is_left_out() -> None:
    ended = ((0, 10.0), (1, 99.5), (143, 99.9), (0, 99.1))
    ends = [RankEnd(rank, "n0", status, when) for rank, (status, when) in enumerate(ended)]
    assert before_signal(ends, 99.0) == [ends[0], ends[2]]
    assert first_leaver(before_signal(ends, 99.0)) == ends[0]
