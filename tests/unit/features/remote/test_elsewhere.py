"""What stands on this machine between a person and a host: the commands it proposes, and what it
reads of the host.
"""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from hpcrun.errors import SchedulerError
from hpcrun.features.remote import ATTACHED, TypedHost, on_host
from hpcrun.features.remote.connection import Connection, copy_after
from hpcrun.features.remote.from_host import FromHost
from hpcrun.views.text import written_line


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


def test_a_command_there_whose_reader_has_gone_ends_without_a_traceback(far: Path) -> None:
    (far / "there").write_text("#!/bin/sh\nexec yes\n")
    (far / "there").chmod(0o755)
    line = f"{shlex.quote(sys.executable)} -m hpcrun --on far logs -f 4711 | head -n 1"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("y\n", "")


@pytest.mark.parametrize("attached", ["far", None])
def test_a_file_that_stays_on_a_host_is_named_with_the_host(
    attached: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TypedHost, "name", attached or "")
    if attached:
        monkeypatch.setenv(ATTACHED, attached)
    place = f"far:{tmp_path}/loss.png" if attached else "loss.png"
    assert written_line("loss.png", " (1K)") == f"written  {place} (1K)"


SCREEN = b"\x1b[?1049h\x1b[2J\x1b[1;31mred\x1b[0m\x1b(B\x1b7 50 \xe2\x82\xac\r\n\x1b8\x07"
HOSTILE = (
    b"\x1b]0;title\x07",
    b"\x1b]52;c;cm0gLXJm\x1b\\",
    b"\x1bP$qm\x1b\\",
    b"\x1b_x\x1b\\",
    b"\x1b[6n",
    b"\x1b[c",
    b"\x1b[>0q",
    b"\x1b[21t",
    b"\x1b[4i",
    b"\x1bc",
    b"\x05",
    b"\xc2\x9b6n",
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_host_may_draw_but_not_control_the_terminal(size: int) -> None:
    chunks: list[bytes] = []
    from_host = FromHost(chunks.append)
    data = SCREEN + b"".join(HOSTILE) + b"end" + SCREEN
    for begin in range(0, len(data), size):
        from_host.take(data[begin : begin + size])
    assert b"".join(chunks) == SCREEN + b"6nend" + SCREEN


def test_a_sequence_without_end_is_not_kept_for_ever() -> None:
    chunks: list[bytes] = []
    from_host = FromHost(chunks.append)
    for _ in range(100):
        from_host.take(b"\x1b]52;c;" + b"x" * 10_000)
    assert len(from_host._held) < 70_000
    assert b"\x1b" not in b"".join(chunks)


def shown_on_a_terminal(ssh: str, folder: Path, *, on_terminal: bool, is_shell: bool) -> bytes:
    """What the terminal gets of a session with a program in place of ssh."""
    program = folder / "ssh"
    program.write_text(f"#!/bin/sh\n{ssh}\n")
    program.chmod(0o755)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
        connection = Connection("far", "/x")
        os._exit(connection.session("x", on_terminal=on_terminal, is_shell=is_shell))
    shown = b""
    with suppress(OSError):
        while chunk := os.read(terminal, 1000):
            shown += chunk
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
    return shown


@pytest.mark.parametrize("on_terminal", [True, False])
def test_the_errors_of_a_host_do_not_control_the_terminal(
    tmp_path: Path, on_terminal: bool
) -> None:
    ssh = "printf '\\033]52;c;eA==\\007\\033[31mwrong\\033[0m' >&2"
    shown = shown_on_a_terminal(ssh, tmp_path, on_terminal=on_terminal, is_shell=False)
    assert shown == b"\x1b[31mwrong\x1b[0m"


@pytest.mark.parametrize(("is_shell", "title"), [(False, b""), (True, b"\x1b]0;title\x07")])
def test_only_a_shell_there_has_the_terminal_as_it_is(
    tmp_path: Path, is_shell: bool, title: bytes
) -> None:
    ssh = "printf '\\033]0;title\\007drawn'"
    shown = shown_on_a_terminal(ssh, tmp_path, on_terminal=True, is_shell=is_shell)
    assert shown == title + b"drawn"
