"""Shell completion: profiles, runs, partitions, accounts, launchers, keys, and the argument RUN.

The keys are those of profiles. After a failure nothing is completed: there is no place for a
message. Only words that no shell expands are completed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hpcrun.cli.context import make_context
from hpcrun.cli.options import argument
from hpcrun.errors import HpcrunError

MOST_RUNS = 50
Complete = Callable[[str], list[str]]

# A shell expands what is completed: zsh runs the $(...) of a profile's file name, which anybody may
# have chosen. Commas separate partitions, a dot and "=" belong to keys; none of these means
# anything to bash, zsh or fish inside a word.
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+,=-]*", re.ASCII)


def is_safe_word(text: str) -> bool:
    """Whether a shell takes a word as it is: nothing in it is expanded, and it is no option."""
    return _SAFE.fullmatch(text) is not None


def quiet(complete: Complete) -> Complete:
    """Return a completion that offers nothing after a failure, and only words that are safe."""

    def quietly(incomplete: str) -> list[str]:
        try:
            offers = list(dict.fromkeys(complete(incomplete)))
        except (HpcrunError, OSError):
            return []
        fitting = [offer for offer in offers if offer.startswith(incomplete)]
        return list(filter(is_safe_word, fitting))

    # functools.wraps would pass on the names of parameters, which typer reads
    quietly.__doc__ = complete.__doc__
    return quietly


@quiet
def profile_name(_: str) -> list[str]:
    """Complete the name of a profile."""
    from hpcrun.profiles.load import profile_names

    layers = make_context(announce=None).profile_layers
    return sorted(profile_names(list(layers.values())))


@quiet
def run_name(_: str) -> list[str]:
    """Complete a run: ``last`` and the names of the newest, each once, then their ids."""
    from hpcrun.actions.runs.find import LAST
    from hpcrun.job.run_paths import run_name

    run_ids = make_context(announce=None).store.run_ids()
    newest = run_ids[-MOST_RUNS:]
    newest.reverse()
    names = [run_name(run_id) for run_id in newest]
    return [LAST, *names, *newest]


@quiet
def partition(incomplete: str) -> list[str]:
    """Complete a partition; of several, ``gpu,long``, the last."""
    from hpcrun.schedulers.client import partition_names

    before, comma, _ = incomplete.rpartition(",")
    names = partition_names(make_context(announce=None).env)
    return [f"{before}{comma}{name}" for name in names]


@quiet
def launcher(_: str) -> list[str]:
    """Complete a launcher."""
    # a test compares them with those of a request
    return ["torchrun", "srun", "python", "command", "ray"]


@quiet
def account(_: str) -> list[str]:
    """Complete an account of the user."""
    return [account for account, _ in _associations()]


@quiet
def qos(_: str) -> list[str]:
    """Complete a quality of service of the user."""
    names: list[str] = []
    for _, names_of_account in _associations():
        names += names_of_account
    return names


def _associations() -> list[tuple[str, tuple[str, ...]]]:
    from hpcrun.schedulers.client import user_associations

    return user_associations(make_context(announce=None).env)


@quiet
def key(incomplete: str) -> list[str]:
    """Complete a key of a profile, ``gpu.type``; a section first, then what stands in it."""
    from hpcrun.profiles.validate import known_keys, value_kinds

    section = tuple(incomplete.split(".")[:-1])
    keys = []
    for name in known_keys(section):
        inner = (*section, name)
        full_name = ".".join(inner)
        if "mapping" in value_kinds(inner):
            full_name += "."
        keys.append(full_name)
    return keys


@quiet
def assignment(incomplete: str) -> list[str]:
    """Complete a key of a profile up to the ``=`` behind it."""
    names = key(incomplete)
    return [name if name.endswith(".") else f"{name}=" for name in names]


RUN = argument(
    "RUN",
    "Job id, run id, name, or 'last', the default. RUN/3 is element 3 of a sweep.",
    default="last",
    complete=run_name,
)
"""The argument of commands that show one run."""
