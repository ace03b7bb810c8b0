"""explain of a job that has ended: why the job failed.

The reason comes from the scheduler's state, the records and the logs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

from hpcrun.actions.hooks import HOOKS
from hpcrun.actions.runs.hardware_use import (
    had_little_memory_left,
    run_use,
    use_advice,
    use_rows,
)
from hpcrun.actions.status.decide_status import ended_text, why_ended
from hpcrun.actions.status.run_status import ElementStatus, RunStatus, element_row
from hpcrun.explain.diagnosis.diagnose import diagnose
from hpcrun.explain.diagnosis.facts import Culprit, Diagnosis, Facts
from hpcrun.explain.diagnosis.flight_meetings import Flight
from hpcrun.explain.diagnosis.rules import Rule, fill
from hpcrun.explain.diagnosis.stragglers import straggler_sentence, stragglers_of
from hpcrun.explain.diagnosis.subject import Subject, subject_in
from hpcrun.explain.diagnosis.wait_before_end import with_wait
from hpcrun.explain.diagnosis.waiting_cause import with_flight, with_tracebacks, with_watchdog
from hpcrun.explain.evidence import Evidence, evidence_of, of_scheduler
from hpcrun.explain.gather import gather
from hpcrun.explain.many_agents import many_agents
from hpcrun.explain.nothing_failed import nothing_failed
from hpcrun.explain.started_over import LOAD_CHECKPOINT, started_over
from hpcrun.explain.unrecorded_end import NO_QUESTIONS, Questions, UnrecordedEnd, unrecorded_end
from hpcrun.explain.warm_start import remark_on_warm_start
from hpcrun.explain.wording import answer, other_nodes
from hpcrun.job import job_states
from hpcrun.job.job_states import EXIT_KILLED
from hpcrun.job.run_paths import RoleRanks, RunFolder
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.units import format_time, index_ranges, rank_option
from hpcrun.runs.attempt import (
    IDLE,
    RESTART,
    Attempt,
    ExitRecord,
    alone_note,
    attempts,
    first_failure,
    in_failed_role,
    last_attempt,
    ranks,
)
from hpcrun.runs.job_code import has_no_files
from hpcrun.runs.use_samples import UseSummary

_MOST_ATTEMPTS = 5
_STOPPED = frozenset({"TIMEOUT", "DEADLINE", "CANCELLED"})
"""States of a job that was stopped before its end: perhaps it was slow."""
_INTERRUPTED = frozenset({*_STOPPED, job_states.PREEMPTED, job_states.NODE_FAIL})
"""States of a job that was ended from outside: a further attempt helps only if it continues."""
_RUNS = (job_states.RUNNING, job_states.UNKNOWN)
_REQUEUES_USED_UP = re.compile(r"--requeue (\d+) is used up")  # in_job/launch/per_job/why_ended.py
_FROM_ZERO = (
    "it has left nothing in $HPCRUN_CHECKPOINT_DIR: resubmitted, it begins at zero unless it keeps "
    "checkpoints elsewhere"
)
RUN_ON = (
    "the srun of the script lets the other tasks run on; srun --kill-on-bad-exit=1 would end them"
)
_RAN_ON_S = 30.0
"""A rank that ends so long after the first failure was not ended by it."""
SOCKETS = (
    "hpcrun checked their TCP sockets once a second; ranks that train together are united by "
    "torch.distributed.init_process_group(), or by a trainer that calls it"
)
_UNEVEN = (
    "all ranks must call the same collectives: look for a step that one rank skips or has more, "
    "and for a collective on one rank alone (a checkpoint or barrier below `if rank == 0`)"
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a run is as it is.

    Attributes:
        summary: one sentence.
        rule: name of the rule that matches; None if no rule does: then ``summary`` names no cause.
        level: of the rule: a symptom usually has the cause that ``summary`` names; None without a
            rule.
        fix: what to do; empty where nothing is known.
        role: the role that ``rank`` belongs to, and that counts it; None without roles.
        next: one command to run.
        unread: logs, or parts of them, that could not be read.
        flight: what torch's flight recorder kept; None where there are no dumps.
    """

    item: RunStatus
    summary: str
    rule: str | None = None
    level: str | None = None
    fix: str = ""
    source: str = ""
    rank: int | None = None
    node: str | None = None
    role: RoleRanks | None = None
    evidence: tuple[Evidence, ...] = ()
    next: str = ""
    unread: tuple[str, ...] = ()
    flight: Flight | None = None

    def __post_init__(self) -> None:
        """Hide secrets: an explanation is printed, kept on disk and sent to others."""
        for name in ("summary", "fix", "next"):
            object.__setattr__(self, name, HIDER.hide(getattr(self, name)))
        object.__setattr__(self, "unread", tuple(map(HIDER.hide, self.unread)))


