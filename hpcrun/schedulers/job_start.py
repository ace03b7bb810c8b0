"""When a job could start, and whether Slurm would refuse it.

``sbatch --test-only`` answers both, and submits nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from hpcrun.errors import SchedulerError
from hpcrun.machine.process import Completed, SlurmSite
from hpcrun.schedulers.client import DirectivePairs
from hpcrun.schedulers.cluster_facts import Partition, parse_partitions


def try_directives(site: SlurmSite, directives: DirectivePairs, form: str) -> Trial:
    """Let sbatch check a job with these directives.

    Nothing is submitted, but a job id is used up.
    """
    trial = read_answer(site.run(estimate_command(directives)))
    return replace(trial, form=form, message=refusal_words(trial.message))


def refusal_words(stderr: str) -> str:
    """Return sbatch's messages on one line.

    The name of sbatch before each message is left out, and so are repetitions.
    """
    messages: list[str] = []
    for line in stderr.splitlines():
        message = re.sub(r"^(sbatch: )?(error: |allocation failure: )?", "", line.strip())
        if message and message not in messages:
            messages.append(message)
    return "; ".join(messages)


AT_ONCE = 4
# --all: also list a partition that is hidden, or for another group: sbatch reports the problem with
# it
_PARTITIONS = ["scontrol", "--all", "--oneliner", "show", "partition"]
# src/api/allocate.c, slurm_job_will_run: before 2.2 the nodes follow only "on", before 18.08
# without a partition. After the time there may be "on cluster NAME" (24.11) and "a" (26.05).
_WILL_START = re.compile(
    r"\bJob \d+ to start at (?P<start>\S+) (?:on cluster \S+ )?(?:a )?"
    r"using \d+ (?:processors|cnodes) on (?:nodes )?(?P<nodes>\S+)"
    r"(?: in partition (?P<partition>\S+))?"
)
_PREEMPTS = re.compile(r"^(?:sbatch:)?\s*Preempts: (?P<jobs>[\d,]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class JobStart:
    """When and where a job would start, by Slurm's present estimate."""

    start_s: float  # seconds since the epoch
    nodes: str  # in Slurm's short form, ``a100-[1-2]``
    partition: str | None = None
    preempts: tuple[str, ...] = ()  # ids of the jobs that it would preempt


@dataclass(frozen=True, slots=True)
class Trial:
    """sbatch's answer to a job that is not submitted."""

    accepted: bool
    message: str
    start: JobStart | None = None  # None if it would not start, or sbatch shows no start
    silent: bool = False  # sbatch did not respond
    form: str = ""  # the name of the trial in messages


class SlurmForecast(SlurmSite):
    """Estimates for jobs that are not submitted."""

    def partitions(self) -> list[Partition]:
        """Return every partition.

        Raises:
            SchedulerError: the controller does not respond, or there is no Slurm here.
        """
        answer = self.run(_PARTITIONS)
        partitions = parse_partitions(answer.stdout, preempts=False)
        if not answer.ok or not partitions:
            raise SchedulerError(
                f"Slurm does not respond: {answer.words()}",
                hint="run it on a machine where `sinfo` works",
            )
        return partitions

    def estimate(self, requests: Sequence[DirectivePairs]) -> list[Trial]:
        """Ask when a job with each of these directives could start."""
        if not requests:
            return []
        # slow to import, and completion does not need it
        from concurrent.futures import ThreadPoolExecutor

        commands = [estimate_command(directives) for directives in requests]
        with ThreadPoolExecutor(min(AT_ONCE, len(commands))) as pool:
            return [read_answer(answer) for answer in pool.map(self.run, commands)]


def estimate_command(directives: DirectivePairs) -> list[str]:
    """Return the command that lets sbatch check a job with these directives."""
    options = []
    for key, value in directives:
        options.append(f"--{key}" if value is None else f"--{key}={value}")
    return ["sbatch", "--test-only", *options, "--wrap=true"]


def read_answer(answer: Completed) -> Trial:
    """Return the result of :func:`estimate_command`."""
    message = answer.stderr.strip() or f"sbatch printed no reason (exit status {answer.status})"
    silent = answer.status is None or "Unable to contact slurm controller" in message
    start = parse_start(message) if answer.ok else None
    return Trial(answer.ok, message, start, silent)


def parse_start(message: str) -> JobStart | None:
    """Return the expected start of a job from a message of sbatch.

    The message is ``Job 7 to start at 2026-11-21T03:30:00 using 32 processors on nodes a100-1 in
    partition gpu``. Returns None if there is no such line, or no time in it (``Unknown``).
    """
    match = _WILL_START.search(message)
    if match is None:
        return None
    try:
        start = datetime.fromisoformat(match["start"])  # local time, in this process's own TZ
    except ValueError:
        return None
    displaced = _PREEMPTS.search(message)
    preempts = tuple(displaced["jobs"].split(",")) if displaced else ()
    return JobStart(start.timestamp(), match["nodes"], match["partition"], preempts)
