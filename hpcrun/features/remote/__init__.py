"""hpcrun login and ``hpcrun --on HOST``: commands that run on a cluster, typed on a laptop."""

import re

OPTION = "--on"
VERBOSE = ("-v", "--verbose")
HERE = frozenset({"login", "skill"})
"""Commands that never run elsewhere."""
FROM_HOST = "fetch"
"""The command that runs here, and copies from the host of ``--on HOST``."""
ATTACHED = "HPCRUN_ATTACHED"
"""Set for a command that another host has started over ssh, to the HOST of ``--on HOST`` if that
was typed there.

Such a command ends if its connection is gone.
"""
WRITTEN_TO = "HPCRUN_WRITTEN_TO"
"""Set for such a command to the folder of the other host to which its files are copied."""
DEFAULT_OUT = "--out"
"""The option of those commands that always write files."""
WRITTEN = {
    "share": DEFAULT_OUT,
    "metrics": "--png",
    "sweep": "--png",
    "compare": "--png",
    "history": "--plot",
    "scale report": DEFAULT_OUT,
}
"""The commands that write files for the person, each with the option that names the file."""
FOLDER = "hpcrun-code"
"""The folder of projects, below the home there."""


class TypedHost:
    """What was typed before the command, on this machine or on that of the person."""

    name = ""  # the HOST of ``--on HOST``; empty if there was none, or several
    source = ""  # the host from which fetch copies, typed or configured


def on_host(text: str, host: str) -> str:
    """Return a text in which each command of hpcrun has ``--on HOST``.

    The text is unchanged if the host is empty.
    """
    if not host or "hpcrun " not in text:
        return text
    from hpcrun.cli.commands import COMMANDS

    verbs = "|".join({name.split()[0] for name in COMMANDS} - HERE)
    return re.sub(
        rf"(?<![\w./-])hpcrun (?=(?:{verbs})\b)", lambda _: f"hpcrun {OPTION} {host} ", text
    )
