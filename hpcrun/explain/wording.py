"""A diagnosis in words: one sentence that says what happened."""

from __future__ import annotations

import re

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.diagnosis.culprit import root_of
from hpcrun.explain.diagnosis.facts import Cause, Diagnosis, Facts, RankEnd
from hpcrun.explain.diagnosis.last_words import UNCAUGHT, uncaught
from hpcrun.explain.diagnosis.launcher_lines import how_it_ended
from hpcrun.explain.diagnosis.progress import is_aside
from hpcrun.explain.diagnosis.root_exception import complains, without_values
from hpcrun.explain.diagnosis.scan import last_lines
from hpcrun.explain.diagnosis.traceback import Traceback
from hpcrun.explain.evidence import first_ranks_log, log_of
from hpcrun.job.text.units import count, cut_at_word, joined, rank_text, ranks_text
from hpcrun.runs.attempt import Attempt

_LONGEST_MESSAGE = 120
_COMPLAINT_LINES = 2
"""Lines at the end of a log of which one may say why its program returned an exit status."""
_NOT_A_REASON = ("NonZeroExitCode", "None", "NodeDown", "TimeLimit")
_OF_NODE = frozenset(
    {
        "module-missing",
        "library-missing",
        "import-name",
        "library-mismatch",
        "illegal-instruction",
    }
)
"""Rules about what one node may lack and another have."""
_SOURCE_PLACE = re.compile(r"^\[[^\]]*:\d+\] ")
"""The place in gloo's own source that its messages begin with."""


def answer(item: RunStatus, facts: Facts, diagnosis: Diagnosis, attempt: Attempt | None) -> str:
    """Return what happened in one sentence.

    The sentence has the rank that ended the run, its last exception, and where it was raised.
    """
    cause = diagnosis.cause
    if cause is not None and _is_of_no_rank(cause, facts, diagnosis):
        if facts.role and diagnosis.by_places:
            return f"{facts.role.name}: {cause.text}"
        return cause.text
    first = diagnosis.first
    if first is not None and diagnosis.culprit.left:
        text = _left(first, facts)
        return f"{text}; {cause.text}" if cause else text
    if first is not None:
        text = _who(first, facts, diagnosis) + _how(first, diagnosis, facts)
        return text + _others_alike(first, facts)
    alike = diagnosis.culprit.alike
    if alike:
        return ranks_text(alike, facts.role) + _how(alike[0], diagnosis, facts)
    if cause is not None:
        return cause.text
    if attempt and attempt.exit and attempt.exit.message:
        return attempt.exit.message
    return _end_of_job(item, facts, diagnosis)


def _is_of_no_rank(cause: Cause, facts: Facts, diagnosis: Diagnosis) -> bool:
    """Whether a cause is about the end of the job, and not of one of its ranks."""
    if diagnosis.by_places:
        return True
    return bool(cause.rule.states) and not facts.ends


def _end_of_job(item: RunStatus, facts: Facts, diagnosis: Diagnosis) -> str:
    """Return how a job ended that no rule explains: with an exception, if its logs have one."""
    raised = _raised_anywhere(facts, diagnosis)
    if not item.run.scheduler:
        return raised or "no failure is recognized in this log"
    status = item.status
    text = f"the job ended as {status.state}"
    if raised:
        return f"{text}: {raised}"
    if status.exit_status:
        text += f" with exit status {status.exit_status}"
    if status.reason and status.reason not in _NOT_A_REASON:
        text += f" ({status.reason})"
    return text


def _raised_anywhere(facts: Facts, diagnosis: Diagnosis) -> str:
    """Return an exception of a job of which no rank is known to have failed; empty if none."""
    log = log_of(None, facts)
    if log is None or log.traceback is None:
        log = first_ranks_log(diagnosis, facts)
    if log is not None and log.traceback is not None:
        return _exception_at(log.traceback, whole=True)
    if diagnosis.consequences and not facts.ends:
        return _lost(diagnosis.consequences[0])
    return ""


