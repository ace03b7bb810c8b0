"""The environment of submissions and of Slurm's commands: what hpcrun put there for one job stays out of the next.

A job notes what its script and hpcrun change (launch/environment.py): a variable as it came in ``HPCRUN_CAME_NAME``,
as it was put in ``HPCRUN_PUT_NAME``. What Slurm, torchrun and hpcrun add for each rank is known by name here.
"""

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
    "PMI_",
    "PMIX_",
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
    ]
)
_KEPT = frozenset({"SLURM_CONF", "HPCRUN_RUNS", "HPCRUN_PROFILE", "HPCRUN_SITE"})


# Besides what _RANK has, torchrun sets these where nobody else has (torch/distributed/elastic/agent/server).
_BY_TORCHRUN = frozenset({("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"), ("ROLE_NAME", "default")})
_CAME, _PUT = "HPCRUN_CAME_", "HPCRUN_PUT_"
_GPUS = frozenset({"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"})


def clean_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what an enclosing job, or a person's filters, would add to a request.

    SLURM_*, HPCRUN_* and the ranks' variables describe the job one is in; what its script has changed is as it came;
    SBATCH_* would override a script's own lines (hpcrun reads those it honours at submission); SQUEUE_* and SACCT_*
    change what is asked. SLURM_CONF says where the cluster is, and stays; so do those that say where hpcrun finds runs
    and profiles.
    """
    return {name: value for name, value in _as_it_came(env).items() if name in _KEPT or not _describes_job(name)}


def env_for_slurm(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that a Slurm job is submitted with: inside another job without that one's GPUs.

    A job of this machine runs on the GPUs that are visible here, and keeps them.
    """
    inside = "SLURM_JOB_ID" in env or "HPCRUN_JOB_ID" in env
    return {name: value for name, value in clean_env(env).items() if not (inside and name in _GPUS)}


def _describes_job(name: str) -> bool:
    return name.startswith(_PREFIXES) or name in _RANK


def _as_it_came(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with what the script of the enclosing job has changed as it was before."""
    found = dict(env)
    if "TORCHELASTIC_RUN_ID" in env:
        found = {name: value for name, value in found.items() if (name, value) not in _BY_TORCHRUN}
    for name in {name.removeprefix(mark) for mark in (_CAME, _PUT) for name in env if name.startswith(mark)}:
        found.pop(name, None)
        value = _before(name, env.get(name), came=env.get(_CAME + name), put=env.get(_PUT + name))
        if value is not None:
            found[name] = value
    return found


def _before(name: str, now: str | None, *, came: str | None, put: str | None) -> str | None:
    """Return what a variable is without the change of the script; one that was changed again since stays so."""
    if now == put:
        return came
    if now and put and name.endswith("PATH") and put in now:  # a program has put its own folders beside them
        rest = now.replace(put, came or "", 1)
        return ":".join(filter(None, rest.split(":"))) or None
    return now


def user_name() -> str:
    """Return the name of this user, the number where it has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
