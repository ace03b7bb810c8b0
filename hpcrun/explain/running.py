"""explain of a running job: what each rank last did, and what this means, as a list of remarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from hpcrun.actions.hooks import about_run
from hpcrun.actions.runs.compiled_text import compiling_sentence
from hpcrun.actions.status.decide_status import ALIVE_WITHIN_S
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.diagnosis.stragglers import straggler_sentence, stragglers_of
from hpcrun.explain.diagnosis.wait_before_end import (
    FIX_OF_STALL,
    WrittenLines,
    stall_sentence,
)
from hpcrun.explain.ended import RUN_ON, SOCKETS, Explanation
from hpcrun.explain.evidence import Evidence
from hpcrun.explain.started_over import LOAD_CHECKPOINT, started_over
from hpcrun.job.job_states import RUNNING
from hpcrun.job.text.metric_patterns import STEP
from hpcrun.job.text.patterns import compile_pattern
from hpcrun.job.text.units import count, format_span, joined, rank_text
from hpcrun.runs.attempt import (
    Attempt,
    RankExit,
    alone_note,
    alone_ranks,
    last_attempt,
    loader_note,
    node_ranks,
    rank_exits,
)
from hpcrun.runs.compiled_files import compiled_files
from hpcrun.runs.elements import records_of
from hpcrun.runs.log_files import fold, rank_log, tail
from hpcrun.runs.metric_files import LogMetrics, Unreadable, Value, noted
from hpcrun.runs.role_states import RoleState, role_states
from hpcrun.runs.silence import (
    STREAMS,
    Writes,
    last_line_of,
    last_writes,
    silence_limit_s,
    silence_sentence,
    usual_pause_s,
)
from hpcrun.runs.use_samples import idle_unknown

_MOST_ROWS = 8
"""Ranks whose last lines are read and shown."""
_LAST_LINES = 20
_LAST_ROWS = 2
"""Lines at the end of a log that are searched for metrics; of those that a rank noted, the last may
be cut off.
"""
_STALL_LINES = 40
"""Lines at the end of a log in which a complaint may be repeated."""
_LONGEST = 120
_ENDED_S = 5.0
"""The head start of a rank that ended well, but too early: at the end of a job, all ranks end at
once."""
_LATE_S = 60.0
"""The lag behind the newest heartbeat from which a node's heartbeat is late: a node has one every
10 s.
"""


@dataclass(frozen=True, slots=True)
class Running:
    """What is known of an attempt that runs.

    Attributes:
        node_of: rank → its node.
        ends: rank → how it ended, of ranks that have ended.
        usual_s: the usual pause between two lines of the rank that wrote last; None if unknown.
        patterns: metric → regular expression that finds it in a log.
        roles: what each role is doing; none without roles.
        cancelled: ``hpcrun cancel`` was called since the attempt began.
    """

    item: RunStatus
    attempt: Attempt
    now_s: float
    writes: Writes
    node_of: Mapping[int, str]
    ends: Mapping[int, RankExit]
    usual_s: float | None
    patterns: Mapping[str, str] = field(default_factory=dict)
    roles: Sequence[RoleState] = ()
    cancelled: bool = False

    @property
    def silent_s(self) -> dict[int, float | None]:
        """The ranks that run → seconds since they last wrote; None if they have written nothing."""
        last = self.writes.ranks
        silent: dict[int, float | None] = {}
        for rank in sorted({*last, *self.node_of}):
            if rank in self.ends:
                continue
            at_s = last.get(rank)
            silent[rank] = None if at_s is None else max(0.0, self.now_s - at_s)
        return silent

    @property
    def newest_s(self) -> float:
        """Seconds since any rank that runs last wrote.

        If no rank has written anything, these are the seconds since the start.
        """
        ages = (age for age in self.silent_s.values() if age is not None)
        return min(ages, default=max(0.0, self.now_s - self.attempt.started_s))

    def name(self, rank: int) -> str:
        """Return ``rank 11 on node-3``."""
        return rank_text(rank, self.node_of.get(rank), self.attempt.folder.role)

    def of_role(self, sentence: str) -> str:
        """Return a sentence about the ranks, which begins with the name of their role."""
        role = self.attempt.folder.role
        if role and sentence and not sentence.startswith(role.name):
            return f"{role.name}: {sentence}"
        return sentence


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that is known of a running job.

    Attributes:
        sentence: a part of the verdict; empty if there is only evidence.
        stuck: something does not look right.
        rank: the rank that it names.
        fix: what to do.
        next: the command that shows more.
    """

    sentence: str
    evidence: tuple[Evidence, ...] = ()
    stuck: bool = True
    rank: int | None = None
    fix: str = ""
    next: str = ""


