"""Slurm's client: its version and the controller, as several versions of Slurm answer."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from hpcrun.schedulers import client
from hpcrun.schedulers.client import Server

RECORDED = Path(__file__).parents[2] / "data" / "22.05"
AT = datetime(2026, 11, 21, 3, 30).timestamp()


def test_the_version() -> None:
    recorded = (RECORDED / "sinfo-version.txt").read_text()
    versions = {
        recorded: "22.05.8",
        "slurm 24.11.0-0rc1\n": "24.11.0-0rc1",
        "": None,
        "hello 3\n": None,
    }
    assert {text: client.parse_version(text) for text in versions} == versions
    assert [client.major_release(version) for version in versions.values() if version] == [
        "22.05",
        "24.11",
    ]


def test_a_ping_and_the_commands_on_the_caller_s_path(tmp_path: Path) -> None:
    assert client.parse_ping((RECORDED / "scontrol-ping.txt").read_text()) == (
        Server("primary", "hpc-login", True),
    )
    two = "Slurmctld(primary) at head1 is DOWN\nSlurmctld(backup) at head2 is UP\n"
    assert client.parse_ping(two) == (
        Server("primary", "head1", False),
        Server("backup", "head2", True),
    )
    assert client.parse_ping("Slurmctld(primary) is UP\n") == (Server("primary", "?", True),)
    assert client.parse_ping("babble") == ()
    for name in ("sbatch", "sinfo"):
        (tmp_path / name).touch(mode=0o755)
    assert client.missing_commands({"PATH": str(tmp_path)}) == (
        "squeue",
        "scancel",
        "scontrol",
        "srun",
        "sacct",
    )
