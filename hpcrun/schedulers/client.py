"""Slurm's client on this machine: its commands, whether the controller responds, and when a job
could start.

``sbatch --test-only`` submits nothing, but each call uses up a job id. It accepts a time limit over
the partition's, and estimates a start for a job that would never start (slurmctld's
EnforcePartLimits=NO): so check limits before.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from hpcrun.errors import SchedulerError
from hpcrun.schedulers.cluster_facts import Partition, assoc_command, parse_assoc, parse_partitions
from hpcrun.schedulers.process import Completed, SlurmSite, user_name

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun", "sacct")
# %R: the name without the star of the default
_PARTITION_NAMES = ["sinfo", "--noheader", "--format=%R"]
_COMPLETES_WITHIN_S = 2.0
# "slurm 23.02.6", Debian's "slurm-wlm 22.05.8"
_VERSION = re.compile(r"\b(\d{2}\.\d{2}(?:\.\S+)?)")
_SERVER = re.compile(r"^Slurmctld\((\w+)\)(?: at (\S+))? is (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Server:
    """A controller as ``scontrol ping`` lists it; ``role`` is primary, backup or backup2 ..."""

    role: str
    host: str
    up: bool


@dataclass(frozen=True, slots=True)
class Ping:
    """The answer of ``scontrol ping``."""

    servers: tuple[Server, ...]
    took_s: float  # how long the answer took, in seconds
    words: str = ""  # its output, if no server could be read from it

    @property
    def away(self) -> bool:
        """Whether no server responds: every server is down, or none answered in time."""
        return not any(server.up for server in self.servers)


def missing_commands(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the commands of Slurm that are not on PATH."""
    return tuple(name for name in COMMANDS if shutil.which(name, path=env.get("PATH")) is None)


def ask_version(site: SlurmSite) -> str | None:
    """Return the version of the commands, None if sinfo does not show it."""
    answer = site.run(["sinfo", "--version"])
    return parse_version(answer.stdout) if answer.ok else None


def ping(site: SlurmSite) -> Ping:
    """Ask whether the controller responds, and nothing else: other requests would wait for ten
    seconds.
    """
    start = time.monotonic()
    answer = site.run(["scontrol", "ping"])
    took_s = time.monotonic() - start
    servers = parse_ping(answer.stdout)
    words = " ".join(answer.stderr.split()) or f"exit status {answer.status}"
    return Ping(servers, took_s, "" if servers else f"no response to scontrol ping: {words}")


def try_directives(site: SlurmSite, directives: DirectivePairs, form: str) -> Trial:
    """Let sbatch check a job with these directives; nothing is submitted, but a job id is
    used up.
    """
    trial = read_answer(site.run(estimate_command(directives)))
    return replace(trial, form=form, message=refusal_words(trial.message))


def refusal_words(stderr: str) -> str:
    """Return sbatch's messages on one line, without its name before each, and without
    repetitions.
    """
    lines = [
        re.sub(r"^(sbatch: )?(error: |allocation failure: )?", "", line.strip())
        for line in stderr.splitlines()
    ]
    return "; ".join(dict.fromkeys(line for line in lines if line))


def parse_version(text: str) -> str | None:
    """Read the answer to ``sinfo --version``."""
    match = _VERSION.search(text)
    return match[1] if match else None


def major_release(version: str) -> str:
    """Return the release, which decides whether two versions are compatible: ``22.05`` of
    ``22.05.8``.
    """
    return ".".join(version.split(".")[:2])


def parse_ping(text: str) -> tuple[Server, ...]:
    """Read the answer to ``scontrol ping``: ``Slurmctld(primary) at head1 is UP``."""
    return tuple(
        Server(role, host or "?", state == "UP") for role, host, state in _SERVER.findall(text)
    )


def user_associations(env: Mapping[str, str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the user's accounts, each with its QOS, for completion; none if Slurm does not respond
    in two seconds.
    """
    answer = SlurmSite(env, _COMPLETES_WITHIN_S).run(assoc_command(user_name()))
    if answer.ok:
        return [(one.account, one.qos) for one in parse_assoc(answer.stdout)]
    return []


def partition_names(env: Mapping[str, str]) -> list[str]:
    """Return the partitions for jobs, each once, for completion; none if Slurm does not respond
    within two seconds.
    """
    answer = SlurmSite(env, _COMPLETES_WITHIN_S).run(_PARTITION_NAMES)
    if answer.ok:
        return list(dict.fromkeys(answer.stdout.split()))
    return []


AT_ONCE = 4
DirectivePairs = tuple[tuple[str, str | None], ...]

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
        """Return every partition; SchedulerError if the controller does not respond, or there is no
        Slurm here.
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

        with ThreadPoolExecutor(min(AT_ONCE, len(requests))) as pool:
            return [
                read_answer(answer)
                for answer in pool.map(self.run, map(estimate_command, requests))
            ]


def estimate_command(directives: DirectivePairs) -> list[str]:
    """Return the command that lets sbatch check a job with these directives."""
    options = [f"--{key}" if value is None else f"--{key}={value}" for key, value in directives]
    return ["sbatch", "--test-only", *options, "--wrap=true"]


def read_answer(answer: Completed) -> Trial:
    """Return the result of :func:`estimate_command`."""
    message = answer.stderr.strip() or f"sbatch printed no reason (exit status {answer.status})"
    silent = answer.status is None or "Unable to contact slurm controller" in message
    return Trial(answer.ok, message, parse_start(message) if answer.ok else None, silent)


def parse_start(message: str) -> JobStart | None:
    """Read ``Job 7 to start at 2026-11-21T03:30:00 using 32 processors on nodes a100-1 in partition
    gpu``.

    None if there is no such line, or no time in it (``Unknown``).
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
