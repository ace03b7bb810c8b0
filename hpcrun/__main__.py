"""The entry point of ``hpcrun`` and of ``python -m hpcrun``.

HPCToolkit has a command ``hpcrun`` too. That command cannot shadow the second name.
"""

# Ctrl-C can come at any line: nothing is imported up here that Python has not loaded before.
import os
import sys

from hpcrun.version import NOT_ON_WINDOWS

_NO_READER = 1
"""The exit status of a command whose output nobody reads any more, as of any command here."""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def _leave_out_current_folder() -> None:
    """Import nothing from the folder in which the user calls hpcrun.

    A project's own ``typer.py`` would run in place of the library. ``python -m`` puts that folder
    first on the path; Python 3.11's ``-P`` and PYTHONSAFEPATH leave the folder out before Python
    imports anything. If hpcrun itself lies in that folder, in a checkout that is not installed, the
    folder stays on the path, as the last.
    """
    if not sys.path or sys.path[0] not in ("", _current_folder()):
        return
    folder = sys.path.pop(0)
    if os.path.dirname(os.path.dirname(os.path.abspath(__file__))) == _current_folder():
        sys.path.append(folder)


def _current_folder() -> "str | None":
    try:
        return os.getcwd()
    except OSError:
        return None


def _open_missing_streams() -> None:
    """Open a standard stream that the caller has closed on the null device.

    Otherwise the next file to be opened would become that stream, for the programs that hpcrun
    starts too.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDWR)
        if null != descriptor:
            os.dup2(null, descriptor)
        setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r"))


def _run_elsewhere() -> None:
    """Let a feature run the command on another machine.

    This happens before Python imports the libraries of the commands that run on this machine.
    """
    from hpcrun.actions.hooks import hooks_of
    from hpcrun.errors import HpcrunError

    try:
        status = hooks_of("remote").run_elsewhere(sys.argv[1:])
    except HpcrunError as error:
        from hpcrun.cli.main import fail

        fail(error)
    except BrokenPipeError:
        os._exit(_NO_READER)
    if status is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # Python's own end takes 8 ms


def main() -> "NoReturn":
    """Run hpcrun; Ctrl-C while it is still being imported is no traceback either."""
    if sys.platform == "win32":
        sys.exit(NOT_ON_WINDOWS)
    try:
        import gc

        # imports make no garbage; the default looks for it a hundred times
        gc.set_threshold(100_000)
        from hpcrun.cli.interrupt import exit_at_interrupt

        exit_at_interrupt()
        _open_missing_streams()
        _run_elsewhere()
        from hpcrun.cli.main import main as run

        try:
            run()
        finally:
            # Python looks for garbage at its end as well, in all there is: a sixth of a command's
            # time
            gc.freeze()
    except KeyboardInterrupt:
        sys.stderr.write("hpcrun: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    _leave_out_current_folder()
    main()