def read_running(item: RunStatus, now_s: float, patterns: Mapping[str, str]) -> Running | None:
    """Return what the files of a running job say; None if no attempt has started yet."""
    roles = list(role_states(item.run, item.folder, item.element or 0))
    main = item.run.deciding_role
    # the deciding role; while it waits, the one that starts
    role = min(
        roles,
        key=lambda one: (one.state == "waiting", one.role != main, one.state != "starting"),
        default=None,
    )
    attempt = last_attempt(item.folder, item.element or 0, role.role if role else None)
    if attempt is None:
        return None
    writes = last_writes(attempt.folder)
    node_of = {}
    for node, ranks in node_ranks(attempt.folder).items():
        node_of.update(dict.fromkeys(ranks, node))
    ends = {end.rank: end for end in rank_exits(attempt.folder)}
    written = {rank: at_s for rank, at_s in writes.ranks.items() if at_s}
    usual_s = None
    if written:
        latest = max(written, key=lambda rank: written[rank])
        usual_s = usual_pause_s(attempt, latest)
    cancelled = records_of(item.folder, item.element or 0).cancelled
    return Running(item, attempt, now_s, writes, node_of, ends, usual_s, patterns, roles, cancelled)


def most_silent(item: RunStatus, now_s: float) -> int | None:
    """Return the running element of a sweep that has been silent for the longest time.

    The result is None if no element runs.
    """
    silent = {}
    for element in item.elements:
        if element.status.state != RUNNING:
            continue
        attempt = last_attempt(item.folder, element.index, item.run.deciding_role)
        if attempt is not None:
            written = filter(None, last_writes(attempt.folder).ranks.values())
            silent[element.index] = now_s - max(written, default=attempt.started_s)
    return max(silent, key=lambda index: silent[index], default=None)


def _summarised(
    candidates: Sequence[Remark], stacks: Remark | None, silence: Remark | None, *, stuck: bool
) -> list[Remark]:
    """Return the remarks whose sentences are the summary, in its order."""
    chosen = [remark for remark in candidates if remark.sentence]
    if not stuck:
        chosen.sort(key=lambda remark: remark is not silence)  # "nothing looks stuck" comes first
    elif stacks in chosen:  # they have how long no rank has written
        chosen = [remark for remark in chosen if remark is not silence]
    return chosen


def explain_running(running: Running, stacks: Remark | None = None) -> Explanation:
    """Explain a job that runs, from what is known of it and from its ranks' stacks.

    The most important finding comes first.
    """
    beats = _heartbeats(running)
    silence = _silence(running)
    ended = _ended(running)
    compiling = _compiling(running)
    if compiling and silence.stuck:  # then it is no wonder that the ranks are silent
        silence = replace(silence, sentence=running.of_role(compiling), stuck=False)
    if running.cancelled:  # then it is no wonder that ranks end or are silent
        silence = replace(silence, sentence="the job is being cancelled", stuck=False)
        ended = None
    known = (
        stacks,
        _stall(running),
        beats if beats.stuck else None,
        ended,
        _alone(running, stuck=silence.stuck),
        _slow(running),
        silence,
        None if beats.stuck else beats,
        _started_over(running),
        _idle_limit(running),
        _few_cpus(running),
    )
    remarks = [remark for remark in known if remark is not None]
    stuck = any(remark.stuck for remark in remarks)
    candidates = [remark for remark in remarks if remark.stuck == stuck]
    chosen = _summarised(candidates, stacks, silence, stuck=stuck)
    rank = _first_rank(remarks)
    return Explanation(
        running.item,
        "; ".join(remark.sentence for remark in chosen),
        fix=_first_fix((stacks, *chosen)),
        rank=rank,
        node=running.node_of.get(rank) if rank is not None else None,
        role=running.attempt.folder.role,
        evidence=tuple(chain.from_iterable(remark.evidence for remark in remarks)),
        next=_next_command(running, stacks, stuck=stuck),
    )


def _first_rank(remarks: Iterable[Remark]) -> int | None:
    """Return the first rank that is named."""
    for remark in remarks:
        if remark.rank is not None:
            return remark.rank
    return None


