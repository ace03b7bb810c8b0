"""``call_sbatch.py STDERR FOLDER CLAIM CALLED SBATCH...``: take the claim to submit; become sbatch.

A shell would not pass on every variable: dash drops names that a shell variable cannot have, such
as those of exported functions.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Become sbatch with the same process id, or submit nothing: see submit_claim.py."""
    stderr, folder, claim, called, *command = sys.argv[1:]
    # submitit drops sbatch's other messages, such as a site's remarks: a file keeps them
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), 2)
    try:
        os.chdir(folder)
    except OSError as error:
        sys.exit(f"{folder}: {error.strerror}")
    try:
        os.rename(claim, called)
    except OSError:
        sys.exit("this run was abandoned before submission")
    with open("/proc/self/environ", "rb") as file:  # to which Python may add LC_CTYPE
        variables = file.read().split(b"\0")
    env = dict(variable.split(b"=", 1) for variable in variables if b"=" in variable)
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
