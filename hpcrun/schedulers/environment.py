"""The environment that a submission and Slurm's commands run in."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

_PREFIXES = (
    "SLURM_",
    "SLURMD_",
    "SRUN_",
    "SBATCH_",
    "SQUEUE_",
    "SACCT_",
    "SUBMITIT_",
    "HPCRUN_",
    "TORCHELASTIC_",
)
_RANK = frozenset(
    [
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "ROLE_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_WORLD_SIZE",
        "ROLE_WORLD_SIZE",
        "NODE_RANK",
        "NNODES",
        "NPROC_PER_NODE",
        "MASTER_ADDR",
        "MASTER_PORT",
        # set by a script with --requeue: torchrun of a job submitted from within would not hear SIGTERM
        "PET_SIGNALS_TO_HANDLE",
        "agent_program",
    ]
)
_KEPT = frozenset({"SLURM_CONF", "HPCRUN_RUNS", "HPCRUN_PROFILE", "HPCRUN_SITE"})


def clean_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what an enclosing job, or a person's filters, would add to a request.

    SLURM_*, HPCRUN_* and the ranks' variables describe the job one is in; SBATCH_* would override a script's own lines
    (hpcrun reads those it honours at submission); SQUEUE_* and SACCT_* change what is asked. SLURM_CONF says where
    the cluster is, and stays; so do those that say where hpcrun finds runs and profiles.
    """
    return {
        name: value for name, value in env.items() if name in _KEPT or not (name.startswith(_PREFIXES) or name in _RANK)
    }


def user_name() -> str:
    """Return the name of this user, the number where it has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
