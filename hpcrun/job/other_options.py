"""Options of sbatch, srun, torchrun, accelerate and others, and what hpcrun has instead of each. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Collection

from hpcrun.errors import nearest
from hpcrun.job import directives, launch_options
from hpcrun.job.quoting import quote_bash

_RANKS = "use --gpus, one rank per GPU, or --nproc-per-node"
_HEAD = "leave it out: hpcrun sets MASTER_ADDR and MASTER_PORT"
_OF_SCRIPT = "if the script takes it, write it after SCRIPT"
_ACCELERATE = "write the program as `accelerate launch ...` after hpcrun's options: it then runs once per node"
_LOGS = "leave it out: every rank has its own log, and `hpcrun logs RUN` shows it"
# What the tables of directives and of the launchers' options do not say, or say for --sbatch KEY and --torchrun KEY.
_INSTEAD: dict[str, str] = {
    "dependency": "use --after RUN, RUN:any or RUN:fail",
    "after": "use --after RUN",
    "chdir": "use --workdir DIR",
    "clusters": "leave it out: hpcrun submits to the cluster of this machine",
    "container-image": "use --container IMAGE",
    "container-mounts": "use --mount SRC:DST",
    "container-workdir": "use --workdir DIR",
    "container-name": "use --container IMAGE",
    "image": "use --container IMAGE",
    "singularity": "use --container IMAGE",
    "bind": "use --mount SRC:DST",
    "volume": "use --mount SRC:DST",
    "gres": "use --gpus N or TYPE:N",
    "gpus-per-task": _RANKS,
    **dict.fromkeys(("gpu-type", "gpus-type", "gpu-model"), "write the type in --gpus: --gpus a100:4"),
    "nproc": "use --nproc-per-node N",
    "mem-per-node": "use --mem SIZE",
    "memory": "use --mem SIZE",
    "walltime": "use --time TIME",
    "timelimit": "use --time TIME",
    "queue": "use --partition NAME",
    "project": "use --account NAME",
    "jobname": "use --name NAME",
    "pty": "submit the job, then `hpcrun shell RUN` opens a shell in it",
    "interactive": "submit the job, then `hpcrun shell RUN` opens a shell in it",
    "module-load": "use --load MODULE",
    "modules": "use --load MODULE",
    "conda": "activate the environment, or use --python PATH",
    "venv": "activate the environment, or use --python PATH",
    # torchrun
    **dict.fromkeys(("nnodes", "num-nodes", "num-machines"), "use --nodes N"),
    **dict.fromkeys(
        ("node-rank", "machine-rank", "local-rank", "local-addr"), "leave it out: hpcrun numbers the nodes"
    ),
    **dict.fromkeys(("master-addr", "master-port", "main-process-ip", "main-process-port"), _HEAD),
    **dict.fromkeys(("main-address", "main-port"), _HEAD),
    **dict.fromkeys(("log-dir", "redirects", "tee"), _LOGS),
    "standalone": "leave it out: hpcrun sets it for jobs on one node",
    "no-python": "leave it out: a program that is no .py file is run as it is",
    "use-env": "leave it out: LOCAL_RANK is always set",
    # accelerate launch (1.14), deepspeed, lightning, mpirun
    **dict.fromkeys(("num-processes", "ntasks", "np", "num-proc"), _RANKS),
    **dict.fromkeys(("num-gpus", "devices"), "use --gpus N"),
    **dict.fromkeys(("gpu-ids", "visible-devices"), "use --gpus N: Slurm chooses the GPUs"),
    **dict.fromkeys(("multi-gpu", "same-network", "use-mps-device"), "leave it out: --gpus and --nodes decide it"),
    **dict.fromkeys(("mixed-precision", "config-file", "use-deepspeed", "use-fsdp", "dynamo-backend"), _ACCELERATE),
    **dict.fromkeys(("deepspeed-config-file", "gradient-accumulation-steps", "main-training-function"), _ACCELERATE),
    "num-cpu-threads-per-process": "use --cpus-per-task N, or --env OMP_NUM_THREADS=N",
    "deepspeed": _OF_SCRIPT,
    "hostfile": "leave it out: Slurm chooses the nodes; --nodelist names them",
    **dict.fromkeys(("accelerator", "strategy", "precision", "trainer"), _OF_SCRIPT),
}
_FLAGS = directives.FLAGS | {"pty", "multi-gpu", "standalone", "same-network", "use-env", "no-python"}
# (command, option) → what that command has instead
_OF_COMMAND = {
    ("resubmit", "resume"): "leave it out: resubmit continues from the checkpoints; --fresh starts without them",
    ("explain", "rank"): "explain finds the rank itself; `hpcrun logs RUN --rank N` shows the output of one",
    ("logs", "tail"): "use -n N",
    ("logs", "stderr"): "use --err",
    ("status", "user"): "leave it out: status shows your own runs",
    ("status", "job"): "write the job id without an option: hpcrun status 4711",
    ("status", "jobs"): "write the job id without an option: hpcrun status 4711",
    ("cancel", "name"): "write the name without an option: hpcrun cancel train",
    ("cancel", "all"): "use --state pending,running",
}


def takes_no_value(option: str) -> bool:
    """Return whether an option of another program is known to be a flag."""
    return _name(option) in _FLAGS


def instead_of(option: str, value: str | None, command: str, own: Collection[str]) -> str | None:
    """Return what to write instead of an option that a command of hpcrun does not have; None if that is unknown.

    Args:
        option: as typed, without its value: ``--array`` or ``-a``.
        value: what stood behind ``=``, if anything.
        own: the options of the command.
    """
    name = _name(option)
    if f"--{name}" in own:  # --nproc_per_node, and sbatch's letters
        return f"did you mean --{name}?"
    advice = _OF_COMMAND.get((command, name))
    if advice is None and "--sbatch" in own:
        advice = _of_launchers(name, value)
        first = re.search(r"(?<!\w)--[a-z][a-z-]+", advice) if advice else None
        advice = advice if first is None or first[0] in own else None
    if advice:
        return advice
    longer = [known for known in own if known.startswith(option)] if option.startswith("--") and len(option) > 4 else []
    close = longer[0] if len(longer) == 1 else nearest(option, sorted(own))
    return f"did you mean {close}?" if close else None


def _name(option: str) -> str:
    letter = "n" if option == "-np" else option[1:]  # mpirun(1)
    return directives.LETTERS.get(letter, directives.normalise_key(option))


def _of_launchers(name: str, value: str | None) -> str | None:
    """Return what hpcrun has instead of an option of sbatch, srun, torchrun or another launcher."""
    if name in _INSTEAD:
        return _INSTEAD[name]
    if name in directives.OWNED:
        return directives.OWNED[name]
    if name in (*directives.KNOWN, *directives.PYXIS):
        return f"use --sbatch {_assignment(name, value)}"
    for program in ("torchrun", "srun"):
        if said := launch_options.owned_advice(program, name):
            return said
        if launch_options.is_known(program, name):
            return f"use --{program} {_assignment(name, value)}"
    return None


def _assignment(name: str, value: str | None) -> str:
    if value is not None:
        return quote_bash(f"{name}={value}")
    return name if name in _FLAGS else f"{name}=VALUE"
