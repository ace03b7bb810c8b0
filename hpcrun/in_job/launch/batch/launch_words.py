"""The words of a script's launch, and the command of the step that follows from the words.

The words are ``[srun ...] :: PROGRAM ...`` or ``[srun ...] ::: TORCHRUN ... :: PROGRAM ...``.

hpcrun submit has put the marks there (hpcrun/job/batch_script.py); the values behind them are known
only here. The options of srun and of torchrun stay as they are: only each rank's program gets its
wrapper.
"""

from __future__ import annotations

import os

from .. import records
from ..environment import BATCH, GPUS, SEPARATOR

EACH = "::"
BY_TORCHRUN = ":::"
AS_IS = "--as-is"
"""The script sets the environment of its ranks itself."""
_OUTPUT = ("-o", "-e", "--output", "--error")
_SIZES = (
    "GPUS",
    "NTASKS",
    "NPROCS",
    "TASKS_PER",
    "CPUS_PER",
    "CPU_BIND",
    "GPU_BIND",
    "TRES",
    "DISTRIBUTION",
    "GRES",
    "THREADS_PER_CORE",
    "HINT",
    "OVERCOMMIT",
    "EXACT",
    "EXCLUSIVE",
    "EXPORT",
)
"""Variables of the batch script, without SLURM_, that srun takes for options of one task."""


def split_launch(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the words of srun, of torchrun, and of the program; those of a missing one are empty.

    Raises:
        ValueError: the marks are not there, or no program is behind them.
    """
    mark = next(index for index, part in enumerate([*words, EACH]) if part in (EACH, BY_TORCHRUN))
    srun = words[:mark]
    rest = words[mark + 1 :]
    torchrun: list[str] = []
    if words[mark : mark + 1] == [BY_TORCHRUN]:
        end = rest.index(EACH)
        torchrun, rest = rest[:end], rest[end + 1 :]
    if not rest or rest[0].startswith("-"):
        raise ValueError(f"it starts no program: {' '.join(words)}")
    return srun, torchrun, rest


def plain_words(words: list[str]) -> list[str]:
    """Return a launch as the script has it, without the marks."""
    srun, torchrun, program = split_launch(words)
    return [*srun, *torchrun, *program]


def step_words(words: list[str], launch: list[str], *, local: bool, again: bool) -> list[str]:
    """Return the command of the step.

    Args:
        words: the words of the launch in the script.
        launch: starts this program.
        local: the node is this machine.
        again: the allocation had a step before.
    """
    srun, torchrun, program = split_launch(words)
    # its image may have neither this program nor a Python
    if any(part.startswith("--container") for part in srun):
        logs = os.path.join(records.attempt_dir(), "rank-%t")
        options = [*_task_options(srun), f"--output={logs}.out", f"--error={logs}.err"]
        return [*options, *(["--overlap"] if again else []), *torchrun, *program]
    if torchrun:
        inner = [*launch, "node", AS_IS, "--", *_with_ranks(torchrun, program, launch)]
    elif srun:
        inner = [*launch, "rank", "--task", AS_IS, "--", *program]
    else:
        inner = [*launch, "node", AS_IS, "--", *launch, "rank", "--once", AS_IS, "--", *program]
    if local:
        return inner
    return [
        *(_task_options(srun) if srun else _one_task()),
        *(["--overlap"] if again and srun else []),
        *inner,
    ]


def _with_ranks(torchrun: list[str], program: list[str], launch: list[str]) -> list[str]:
    """Return torchrun's words with the wrapper of each rank.

    The wrapper runs the program with torchrun's own Python.
    """
    if {"--no-python", "--no_python"} & {*torchrun}:
        return [*torchrun, *launch, "rank", AS_IS, "--", *program]
    first = (
        next((at for at, part in enumerate(torchrun) if part.startswith("torch.distributed.")), 0)
        + 1
    )
    options = [part for part in torchrun[first:] if part not in ("-m", "--module")]
    module = ["-m"] if len(options) < len(torchrun[first:]) else []
    wrapper = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torchrun_rank.py")
    return [*torchrun[:first], *options, wrapper, *launch, *module, "--", *program]


def _task_options(srun: list[str]) -> list[str]:
    """Return srun with the job's options, which the options of the script override.

    The output of the ranks goes into their logs.
    """
    options = [srun[0], "--wait=0", "--kill-on-bad-exit=1"]
    rest = srun[1:]
    while rest:
        option = rest.pop(0)
        if option in _OUTPUT:
            del rest[:1]
        elif not option.startswith(("--output=", "--error=")) and option[:2] not in _OUTPUT:
            options.append(option)
    return options


def _one_task() -> list[str]:
    """Return srun for one task on the node of the script.

    The task has all that the script has on this node.
    """
    env = os.environ
    return [
        "srun",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        "--ntasks-per-node=1",
        "--cpu-bind=none",
        "--export=ALL",
        f"--cpus-per-task={env['SLURM_CPUS_ON_NODE']}",
        f"--nodelist={env['SLURMD_NODENAME']}",
        "--wait=0",
        "--kill-on-bad-exit=1",
    ]


def hide_sizes() -> None:
    """Hide the sizes of the job from the srun of one task.

    ``restore_slurm`` brings the sizes back for the program of this task.
    """
    env = os.environ
    of_slurm = {name: value for name, value in env.items() if name.startswith("SLURM")}
    chosen = {name: env[name] for name in GPUS if name in env}  # srun shows a task all GPUs again
    env[BATCH] = SEPARATOR.join(f"{name}={value}" for name, value in {**of_slurm, **chosen}.items())
    for name in of_slurm:
        if name.startswith(tuple(f"SLURM_{size}" for size in _SIZES)):
            del env[name]
