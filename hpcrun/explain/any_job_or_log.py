"""explain of what hpcrun did not submit: a job of Slurm's, and logs from anywhere."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import NotFoundError
from hpcrun.explain.diagnosis.facts import Facts
from hpcrun.explain.diagnosis.last_words import was_survived
from hpcrun.explain.diagnosis.launcher_lines import rank_of_file
from hpcrun.explain.diagnosis.log import Log, by_speaker, examine
from hpcrun.explain.diagnosis.rules import Rule
from hpcrun.explain.diagnosis.scan import Scanner, line_counter
from hpcrun.explain.ended import Explanation, explained
from hpcrun.explain.nothing_failed import nothing_failed
from hpcrun.files.reading import open_regular
from hpcrun.job.job_states import FAILED, PENDING, RUNNING, TIMEOUT, base_state, is_terminal
from hpcrun.job.text.units import format_span, slurm_seconds
from hpcrun.machine.process import Completed, SlurmSite
from hpcrun.runs.record import LastStatus, Run
from hpcrun.schedulers.slurm_text import known_text, rows_of, sacct, whole_number

ANSWER_WITHIN_S = 15.0
_JOB_ID = re.compile(r"\d{1,10}(?:_\d{1,7})?(?:\+\d{1,4})?", re.ASCII)
_KEY = re.compile(r"(?:^| )([A-Z][\w:/]*)=")
_BEFORE_STDOUT = (
    "JobID",
    "JobName",
    "State",
    "ExitCode",
    "NodeList",
    "NNodes",
    "Elapsed",
    "Reason",
    "WorkDir",
)
_SACCT_FIELDS = (*_BEFORE_STDOUT, "StdErr", "StdOut")
"""sacct has the files since Slurm 24.05; before that, sbatch's default is tried."""
_FIELDS = (
    "job_id",
    "name",
    "state",
    "exit_code",
    "hosts",
    "nodes",
    "elapsed",
    "reason",
    "workdir",
)
"""What sacct and scontrol say of a job, in this order; its output files follow."""
_SCONTROL_FIELDS = (
    "JobId",
    "JobName",
    "JobState",
    "ExitCode",
    "NodeList",
    "NumNodes",
    "RunTime",
    "Reason",
    "WorkDir",
    "StdErr",
    "StdOut",
)
PIPE = "-"
_SUBMITIT = re.compile(r"(?P<job>.+)_0_log\.(?P<kind>out|err)")
_MOST_BESIDE = 512
_BEGINNING = 4096
"""Bytes at the beginning of a file that show whether it is text."""


@dataclass(frozen=True, slots=True)
class AnyJob:
    """A job as scontrol or sacct shows it.

    ``outputs`` has the job's stderr and stdout, as far as they are known.
    """

    item: RunStatus
    outputs: tuple[Path, ...]


def is_job_id(text: str) -> bool:
    """Return whether a word is one of Slurm's job ids.

    The ids are ``4711``, ``4711_3`` of an array, and ``4711+1`` of a heterogeneous job.
    """
    return _JOB_ID.fullmatch(text) is not None


def find_job(job_id: str, env: Mapping[str, str]) -> AnyJob | None:
    """Ask Slurm for one job: the controller, and then the accounting database.

    The database is asked only if the controller has forgotten the job. The result is None if
    neither knows the job, or Slurm is not here.
    """
    shown = _run(["scontrol", "--oneliner", "show", "job", job_id], env)
    job = parse_shown(shown.stdout) if shown.ok else None
    if job is not None:
        return job
    ask = ("--allocations", f"--jobs={job_id}")
    answer = _run(sacct(*ask, "--expand-patterns", fields=_SACCT_FIELDS), env)
    if not answer.ok:
        answer = _run(sacct(*ask, fields=_BEFORE_STDOUT), env)
    return parse_listed(answer.stdout)