def _earlier_failure(
    item: RunStatus, attempt: Attempt | None, well: str, rules: Sequence[Rule], *, quick: bool
) -> Explanation | None:
    """Explain what failed in a run of which nothing has failed now; None if nothing did."""
    if attempt is None:
        return None
    if _is_between_attempts(item, attempt):
        return _between(item, attempt, well, rules, quick=quick)
    is_over = item.status.final and not item.elements
    if is_over and attempt.exit and attempt.exit.hides_failure:
        return _hidden(item, attempt, attempt.exit, rules, quick=quick)
    return None


def _use_of(item: RunStatus) -> UseSummary | None:
    """Return how a run of one job used its nodes, as far as that is known."""
    if not item.run.run_id or item.elements:
        return None
    return run_use(item.folder, item.element or 0)


def explain(
    item: RunStatus,
    rules: Sequence[Rule],
    *,
    quick: bool = False,
    questions: Questions = NO_QUESTIONS,
) -> Explanation:
    """Explain why a run failed, or return that nothing failed.

    Of a sweep, explain the first element that failed.

    Args:
        item: the run and its status.
        rules: the rules that name the causes.
        quick: read only the beginnings and ends of a few logs: a fraction of a second, whatever
            their size.
        questions: to the scheduler, of a job whose end nothing else explains.
    """
    end = _explain_end(item, rules, quick=quick, questions=questions)
    return _with_warm_start(_with_start(end))


def _with_start(explanation: Explanation) -> Explanation:
    """Return an explanation that says, too, that the newest attempt has lost the work before it."""
    item = explanation.item
    if item.elements:
        return explanation
    over = started_over(item, explanation.role)
    if over is None:
        return explanation
    return replace(
        explanation,
        summary=f"{explanation.summary}; {over.sentence}",
        fix=LOAD_CHECKPOINT if item.status.state in _INTERRUPTED else explanation.fix,
        evidence=(*explanation.evidence, *over.evidence),
    )


def _with_warm_start(explanation: Explanation) -> Explanation:
    remark = remark_on_warm_start(explanation.item)
    if remark is None:
        return explanation
    summary = "; ".join((explanation.summary, *remark.suspicions))
    evidence = (*explanation.evidence, remark.evidence)
    return replace(
        explanation, summary=summary, evidence=evidence, fix=remark.fix or explanation.fix
    )


def _explain_end(
    item: RunStatus, rules: Sequence[Rule], *, quick: bool, questions: Questions
) -> Explanation:
    """Explain why a run failed, without a comparison of its attempts."""
    failed = _first_failed_element(item)
    if failed is not None:
        item = element_row(item, failed)
    attempt = in_failed_role(last_attempt(item.folder, item.element or 0), item.run)
    use = None if quick else _use_of(item)
    well = nothing_failed(item)
    if well is not None:
        earlier = _earlier_failure(item, attempt, well, rules, quick=quick)
        return earlier or _nothing_to_explain(item, attempt, well, use)
    before = _attempts_before(item)
    if attempt is not None and attempt.exit is not None and attempt.exit.reason == IDLE:
        return _was_idle(item, attempt.exit, (*before, *_use_evidence(use)))
    facts, unread = gather(item, attempt, rules, quick=quick)
    was_stopped = item.status.state in _STOPPED
    if attempt is not None and was_stopped and not quick:
        before = (*_stragglers(item, attempt), *_alone(attempt), *before)
    if use is not None and (was_stopped or had_little_memory_left(use)):
        before = (*before, *_use_evidence(use))
    return explained(
        item,
        facts,
        rules,
        attempt=attempt,
        before=before,
        unread=unread,
        questions=questions,
    )


def _first_failed_element(item: RunStatus) -> ElementStatus | None:
    """Return the first element of a sweep that failed; if none did, the first cancelled one."""
    failed = []
    for element in item.elements:
        if element.status.final and element.status.state != job_states.COMPLETED:
            failed.append(element)
    return min(
        failed, key=lambda element: element.status.state == job_states.CANCELLED, default=None
    )


def _is_between_attempts(item: RunStatus, attempt: Attempt) -> bool:
    """Return whether a job waits again after an attempt, or Slurm is ending it."""
    if item.elements or item.status.final or item.status.state in _RUNS:
        return False
    return attempt.exit is not None or item.status.state == job_states.PENDING


