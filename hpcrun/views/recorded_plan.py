"""The plan in the record of a run, as labels and texts, for ``hpcrun top`` and ``hpcrun share``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpcrun.runs.record import Run, pairs_of
from hpcrun.views.text import clock_text, count, memory_text

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
    gpus = f" × {count(run.gpus_per_node, f'{gpu_type}GPU')}" if run.gpus_per_node else ""
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
    if times := [f"{word} up to {count(requeue[name], 'time')}" for word, name in _AGAIN if requeue.get(name)]:
        yield "after a stop", ", ".join(times)
    for label, name in (("modules", "modules"), ("set-up", "setup"), ("notes", "notes")):
        if isinstance(lines := plan.get(name), list) and lines:
            yield label, "\n".join(map(str, lines))
    if variables := pairs_of(plan.get("env")):
        yield "variables", "\n".join(f"{name}={'***' if value is None else value}" for name, value in variables)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
