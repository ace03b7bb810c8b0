"""Tidying an attempt's folder: empty folders go, and the small files of a sweep's element are joined into one."""

from __future__ import annotations

import os
from contextlib import suppress

from . import records

MOST_JOINED = 64 << 10
"""Characters of the small files that are joined: hpcrun status reads the exit record."""


def tidy() -> None:
    """Tidy the folder of an attempt whose ranks have ended; a sweep's small files go into the exit record."""
    with suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return  # Slurm is about to end this process, and the ranks still write
    folder = records.attempt_dir()
    for name, remove in (("flight", os.rmdir), (records.STOP, os.rmdir), ("heartbeat", os.unlink)):
        with suppress(OSError):  # it is not empty, or there is none
            remove(os.path.join(folder, name))
    ended = records.read("exit")
    if ended is None or "_" not in os.environ["HPCRUN_JOB_ID"]:
        return
    files: dict[str, str] = {}
    texts = [(name, records.read_text(name)) for name in os.listdir(folder) if _is_small(name)]
    for name, text in sorted(texts, key=lambda each: len(each[1])):
        if text and len(text) + sum(map(len, files.values())) <= MOST_JOINED:
            files[name] = text
    if records.write("exit", {**ended, "files": files}):
        for name in files:
            os.unlink(os.path.join(folder, name))


def _is_small(name: str) -> bool:
    return name == "hosts" or (name.startswith(("node-", "rank-")) and name.endswith((".start", ".exit", ".use")))
