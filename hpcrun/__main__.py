"""``hpcrun`` and ``python -m hpcrun``: the latter is a name that HPCToolkit's own hpcrun cannot
shadow.
"""

# Ctrl-C can come at any line: nothing is imported up here that Python has not loaded before.
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def _leave_out_current_folder() -> None:
    """Import nothing from the folder that hpcrun is called in: a project's ``typer.py`` would run
    in its place.

    ``python -m`` puts that folder first on the path; Python 3.11's ``-P`` and PYTHONSAFEPATH leave
    it out before anything is imported. Where hpcrun itself lies in it, in a checkout that is not
    installed, it stays, as the last.
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


def _run_elsewhere() -> None:
    """Let a feature run the command on another machine, before the libraries of this one's commands
    are imported.
    """
    from hpcrun.actions.hooks import hooks_of
    from hpcrun.errors import HpcrunError

    try:
        status = hooks_of("remote").run_elsewhere(sys.argv[1:])
    except HpcrunError as error:
        from hpcrun.cli.main import fail

        fail(error)
    if status is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # Python's own end takes 8 ms


def main() -> "NoReturn":
    """Run hpcrun; Ctrl-C while it is still being imported is no traceback either."""
    try:
        import gc

        # imports make no garbage; the default looks for it a hundred times
        gc.set_threshold(100_000)
        from hpcrun.cli.interrupt import exit_at_interrupt

        exit_at_interrupt()
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
