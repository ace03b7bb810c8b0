"""The words of a script's launch, and the command of the step that follows from the words.

The words are ``[srun ...] :: PROGRAM ...`` or ``[srun ...] ::: TORCHRUN ... :: PROGRAM ...``.

hpcrun submit has put the marks there (job/batch/batch_script.py); the values behind them are known
only here. The options of srun and of torchrun stay as they are: only each rank's program gets its
wrapper.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from .. import records
from ..rank_environment import BATCH, GPUS, SEPARATOR

EACH = "::"
BY_TORCHRUN = ":::"
AS_IS = "--as-is"
"""The script sets the environment of its ranks itself."""
_MODULES = "torch.distributed."
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


@dataclass(frozen=True)
class Launch:
    """The words of srun, of torchrun, and of the program; those of a missing one are empty."""

    srun: list[str]
    torchrun: list[str]
    program: list[str]


def split_launch(words: list[str]) -> Launch:
    """Return the parts of a launch.

    Raises:
        ValueError: the marks are not there, or no program is behind them.
    """
    marks = [place for place, part in enumerate(words) if part in (EACH, BY_TORCHRUN)]
    mark = marks[0] if marks else len(words)
    program = words[mark + 1 :]
    torchrun: list[str] = []
    if marks and words[mark] == BY_TORCHRUN:
        end = program.index(EACH)
        torchrun = program[:end]
        program = program[end + 1 :]
    if not program or program[0].startswith("-"):
        raise ValueError(f"it starts no program: {' '.join(words)}")
    return Launch(words[:mark], torchrun, program)


def plain_words(words: list[str]) -> list[str]:
    """Return a launch as the script has it, without the marks."""
    launch = split_launch(words)
    return [*launch.srun, *launch.torchrun, *launch.program]


def step_words(words: list[str], wrapper: list[str], *, local: bool, again: bool) -> list[str]:
    """Return the command of the step.

    Args:
        words: the words of the launch in the script.
        wrapper: starts this program.
        local: the node is this machine.
        again: the allocation had a step before.
    """
    launch = split_launch(words)
    overlap = ["--overlap"] if again else []
    # its image may have neither this program nor a Python
    if any(part.startswith("--container") for part in launch.srun):
        logs = os.path.join(records.attempt_dir(), "rank-%t")
        outputs = [f"--output={logs}.out", f"--error={logs}.err"]
        options = [*_task_options(launch.srun), *outputs, *overlap]
        return [*options, *launch.torchrun, *launch.program]
    as_node = [*wrapper, "node", AS_IS, "--"]
    if launch.torchrun:
        inner = [*as_node, *_with_ranks(launch, wrapper)]
    elif launch.srun:
        inner = [*wrapper, "rank", "--task", AS_IS, "--", *launch.program]
    else:
        inner = [*as_node, *wrapper, "rank", "--once", AS_IS, "--", *launch.program]
    if local:
        return inner
    if launch.srun:
        return [*_task_options(launch.srun), *overlap, *inner]
    return [*_one_task(), *inner]


def _with_ranks(launch: Launch, wrapper: list[str]) -> list[str]:
    """Return torchrun's words with the wrapper of each rank.

    The wrapper runs the program with torchrun's own Python.
    """
    torchrun = launch.torchrun
    if "--no-python" in torchrun or "--no_python" in torchrun:
        return [*torchrun, *wrapper, "rank", AS_IS, "--", *launch.program]
    # torchrun, or python -m torch.distributed.run
    modules = [place for place, part in enumerate(torchrun) if part.startswith(_MODULES)]
    first = modules[0] + 1 if modules else 1
    options = [part for part in torchrun[first:] if part not in ("-m", "--module")]
    module = ["-m"] if len(options) < len(torchrun[first:]) else []
    of_rank = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torchrun_rank.py")
    return [*torchrun[:first], *options, of_rank, *wrapper, *module, "--", *launch.program]


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
    of_slurm = [name for name in env if name.startswith("SLURM")]
    chosen = [name for name in GPUS if name in env]  # srun shows a task all GPUs again
    env[BATCH] = SEPARATOR.join(f"{name}={env[name]}" for name in of_slurm + chosen)
    sizes = tuple(f"SLURM_{size}" for size in _SIZES)
    for name in of_slurm:
        if name.startswith(sizes):
            del env[name]
