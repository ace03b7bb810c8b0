"""The filter of runs that ``status``, ``top`` and ``history`` have: words of a name, command, note.

A run matches if it has all words, and none of those that begin with ``!``. Its state, ids, nodes
and cause count, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpcrun.actions.status.run_status import ElementStatus, RunStatus
from hpcrun.job.job_states import UNKNOWN
from hpcrun.job.request.parameters import parameters_text
from hpcrun.job.text.arguments import arguments_of
from hpcrun.runs.record import LastStatus, Run, variables_text


def filter_words(text: str) -> list[str]:
    """Return the words of a filter as they were typed."""
    return text.lower().split()


def has_words(text: str, words: Sequence[str]) -> bool:
    """Whether a searched text has all words, and none of those that begin with ``!``."""
    for term in words:
        if term[0] == "!" and term[1:]:
            is_right = term[1:] not in text
        else:
            is_right = term in text
        if not is_right:
            return False
    return True


def run_text(item: RunStatus) -> str:
    """Return the text in which a filter is searched for: what a run is, and why."""
    state = UNKNOWN if item.lost else item.status.state
    named = arguments_of(item.run.request).items()  # as lists show them
    arguments = " ".join(f"{name}={value}" for name, value in named)
    names = f"{item.run.name} {item.about} {item.run.job_id or ''} {state} {arguments}"
    return _text(names, item.run, item.status)


def element_text(item: RunStatus, element: ElementStatus) -> str:
    """Return the same of an element of a sweep, which also has its parameters."""
    parameters = parameters_text(element.parameters)
    names = f"{item.run.name}/{element.index} {element.job_id or ''} {parameters}"
    return _text(f"{names} {element.status.state}", item.run, element.status)


def _text(names: str, run: Run, status: LastStatus) -> str:
    command = " ".join((run.request.get("script", ""), *run.request.get("args", ())))
    parts = [names, run.run_id, run.profile, command, variables_text(run.request), run.note or ""]
    parts += [status.hosts or "", status.reason or "", status.cause or ""]
    return " ".join(parts).lower()


def matches(item: RunStatus, words: Sequence[str]) -> bool:
    """Whether a run matches, or an element of it does."""
    if has_words(run_text(item), words):
        return True
    return any(has_words(element_text(item, element), words) for element in item.elements)


def matching_runs(runs: Iterable[RunStatus], words: Sequence[str]) -> tuple[RunStatus, ...]:
    """Return the runs that match, or have elements that match.

    A sweep of which some elements match has only these.
    """
    if not words:
        return tuple(runs)
    kept = []
    for item in runs:
        inner = [each for each in item.elements if has_words(element_text(item, each), words)]
        if inner:
            kept.append(replace(item, elements=inner))
        elif has_words(run_text(item), words):
            kept.append(item)
    return tuple(kept)
