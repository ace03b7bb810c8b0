"""What stands on this machine between a person and a host: the commands it proposes, and what it
reads of the host.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress

import pytest

from hpcrun.errors import SchedulerError
from hpcrun.features.remote import on_host
from hpcrun.features.remote.connection import copy_after


@pytest.mark.parametrize(
    "text, proposed",
    [
        ("hpcrun logs 4711", "hpcrun --on far logs 4711"),
        (
            "`hpcrun status` or hpcrun cancel 1",
            "`hpcrun --on far status` or hpcrun --on far cancel 1",
        ),
        ("hpcrun --on far status", "hpcrun --on far status"),
        ("hpcrun login far", "hpcrun login far"),
        ("this is a bug in hpcrun: it statuses", "this is a bug in hpcrun: it statuses"),
        ("/opt/hpcrun status, hpcrun-slurm status", "/opt/hpcrun status, hpcrun-slurm status"),
    ],
)
def test_proposed_commands_have_the_host(text: str, proposed: str) -> None:
    assert on_host(text, "far") == proposed
    assert on_host(text, "") == text
    assert on_host("hpcrun top", r"\1 $x") == r"hpcrun --on \1 $x top"


def test_only_what_is_behind_the_mark_is_passed_on() -> None:
    source, sink = os.pipe()
    os.write(sink, b"welcome\nMA")
    chunks: list[bytes] = []
    os.write(sink, b"RK\nanswer MARK\n")
    os.close(sink)
    copy_after(b"MARK\n", source, chunks.append)
    os.close(source)
    assert b"".join(chunks) == b"answer MARK\n"


def test_start_up_files_that_print_without_end_are_one_message() -> None:
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        with pytest.raises(SchedulerError, match="print more than 16 MiB"):
            copy_after(b"MARK\n", process.stdout.fileno(), lambda _: None)
        with suppress(ProcessLookupError):
            process.kill()