def _first_fix(remarks: Iterable[Remark | None]) -> str:
    """Return the first thing to do; empty if no remark has one."""
    for remark in remarks:
        if remark is not None and remark.fix:
            return remark.fix
    return ""


def _next_command(running: Running, stacks: Remark | None, *, stuck: bool) -> str:
    """Return the command that shows more of a running job."""
    label = running.item.label
    role = running.attempt.folder.role
    if stacks and stacks.next:
        return stacks.next
    if stuck and stacks is None:
        return f"hpcrun explain {label} --stacks"
    if role and role != running.item.run.deciding_role:
        return f"hpcrun logs -f {label} --role {role.name}"
    return f"hpcrun logs -f {label}"


def _ended(running: Running) -> Remark | None:
    """Return which ranks have ended while others run."""
    silent = running.silent_s
    ended = []
    for end in running.ends.values():
        has_failed = end.status != 0 and not end.is_consequence
        if has_failed or running.now_s - end.ended_s >= _ENDED_S:
            ended.append(end)
    if not ended or not silent:
        return None
    first = min(ended, key=lambda end: (end.ended_s, end.rank))
    more = ""
    if len(ended) > 1:
        more = f" (and {len(ended) - 1} more later)"
    verb = "runs" if len(silent) == 1 else "run"
    others = f"{count(len(silent), 'other rank')} {verb}"
    age = format_span(running.now_s - first.ended_s)
    who = running.name(first.rank)
    sentence = f"{who} ended {age} ago with exit status {first.status}{more}, while {others}"
    where = str(running.attempt.folder.rank_exit(first.rank).relative_to(running.item.folder))
    lines = [f"exit status {first.status}, {age} ago"]
    if first.status and running.item.run.outlives_failed_tasks:
        lines.append(RUN_ON)
    evidence = Evidence(who, where, tuple(lines))
    return Remark(sentence, (evidence,), rank=first.rank)


def _heartbeats(running: Running) -> Remark:
    """Return the age of the heartbeats, and which of them are late although others are not."""
    now_s = running.now_s
    host = running.attempt.host
    job_s = max(0.0, now_s - running.attempt.alive_s)
    lines = [f"job on {host}: {format_span(job_s)} ago"]
    ages: dict[str, float] = {}
    # without --requeue and --warn a node has no heartbeat: its record is as old as the node
    if running.item.run.plan.get("requeue"):
        ages = {node: max(0.0, now_s - at_s) for node, at_s in running.writes.nodes.items()}
    late = []
    if ages:
        youngest_s = min(ages.values())
        oldest_first = sorted(ages, key=lambda node: -ages[node])
        late = [node for node in oldest_first if ages[node] - youngest_s > _LATE_S]
        least = format_span(youngest_s)
        most = format_span(max(ages.values()))
        span = least if least == most else f"{least} to {most}"
        lines.append(f"nodes ({len(ages)}): {span} ago")
    sentence = ""
    if late:
        sentence = f"no heartbeat from {joined(late)} for {format_span(ages[late[0]])}"
    elif job_s > ALIVE_WITHIN_S:
        sentence = f"no heartbeat from the job's script on {host} for {format_span(job_s)}"
    return Remark(sentence, (Evidence("heartbeat", None, tuple(lines)),), stuck=bool(sentence))


def _silence(running: Running) -> Remark:
    """Return how long since the ranks last wrote, and what."""
    silent = running.silent_s
    of_roles: tuple[Evidence, ...] = ()
    if running.roles:
        lines = tuple(role.line for role in running.roles)
        of_roles = (Evidence("roles", None, lines),)
    if running.ends and not silent:
        sentence = running.of_role("each rank has ended, and the job is about to end")
        return Remark(sentence, of_roles, stuck=False)
    running_s = max(0.0, running.now_s - running.attempt.started_s)
    sentence = silence_sentence(silent, running.name, running_s=running_s, usual_s=running.usual_s)
    about = about_run(running.item)[1]
    chosen = shown_ranks(silent)
    lines = tuple(_row(running, rank, silent[rank]) for rank in chosen)
    note = ""
    if len(chosen) < len(silent):
        note = f"{len(chosen)} of {len(silent)}"
    where = str(running.attempt.folder.path.relative_to(running.item.folder))
    evidence = (Evidence("ranks", where, lines, note),) if lines else ()
    stuck = not about and running.newest_s > silence_limit_s(running.usual_s)
    return Remark(about or running.of_role(sentence), (*evidence, *of_roles), stuck=stuck)


