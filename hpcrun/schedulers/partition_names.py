"""The names of a cluster's partitions for completion: quickly, or not at all."""

from __future__ import annotations

from collections.abc import Mapping

from hpcrun.schedulers.environment import clean_env
from hpcrun.schedulers.process import run_command

ANSWER_WITHIN_S = 2.0
_NAMES = ["sinfo", "--noheader", "--format=%R"]  # %R: the name without the star of the default


def partition_names(env: Mapping[str, str]) -> list[str]:
    """Return the partitions for jobs, each once; none if Slurm does not respond within two seconds."""
    wanted = {name: value for name, value in clean_env(env).items() if not name.startswith("SINFO_")}
    answer = run_command(_NAMES, timeout_s=ANSWER_WITHIN_S, env=wanted)
    return list(dict.fromkeys(answer.stdout.split())) if answer.ok else []
