"""Random hostile command lines: ``python -m dev.hostile.fuzz_commands --count 2000 --seed 1``.

Each line runs on a terminal, in a process forked from one that has imported hpcrun, with folders of
its own. It must end within 20 s, with an exit status that says what was wrong, without a traceback;
no control sequence of the line may reach the terminal, and nothing outside the line's folders may
change.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import multiprocessing
import os
import pkgutil
import pty
import re
import select
import shlex
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import hpcrun
from dev.hostile.command_lines import (
    MARK,
    WAITING,
    all_commands,
    command_line,
    control_sequences,
    environment,
    fresh_copy,
    make_folders,
    make_programs,
)
from tests.harness import REPO

LIMIT_S = 20
_OUTPUT_LIMIT = 20_000_000
_CTRL_C_AFTER_S = 3  # for a command that was told to wait or to watch
_STATUSES = {0, 2, 3, 4, 5, 6, 7, 130}  # hpcrun/errors.py, without 1: a bug in hpcrun
_KINDS = ("traceback", "exit status", "escape sequence", "time", "write elsewhere")


@dataclass(frozen=True)
class Finding:
    """What a line must not do, and did."""

    number: int
    kind: str
    detail: str
    argv: tuple[bytes, ...]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dev.hostile.fuzz_commands", description=__doc__
    )
    parser.add_argument("--count", type=int, default=2000, help="how many command lines (2000)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--only", type=int, help="the line of this number, and what it prints")
    parser.add_argument("--workers", type=int, default=2, help="how many run side by side (2)")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    numbers = range(options.count) if options.only is None else [options.only]
    findings, statuses = fuzz(options.seed, numbers, options.workers, show=options.only is not None)
    print(summary(options.seed, findings, statuses, time.monotonic() - started))
    for text in descriptions(findings, options.seed):
        print(text)
    return 1 if findings else 0


def summary(seed: int, findings: Sequence[Finding], statuses: Counter[int], seconds: float) -> str:
    counts = Counter(finding.kind for finding in findings)
    kinds = ", ".join(f"{kind} {counts[kind]}" for kind in _KINDS)
    ended = ", ".join(f"{count} with {status}" for status, count in sorted(statuses.items()))
    return (
        f"{statuses.total()} command lines (seed {seed}) in {seconds:.0f} s: {kinds}; they "
        f"ended {ended}"
    )


def descriptions(findings: Sequence[Finding], seed: int) -> Iterator[str]:
    """Yield each kind of finding once, with its first line as bash reads it and how to run it
    again.
    """
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.kind, finding.detail), []).append(finding)
    for (kind, detail), same in alike.items():
        first = same[0]
        yield (
            f"{kind}: {detail} ({len(same)} of the lines)\n"
            f"    hpcrun {' '.join(map(_shell_word, first.argv))}\n"
            f"    again: python -m dev.hostile.fuzz_commands --seed {seed} --only {first.number}"
        )


def fuzz(
    seed: int, numbers: Sequence[int], workers: int, *, show: bool = False
) -> tuple[list[Finding], Counter[int]]:
    """Run the numbered lines; return what they must not have done, and how often each exit status
    was theirs.
    """
    _warm_up()
    shares = [list(numbers[first::workers]) for first in range(workers) if numbers[first::workers]]
    with ProcessPoolExecutor(len(shares), mp_context=multiprocessing.get_context("fork")) as pool:
        done = [
            job.result() for job in [pool.submit(_run_share, seed, share, show) for share in shares]
        ]
    findings = sorted((one for problems, _ in done for one in problems), key=lambda one: one.number)
    return findings, sum((statuses for _, statuses in done), Counter())


def _warm_up() -> None:
    """Import all of hpcrun: what a forked process need not do again."""
    for module in pkgutil.walk_packages(hpcrun.__path__, "hpcrun."):
        if (
            module.name.split(".")[1] not in {"__main__", "preflight"}
            and ".hpcrun_" not in module.name
        ):
            import_module(module.name)
    gc.freeze()


def _run_share(seed: int, numbers: Sequence[int], show: bool) -> tuple[list[Finding], Counter[int]]:
    _adopt_orphans()
    commands = all_commands()
    findings: list[Finding] = []
    statuses: Counter[int] = Counter()
    with tempfile.TemporaryDirectory(prefix="fuzz-commands-") as folder:
        template, live, programs = (
            Path(folder, "template"),
            Path(folder, "live"),
            Path(folder, "bin"),
        )
        make_folders(template)
        make_programs(programs, sys.executable)
        for number in numbers:
            argv = command_line(commands, seed, number)
            fresh_copy(template, live)
            status, problems = _run_line(number, argv, live, programs, show)
            statuses[status] += 1
            findings += problems
        findings += [
            Finding(numbers[-1], "write elsewhere", f"{path}, after one of the lines before", ())
            for path in _stray_files(Path(folder), {"template", "live", "bin"})
        ]
    return findings, statuses


def _adopt_orphans() -> None:
    """Become the parent of what a line leaves in the background, to end it: PR_SET_CHILD_SUBREAPER
    of prctl(2).
    """
    if ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


# --- one line ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """How a line ended: its exit status (negative: a signal), all that it wrote to the terminal,
    and after how long.
    """

    status: int
    output: bytes
    seconds: float


def _run_line(
    number: int, argv: tuple[bytes, ...], live: Path, programs: Path, show: bool
) -> tuple[int, list[Finding]]:
    before = _state_of(live / "victim")
    variables = environment(live, programs)
    outcome = _on_terminal(argv, live, variables)
    _end_descendants()
    if outcome.status == 1:  # once more, to see where
        debugged = _on_terminal(argv, live, {**variables, "HPCRUN_DEBUG": "1"})
        outcome = replace(outcome, output=debugged.output)
        _end_descendants()
    if show:
        sys.stdout.write(outcome.output.decode(errors="backslashreplace").replace("\x1b", "\\x1b"))
        print(f"exit status {outcome.status} after {outcome.seconds:.1f} s")
    wrong = (*judge(argv, outcome), *_changes(argv, before, live))
    return outcome.status, [Finding(number, kind, detail, argv) for kind, detail in wrong]


def judge(argv: tuple[bytes, ...], outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with how a line ended: its kind, and what was seen."""
    if b"Traceback (most recent call last)" in outcome.output or outcome.status not in _STATUSES:
        kind = "traceback" if outcome.status in _STATUSES else "exit status"
        yield kind, f"{outcome.status}, {_last_line(outcome.output)}{_last_frame(outcome.output)}"
    for sequence in control_sequences(argv):
        if sequence in outcome.output:
            yield "escape sequence", f"{sequence!r} reached the terminal"
    if outcome.seconds > LIMIT_S:
        yield "time", f"{outcome.seconds:.0f} s"