def _nothing_to_explain(
    item: RunStatus, attempt: Attempt | None, well: str, use: UseSummary | None
) -> Explanation:
    """Return how a job stands that has not failed, and how well it used its hardware."""
    if item.status.state not in (job_states.RUNNING, job_states.COMPLETED):
        command = f"hpcrun status -v {item.label}"
    elif item.status.final:
        command = f"hpcrun logs {item.label}"
    else:
        command = f"hpcrun logs -f {item.label}"
    summary = well
    evidence = [*_attempts_before(item)]
    if item.status.state == job_states.COMPLETED and attempt and attempt.exit:
        summary = "; ".join((well, *attempt.exit.notes))
        evidence += _alone(attempt)
    evidence += _use_evidence(use)
    advised = tuple(use_advice(use, completed=item.status.final)) if use else ()
    if advised:  # no fix: nothing failed
        evidence.append(Evidence("advice", None, advised))
    return Explanation(item, summary, evidence=tuple(evidence), next=command)


def _between(
    item: RunStatus, attempt: Attempt, now: str, rules: Sequence[Rule], *, quick: bool
) -> Explanation:
    """Explain why the last attempt of a job ended that waits again, or that Slurm is ending."""
    sentence = f"{now}; attempt {attempt.number + 1} ended: "
    exit_ = attempt.exit
    before = _attempts_before(item)
    if exit_ is None or not exit_.status or exit_.reason not in ("", "failure"):
        command = f"hpcrun logs {item.label}"
        return Explanation(item, sentence + ended_text(attempt), evidence=before, next=command)
    explained_ = _as_failed(item, attempt, exit_.status, rules, quick=quick)
    return replace(explained_, summary=sentence + explained_.summary)


def _hidden(
    item: RunStatus, attempt: Attempt, exit_: ExitRecord, rules: Sequence[Rule], *, quick: bool
) -> Explanation:
    """Explain a launch that failed in a script that completed."""
    first = first_failure(attempt.folder)
    explanation = _as_failed(item, attempt, first.status if first else 1, rules, quick=quick)
    fix = f"{explanation.fix}; " if explanation.fix else ""
    return replace(
        explanation,
        summary=f"{exit_.message}: {explanation.summary}",
        fix=f"{fix}add `set -e` to the script: then the job fails with its launch",
    )


def _as_failed(
    item: RunStatus, attempt: Attempt, status: int, rules: Sequence[Rule], *, quick: bool
) -> Explanation:
    """Explain an attempt of a job that itself has not failed."""
    failed = replace(
        item, status=replace(item.status, state=job_states.FAILED, reason=None, exit_status=status)
    )
    facts, unread = gather(failed, attempt, rules, quick=quick)
    explanation = explained(
        failed, facts, rules, attempt=attempt, before=_attempts_before(item), unread=unread
    )
    as_it_is = {of_scheduler(failed): of_scheduler(item)}
    return replace(
        explanation,
        item=item,
        evidence=tuple(as_it_is.get(each, each) for each in explanation.evidence),
    )


def _use_evidence(use: UseSummary | None) -> tuple[Evidence, ...]:
    """Return what the run has used of its hardware."""
    if use is None:
        return ()
    lines = tuple(f"{label}: {text}" for label, text in use_rows(use))
    return (Evidence("use", None, lines),)


def _was_idle(item: RunStatus, exit_: ExitRecord, evidence: tuple[Evidence, ...]) -> Explanation:
    """Explain a job that ended itself because all of its GPUs were idle."""
    label = item.label
    fix = (
        "see in the log what it did last: a hanging rank, a long preparation without GPUs, or work "
        "that needs no GPU; "
        "--cancel-idle sets how long the GPUs may be idle"
    )
    return Explanation(
        item,
        exit_.message or "cancelled: its GPUs were idle",
        fix=fix,
        evidence=evidence,
        next=f"hpcrun logs --all-ranks {label}",
    )


