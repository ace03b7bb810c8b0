"""``rsync --rsh``: starts a program on a host over an open connection; what start-up files print first is left out."""

from __future__ import annotations

import os
import sys
from functools import partial

from hpcrun.features.remote.connection import Connection, remote_command
from hpcrun.schedulers.process import run_on_terminal

_CHUNK = 64 * 1024


def rsh_option(connection: Connection) -> str:
    """Return the option of rsync that runs this module."""
    return f"--rsh={sys.executable} -I -m {__name__} {connection.control}"


def main(control: str, host: str, *words: str) -> int:
    """Run the words, which are quoted for sh, on a host; return the exit status."""
    mark = f"hpcrun-{os.urandom(8).hex()}"
    command = remote_command(f"printf '%s\\n' {mark}\nexec {' '.join(words)}")
    argv = [*Connection(host, control).argv("-T", "-o", "EscapeChar=none"), command]
    return run_on_terminal(argv, os.environ, read=partial(copy_after, f"{mark}\n".encode()))


def copy_after(mark: bytes, source: int) -> None:
    """Copy a pipe to stdout from behind a mark on: what a login shell's start-up files print comes before it."""
    before, is_past = b"", False
    while chunk := os.read(source, _CHUNK):
        if not is_past:
            before += chunk
            _, separator, chunk = before.partition(mark)
            is_past = separator != b""
        view = memoryview(chunk)
        while view:
            view = view[os.write(sys.stdout.fileno(), view) :]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
