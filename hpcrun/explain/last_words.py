"""What the ranks of a job said last, where no exception and no rule tells it. Pure."""

from __future__ import annotations

from hpcrun.explain.diagnosis.facts import Facts
from hpcrun.explain.diagnosis.scan import last_lines
from hpcrun.explain.diagnosis.statements import complains
from hpcrun.job.units import rank_text, ranks_text

_LAST_WORDS = 2
"""Lines at the end of a log of which one may say why its program returned an exit status."""


def last_complaint(rank: int, facts: Facts) -> str:
    """Return what a rank complained of in one of its last lines; empty where it did not."""
    ends = (last_lines(log.scan.tail, _LAST_WORDS) for log in facts.logs if log.rank == rank)
    return next((line.strip() for lines in ends for line in reversed(lines) if complains(line)), "")


def without_timeout(facts: Facts) -> str:
    """Return the few ranks that were terminated without a word while others timed out: one may have been missed."""
    waited = {log.rank for log in facts.logs if any(hit.rule.level == "wait" for hit in log.scan.hits)}
    known = {log.rank for log in facts.logs}
    silent = [end for end in facts.ends.values() if not end.by_itself and end.status and end.rank in known - waited]
    if not silent or len(silent) > max(1, len(waited) - 1):
        return ""
    return ranks_text([end.rank for end in silent]) if silent[1:] else rank_text(silent[0].rank, silent[0].node)