def explained(
    item: RunStatus,
    facts: Facts,
    rules: Sequence[Rule],
    *,
    attempt: Attempt | None = None,
    before: tuple[Evidence, ...] = (),
    unread: tuple[str, ...] = (),
    questions: Questions = NO_QUESTIONS,
) -> Explanation:
    """Explain a job that failed, from what was gathered."""
    diagnosis = diagnose(facts, rules)
    facts = with_watchdog(facts, diagnosis)
    diagnosis = with_tracebacks(with_flight(diagnosis, facts), facts)
    if item.run.request.get("script") not in HOOKS:  # the program of a feature has little to write
        diagnosis = with_wait(diagnosis, facts, attempt)
    ended = _end_without_rule(item, facts, diagnosis, attempt, questions)
    summary = ended.summary
    fix = ended.fix
    if summary:
        diagnosis = Diagnosis(None, Culprit(None, alike=tuple(facts.ends)))
    subject = None if summary else subject_in(facts, diagnosis)
    agents = None if summary else many_agents(facts, diagnosis)
    if agents is not None:
        summary = agents.summary
        fix = agents.fix(item.run.nodes)
    if not summary:
        summary = answer(item, facts, diagnosis, attempt)
    if subject is not None:
        summary = f"{subject.sentence(facts)}; {summary}"
    explanation = Explanation(
        item,
        summary,
        fix=fix or advice(item, diagnosis) + other_nodes(facts, diagnosis),
        rank=diagnosis.first,
        role=facts.role,
        evidence=(*_evidence_of_end(item, facts, diagnosis, attempt), *before),
        next=_next_command(item, facts, diagnosis),
        unread=(*unread, *_too_long(facts)),
        flight=facts.flight,
    )
    if diagnosis.first is not None and diagnosis.first in facts.ends:
        explanation = replace(explanation, node=facts.ends[diagnosis.first].node)
    if subject is not None:
        explanation = _at_subject(explanation, subject, facts)
    if diagnosis.cause:
        rule = diagnosis.cause.rule
        explanation = replace(explanation, rule=rule.name, level=rule.level, source=rule.source)
    return explanation


def _evidence_of_end(
    item: RunStatus, facts: Facts, diagnosis: Diagnosis, attempt: Attempt | None
) -> list[Evidence]:
    """Return the evidence for the answer, its start of the ranks, and that others ran on."""
    evidence = [*evidence_of(item, facts, diagnosis, attempt)]
    if facts.start:
        evidence.append(Evidence("torchrun", None, (facts.start,)))
    if item.run.outlives_failed_tasks and _ran_on(facts, diagnosis):
        evidence.append(Evidence("srun", None, (RUN_ON,)))
    return evidence


def _too_long(facts: Facts) -> list[str]:
    """Return the logs of which only a part was searched."""
    cut = dict.fromkeys(log.name for log in facts.logs if not log.scan.whole)
    return [f"{name}: too long; only its beginning and end were searched" for name in cut]


def _at_subject(explanation: Explanation, subject: Subject, facts: Facts) -> Explanation:
    """Return an explanation with the rank and the node of a process, as far as they are known."""
    rank = subject.rank(facts)
    return replace(
        explanation,
        rank=explanation.rank if rank is None else rank,
        node=subject.node(facts) or explanation.node,
    )


def _end_without_rule(
    item: RunStatus,
    facts: Facts,
    diagnosis: Diagnosis,
    attempt: Attempt | None,
    questions: Questions,
) -> UnrecordedEnd:
    """Return how a job ended that the records explain, and no rule; empty texts if they do not."""
    summary = _role_end(facts, attempt) or _ended_before_ranks(diagnosis, attempt)
    if summary:
        return UnrecordedEnd(summary)
    return unrecorded_end(item, facts, diagnosis, attempt, questions) or UnrecordedEnd("")


def _ran_on(facts: Facts, diagnosis: Diagnosis) -> bool:
    """Return whether other ranks have run on after the one that failed first."""
    first = facts.ends.get(diagnosis.first) if diagnosis.first is not None else None
    if first is None or not first.by_itself:
        return False
    last_s = max(end.ended_s for end in facts.ends.values())
    return last_s > first.ended_s + _RAN_ON_S


def _role_end(facts: Facts, attempt: Attempt | None) -> str:
    """Return how a role has ended a job of which no rank failed; else empty.

    The role ended too early, or was not ready.
    """
    exit_ = attempt.exit if attempt else None
    if facts.role is None or exit_ is None or exit_.reason not in ("", "failure"):
        return ""
    ends = facts.ends.values()
    if any(end.status and not end.signalled for end in ends):
        return ""
    if facts.role.on_exit == "fail":
        for end in ends:
            if not end.signalled:
                name = facts.name(end.rank)
                return f"{name} ended with exit status 0, but the job needs it to its end"
    if exit_.message.endswith(f" status {EXIT_KILLED}"):
        return f"{exit_.message} (killed, SIGKILL)"
    return exit_.message


def _ended_before_ranks(diagnosis: Diagnosis, attempt: Attempt | None) -> str:
    """Return why a job ended itself before any rank began; else empty.

    The text is only needed if a rank would be named for the end.
    """
    if attempt is None or attempt.exit is None or diagnosis.first is None or ranks(attempt.folder):
        return ""
    return attempt.exit.message