def _compiling(running: Running) -> str:
    """Return that the ranks compile now, as far as their compilers' new files show it."""
    files = compiled_files(running.attempt)
    return compiling_sentence(files, running.now_s) if files else ""


def _stall(running: Running) -> Remark | None:
    """Return what the job repeats without a step between: what it waits for."""
    logs = []
    for rank in shown_ranks(running.silent_s):
        for stream in STREAMS:
            with suppress(OSError):
                path = rank_log(running.attempt.folder, rank, stream).path
                lines = [fold(line) for line in tail(path, _STALL_LINES).splitlines()]
                logs.append(WrittenLines(lines, path.stat().st_mtime))
    sentence = stall_sentence(logs)
    if not sentence:
        return None
    return Remark(sentence, fix=FIX_OF_STALL)


def _slow(running: Running) -> Remark | None:
    """Return which ranks are slower than the others."""
    slow = stragglers_of(running.attempt)
    if slow is None:
        return None
    return Remark(running.of_role(straggler_sentence(*slow)), rank=slow[0].ranks[0], stuck=False)


def _started_over(running: Running) -> Remark | None:
    """Return that this attempt began where the first one did, although that came further."""
    over = started_over(running.item, running.attempt.folder.role)
    if over is None:
        return None
    return Remark(over.sentence, over.evidence, stuck=False, fix=LOAD_CHECKPOINT)


def _alone(running: Running, *, stuck: bool) -> Remark | None:
    """Return that no rank has connected to another.

    It is the likely reason of a silence, and else only to be known.
    """
    number = alone_ranks(running.attempt.folder)
    if not number:
        return None
    return Remark(alone_note(number), (Evidence("sockets", None, (SOCKETS,)),), stuck=stuck)


def _idle_limit(running: Running) -> Remark | None:
    """Return that ``--cancel-idle`` has no effect, if a node reports no GPU use."""
    node = idle_unknown(running.attempt.folder)
    if node is None:
        return None
    line = f"--cancel-idle has no effect: no use of the GPUs is known from nvidia-smi on {node}"
    return Remark("", (Evidence("idle limit", None, (line,)),), stuck=False)


def _few_cpus(running: Running) -> Remark | None:
    """Return torch's warning that a DataLoader has more workers than the job has CPUs."""
    note = loader_note(running.attempt.folder)
    return Remark(running.of_role(note), stuck=False) if note else None


def shown_ranks(silent_s: Mapping[int, float | None]) -> list[int]:
    """Return the ranks to show.

    Few ranks are all shown. Of many, these are rank 0, the ranks that stopped first, and the ranks
    that wrote last.
    """
    if len(silent_s) <= _MOST_ROWS:
        return sorted(silent_s)
    oldest_first = sorted(silent_s, key=lambda rank: (-(silent_s[rank] or 0.0), rank))
    wrote = [rank for rank in oldest_first if silent_s[rank] is not None]
    return sorted({min(silent_s), *wrote[:4], *wrote[-2:]})


def _row(running: Running, rank: int, silent_s: float | None) -> str:
    """Return what a rank last did.

    An example is ``rank 3 on node-1: 12 min ago, step 480, loss 0.31: last line``.
    """
    if silent_s is None:
        wrote = "nothing yet"
    else:
        wrote = f"{format_span(silent_s)} ago"
    parts = [f"{running.name(rank)}: {wrote}"]
    for name, value in _last_metrics(running, rank).items():
        number = f"{value:.6g}" if isinstance(value, float) else f"{value}"
        parts.append(f"{name} {number}")
    text = ", ".join(parts)
    line = last_line_of(running.attempt, rank)
    if line:
        return f"{text}: {line[:_LONGEST]}"
    return text


def _last_metrics(running: Running, rank: int) -> dict[str, Value]:
    """Return the last step and metrics of a rank.

    The rank noted these; else they come from the last lines of its log.
    """
    rows = list(noted(running.attempt, rank, Unreadable(), _LAST_ROWS))
    if not rows and running.patterns:
        patterns = {name: compile_pattern(text) for name, text in running.patterns.items()}
        rows = list(LogMetrics(patterns).rows(running.attempt, rank, _LAST_LINES))
    if not rows:
        return {}
    last = rows[-1]
    if last.step is None:
        return dict(last.values)
    return {STEP: last.step, **last.values}
