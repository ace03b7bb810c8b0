"""What Slurm's client says of itself and of the controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.schedulers.client import Server, major_release, missing_commands, parse_ping, parse_version, refusal_words

RECORDED = Path(__file__).parents[2] / "data" / "22.05"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ((RECORDED / "sinfo-version.txt").read_text(), "22.05.8"),
        ("slurm 23.02.6\n", "23.02.6"),
        ("slurm 24.11.0-0rc1\n", "24.11.0-0rc1"),
        ("", None),
        ("hello 3\n", None),
    ],
)
def test_the_version(text: str, version: str | None) -> None:
    assert parse_version(text) == version
    if version:
        assert version.startswith(f"{major_release(version)}.")


def test_a_ping() -> None:
    assert parse_ping((RECORDED / "scontrol-ping.txt").read_text()) == (Server("primary", "hpc-login", True),)
    two = "Slurmctld(primary) at head1 is DOWN\nSlurmctld(backup) at head2 is UP\n"
    assert parse_ping(two) == (Server("primary", "head1", False), Server("backup", "head2", True))
    assert parse_ping("Slurmctld(primary) is UP\n") == (Server("primary", "?", True),)
    assert parse_ping("babble") == ()


def test_sbatch_s_own_words() -> None:
    said = "sbatch: error: invalid partition specified: x\nallocation failure: Invalid partition name specified\n"
    assert refusal_words(said) == "invalid partition specified: x; Invalid partition name specified"
    assert refusal_words("sbatch: error: no\nsbatch: error: no\n") == "no"
    assert refusal_words("") == ""


def test_commands_are_looked_for_on_the_caller_s_path(tmp_path: Path) -> None:
    for name in ("sbatch", "sinfo"):
        (tmp_path / name).touch(mode=0o755)
    assert missing_commands({"PATH": str(tmp_path)}) == ("squeue", "scancel", "scontrol", "srun", "sacct")