def _lost(consequence: Cause) -> str:
    """Return the message of the first of the ranks that have all lost another one."""
    message = ""
    if consequence.log is not None and consequence.log.traceback is not None:
        message = _exception_at(consequence.log.traceback, whole=True)
    elif consequence.hit is not None:
        message = cut_at_word(consequence.hit.line.strip(), _LONGEST_MESSAGE)
    return f"{consequence.text}: {message}"


def _how(rank: int, diagnosis: Diagnosis, facts: Facts) -> str:
    """Return how the rank that failed first ended: ``: KeyError: 'lr' at train.py:9``."""
    if diagnosis.cause is not None:
        return _how_by_cause(rank, diagnosis.cause, diagnosis, facts)
    raised = _raised(rank, facts)
    if raised is not None:
        return f": {_exception_at(raised, whole=True)}"
    end = facts.ends.get(rank)
    if end is not None:
        return _how_by_record(end, facts)
    root = root_of(facts)
    if root is not None:
        return f" with exit status {root.exitcode}"
    for log in facts.logs:
        how = how_it_ended(log.end)
        if how:
            return f" failed first{how}"
    return ": its lines show no failure"


def _others_alike(first: int, facts: Facts) -> str:
    """Return which other ranks raised the same exception at the same line; empty if none did."""
    raised = _raised(first, facts)
    # torch.distributed.checkpoint passes the exception of one rank on to all
    if raised is None or raised.stated or raised.rank is not None or not facts.ends:
        return ""
    place = (without_values(raised.exception), raised.user_frame)
    alike = []
    for log in facts.logs:
        other = log.traceback
        if log.rank in (None, first) or other is None or log.rank in alike:
            continue
        if (without_values(other.exception), other.user_frame) == place:
            alike.append(log.rank)
    if not alike:
        return ""
    return f"; {ranks_text(sorted(alike), facts.role)} raised the same"


def _how_by_cause(rank: int, cause: Cause, diagnosis: Diagnosis, facts: Facts) -> str:
    """Return how a rank ended, if a rule explains it."""
    text = f": {cause.text}"
    if diagnosis.caught:
        if cause.rule.level != "caught":
            text += ", which the program caught"
        return f"{text}; other ranks then waited for it until their timeout"
    if diagnosis.culprit.missing:
        return f" did not join the other ranks{text}"
    raised = _raised(rank, facts)
    if raised is not None:
        text += f" ({_exception_at(raised, whole=cause.rule.level != 'cause')})"
    if cause.rule.level == "wait":
        silent = _without_timeout(facts)
        if silent:
            text += f"; {silent} reported no timeout"
    return text


def _how_by_record(end: RankEnd, facts: Facts) -> str:
    """Return the exit status of a rank and what it wrote last; empty if it was terminated."""
    if not end.by_itself:
        return ""
    text = f" with exit status {end.status}"
    for log in facts.logs_of(end.rank):
        lines = [line for line in log.end if not is_aside(line)]
        for line in reversed(last_lines(lines, _COMPLAINT_LINES)):
            if complains(line):
                return f"{text}: {cut_at_word(line.strip(), _LONGEST_MESSAGE)}"
        # sys.exit("no data") writes its message, and nothing says that it is one
        if end.status == UNCAUGHT and last_lines(lines, 1):
            return f"{text}, after: {cut_at_word(last_lines(lines, 1)[0], _LONGEST_MESSAGE)}"
    return text


def _without_timeout(facts: Facts) -> str:
    """Return the few ranks that were terminated silently while others timed out.

    One of these ranks may have been missed.
    """
    waited = set()
    for log in facts.logs:
        if any(hit.rule.level == "wait" for hit in log.scan.hits):
            waited.add(log.rank)
    without_hit = {log.rank for log in facts.logs} - waited
    silent = []
    for end in facts.ends.values():
        was_terminated = end.status != 0 and not end.by_itself
        if was_terminated and end.rank in without_hit:
            silent.append(end.rank)
    if not silent or len(silent) > max(1, len(waited) - 1):
        return ""
    if len(silent) > 1:
        return ranks_text(silent, facts.role)
    return facts.name(silent[0])


