"""The words of a script's launch, and the command of the step that follows from the words.

The words are ``[srun ...] :: PROGRAM ...`` or ``[srun ...] ::: TORCHRUN ... :: PROGRAM ...``.

hpcrun submit has put the marks there (job/batch/batch_script.py); the values behind them are known
only here. The options of srun and of torchrun stay as they are: only each rank's program gets its
wrapper.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from .. import records

EACH = "::"
BY_TORCHRUN = ":::"
AS_IS = "--as-is"
"""The script sets the environment of its ranks itself."""
_MODULES = "torch.distributed."
_OUTPUT = ("-o", "-e", "--output", "--error")


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


def trace_as_written(log: bytes, program: str) -> tuple[int, bytes]:
    """Return the place of the last launch that ``set -x`` shows in a log, and what stands there.

    The text is the launch as the script has it, and spaces. It is empty if no launch is shown.

    Args:
        log: the end of the log.
        program: the path of hpcrun_launch.
    """
    name = re.escape(os.fsencode(program))
    shown = list(re.finditer(rb"'?" + name + rb"'? ([^\n]*)", log))
    if not shown:
        return 0, b""
    plain = os.fsencode(without_marks(os.fsdecode(shown[-1][1])))
    return shown[-1].start(), plain.ljust(len(shown[-1][0]))


def without_marks(line: str) -> str:
    """Return the line of a launch as the script has it."""
    mark = re.search(r"(?:^| )(:::?) ", line)
    if mark is None:
        return line
    rest = line[mark.end() :]
    if mark[1] == BY_TORCHRUN:
        rest = rest.replace(f" {EACH} ", " ", 1)
    return line[: mark.start(1)] + rest


def step_words(launch: Launch, wrapper: list[str], added: list[str], *, local: bool) -> list[str]:
    """Return the command of the step.

    Args:
        launch: the words of the launch in the script.
        wrapper: starts this program.
        added: options that srun gets besides the script's.
        local: the node is this machine.
    """
    srun = [*launch.srun[:1], *added, *_without_output(launch.srun[1:])]
    # its image may have neither this program nor a Python
    if any(part.startswith("--container") for part in launch.srun):
        logs = os.path.join(records.attempt_dir(), "rank-%t")
        outputs = [f"--output={logs}.out", f"--error={logs}.err"]
        return [*srun, *outputs, *launch.torchrun, *launch.program]
    as_node = [*wrapper, "node", AS_IS, "--"]
    if launch.torchrun:
        inner = [*as_node, *_with_ranks(launch, wrapper)]
    elif launch.srun:
        inner = [*wrapper, "rank", "--task", AS_IS, "--", *launch.program]
    else:
        inner = [*as_node, *wrapper, "rank", "--once", AS_IS, "--", *launch.program]
    if local or not launch.srun:
        return inner
    return [*srun, *inner]


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


def _without_output(options: list[str]) -> list[str]:
    """Return options of srun without files for the output, which goes into the ranks' logs."""
    kept = []
    rest = list(options)
    while rest:
        option = rest.pop(0)
        if option in _OUTPUT:
            del rest[:1]
        elif not option.startswith(("--output=", "--error=")) and option[:2] not in _OUTPUT:
            kept.append(option)
    return kept