def is_own_live_job(job_id: str, env: Mapping[str, str]) -> bool:
    """Return whether squeue lists a job of this user that has not ended."""
    command = ["squeue", f"--user={os.getuid()}", f"--jobs={job_id}"]
    answer = _run([*command, "--noheader", "--format=%i"], env)
    return answer.stdout != ""


def parse_shown(text: str) -> AnyJob | None:
    """Read the answer to ``scontrol --oneliner show job``: of an array's elements the first."""
    lines = [line for line in text.splitlines() if line.startswith("JobId=")]
    if not lines:
        return None
    _, *parts = _KEY.split(lines[0])
    values = [value.strip() for value in parts[1::2]]
    fields = dict(zip(parts[::2], values, strict=True))
    if "JobState" not in fields:
        return None
    array = fields.get("ArrayJobId")
    task = fields.get("ArrayTaskId", "")
    if array and task.isdigit():
        fields["JobId"] = f"{array}_{task}"
    return _job([fields.get(name, "") for name in _SCONTROL_FIELDS])


def parse_listed(text: str) -> AnyJob | None:
    """Read the answer of sacct: the newest line where the job was requeued."""
    rows = rows_of(text, len(_SACCT_FIELDS)) or rows_of(text, len(_BEFORE_STDOUT))
    if not rows:
        return None
    job = _job(rows[-1])
    default = job.item.folder / f"slurm-{job.item.run.job_id}.out"
    if job.outputs or not default.exists():
        return job
    return replace(job, outputs=(default,))


def _job(row: Sequence[str]) -> AnyJob:
    """Return a job of Slurm's: the fields of ``_FIELDS``, then the files of its output."""
    fields = dict(zip(_FIELDS, row, strict=False))
    outputs = row[len(_FIELDS) :]
    exit_status, _, signal = fields["exit_code"].partition(":")
    state = base_state(fields["state"])
    status = LastStatus(
        state,
        0.0,
        final=is_terminal(state),
        reason=known_text(fields["reason"]),
        elapsed_s=slurm_seconds(fields["elapsed"]),
        hosts=known_text(fields["hosts"]),
        exit_status=whole_number(exit_status),
        signal=whole_number(signal) or None,
    )
    nodes = whole_number(fields["nodes"].partition("-")[0]) or 1
    workdir = Path(fields["workdir"] or "/")
    item = _item(fields["name"], status, fields["job_id"], nodes, workdir)
    files = [Path(file) for file in outputs if file.startswith("/") and file != "/dev/null"]
    return AnyJob(item, tuple(dict.fromkeys(files)))


def _run(argv: list[str], env: Mapping[str, str]) -> Completed:
    return SlurmSite(env, ANSWER_WITHIN_S).run(argv)


def explain_logs(names: Sequence[str], rules: Sequence[Rule]) -> Explanation:
    """Explain a failure from logs alone.

    Raises:
        NotFoundError: none of them can be read.
    """
    with _pipe_of(names) as pipe:
        logs, unread = _read(names, rules, pipe)
        if not logs:
            raise NotFoundError(
                f"cannot read {unread[0]}", hint="give the job's output files, or - for a pipe"
            )
        item = _item(", ".join(names), LastStatus(FAILED, 0.0, final=True))
        parts = _apart(logs)
        state = TIMEOUT if any(map(_ends_at_time_limit, parts)) else FAILED
        facts = Facts(state, logs=parts, shared="log")
        explanation = explained(item, facts, rules, unread=tuple(unread))
    return replace(explanation, next=_show_command(name for name in names if name != PIPE))


def _ends_at_time_limit(log: Log) -> bool:
    hits = [hit for hit in log.scan.hits if TIMEOUT in hit.rule.states]
    return any(not was_survived(hit, log, None) for hit in hits)


