"""The user's editor: finding it, running it, and editing a text until it can be read."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from hpcrun.cli.confirm import ask, can_ask
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.output import tell
from hpcrun.errors import HpcrunError, InterruptedByUser, UsageError
from hpcrun.schedulers.process import run_on_terminal

T = TypeVar("T")


def find_editor(env: Mapping[str, str], otherwise: str) -> list[str]:
    """Return the command of $VISUAL or $EDITOR, or an editor on PATH.

    Args:
        otherwise: the command to type without a terminal.

    Raises:
        UsageError: there is none.
    """
    for variable in ("VISUAL", "EDITOR"):
        if env.get(variable, "").strip():
            try:
                return shlex.split(env[variable])
            except ValueError as error:
                raise UsageError(f"{variable}={env[variable]}: {error}") from None
    if not can_ask():  # one of $EDITOR's may be a script
        raise UsageError("there is no terminal for an editor", hint=f"without a terminal: {otherwise}")
    for program in ("vi", "nano"):
        if shutil.which(program, path=env.get("PATH")):
            return [program]
    raise UsageError("there is no editor: neither vi nor nano is on PATH", hint="export EDITOR=...")


def run_editor(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run an editor, and return its exit status.

    Raises:
        UsageError: it cannot be started.
    """
    try:
        return run_on_terminal(argv, env)
    except OSError as error:
        raise UsageError(
            f"the editor {argv[0]!r} cannot be started: {error.strerror}", hint="export EDITOR=vi"
        ) from None


def edit_again(otherwise: str, interrupted: str) -> bool:
    """Ask whether to return to the editor.

    Args:
        otherwise: what happens if not: ``without saving``.

    Raises:
        InterruptedByUser: Ctrl-C.
    """
    with interrupted_as(InterruptedByUser(f"interrupted; {interrupted}")):
        while True:
            answer = ask(f"(e)dit again or (q)uit {otherwise}?", default="e")
            if answer[:1].lower() in ("e", "q"):
                return answer[:1].lower() == "e"


class EditAbortedError(UsageError):
    """The user changed nothing, or left nothing."""


@contextmanager
def edited(
    text: str,
    read: Callable[[str], T],
    with_remark: Callable[[str, str], str],
    run: Callable[[Path], int],
) -> Iterator[T]:
    """Let the user edit a text until it can be read; if that fails, or what is then done with it, the text is kept.

    Args:
        read: an edited text → what it means.
        with_remark: an edited text and a mistake → the text for the next try.
        run: opens a file in the editor, waits, returns its exit status.

    Raises:
        EditAbortedError: the text says that nothing is to be done.
        HpcrunError: the editor failed, or a mistake is left; the hint says where the text is.
    """
    descriptor, name = tempfile.mkstemp(prefix="hpcrun-edit-", suffix=".sh")  # writable by its owner alone
    os.close(descriptor)
    path = Path(name)
    try:
        yield _edited(path, text, read, with_remark, run)
    except EditAbortedError:
        path.unlink(missing_ok=True)
        raise
    except HpcrunError as error:
        if not path.exists():
            raise
        hint = "; ".join(filter(None, (error.hint, f"your text is kept in {path}")))
        raise type(error)(error.message, hint=hint) from None
    path.unlink(missing_ok=True)


def _edited(
    path: Path, text: str, read: Callable[[str], T], with_remark: Callable[[str, str], str], run: Callable[[Path], int]
) -> T:
    while True:
        try:
            path.write_bytes(os.fsencode(text))
            if status := run(path):
                path.unlink(missing_ok=True)
                raise EditAbortedError(f"the editor ended with exit status {status}; nothing was done")
            text = os.fsdecode(path.read_bytes())
        except OSError as error:
            raise UsageError(f"cannot edit {path}: {error.strerror}") from None
        try:
            return read(text)
        except EditAbortedError:
            raise
        except HpcrunError as error:
            if not can_ask():
                raise
            tell(f"hpcrun: {error.message}".splitlines())
            if not edit_again("without submitting", "nothing was submitted"):
                raise
            text = with_remark(text, error.message)
