"""When jobs could start: ``sbatch --test-only``, a few calls at once, each with a timeout of ten seconds.

Nothing is submitted, but each call uses up a job id. sbatch accepts a time limit over the partition's, and
estimates a start for a job that would never start (slurmctld's EnforcePartLimits=NO): so check limits before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from hpcrun.errors import SchedulerError
from hpcrun.schedulers.detect_text import Partition, parse_partitions
from hpcrun.schedulers.environment import env_for_answers
from hpcrun.schedulers.process import Completed, run_command

ANSWER_WITHIN_S = 10.0
AT_ONCE = 4
DirectivePairs = tuple[tuple[str, str | None], ...]

# --all: also list a partition that is hidden, or for another group: sbatch reports the problem with it
_PARTITIONS = ["scontrol", "--all", "--oneliner", "show", "partition"]
# src/api/allocate.c, slurm_job_will_run: before 2.2 the nodes follow only "on", before 18.08 without a
# partition. After the time there may be "on cluster NAME" (24.11) and "a" (26.05).
_WILL_START = re.compile(
    r"\bJob \d+ to start at (?P<start>\S+) (?:on cluster \S+ )?(?:a )?"
    r"using \d+ (?:processors|cnodes) on (?:nodes )?(?P<nodes>\S+)"
    r"(?: in partition (?P<partition>\S+))?"
)
_PREEMPTS = re.compile(r"^(?:sbatch:)?\s*Preempts: (?P<jobs>[\d,]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Start:
    """When and where a job would start, by Slurm's present estimate.

    Attributes:
        start_s: seconds since the epoch.
        nodes: in Slurm's short form, ``a100-[1-2]``.
        preempts: ids of the jobs that it would preempt.
    """

    start_s: float
    nodes: str
    partition: str | None = None
    preempts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """sbatch's answer: a start, or its message if there is no start; ``silent`` if it did not respond."""

    start: Start | None
    said: str
    silent: bool = False


@dataclass(frozen=True, slots=True)
class SlurmForecast:
    """Estimates for jobs that are not submitted, from the cluster whose commands are on PATH.

    Attributes:
        env: the environment its commands run in.
    """

    env: Mapping[str, str]

    def partitions(self) -> list[Partition]:
        """Return every partition.

        Raises:
            SchedulerError: the controller does not respond, or there is no Slurm here.
        """
        answer = self._run(_PARTITIONS)
        found = parse_partitions(answer.stdout, preempts=False)
        if not answer.ok or not found:
            raise SchedulerError(
                f"Slurm does not respond: {answer.words()}", hint="run it on a machine where `sinfo` works"
            )
        return found

    def estimate(self, requests: Sequence[DirectivePairs]) -> list[StartEstimate]:
        """Ask when a job with each of these directives could start."""
        if not requests:
            return []
        with ThreadPoolExecutor(min(AT_ONCE, len(requests))) as pool:
            return [read_answer(answer) for answer in pool.map(self._run, map(estimate_command, requests))]

    def _run(self, argv: Sequence[str]) -> Completed:
        return run_command(argv, timeout_s=ANSWER_WITHIN_S, env=env_for_answers(self.env))


def estimate_command(directives: DirectivePairs) -> list[str]:
    """Return the command that lets sbatch check a job with these directives."""
    options = [f"--{key}" if value is None else f"--{key}={value}" for key, value in directives]
    return ["sbatch", "--test-only", *options, "--wrap=true"]


def read_answer(answer: Completed) -> StartEstimate:
    """Return the result of :func:`estimate_command`."""
    said = answer.stderr.strip()
    if answer.status is None or "Unable to contact slurm controller" in said:
        return StartEstimate(None, said, silent=True)
    start = parse_start(said) if answer.ok else None
    return StartEstimate(start, said or f"sbatch printed no reason (exit status {answer.status})")


def parse_start(said: str) -> Start | None:
    """Read ``Job 7 to start at 2026-11-21T03:30:00 using 32 processors on nodes a100-1 in partition gpu``.

    None if there is no such line, or no time in it (``Unknown``).
    """
    found = _WILL_START.search(said)
    if found is None:
        return None
    try:
        start = datetime.fromisoformat(found["start"])  # local time, in this process's own TZ
    except ValueError:
        return None
    displaced = _PREEMPTS.search(said)
    preempts = tuple(displaced["jobs"].split(",")) if displaced else ()
    return Start(start.timestamp(), found["nodes"], found["partition"], preempts)