def advice(item: RunStatus, diagnosis: Diagnosis) -> str:
    """Return what to do; empty where nothing is known.

    Requeues that are used up are not advised again.
    """
    if diagnosis.cause is None and diagnosis.culprit.left:
        return _UNEVEN
    if diagnosis.cause is None:
        return ""
    fix = fill(diagnosis.cause.rule.fix, _values(item, diagnosis))
    used_up = _REQUEUES_USED_UP.search(item.status.reason or "")
    if used_up:
        fix = fix.replace("--requeue", f"more than --requeue {used_up[1]}")
    if diagnosis.cause.rule.name == "time-limit" and _left_no_checkpoints(item):
        fix += f"; {_FROM_ZERO}"
    return fix


def _left_no_checkpoints(item: RunStatus) -> bool:
    """Whether a run of hpcrun has begun, and its folder of checkpoints has no file."""
    index = item.element or 0
    if last_attempt(item.folder, index) is None:
        return False
    return has_no_files(RunFolder(item.folder).element(index).checkpoints)


def _values(item: RunStatus, diagnosis: Diagnosis) -> dict[str, str | None]:
    """Return what a rule's fix and next command can name.

    These are the run, and the groups of the rule's pattern.
    """
    run = item.run
    values: dict[str, str | None] = {
        "run": item.label,
        "job": run.job_id,
        "profile": run.profile,
        "nodes": str(run.nodes),
        "rank": str(diagnosis.first or 0),
        "failed": None if item.element is None else "--failed",
        "longer": format_time(2 * run.walltime_s) if run.walltime_s else None,
    }
    if diagnosis.cause and diagnosis.cause.hit:
        values |= diagnosis.cause.hit.values
    return values


def _next_command(item: RunStatus, facts: Facts, diagnosis: Diagnosis) -> str:
    """Return one command that shows more, or checks what is wrong."""
    cause = diagnosis.cause
    if cause is not None and cause.rule.next:
        return fill(cause.rule.next, _values(item, diagnosis))
    is_of_others = cause is not None and cause.rule.level == "wait" and diagnosis.first is not None
    if cause is None or cause.log is None or is_of_others:
        rank = diagnosis.first
    else:
        rank = cause.log.rank
    if rank is None and facts.role and facts.ends:
        return f"hpcrun logs {item.label} --role {facts.role.name}"
    if rank is None:
        has_batch = any(log.scan.tail for log in facts.logs_of(None))
        return f"hpcrun logs {'--batch' if has_batch else '--all-ranks'} {item.label}"
    return f"hpcrun logs {item.label} {rank_option(rank, facts.role)}"


def _attempts_before(item: RunStatus) -> tuple[Evidence, ...]:
    """Return why the last few attempts ended, and how the run continued.

    Only attempts that were followed by another one count.
    """
    begun = list(islice(attempts(item.folder, item.element or 0), _MOST_ATTEMPTS + 1))
    if begun and not (begun[0].exit and begun[0].exit.again):
        begun = begun[1:]
    if not begun:
        return ()
    lines = []
    for text, alike in groupby(reversed(begun), _what_made_the_next):
        numbers = [attempt.number + 1 for attempt in alike]
        attempts_ = "attempt" if len(numbers) == 1 else "attempts"
        lines.append(f"{attempts_} {index_ranges(numbers)}: {text}")
    where = str(begun[-1].folder.path.parent.relative_to(item.folder))
    return (Evidence("attempts", where, tuple(lines)),)


def _stragglers(item: RunStatus, attempt: Attempt) -> tuple[Evidence, ...]:
    """Return which ranks were slower than the others."""
    slow = stragglers_of(attempt)
    if slow is None:
        return ()
    where = str(attempt.folder.path.relative_to(item.folder))
    return (Evidence("steps", where, (straggler_sentence(*slow),)),)


def _alone(attempt: Attempt) -> tuple[Evidence, ...]:
    """Return that no rank was seen connected to another, if this is so."""
    if attempt.exit is None or not attempt.exit.alone:
        return ()
    return (Evidence("sockets", None, (alone_note(attempt.exit.alone), SOCKETS)),)


def _what_made_the_next(attempt: Attempt) -> str:
    """Return why an attempt ended, and how the next one was made."""
    text = why_ended(attempt)
    end = attempt.exit
    if end and end.nodes:
        text += f" ({', '.join(end.nodes)})"
    if end and end.how == RESTART:
        return f"{text}, restarted in place"
    return f"{text}, requeued"
