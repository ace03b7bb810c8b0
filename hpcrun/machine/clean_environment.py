"""The environment of a new job or a command of Slurm, without what an enclosing job has added.

A job records the changes by its script and hpcrun (launch/rank_environment.py): the original value
of a variable in ``HPCRUN_CAME_NAME``, the new value in ``HPCRUN_PUT_NAME``. Submissions and Slurm's
commands get the original values, without the variables that Slurm, torchrun and hpcrun add for each
rank.
"""

from __future__ import annotations

from collections.abc import Mapping

_OF_SLURM = tuple(
    f"{client}_"
    for client in (
        "SLURM SLURMD SRUN SBATCH SALLOC SATTACH SBCAST SCRONTAB STRIGGER SCANCEL SCONTROL SDIAG "
        "SINFO SQUEUE SPRIO SSHARE SSTAT SACCT SACCTMGR SREPORT"
    ).split()
)
_PREFIXES = (*_OF_SLURM, "SUBMITIT_", "HPCRUN_", "TORCHELASTIC_", "PMI_", "PMIX_")
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
# which cluster, and the user's credentials there
_KEPT_OF_SLURM = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_SACK_SOCKET")
_KEPT = frozenset({*_KEPT_OF_SLURM, "HPCRUN_RUNS", "HPCRUN_PROFILE", "HPCRUN_SITE"})
# In addition to _RANK, torchrun sets these if they are not set
# (torch/distributed/elastic/agent/server).
_BY_TORCHRUN = frozenset({("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"), ("ROLE_NAME", "default")})
_CACHE_OF_TORCH = "TORCHINDUCTOR_CACHE_DIR"
# as in in_job/launch/rank_environment.py
CAME = "HPCRUN_CAME_"
PUT = "HPCRUN_PUT_"
GPUS = frozenset(
    {"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"}
)


def clean_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without variables of an enclosing job and filters of the user.

    The filters are those for Slurm's commands. SLURM_*, HPCRUN_* and the ranks' variables describe
    the enclosing job; variables that its script has changed get their original values. SBATCH_*
    would override a script's own lines (hpcrun reads those that it uses at submission); SQUEUE_*,
    SACCT_*, SINFO_* and such change the output, and SCANCEL_* what is cancelled. What names the
    cluster or the user's credentials stays; so do the variables with the places of runs and
    profiles.
    """
    cleaned = {}
    for name, value in _as_it_came(env).items():
        is_of_job = name in _RANK or name.startswith(_PREFIXES)
        if name in _KEPT or not (is_of_job or _is_set_by_torch(name, value)):
            cleaned[name] = value
    return cleaned


def env_for_slurm(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for submitting a Slurm job.

    Inside another job, the environment is without the GPUs of that job. A local job keeps the
    variables, since it runs on the GPUs that are visible here.
    """
    cleaned = clean_env(env)
    if is_inside_job(env):
        for name in (*GPUS, "OLDPWD"):  # the folder before the last one of the enclosing script
            cleaned.pop(name, None)
    return cleaned


def is_inside_job(env: Mapping[str, str]) -> bool:
    """Return whether an environment is that of a job."""
    return "SLURM_JOB_ID" in env or "HPCRUN_JOB_ID" in env


def env_of_caller(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for submitting a person's own batch script outside of a job.

    The environment is as it is, without the variables that sbatch itself reads: these have become
    directives, and the job sets them again for the script.
    """
    # only a submission needs it; a person's own variable may begin with SBATCH_, too
    from hpcrun.job.batch.sbatch_input import READ_BY_SBATCH

    kept = {name: value for name, value in env.items() if name not in READ_BY_SBATCH}
    if "LC_CTYPE" in kept and _came_without("LC_CTYPE"):  # Python adds it (PEP 538)
        del kept["LC_CTYPE"]
    return kept


def _came_without(name: str) -> bool:
    """Return whether this process has set a variable that it did not have at its start."""
    try:
        with open("/proc/self/environ", "rb") as file:
            return f"\0{name}=".encode() not in b"\0" + file.read()
    except OSError:
        return False


def _is_set_by_torch(name: str, value: str) -> bool:
    """Return whether a variable is the default that torch sets once it has compiled.

    That is the folder ``torchinductor_USER`` (torch/_inductor/runtime/cache_dir_utils.py). A job
    with it would keep nothing of what its compilers make.
    """
    is_default = name == _CACHE_OF_TORCH and "/torchinductor_" in value
    return is_default and _came_without(name)


def _as_it_came(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the original values of changed variables.

    The variables are those that the script of the enclosing job has changed.
    """
    original = dict(env)
    if "TORCHELASTIC_RUN_ID" in env:
        for name, value in _BY_TORCHRUN:
            if env.get(name) == value:
                del original[name]
    changed = {name.removeprefix(CAME) for name in env if name.startswith(CAME)}
    changed |= {name.removeprefix(PUT) for name in env if name.startswith(PUT)}
    for name in changed:
        original.pop(name, None)
        before = _before(name, env.get(name), came=env.get(CAME + name), put=env.get(PUT + name))
        if before is not None:
            original[name] = before
    return original


def _before(name: str, now: str | None, *, came: str | None, put: str | None) -> str | None:
    """Return a variable without the script's change; a later change by a program stays."""
    if now == put:
        return came
    if now and put and name.endswith("PATH") and put in now:  # a program has added its own folders
        folders = now.replace(put, came or "", 1).split(":")
        return ":".join(folder for folder in folders if folder) or None
    return now
