"""Slurm's client on this machine: which commands are there, their version, and whether the controller answers."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcrun.schedulers.detect import SlurmSite, Trial
from hpcrun.schedulers.estimate import estimate_command, read_answer

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun", "sacct")
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
    """What ``scontrol ping`` said.

    Attributes:
        took_s: how long the answer took, in seconds.
        words: its own words where no server could be read from them.
    """

    servers: tuple[Server, ...]
    took_s: float
    words: str = ""

    @property
    def away(self) -> bool:
        """Whether there is nobody to ask: every server is down, or nothing answered in time."""
        return not any(server.up for server in self.servers)


def missing_commands(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return those of Slurm's commands that are not on PATH."""
    return tuple(name for name in COMMANDS if shutil.which(name, path=env.get("PATH")) is None)


def ask_version(site: SlurmSite) -> str | None:
    """Return the version of the commands, None where sinfo does not say."""
    answer = site.run(["sinfo", "--version"])
    return parse_version(answer.stdout) if answer.ok else None


def ping(site: SlurmSite) -> Ping:
    """Ask whether the controller answers. Asks it nothing else, so that one that is away costs no ten seconds."""
    start = time.monotonic()
    answer = site.run(["scontrol", "ping"])
    took_s = time.monotonic() - start
    servers = parse_ping(answer.stdout)
    words = " ".join(answer.stderr.split()) or f"exit status {answer.status}"
    return Ping(servers, took_s, "" if servers else f"no answer to scontrol ping: {words}")


def try_directives(site: SlurmSite, directives: Sequence[tuple[str, str | None]], form: str) -> Trial:
    """Have sbatch judge a job of these directives; nothing is submitted, a job id is used up.

    Args:
        form: the name under which the trial is told of.
    """
    answer = site.run(estimate_command(tuple(directives)))
    estimate = read_answer(answer)
    return Trial(form, answer.ok, refusal_words(estimate.said), answered=not estimate.silent)


def refusal_words(stderr: str) -> str:
    """Return sbatch's own words on one line: without its name before each, and without what it said twice."""
    lines = [re.sub(r"^(sbatch: )?(error: |allocation failure: )?", "", line.strip()) for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))


def parse_version(text: str) -> str | None:
    """Read the answer to ``sinfo --version``."""
    match = _VERSION.search(text)
    return match[1] if match else None


def major_release(version: str) -> str:
    """Return the release that decides whether two versions understand each other: ``22.05`` of ``22.05.8``."""
    return ".".join(version.split(".")[:2])


def parse_ping(text: str) -> tuple[Server, ...]:
    """Read the answer to ``scontrol ping``: ``Slurmctld(primary) at head1 is UP``."""
    return tuple(Server(role, host or "?", state == "UP") for role, host, state in _SERVER.findall(text))
