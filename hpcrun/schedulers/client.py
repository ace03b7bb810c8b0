"""Slurm's client on this machine: the installed commands, their version, and whether the controller responds."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcrun.schedulers.detect import SlurmSite, Trial
from hpcrun.schedulers.detect_text import assoc_command, parse_assoc
from hpcrun.schedulers.environment import clean_env, user_name
from hpcrun.schedulers.estimate import estimate_command, read_answer
from hpcrun.schedulers.process import run_command

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun", "sacct")
_PARTITIONS = ["sinfo", "--noheader", "--format=%R"]  # %R: the name without the star of the default
_COMPLETES_WITHIN_S = 2.0
_VERSION = re.compile(r"\b(\d{2}\.\d{2}(?:\.\S+)?)")  # "slurm 23.02.6", Debian's "slurm-wlm 22.05.8"
_SERVER = re.compile(r"^Slurmctld\((\w+)\)(?: at (\S+))? is (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Server:
    """A controller as ``scontrol ping`` lists it; ``role`` is primary, backup or backup2 ..."""

    role: str
    host: str
    up: bool


@dataclass(frozen=True, slots=True)
class Ping:
    """The answer of ``scontrol ping``.

    Attributes:
        took_s: how long the answer took, in seconds.
        words: its output, if no server could be read from it.
    """

    servers: tuple[Server, ...]
    took_s: float
    words: str = ""

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
    """Ask whether the controller responds, and nothing else: other requests would wait for ten seconds."""
    start = time.monotonic()
    answer = site.run(["scontrol", "ping"])
    took_s = time.monotonic() - start
    servers = parse_ping(answer.stdout)
    words = " ".join(answer.stderr.split()) or f"exit status {answer.status}"
    return Ping(servers, took_s, "" if servers else f"no response to scontrol ping: {words}")


def try_directives(site: SlurmSite, directives: Sequence[tuple[str, str | None]], form: str) -> Trial:
    """Let sbatch check a job with these directives; nothing is submitted, but a job id is used up.

    Args:
        form: the name of the trial in messages.
    """
    answer = site.run(estimate_command(tuple(directives)))
    estimate = read_answer(answer)
    return Trial(form, answer.ok, refusal_words(estimate.said), answered=not estimate.silent)


def refusal_words(stderr: str) -> str:
    """Return sbatch's messages on one line, without its name before each, and without repetitions."""
    lines = [re.sub(r"^(sbatch: )?(error: |allocation failure: )?", "", line.strip()) for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))


def parse_version(text: str) -> str | None:
    """Read the answer to ``sinfo --version``."""
    match = _VERSION.search(text)
    return match[1] if match else None


def major_release(version: str) -> str:
    """Return the release, which decides whether two versions are compatible: ``22.05`` of ``22.05.8``."""
    return ".".join(version.split(".")[:2])


def parse_ping(text: str) -> tuple[Server, ...]:
    """Read the answer to ``scontrol ping``: ``Slurmctld(primary) at head1 is UP``."""
    return tuple(Server(role, host or "?", state == "UP") for role, host, state in _SERVER.findall(text))


def user_associations(env: Mapping[str, str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the user's accounts, each with its QOS, for completion; none if Slurm does not respond in two seconds."""
    answer = run_command(assoc_command(user_name()), timeout_s=_COMPLETES_WITHIN_S, env=clean_env(env))
    return [(one.account, one.qos) for one in parse_assoc(answer.stdout)] if answer.ok else []


def partition_names(env: Mapping[str, str]) -> list[str]:
    """Return the partitions for jobs, each once, for completion; none if Slurm does not respond within two seconds."""
    answer = run_command(_PARTITIONS, timeout_s=_COMPLETES_WITHIN_S, env=clean_env(env))
    return list(dict.fromkeys(answer.stdout.split())) if answer.ok else []
