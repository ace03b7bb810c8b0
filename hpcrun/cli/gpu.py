"""hpcrun gpu."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from hpcrun.cli.complete import RunArgument
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.options import flag
from hpcrun.cli.outcome import Outcome, Outcomes, TextPart, cleared, note, stderr, stdout, table
from hpcrun.cli.output import JsonOption
from hpcrun.errors import InterruptedByUser, SchedulerError, UsageError

if TYPE_CHECKING:
    from hpcrun.actions.runs.gpu import GpuResult, RecordedUse

WATCH_EVERY_S = 10
"""Each look is a step of the job, which the controller has to make."""
MOST_ELEMENTS = 20
"""Of a sweep that has ended, as text: each may have several nodes and GPUs."""


def gpu(
    run: RunArgument = "last",
    watch: bool = flag("--watch", "-w", help=f"Refresh every {WATCH_EVERY_S} s until Ctrl-C."),
    as_json: JsonOption = False,
) -> Outcomes:
    """Show the load of a running job's GPUs, by node and rank, and its network traffic.

    Of a job that has ended, show what it recorded: GPUs, CPUs, memory and network of each node.
    """
    if watch and as_json:
        raise UsageError("--watch and --json cannot be combined")
    from hpcrun.actions.runs.find import find_element

    context = make_context()
    found = find_element(run, context.store)
    yield note([found.note])
    run_id = found.run.run_id
    if not watch:
        yield from _look(run_id, found.element, context, watch=False, as_json=as_json)
        return
    with interrupted_as(InterruptedByUser("stopped watching; the job is not affected")):
        while True:
            yield Outcome(lambda: [cleared()])
            yield note([f"every {WATCH_EVERY_S} s, {time.strftime('%H:%M:%S')}; Ctrl-C to stop; jobs are not affected"])
            try:
                yield from _look(run_id, found.element, context, watch=True)
            except SchedulerError as error:  # may come back
                yield note([f"hpcrun: {error.message}"])
            time.sleep(WATCH_EVERY_S)


def _look(run_id: str, element: int | None, context: Context, *, watch: bool, as_json: bool = False) -> Outcomes:
    from hpcrun.actions.runs.allocation import one_element
    from hpcrun.actions.runs.gpu import read_gpus, record_instead, recorded_uses
    from hpcrun.actions.status.status import one_status
    from hpcrun.views.gpu import gpu_json, recorded_json

    ports = context.ports.for_polling() if watch else context.ports
    item, remark = one_element(one_status(run_id, ports).runs[0], element)
    yield note([remark])
    if item.status.final and not watch:
        uses = list(islice(recorded_uses(item), None if as_json else MOST_ELEMENTS + 1))
        yield Outcome(lambda: _recorded_text(uses), lambda: recorded_json(uses))
        return
    result = read_gpus(item, context.env)
    if use := record_instead(item, result):
        yield Outcome(lambda: _instead_text(use, result), lambda: {**gpu_json(result), **recorded_json([use])})
        return
    yield Outcome(lambda: _text(result), lambda: gpu_json(result))


def _recorded_text(uses: Sequence[RecordedUse]) -> Iterator[TextPart]:
    from hpcrun.job.units import format_span
    from hpcrun.views.gpu import recorded_gpus_table, recorded_nodes_table

    shown = uses[:MOST_ELEMENTS]
    if any(use.gpus for use in shown):
        yield table(recorded_gpus_table(shown))
        yield stdout([""])
    yield table(recorded_nodes_table(shown))
    if len(shown) < len(uses):
        yield stderr([f"the first {len(shown)} elements; RUN/N shows one, --json has all"])
    longest = max(one.seconds for use in shown for one in use.nodes.values())
    yield stderr([f"recorded over {format_span(longest)}; PEAK and MEMORY: highest, other columns: mean"])


def _instead_text(use: RecordedUse, result: GpuResult) -> Iterator[TextPart]:
    yield from _recorded_text([use])
    yield from _text(result)


def _text(result: GpuResult) -> Iterator[TextPart]:
    from hpcrun.views.gpu import gpu_table, ports_table, without_lines

    if result.rows:
        yield table(gpu_table(result))
    yield stdout(without_lines(result))
    if result.ports:
        yield stdout([""])
        yield table(ports_table(result))
