"""The catalogue of variables for a terminal and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpcrun.actions.profiles.variables import ProfileVariables
from hpcrun.job.known_variables import KINDS, Kind, Variable
from hpcrun.views.profile_values import place_text
from hpcrun.views.text import labelled, one_line

_HEADINGS: dict[Kind, str] = {
    "system": "Site settings, safe to keep",
    "debugging": "Debugging only: slows down training; in no shipped profile",
    "torch": "torch",
    "process": "CUDA and threads",
    "efa": "EFA (AWS)",
    "renamed": "Renamed",
    "deprecated": "Deprecated, still read",
    "unread": "Not read by any program",
}


def variables_lines(variables: Sequence[Variable], width: int) -> list[str]:
    """Return all variables by kind, each with its meaning."""
    column = max(len(variable.name) for variable in variables)
    lines: list[str] = []
    for kind in KINDS:
        lines += ["", _HEADINGS[kind]] if lines else [_HEADINGS[kind]]
        for variable in variables:
            if variable.kind == kind:
                now = f"{_now(variable)}; " if variable.renamed_to or variable.since else ""
                lines += _row(variable.name, now + variable.meaning, column, width)
    return [*lines, "", "hpcrun profile env NAME explains a variable or a profile"]


def _now(variable: Variable) -> str:
    if variable.since is None:
        return f"renamed to {variable.renamed_to}"
    return f"since {variable.since}" + (f", replaced by {variable.renamed_to}" if variable.renamed_to else "")


def variable_lines(variable: Variable, width: int) -> list[str]:
    """Return the whole description of one variable."""
    rows = {
        "kind": _HEADINGS[variable.kind],
        "default": variable.default,
        "values": variable.values.in_words() or None,
        "set by hpcrun": variable.hpcrun,
        "renamed to": None if variable.since else variable.renamed_to,
        "deprecated": f"since {variable.since}" if variable.since else None,
        "replaced by": variable.renamed_to if variable.since else None,
        "use": variable.set_when,
        "warning": variable.trap,
        "harmful": "; ".join(f"on {', '.join(one.on)}: {one.why}" for one in variable.harmful if one.on),
        "remark": "; ".join(one.why for one in variable.harmful if not one.on),
        "instead": variable.instead,
        "source": variable.source,
    }
    column = max(map(len, rows))
    lines = textwrap.wrap(f"{variable.name}: {variable.meaning}", width)
    for label, text in rows.items():
        if text:
            lines += _row(label, text, column, width)
    return lines


def profile_variables_lines(found: ProfileVariables, layers: Mapping[str, Path], width: int) -> list[str]:
    """Return the variables that a profile sets, with file, line and reason.

    If a whole path does not fit, its folder is named by its layer.
    """
    lines = [f"Profile {found.profile} sets" if found.set_here else f"Profile {found.profile} sets no variable"]
    for row in found.set_here:
        lines += ["", one_line(f"{row.name}={row.value}")]
        if row.origin is not None:
            fits = len(f"    from {row.origin}") <= width
            lines += _row("", f"from {row.origin if fits else place_text(row.origin, layers)}", 2, width)
        if row.variable is not None:
            lines += _row("", _why(row.variable), 2, width)
        if row.problem:
            lines += _row("", f"warning: {row.problem}", 2, width)
    lines += ["", "Every job script sets"]
    column = max((len(variable.name) for variable in found.by_script), default=0)
    for variable in found.by_script:
        lines += _row(variable.name, f"{variable.hpcrun}: {variable.meaning}", column, width)
    return lines


def _why(variable: Variable) -> str:
    when = f". Use: {variable.set_when}" if variable.set_when else ""
    return f"{variable.meaning}{when} ({variable.source})"


def _row(label: str, text: str, column: int, width: int) -> list[str]:
    room = max(width, column + 30)  # a very narrow terminal folds by itself
    return labelled(label, one_line(text), column + 2, room, break_long_words=True)


def variables_json(variables: Sequence[Variable]) -> dict[str, Any]:
    """Return variables as a JSON document."""
    return {"kind": "variables", "variables": [asdict(variable) for variable in variables]}


def profile_variables_json(found: ProfileVariables) -> dict[str, Any]:
    """Return the variables that a profile sets as a JSON document."""
    return {
        "kind": "profile-variables",
        "profile": found.profile,
        "set": [
            {
                "name": row.name,
                "value": row.value,
                "origin": str(row.origin) if row.origin else None,
                "problem": row.problem,
                "variable": asdict(row.variable) if row.variable else None,
            }
            for row in found.set_here
        ],
        "set_by_script": [asdict(variable) for variable in found.by_script],
    }
