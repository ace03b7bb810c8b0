"""Slurm's client on this machine: commands, responses of the controller, and expected starts.

``sbatch --test-only`` submits nothing, but each call uses up a job id. It accepts a time limit over
the partition's, and estimates a start for a job that would never start (slurmctld's
EnforcePartLimits=NO): so check limits before.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass

from hpcrun.machine.process import SlurmSite, user_name
from hpcrun.schedulers.cluster_facts import assoc_command, parse_assoc

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
    path = env.get("PATH")
    return tuple(name for name in COMMANDS if shutil.which(name, path=path) is None)


def ask_version(site: SlurmSite) -> str | None:
    """Return the version of the commands, None if sinfo does not show it."""
    answer = site.run(["sinfo", "--version"])
    return parse_version(answer.stdout) if answer.ok else None


def ping(site: SlurmSite) -> Ping:
    """Ask whether the controller responds, and nothing else.

    Other requests would wait for ten seconds.
    """
    start = time.monotonic()
    answer = site.run(["scontrol", "ping"])
    took_s = time.monotonic() - start
    servers = parse_ping(answer.stdout)
    if servers:
        return Ping(servers, took_s)
    words = " ".join(answer.stderr.split()) or f"exit status {answer.status}"
    return Ping(servers, took_s, f"no response to scontrol ping: {words}")


def parse_version(text: str) -> str | None:
    """Read the answer to ``sinfo --version``."""
    match = _VERSION.search(text)
    return match[1] if match else None


def major_release(version: str) -> str:
    """Return the release of a version: ``22.05`` of ``22.05.8``.

    The release decides whether two versions are compatible.
    """
    return ".".join(version.split(".")[:2])


def parse_ping(text: str) -> tuple[Server, ...]:
    """Read the answer to ``scontrol ping``: ``Slurmctld(primary) at head1 is UP``."""
    servers = []
    for role, host, state in _SERVER.findall(text):
        servers.append(Server(role, host or "?", up=state == "UP"))
    return tuple(servers)


def user_associations(env: Mapping[str, str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the user's accounts, each with its QOS, for completion.

    There are none if Slurm does not respond in two seconds.
    """
    answer = SlurmSite(env, _COMPLETES_WITHIN_S).run(assoc_command(user_name()))
    if answer.ok:
        associations = parse_assoc(answer.stdout)
        return [(association.account, association.qos) for association in associations]
    return []


def partition_names(env: Mapping[str, str]) -> list[str]:
    """Return the partitions for jobs, each once, for completion.

    There are none if Slurm does not respond within two seconds.
    """
    answer = SlurmSite(env, _COMPLETES_WITHIN_S).run(_PARTITION_NAMES)
    if answer.ok:
        return list(dict.fromkeys(answer.stdout.split()))
    return []


DirectivePairs = tuple[tuple[str, str | None], ...]
