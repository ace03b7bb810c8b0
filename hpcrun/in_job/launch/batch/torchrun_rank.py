"""Run the program of a rank with its wrapper.

The command is ``TORCHRUN OPTIONS torchrun_rank.py LAUNCH... [-m] -- PROGRAM ...``.

torchrun starts this file with its own Python, of any version 3, and so with the Python of the
program. The wrapper has the Python of the job; where that does not exist, as in a container, the
program runs without it.
"""

import os
import sys


def main():  # type: ignore[no-untyped-def]
    """Replace this process by the wrapper of the rank."""
    arguments = sys.argv[1:]
    end = arguments.index("--")
    launch = arguments[:end]
    program = arguments[end + 1 :]
    # by torch.distributed.launch
    added = [argument for argument in launch if argument.startswith("--local")]
    wrapper = [argument for argument in launch if argument not in added]
    command = [sys.executable, "-u"]
    if wrapper[-1:] == ["-m"]:
        command.append(wrapper.pop())
    command += [*program[:1], *added, *program[1:]]
    try:
        os.execv(wrapper[0], [*wrapper, "rank", "--as-is", "--", *command])
    except OSError:
        os.execv(command[0], command)


if __name__ == "__main__":
    main()  # type: ignore[no-untyped-call]