def _left(rank: int, facts: Facts) -> str:
    """Return which rank ended with exit status 0 before the others.

    The text also says how the first of the others failed.
    """
    ended = [end.rank for end in facts.ends.values() if end.status == 0]
    others = [end.rank for end in facts.ends.values() if end.status != 0]
    is_alone = len(ended) > 1 and len(others) == 1
    if is_alone:
        names = ranks_text(ended, facts.role)
        text = f"{facts.name(others[0])} continued alone: {names} had ended with exit status 0"
    else:
        number = count(len(others), "other rank")
        text = f"{facts.name(rank)} ended first, with exit status 0, while {number} continued"
    failed = [end for end in facts.ends.values() if end.by_itself]
    if not failed:
        return text
    then = min(failed, key=lambda end: (end.ended_s, end.rank))
    raised = _raised(then.rank, facts)
    if raised:
        how = f": {_exception_at(raised, whole=True)}"
    else:
        how = f" with exit status {then.status}"
    if is_alone:
        return f"{text}; it then failed{how}"
    return f"{text}; {facts.name(then.rank)} then failed{how}"


def _raised(rank: int, facts: Facts) -> Traceback | None:
    """Return the exception that ended a rank.

    Where ranks share a log, this is the exception of the lines without a rank.
    """
    logs = facts.logs_of(rank)
    if not logs and not facts.ends:
        logs = facts.logs_of(None)
    return uncaught(logs, facts.ends.get(rank))


def _exception_at(raised: Traceback, *, whole: bool) -> str:
    """Return an exception, where it was raised, and what it was raised from.

    An example is ``ValueError: no split at read.py:6``.

    Args:
        raised: the exception.
        whole: with its message; else its name alone.
    """
    text = _exception(raised, whole=whole)
    if raised.origin is not None:
        return f"{text}, raised from {_exception(raised.origin, whole=True)}"
    if raised.aftermath is not None:
        return f"{text}; then {_exception(raised.aftermath, whole=True)}"
    return text


def _exception(raised: Traceback, *, whole: bool) -> str:
    """Return an exception and the last line of the user's own code below which it was raised."""
    if raised.stated:
        text = cut_at_word(raised.exception, _LONGEST_MESSAGE)
    else:
        name, _, message = raised.exception.partition(":")
        text = name.rpartition(".")[2]
        message = _SOURCE_PLACE.sub("", message.strip())
        if whole and message:
            text += f": {cut_at_word(message, _LONGEST_MESSAGE)}"
    if raised.user_frame:
        text += f" at {raised.user_frame.short}"
    return text


def _who(rank: int, facts: Facts, diagnosis: Diagnosis) -> str:
    """Return ``rank 5 on node7 failed first``, as much of it as is known."""
    root = root_of(facts)
    if root is not None and root.rank == rank and not facts.ends:
        return f"{rank_text(rank, root.host, facts.role)} failed first"
    if diagnosis.failed_first(facts.ends.get(rank)):
        return f"{facts.name(rank)} failed first"
    return facts.name(rank)


def other_nodes(facts: Facts, diagnosis: Diagnosis) -> str:
    """Return which nodes lack some software and which do not report this; empty if all do."""
    cause = diagnosis.cause
    if cause is None or cause.rule.name not in _OF_NODE:
        return ""
    lacking = set()
    others = set()
    read = set()
    for log in facts.logs:
        if log.rank is None or log.rank not in facts.ends:
            continue
        read.add(log.rank)
        node = facts.ends[log.rank].node
        if any(hit.rule.name == cause.rule.name for hit in log.scan.hits):
            lacking.add(node)
        elif any(line.strip() for line in log.scan.tail):
            others.add(node)
    others -= lacking
    if not lacking or not others or len(read) < len(facts.ends):
        return ""
    reporting = joined(sorted(lacking))
    return f"; {reporting} reported this, and no rank on {joined(sorted(others))} did: compare them"
