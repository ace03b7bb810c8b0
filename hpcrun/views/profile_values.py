"""The values of profiles: with the file and line of each, and side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.actions.profiles.profiles import Difference, Verdict
from hpcrun.job.units import format_memory, format_time
from hpcrun.profiles.load import LoadedProfile
from hpcrun.profiles.mistakes import Key, Mistake, Origin, dotted
from hpcrun.views.table import text_table
from hpcrun.views.text import one_line

if TYPE_CHECKING:
    from rich.table import Table


def origins_json(loaded: LoadedProfile) -> dict[str, Any]:
    """Return every value with its file and line, by its key."""
    return {
        dotted(key): {"value": value, "file": str(origin.path), "line": origin.line}
        for key, value, origin in _rows(loaded)
    }


def origins_table(loaded: LoadedProfile, layers: Mapping[str, Path], width: int) -> tuple[Table, list[str]]:
    """Return a table of values with file and line, and the meaning of its short names of folders.

    If whole paths do not fit beside the values, a folder is named by its layer.
    """
    rows = [(dotted(key), _text(value), origin) for key, value, origin in _rows(loaded)]
    left = max((len(key) for key, _, _ in rows), default=0) + max((len(value) for _, value, _ in rows), default=0) + 4
    fits = all(left + len(str(origin)) <= width for _, _, origin in rows)
    named = {} if fits else layers
    cells = ((key, value, place_text(origin, named)) for key, value, origin in rows)
    used = {layer: layers[layer] for _, _, origin in rows if (layer := layer_of(origin.path, named))}
    return text_table(("KEY", "VALUE", "SOURCE"), cells, whole=("KEY",)), folder_lines(used)


def _rows(loaded: LoadedProfile) -> Iterator[tuple[Key, Any, Origin]]:
    for key, value in _leaves(loaded.data, ()):
        yield key, value, loaded.origins[key]


def _leaves(value: Any, key: Key) -> Iterator[tuple[Key, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None or (key and not value):
        yield key, value
        return
    for name, inner in items:
        yield from _leaves(inner, (*key, str(name)))


def layer_of(path: Path, layers: Mapping[str, Path]) -> str | None:
    """Return the name of the layer whose folder holds a file."""
    return next((name for name, folder in layers.items() if path.is_relative_to(folder)), None)


def place_text(origin: Origin, layers: Mapping[str, Path]) -> str:
    """Return a place with its folder named by its layer, such as ``shipped: base/slurm.yaml:8``."""
    layer = layer_of(origin.path, layers)
    return f"{layer}: {origin.path.relative_to(layers[layer])}:{origin.line}" if layer else str(origin)


def folder_lines(layers: Mapping[str, Path]) -> list[str]:
    """Return the folders of the named layers."""
    return [one_line(f"{layer + ':':<9} {folder}") for layer, folder in layers.items()]


def diff_table(differences: Sequence[Difference], left: str, right: str) -> Table:
    """Return the values of two profiles side by side."""
    rows = (
        (dotted(item.key), *(_text(_form(item.key, value)) for value in (item.left, item.right)))
        for item in differences
    )
    return text_table(("KEY", one_line(left), one_line(right)), rows, whole=("KEY",))


def diff_json(differences: Sequence[Difference], left: str, right: str) -> dict[str, Any]:
    """Return the differences as a JSON document."""
    return {
        "kind": "profile-diff",
        "profiles": [left, right],
        "differences": [
            {"key": dotted(item.key), "values": [_form(item.key, item.left), _form(item.key, item.right)]}
            for item in differences
        ],
    }


def verdicts_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the mistakes and notes on profiles as a JSON document."""
    return {
        "kind": "profile-validation",
        "profiles": [
            {
                "name": verdict.name,
                "path": str(verdict.path),
                "mistakes": [_mistake_json(item) for item in verdict.mistakes],
                "remarks": [_mistake_json(item) for item in verdict.remarks],
            }
            for verdict in verdicts
        ],
    }


def _mistake_json(item: Mistake) -> dict[str, Any]:
    return {"file": str(item.path), "line": item.line, "key": dotted(item.key), "message": item.text}


def _form(key: Key, value: Any) -> Any:
    """Return a value in the form that a user would write."""
    section = key[-2] if len(key) > 1 else ""  # time, or gpu.types.h100.time
    form = {"time": format_time, "memory": format_memory}.get(section)
    return form(value) if form and isinstance(value, int) else value


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if value is True or value is False:
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return one_line(str(value)) if value != {} else "{}"
