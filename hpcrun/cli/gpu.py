"""hpcrun status --gpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from hpcrun.actions.runs.gpu import GpuResult, RecordedUse, read_gpus, record_instead, recorded_uses
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.context import Context
from hpcrun.cli.output import Outcome, Outcomes, TextPart, stderr, stdout, table
from hpcrun.job.units import format_span
from hpcrun.views.gpu import (
    gpu_json,
    gpu_table,
    ports_table,
    recorded_gpus_table,
    recorded_json,
    recorded_nodes_table,
    without_lines,
)

MOST_ELEMENTS = 20
"""Of a sweep that has ended, as text: each may have several nodes and GPUs."""


def gpu_load(item: RunStatus, context: Context, *, watched: bool, as_json: bool) -> Outcomes:
    """Show the load of a running job's GPUs and its network traffic; of a job that has ended, what it recorded."""
    if item.status.final and not watched:
        uses = list(islice(recorded_uses(item), None if as_json else MOST_ELEMENTS + 1))
        yield Outcome(lambda: _recorded_text(uses), lambda: recorded_json(uses))
        return
    result = read_gpus(item, context.env)
    if use := record_instead(item, result):
        yield Outcome(lambda: _instead_text(use, result), lambda: {**gpu_json(result), **recorded_json([use])})
        return
    yield Outcome(lambda: _text(result), lambda: gpu_json(result))


def _recorded_text(uses: Sequence[RecordedUse]) -> Iterator[TextPart]:
    shown = uses[:MOST_ELEMENTS]
    if any(use.gpus for use in shown):
        yield table(recorded_gpus_table(shown))
    yield table(recorded_nodes_table(shown))
    if len(shown) < len(uses):
        yield stderr([f"the first {len(shown)} elements; RUN/N shows one, --json has all"])
    longest = max(one.seconds for use in shown for one in use.nodes.values())
    yield stderr([f"recorded over {format_span(longest)}; PEAK and MEMORY: highest, other columns: mean"])


def _instead_text(use: RecordedUse, result: GpuResult) -> Iterator[TextPart]:
    yield from _recorded_text([use])
    yield from _text(result)


def _text(result: GpuResult) -> Iterator[TextPart]:
    if result.rows:
        yield table(gpu_table(result))
    yield stdout(without_lines(result))
    if result.ports:
        yield table(ports_table(result))
