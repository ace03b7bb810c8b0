"""status --verbose: a run's folder, its code, its relations to other runs; for top and share also its recorded plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.job.layout import RunFolder
from hpcrun.runs.record import Run, pairs_of
from hpcrun.views.text import clock_text, code_text, count, labelled, memory_text, one_line

_SHOWN = 8
_INDENT, _ROOM_LEAST = 15, 20


def detail_lines(item: RunStatus, width: int, more: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Return the details for which the table has no room, wrapped between words; ``more`` comes first."""
    from hpcrun.actions.hooks import hooks_of
    from hpcrun.runs.attempt import last_attempt, load_imports

    run, checkpoints = item.run, os.path.realpath(RunFolder(item.folder).element(0).checkpoints)
    attempt = last_attempt(item.folder, item.element or 0)
    rows = [
        *more,
        ("folder", str(item.folder)),
        *((f"after {wait['condition']}", wait["run_id"]) for wait in run.after),
        *([("again", f"of {run.resubmitted_from}")] if run.resubmitted_from else []),
        *([("checkpoints", checkpoints)] if run.checkpoints_of else []),
        *([("code", code_text(run.code))] if run.code else []),
        *([("code", f"the snapshot of {run.code_of}")] if run.code_of else []),
        *(hooks_of("trackers").run_rows(item) if attempt else ()),
        *(_ran(load_imports(attempt.folder)) if attempt else []),
        *(hooks_of("notify").run_rows(item) if run.plan.get("notify") else ()),
    ]
    name = run.run_id if item.element is None else f"{run.run_id}/{item.element}"
    width = max(width, _INDENT + _ROOM_LEAST)
    return [name, *(line for label, text in rows for line in labelled(f"  {label}", one_line(text), _INDENT, width))]


def _ran(noted: dict[str, Any]) -> list[tuple[str, str]]:
    imports = noted.get("imports") or {}
    rows = [("script", str(noted["script"]))] if noted.get("script") else []
    # imports from elsewhere come first, since users look for them
    inside = f"{noted.get('folder')}/"
    order = sorted(imports.items(), key=lambda pair: (str(pair[1]).startswith(inside), pair[0]))
    rows += [("import", f"{name} from {path}") for name, path in order[:_SHOWN]]
    return rows + ([("import", f"and {len(order) - _SHOWN} more")] if len(order) > _SHOWN else [])


_AGAIN = (("requeued", "times"), ("restarted in the allocation", "restarts"))
"""What a plan allows, and the name of its number in the record."""


def recorded_plan(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the plan, as far as the record has it: another version of hpcrun may have written it.

    A text has a line for each module, variable and so on.
    """
    plan = run.plan
    shape, python = _table(plan.get("shape")), _table(plan.get("python"))
    gpu_type = f"{shape['gpu_type']} " if shape.get("gpu_type") else ""
    launcher = f" by {shape['launcher']}" if shape.get("launcher") else ""
    gpus = f" × {count(run.gpus_on_node, f'{gpu_type}GPU')}" if run.gpus_on_node else ""
    yield "size", f"{count(run.nodes, 'node')}{gpus}, {count(run.world_size, 'rank')}{launcher}"
    if isinstance(plan.get("cpus_per_node"), int):
        yield "CPUs", f"{plan['cpus_per_node']} per node"
    memory = plan.get("memory_mb")
    if isinstance(memory, int) or (memory is None and plan.get("scheduler") == "slurm"):
        yield "memory", memory_text(memory)
    yield "time limit", clock_text(run.walltime_s) if run.walltime_s else "no time limit requested"
    if directives := pairs_of(plan.get("directives")):
        yield "sbatch", " ".join(f"--{key}" if value is None else f"--{key}={value}" for key, value in directives)
    if python.get("executable"):
        yield "Python", f"{python['executable']} ({python.get('kind', '')})"
    if image := _table(plan.get("container")).get("image"):
        yield "container", str(image)
    requeue = _table(plan.get("requeue"))
    if times := [f"{label} up to {count(requeue[name], 'time')}" for label, name in _AGAIN if requeue.get(name)]:
        yield "after a stop", ", ".join(times)
    for label, name in (("modules", "modules"), ("set-up", "setup"), ("notes", "notes")):
        if isinstance(lines := plan.get(name), list) and lines:
            yield label, "\n".join(map(str, lines))
    if variables := (*pairs_of(plan.get("env")), *pairs_of(plan.get("added"))):
        yield "variables", "\n".join(f"{name}={'***' if value is None else value}" for name, value in variables)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
