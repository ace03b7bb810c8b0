"""The environment of the ranks: the variables that hpcrun adds, and those that the script has changed."""

from __future__ import annotations

import binascii
import os
import sys

from . import records, trackers

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each rank to import
if TYPE_CHECKING:
    from collections.abc import Mapping

MANAGED = "HPCRUN_MANAGED"
"""Set if the job may be warned or requeued."""
CONTAINER = "HPCRUN_CONTAINER"
"""Set in a container, to the runtime that made it."""
FOR_TORCHRUN = "HPCRUN_FOR_TORCHRUN"
"""The variables for this job's torchrun only: a program may start another torchrun."""
SAMPLE, SAMPLE_S = "HPCRUN_SAMPLE_S", 10.0
"""The seconds between two samples of the use of a node, 0 for none; and without --sample."""
SRUN_FAILED = 69
"""The exit status of srun if Slurm failed, not a task (SLURM_EXIT_ERROR): EX_UNAVAILABLE of sysexits(3)."""
CAME, PUT = "HPCRUN_CAME_", "HPCRUN_PUT_"
_OWN = ("HPCRUN_", "SLURM_")
_OF_BASH = ("PWD", "OLDPWD", "SHLVL", "_")


def be_node() -> None:
    """Set the name of this node: a task of srun gets it from Slurm, the nodes of one machine from the job."""
    env = os.environ
    if "SLURMD_NODENAME" in env and "HPCRUN_NODE_ADDR" not in env:
        env["HPCRUN_NODE"] = env["HPCRUN_NODE_ADDR"] = env["SLURMD_NODENAME"]
        env["HPCRUN_NODE_RANK"] = env["SLURM_NODEID"]
    if env.get("SLURM_EXIT_ERROR") == str(SRUN_FAILED):
        del env["SLURM_EXIT_ERROR"]  # for this job's srun, not for an srun that the program calls


def prepare(came: int | None, *, managed: bool) -> None:
    """Add hpcrun_runtime, labels for trackers, and the settings of NCCL's flight recorder, which writes the last calls.

    Args:
        managed: the job may be warned or requeued.
        came: a descriptor with the original environment of the script: base64 of ``NAME=value``, each
            ended by NUL.
    """
    env = os.environ
    for name in (MANAGED, "HPCRUN_NODE_ADDR"):
        env.pop(name, None)  # of an enclosing job, in which this job was submitted by hand
    env.update({MANAGED: "1"} if managed else {})
    runtime = os.path.join(env["HPCRUN_RUN_DIR"], "runtime")
    if os.path.exists(os.path.join(runtime, "hpcrun_runtime.py")):
        env["PYTHONPATH"] = ":".join(filter(None, (env.get("PYTHONPATH"), runtime)))
    renew(env["HPCRUN_ATTEMPT_DIR"])
    env["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "1"
    env["TORCH_FR_BUFFER_SIZE"] = "2000"
    if _has_old_torch():
        env["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "2000"
    trackers.label()
    if came is not None:
        with open(came, "rb") as file:
            env.update(changes(_parse(binascii.a2b_base64(file.read())), env))


def renew(folder: str) -> None:
    """Make the folders of an attempt, and set the variables with their paths."""
    env, flight = os.environ, os.path.join(folder, "flight")
    for path in (flight, os.path.join(folder, records.STOP)):
        os.makedirs(path, exist_ok=True)
    env["HPCRUN_ATTEMPT_DIR"] = folder
    for name in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
        env[name] = os.path.join(flight, "rank_")
        if PUT + name in env:
            env[PUT + name] = env[name]


def _has_old_torch() -> bool:
    """Whether torch is older than 2.8: it has another variable for the flight recorder, of which newer ones warn."""
    import glob
    import re

    prefix = os.path.dirname(os.path.dirname(sys.executable))  # without site, sys.prefix is that of the base Python
    found = glob.glob(os.path.join(glob.escape(prefix), "lib*", "python3*", "*-packages", "torch-*.dist-info"))
    versions = [re.findall(r"\d+", os.path.basename(path))[:2] for path in found]
    return any([int(part) for part in version] < [2, 8] for version in versions)


def _parse(text: bytes) -> dict[str, str]:
    pairs = (os.fsdecode(item).partition("=") for item in text.split(b"\0") if b"=" in item)
    return {name: value for name, _, value in pairs}


def changes(came: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return variables that record the changes in an environment, with the original values.

    ``hpcrun submit`` inside this job passes on the original values (schedulers/environment.py).
    """
    noted = {}
    for name in {*came, *now}:
        if came.get(name) == now.get(name) or name.startswith(_OWN) or name in _OF_BASH or "%" in name:
            continue
        if name in came:
            noted[CAME + name] = came[name]
        if name in now:
            noted[PUT + name] = now[name]
    return noted