def _changes(
    argv: tuple[bytes, ...], before: dict[str, bytes], live: Path
) -> Iterator[tuple[str, str]]:
    """What is not in the line's own folders: a stranger's files, and names that a shell would have
    made.
    """
    after = _state_of(live / "victim")
    named = any(b"victim" in argument for argument in argv)
    for name in sorted(before.keys() | after.keys()):
        is_asked_for = named and (name not in before or b"--force" in argv)
        if before.get(name) != after.get(name) and not is_asked_for:
            yield "write elsewhere", f"victim/{name}"
    for folder in (live / "work", live / "home", live, REPO):
        if (folder / os.fsdecode(MARK)).exists():
            yield "write elsewhere", f"a shell made {folder}/{MARK.decode()}"


def _state_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _stray_files(folder: Path, known: set[str]) -> list[Path]:
    return [path for path in folder.iterdir() if path.name not in known]


def _last_frame(output: bytes) -> str:
    frames = re.findall(
        r'File "[^"]*/(hpcrun/[^"]+)", line (\d+), in (\S+)', output.decode(errors="replace")
    )
    return " at {}:{} in {}".format(*frames[-1]) if frames else ""


def _last_line(output: bytes) -> str:
    lines = [line for line in output.decode(errors="backslashreplace").splitlines() if line.strip()]
    return re.sub(
        r"[^ -~]", "?", next((line for line in reversed(lines) if "hint:" not in line), "")
    )[:300]


def _on_terminal(argv: tuple[bytes, ...], live: Path, variables: dict[str, str]) -> Outcome:
    started = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        _become(argv, live / "work", variables)
    os.write(terminal, b"\xff\nn\n\x04")  # two answers to a question, and the end of what is typed
    may_wait = any(argument.decode(errors="replace") in WAITING for argument in argv)
    output = bytearray()
    for typed, until_s in (
        (b"\x03", _CTRL_C_AFTER_S if may_wait else LIMIT_S + 1),
        (b"", LIMIT_S + 2),
    ):
        if _read_until(terminal, output, started + until_s):
            break
        os.write(terminal, typed)
    seconds = time.monotonic() - started
    if seconds > LIMIT_S:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return Outcome(status, bytes(output), seconds)


def _read_until(terminal: int, output: bytearray, deadline: float) -> bool:
    """Add what is written to the terminal; return whether nobody has it open any more."""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([terminal], [], [], left)[0]:
            return False
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # EIO: the other end is closed
            return True
        if not chunk:
            return True
        if len(output) < _OUTPUT_LIMIT:
            output += chunk
    return False


def _become(argv: tuple[bytes, ...], folder: Path, variables: dict[str, str]) -> NoReturn:
    """Be the program with these arguments, in the forked process."""
    status = 70
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        sys.argv = ["hpcrun", *map(os.fsdecode, argv)]
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(
                number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            )
        import_module("hpcrun.__main__").main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            traceback.print_exc()


def _end_descendants() -> None:
    """Kill what the line left in the background, and what that started."""
    listed = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    while children := listed.read_text().split():
        for child in children:
            os.kill(int(child), signal.SIGKILL)
            os.waitpid(int(child), 0)


def _shell_word(token: bytes) -> str:
    """Return a word as bash reads it."""
    if token.isascii() and token.decode().isprintable():
        return shlex.quote(token.decode())
    escaped = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b"\\'" else f"\\x{byte:02x}" for byte in token
    )
    return f"$'{escaped}'"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