def explain_job(job: AnyJob, rules: Sequence[Rule], now_s: float) -> Explanation:
    """Explain a job of Slurm's that hpcrun did not submit, by its state and its output."""
    item = job.item
    state = item.status.state
    job_id = item.run.job_id
    command = _show_command(map(str, job.outputs)) or f"scontrol show job {job_id}"
    well = nothing_failed(item)
    if well is not None:
        if state == PENDING:  # there is no output yet
            command = f"squeue --start --job {job_id}"
        return Explanation(item, well + _last_written(job, now_s), next=command)
    logs, unread = _read(map(str, _with_siblings(job.outputs)), rules)
    if not job.outputs:
        unread.append(
            "Slurm does not say where its output is; hpcrun explain --log FILE reads a file"
        )
    facts = Facts(state, logs=_apart(logs), shared="output")
    explanation = explained(item, facts, rules, unread=tuple(unread))
    return replace(explanation, next=command)


def _read(
    names: Iterable[str], rules: Sequence[Rule], pipe: BinaryIO | None = None
) -> tuple[list[Log], list[str]]:
    """Return the logs in some files, and which files, or parts of them, were not read.

    Args:
        names: the files; ``-`` is the pipe.
        rules: what to search for.
        pipe: what came through the pipe.
    """
    scanner = Scanner.of(rules)
    logs = list[Log]()
    unread = list[str]()
    for name in names:
        opened = partial(_opened, name, pipe)
        try:
            with opened() as file:
                begins = file.read(_BEGINNING)
                file.seek(0)
                if not begins:
                    unread.append(f"{name}: it is empty")
                elif b"\0" in begins:
                    unread.append(f"{name}: it is not a text file")
                else:
                    scan = scanner.scan(file, line_counter(opened))
                    changed_s = os.fstat(file.fileno()).st_mtime
                    logs.append(examine(name, rank_of_file(name), scan, changed_s))
        except OSError as error:
            unread.append(f"{name}: {error.strerror}")
    return logs, unread


def _last_written(job: AnyJob, now_s: float) -> str:
    """Return since when a job that runs has written nothing; empty for another job."""
    if job.item.status.state != RUNNING:
        return ""
    times = []
    for path in _with_siblings(job.outputs):
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    if times:
        return f"; it last wrote {format_span(max(0.0, now_s - max(times)))} ago"
    return ""


def _item(
    name: str, status: LastStatus, job_id: str | None = None, nodes: int = 1, folder: Path = Path()
) -> RunStatus:
    """Return what stands for a run of hpcrun's: it has no id and no records."""
    run = Run(
        "",
        name,
        "slurm" if job_id else "",
        None,
        "",
        0.0,
        job_id,
        "",
        nodes,
        gpus_per_node=0,
        world_size=0,
        walltime_s=None,
    )
    return RunStatus(run, folder, status)


def _show_command(names: Iterable[str]) -> str:
    """Return a command that shows files; empty where there are none."""
    files = shlex.join(names)
    return f"less {files}" if files else ""


def _apart(logs: Sequence[Log]) -> list[Log]:
    """Return the logs; one that several ranks write into as one log for each of them."""
    parts: list[Log] = []
    for log in logs:
        if log.is_shared:
            parts += by_speaker(log)
        else:
            parts.append(log)
    return parts


def _with_siblings(outputs: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of a job.

    Of submitit's files, yield the files of all tasks, since Slurm names only the first task's file.
    """
    for path in outputs:
        yield path
        match = _SUBMITIT.fullmatch(path.name)
        if match:
            beside = path.parent.glob(f"{match['job']}_[1-9]*_log.{match['kind']}")
            yield from sorted(beside)[:_MOST_BESIDE]


@contextmanager
def _pipe_of(names: Sequence[str]) -> Iterator[BinaryIO | None]:
    """Keep what comes through the pipe, which can be read once, in a temporary file."""
    if PIPE not in names:
        yield None
        return
    with tempfile.TemporaryFile() as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        yield cast(BinaryIO, kept)


@contextmanager
def _opened(name: str, pipe: BinaryIO | None) -> Iterator[BinaryIO]:
    """Open a log; of a pipe, what was kept."""
    if name == PIPE and pipe is not None:
        pipe.seek(0)
        yield pipe
        return
    with open_regular(os.path.expanduser(name)) as file:
        yield file
