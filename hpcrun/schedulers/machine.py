"""The resources of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from hpcrun.job.resources import Machine
from hpcrun.schedulers.process import run_command


def this_machine(env: Mapping[str, str]) -> Machine:
    """Return the CPUs that this process may use and the GPUs that it can see.

    CUDA_VISIBLE_DEVICES counts if it is set; otherwise nvidia-smi lists the GPUs; without it there are none.
    """
    cpus = len(os.sched_getaffinity(0))
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return Machine(cpus, tuple(item.strip() for item in visible.split(",") if item.strip()))
    if shutil.which("nvidia-smi", path=env.get("PATH")) is None:
        return Machine(cpus)
    answer = run_command(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], timeout_s=20, env=env)
    return Machine(cpus, tuple(answer.stdout.split()) if answer.ok else ())
