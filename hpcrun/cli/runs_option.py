"""``--runs FOLDER``, of commands that only read: another runs folder, such as a colleague's."""

from __future__ import annotations

import os
from dataclasses import replace

from hpcrun.cli.context import Context, make_context
from hpcrun.cli.options import option
from hpcrun.cli.output import propose_with
from hpcrun.job.text.quoting import quote_bash
from hpcrun.runs.foreign_runs import open_foreign_runs

READERS = ("status", "logs", "explain", "metrics", "sweep", "compare", "share")
"""The commands with the option."""

RUNS = option(
    "--runs FOLDER",
    "Folder of other runs, such as a colleague's, which are only read. Default: your own runs.",
)


def context_of(folder: str | None) -> Context:
    """Return the context of a command, for the runs of this folder or for one's own.

    Raises:
        HpcrunError: the folder cannot be read.
    """
    context = make_context()
    if folder is None:
        return context
    runs = open_foreign_runs(context.cwd / os.path.expanduser(folder))
    propose_with(f"--runs {quote_bash(folder)}", READERS)
    return replace(context, foreign=runs)
