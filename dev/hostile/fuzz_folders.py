"""Damages the folders of runs in every way and runs the commands that read them: ``python -m
dev.hostile.fuzz_folders``.

Each example is a runs folder with a run that failed, a sweep and a chained Slurm job, of which a
few files were
replaced: by hostile JSON, FIFOs, links, folders, holes of a gigabyte, or random bytes. No command
may fail otherwise than with a message, take longer than a few seconds, or send an escape sequence
to the terminal.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st

from dev.hostile.run_folders import CHAINED, DAMAGE, PLAIN, STUDY, SWEEP, Damage, make_runs

SLOWEST_S = 3.0
"""Seconds of this process that a command may take; most take a tenth of one."""
_READS_A_GIGABYTE = {"explain": 10.0, "share": 10.0}
"""The same of commands that read logs whole, up to a gigabyte: docs/explain.md."""
_HANGS_S = 60.0
"""Seconds after which a command is stopped, on a machine that may be busy with other things."""

COMMANDS = (
    ("status",),
    ("status", "-v"),
    ("status", "--json"),
    ("status", "--csv", "--all"),
    ("status", "-v", "--json", "-a"),
    ("status", PLAIN),
    ("status", f"{SWEEP}/1"),
    ("status", "4711"),
    ("logs", PLAIN, "-n", "5"),
    ("logs", SWEEP, "-n", "5"),
    ("logs", PLAIN, "--all-ranks", "-n", "5"),
    ("logs", PLAIN, "--merge", "-n", "5"),
    ("logs", PLAIN, "--batch", "-n", "5"),
    ("logs", PLAIN, "-n", "5", "--grep", "(E|e)+rror$"),
    ("logs", PLAIN, "--since", "2h", "-n", "5"),
    ("metrics", PLAIN),
    ("metrics", PLAIN, "--json"),
    ("metrics", PLAIN, "--csv", "--all-ranks"),
    ("metrics", PLAIN, "--plot"),
    ("explain", PLAIN),
    ("explain", SWEEP),
    ("explain", CHAINED, "--json"),
    ("share", PLAIN, "--out", "-"),
    ("share", SWEEP, "--out", "-"),
    ("share", f"{SWEEP}/1", "--out", "-"),
    ("clean",),
    ("clean", "--older-than", "1d", "--json"),
    ("resubmit", PLAIN, "--dry-run"),
    ("resubmit", SWEEP, "--failed", "--dry-run"),
    ("cancel", PLAIN),
    ("cancel", f"{SWEEP}/1"),
    ("cancel", CHAINED),
    ("scale", "run", "--list"),
    ("scale", "run", "--show", STUDY),
    ("open", PLAIN),
    ("open", f"{SWEEP}/1", "--json"),
    ("open", "--upload", PLAIN),
    ("notify", PLAIN),
    ("status", "--gpus", PLAIN),
    ("history",),
    ("history", "--by", "project", "--csv"),
    ("sweep", SWEEP),
    ("status", "-v", "--runs", "runs"),
    ("logs", PLAIN, "--runs", "runs", "--all-ranks", "-n", "5"),
    ("explain", PLAIN, "--runs", "runs"),
    ("metrics", PLAIN, "--runs", "runs"),
    ("sweep", SWEEP, "--runs", "runs"),
    ("share", PLAIN, "--runs", "runs", "--out", "-"),
)


@dataclass(slots=True)
class Finding:
    """What a command did that it must not do."""

    command: tuple[str, ...]
    what: str
    damage: tuple[str, ...]

    def __str__(self) -> str:
        return f"hpcrun {' '.join(self.command)}: {self.what}\n  after: " + "\n         ".join(
            self.damage
        )


@dataclass(slots=True)
class Tally:
    """What was tried, and what was found."""

    folders: int = 0
    commands: int = 0
    slowest_s: float = 0.0
    findings: dict[str, Finding] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)


EXAMPLES = st.tuples(
    st.lists(DAMAGE, min_size=1, max_size=4),
    st.lists(st.sampled_from(COMMANDS), min_size=3, max_size=3, unique=True),
)


class TooSlow(BaseException):
    """A command took too long; no handler of failures in hpcrun takes it for one."""


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Terminal(io.TextIOWrapper):
    """A stream that hpcrun takes for a terminal or a pipe, and keeps what is written."""

    terminal: int | None = None

    def isatty(self) -> bool:
        return self.terminal is not None

    def fileno(self) -> int:
        if self.terminal is None:
            raise io.UnsupportedOperation("fileno")
        return self.terminal


def run_command(argv: tuple[str, ...], *, tty: bool) -> str | None:
    """Run hpcrun in this process; returns what it must not do and did, None where all is well."""
    return shown_by(argv, tty=tty).problem


@dataclass(frozen=True, slots=True)
class Shown:
    """What a command has printed, and what it must not do and did."""

    text: str
    problem: str | None


def shown_by(argv: tuple[str, ...], *, tty: bool) -> Shown:
    """Run hpcrun in this process; return what it has printed, and what it must not do and did."""
    from hpcrun.cli import main, output
    from hpcrun.files.foreign_folder import ForeignFolder

    output._Answer.document, output._Answer.json = None, False
    streams = [_Terminal(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    ends = os.openpty() if tty else ()  # asked for its size; nothing is written to it
    for stream in streams:
        stream.terminal = ends[1] if ends else None
    before = sys.stdout, sys.stderr, sys.argv
    sys.stdout, sys.stderr, sys.argv = streams[0], streams[1], ["hpcrun", *argv]
    code: object = 0
    try:
        with _limited(_HANGS_S):
            main.main()
    except SystemExit as ended:
        code = ended.code
    except TooSlow:
        return Shown("", "did not end: " + _where())
    except BaseException as error:
        return Shown("", f"{type(error).__name__}: {error}"[:300] + " at " + _where())
    finally:
        ForeignFolder.path = output._Answer.option = ""
        sys.stdout, sys.stderr, sys.argv = before
        for end in ends:
            os.close(end)
    shown = "".join(stream.buffer.getvalue().decode("utf-8", "replace") for stream in streams)  # type: ignore[attr-defined]
    problem = None
    if code == 1:
        problem = f"exit status 1: {shown[-300:]}"
    elif tty and (bad := _acting(shown)):
        problem = f"{bad!r} went to the terminal"
    return Shown(shown, problem)


def _where() -> str:
    frames = [
        frame for frame in traceback.extract_tb(sys.exc_info()[2]) if "/hpcrun/" in frame.filename
    ]
    return " < ".join(
        f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-4:])
    )


def _acting(shown: str) -> str | None:
    """Return a character that acts on a terminal, other than a colour and what draws a line
    again.
    """
    import re

    plain = re.sub(r"\x1b\[[0-9;:]*m|\r?\x1b\[K|\r\n", "", shown)
    hidden = re.search(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", plain
    )
    return hidden[0] if hidden else None


def try_folder(
    example: tuple[list[Damage], list[tuple[str, ...]]], base: Path, tally: Tally
) -> None:
    """Damage a copy of a runs folder, run some commands on it, and note what they must not do."""
    damage, commands = example
    root = base.with_name("runs")
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(base, root, symlinks=True)
    for one in damage:
        one.apply(root)
        tally.kinds[one.way] += 1
    tally.folders += 1
    for number, command in enumerate(commands):
        begun = time.process_time()
        what = run_command(command, tty=bool(number % 2))
        took_s = time.process_time() - begun
        tally.commands += 1
        tally.slowest_s = max(tally.slowest_s, took_s)
        if what is None and took_s > _READS_A_GIGABYTE.get(command[0], SLOWEST_S):
            what = f"took {took_s:.1f} s"
        if what is not None:
            key = f"{command[0]}: {what.split(' at ')[-1][-80:]}"
            tally.findings.setdefault(key, Finding(command, what, tuple(map(str, damage))))


def fuzz(count: int, folder: Path, *, seed: int | None = None) -> Tally:
    """Try so many folders below ``folder``, the same ones for the same seed.

    Args:
        seed: None for other ones each time.
    """
    tally, base = Tally(), folder / "base"
    make_runs(base)
    with surroundings(folder):
        # the first imports modules, which is not timed
        try_folder(
            ([], [("status", "-v"), ("scale", "run", "--show", STUDY), ("explain", PLAIN)]),
            base,
            Tally(),
        )

        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            derandomize=False,
            phases=[Phase.generate],
            verbosity=Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
        )
        @given(EXAMPLES)
        def attempt(example: tuple[list[Damage], list[tuple[str, ...]]]) -> None:
            try_folder(example, base, tally)

        if seed is not None:
            from hypothesis import seed as with_seed

            attempt = with_seed(seed)(attempt)
        attempt()
    return tally


@contextlib.contextmanager
def surroundings(folder: Path) -> Iterator[None]:
    """Set the environment of a person with one runs folder, no Slurm, and no configuration."""
    before, cwd = dict(os.environ), Path.cwd()
    (folder / "home").mkdir(exist_ok=True)
    (folder / "train.py").write_text("print('trained')\n")
    os.environ.clear()
    os.environ.update(
        HOME=str(folder / "home"),
        HPCRUN_RUNS=str(folder / "runs"),
        HPCRUN_SITE=str(folder / "site"),
        HPCRUN_DEBUG="1",
        LANG="C.UTF-8",
        PATH="/usr/bin:/bin",
        COLUMNS="100",
    )
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(before)


def main() -> int:
    """Fuzz and say what came of it; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=2000, help="how many folders (default: 2000)")
    parser.add_argument("--seed", type=int, help="try the same folders again")
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hpcrun-fuzz-") as there:
        tally = fuzz(options.count, Path(there), seed=options.seed)
    for finding in tally.findings.values():
        print(finding)
    took_s = time.monotonic() - begun
    print(
        f"{tally.folders} folders, {sum(tally.kinds.values())} files damaged, {tally.commands} "
        "commands: "
        f"{len(tally.findings)} findings; slowest {tally.slowest_s:.1f} s of CPU time, "
        f"{took_s:.0f} s in all"
    )
    return 1 if tally.findings or tally.folders < options.count else 0


if __name__ == "__main__":
    sys.exit(main())
