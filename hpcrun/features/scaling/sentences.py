"""The sentences of a report, each with a label, and its numbers in readable form.

The sentences are for text, Markdown and HTML.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from hpcrun.features.scaling.bottlenecks import ScalingDiagnosis
from hpcrun.features.scaling.points import Point, Source, Spread
from hpcrun.features.scaling.series import BatchChange, Row, Series
from hpcrun.features.scaling.sizes import Unit, units_text
from hpcrun.features.scaling.step_model import Outlook, Prediction
from hpcrun.features.scaling.study_report import Part, Report
from hpcrun.features.scaling.table_claims import Contradiction
from hpcrun.features.scaling.worth_its_gpus import (
    Advice,
    Step,
    half_up,
    reaches,
    to_percent,
    verdict,
)
from hpcrun.views.text import count, one_line

SOURCES: dict[Source, str] = {
    "metrics": "metrics of the runs",
    "log": "patterns in the logs",
    "elapsed": "Slurm's elapsed time, start-up included",
    "csv": "a table",
}
_UNITS = (("s", 1.0, 120.0), ("min", 60.0, 7200.0), ("h", 3600.0, math.inf))
_NO_FASTER = 1.01
"""A speed-up that is larger by less than this is none."""
_MOST = 20
"""The most lines of the same kind: no user reads more."""


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence with its label, and a command to type if there is one."""

    label: str
    text: str
    command: str = ""


def heading(series: Series, report: Report) -> str:
    """Return the title of a series."""
    return one_line(series.name or report.options.name)


def caption(series: Series) -> str:
    """Return the quantity by which the sizes are compared, and the source of the numbers."""
    kind = "weak scaling" if series.weak else "strong scaling"
    text = f"{kind}, {series.basis_words}"
    if series.sources:
        sources = [SOURCES[source] for source in series.sources]
        text += f", source: {', '.join(sources)}"
    if any(row.time_s for row in series.rows):
        timed = "the run" if series.time_of == "run" else "one epoch"
        text += f"; time and {hours_name(series.unit)} of {timed}"
    return text


def hours_name(unit: Unit) -> str:
    """Return ``GPU-hours``, or for ranks ``rank-hours``."""
    return f"{unit.removesuffix('s')}-hours"


def answer_lines(report: Report) -> list[Line]:
    """Return the answer for each series, and what makes it doubtful: a report's first lines."""
    if report.unfinished:
        text = f"Study not finished: {report.unfinished}. No verdict yet, and nothing is written."
        return [Line("", text)]
    lines: list[Line] = []
    for part in report.parts:
        answer = _answer(part)
        if len(report.parts) > 1:
            answer = f"{heading(part.series, report)}: {answer}"
        lines.append(Line("", answer))
        for doubt in part.doubts:
            lines.append(Line(doubt.kind, f"{doubt.evidence}; {doubt.remedy}"))
        if part.again:
            runs = "three runs of each size"
            if "--chain" in part.again:
                runs += ", one run after the other"
            lines.append(Line("measure again", f"{runs}:", part.again))
    return _clean(lines)


def _clean(lines: Iterable[Line]) -> list[Line]:
    return [Line(line.label, one_line(line.text), one_line(line.command)) for line in lines]


def _answer(part: Part) -> str:
    """Return how many GPUs to request, or why this cannot be said."""
    series = part.series
    if part.advice:
        return f"Ask for {_recommended(part.advice)}"
    if not series.rows:
        return "No answer: no usable run."
    if not series.compared:
        size = size_text(series.rows[0])
        return f"No answer: only one size was measured, {size}. Run at least one other size."
    kinds = [doubt.kind for doubt in part.doubts]
    if "different runs" in kinds:
        return "No answer: the rows differ in more than their size."
    answer = f"No answer yet: the times are unreliable ({', '.join(kinds)})."
    if part.tentative is None or "super-linear" in kinds:
        return answer
    return f"{answer} They suggest {_recommended(part.tentative)}"


def _recommended(advice: Advice) -> str:
    """Return the advice as one sentence.

    An example: ``2 GPUs: 1.74× at 87 %; 4 would be 46 %.``
    """
    row = advice.value
    text = f"{size_text(row)}: "
    if advice.step:
        text += f"{_full(row)}; "
    larger = advice.next_row
    if advice.next_step and larger:
        text += f"{larger.gpus} would be {_why_not(advice, larger, advice.next_step)}"
    elif any(gpus > row.gpus for gpus in advice.doubtful):
        text += "the larger sizes are uncertain"
    else:
        text += "no larger size was measured"
    return f"{text}."


def _why_not(advice: Advice, larger: Row, step: Step) -> str:
    """Return what a larger size that misses the target would reach."""
    row = advice.value
    if larger.speedup.mean < _NO_FASTER * row.speedup.mean:
        is_slower = larger.speedup.mean < row.speedup.mean / _NO_FASTER
        comparison = "slower" if is_slower else "no faster"
        return f"{comparison}, {times_text(larger.speedup.mean)}"
    if reaches(larger.efficiency, advice.min_efficiency):
        added = units_text(larger.gpus - row.gpus, row.unit)
        marginal = whole_percent(step.added)
        return f"{whole_percent(larger.efficiency)}, the added {added} only {marginal}"
    if advice.step:
        return whole_percent(larger.efficiency)
    return _full(larger)


def _full(row: Row) -> str:
    return f"{times_text(row.speedup.mean)} at {whole_percent(row.efficiency)}"


def part_lines(part: Part) -> list[Line]:
    """Return all sentences about one series."""
    series = part.series
    lines = list(_verdicts(part))
    if part.advice:
        lines += _advice(part.advice, series)
    if part.outlook:
        lines += _outlook(part.outlook, series)
    if part.diagnosis:
        lines += _causes(part.diagnosis)
    lines += _first("left out", [_left_out(run, series.unit) for run in series.left_out])
    lines += [Line("note", remark) for remark in series.remarks]
    return _clean(lines)


def _left_out(run: tuple[Point, str], unit: Unit) -> str:
    """Return a run that cannot be used, and its problem."""
    point, problem = run
    text = f"{units_text(point.gpus, unit)}, repeat {point.repeat}"
    if point.run:
        text += f", run {point.run}"
    return f"{text}: {problem}"


def _first(label: str, texts: Sequence[str]) -> list[Line]:
    """Return the first lines of one kind, and how many more there are."""
    lines = [Line(label, text) for text in texts[:_MOST]]
    if len(texts) > _MOST:
        lines.append(Line(label, f"{len(texts) - _MOST} more (see --json)"))
    return lines


def report_lines(report: Report) -> list[Line]:
    """Return the sentences about all series together."""
    lines = [Line("batch", _change(change)) for change in report.changes]
    lines += _first("contradiction", [_contradicted(each) for each in report.contradictions])
    lines += [Line("note", remark) for remark in report.remarks]
    warmup = report.options.warmup
    if warmup and _has_several_epochs(report):
        if warmup == 1:
            first = "the first epoch of each run is"
        else:
            first = f"the first {warmup} epochs of each run are"
        lines.append(Line("note", f"{first} left out as warm-up"))
    return _clean(lines)


def _contradicted(contradiction: Contradiction) -> str:
    """Return a claim of a table, and what follows from its other numbers."""
    if contradiction.what == "speedup":
        follows = f"{contradiction.follows:.2f}"
    else:
        follows = number_text(contradiction.follows)
    claim = f"{contradiction.what} {contradiction.written}"
    size = count(contradiction.gpus, "GPU")
    result = f"{contradiction.because} gives {follows}"
    return f"{contradiction.place}: {size}, {claim}, but {result}"


def _has_several_epochs(report: Report) -> bool:
    """Whether a run has more than one epoch."""
    for part in report.parts:
        for row in part.series.rows:
            if any(len(point.epochs) > 1 for point in row.points):
                return True
    return False


def _verdicts(part: Part) -> Iterator[Line]:
    """Yield a line for each group of neighbouring sizes with the same verdict.

    The numbers of a line are those of the last size.
    """
    series = part.series
    judged = []
    for row in series.sizes[1:]:
        label = verdict(row, series, part.advice)
        if label != "no verdict":
            judged.append((label, row))
    for label, group in groupby(judged, key=itemgetter(0)):
        rows = [row for _, row in group]
        last = rows[-1]
        sizes = size_text(last)
        if len(rows) > 1:
            sizes = f"{rows[0].gpus} to {sizes}"
        numbers = f"{times_text(last.speedup.mean)} = {percent_text(last.efficiency)}"
        yield Line(label, f"{sizes}: {numbers}")


def _advice(advice: Advice, series: Series) -> Iterator[Line]:
    yield Line("fastest", _priced(advice.fastest, series))
    yield Line(f"fewest {hours_name(series.unit)}", _priced(advice.cheapest, series))
    yield Line("best value", _priced(advice.value, series))
    yield Line("why", _reason(advice))


def _reason(advice: Advice) -> str:
    """Return why a size is the best value, as a sentence."""
    unit = advice.value.unit
    target = f"{100 * advice.min_efficiency:g} %"
    after = advice.next_step
    if after:
        marginal = f"{whole_percent(after.added)} marginal efficiency, below the {target} target"
        added = f"The {unit} added from {after.before} to {after.gpus} reach {marginal}"
        return f"{added}: use {units_text(advice.value.gpus, unit)}."
    last = ""
    if advice.step:
        last = f"{whole_percent(advice.step.added)} up to {units_text(advice.step.gpus, unit)}"
    return f"Marginal efficiency reaches the {target} target: {last}."


def _priced(row: Row, series: Series) -> str:
    if row.time_s is None or row.gpu_hours is None:
        return size_text(row)
    time = _time_text(row.time_s.mean, time_unit(series))
    return f"{size_text(row)}: {time}, {number_text(row.gpu_hours)} {hours_name(row.unit)}"


def _outlook(outlook: Outlook, series: Series) -> Iterator[Line]:
    unit = series.unit
    largest = units_text(outlook.gpus, unit)
    if outlook.serial < 1:  # else nothing became faster, as the table says
        share = f"{two_digits(100 * outlook.serial)} % of the work on one {unit.removesuffix('s')}"
        text = f"{share}, by {largest}"
        low, high = (two_digits(100 * serial) for serial in outlook.serial_range)
        if low != high:
            text += f" ({low} to {high} % over the sizes)"
        if outlook.grows:
            text += f": it grows with the {unit}, so it is their overhead, not serial work"
        yield Line("serial", text)
    if not (series.weak or outlook.grows or outlook.serial == 1):
        speed = f"{outlook.with_more_work:.3g}×"
        yield Line("more work", f"{largest} with proportionally more work would reach {speed}")
    predictions = "; ".join(_predicted(each, unit) for each in outlook.predictions)
    yield Line("next", f"{predictions}: 8 of 10 published trainings lay in such a range")


def _predicted(prediction: Prediction, unit: Unit) -> str:
    size = units_text(prediction.gpus, unit)
    span = f"{two_digits(prediction.low)} to {two_digits(prediction.high)}×"
    efficiency = whole_percent(prediction.efficiency)
    return f"{size} {two_digits(prediction.speedup)}× ({span}) = {efficiency}"


def _causes(diagnosis: ScalingDiagnosis) -> Iterator[Line]:
    at = f"at {units_text(diagnosis.row.gpus, diagnosis.row.unit)} "
    for number, cause in enumerate(diagnosis.causes, 1):
        yield Line(f"cause {number}", f"{at}{cause.evidence}: {cause.advice}", cause.command)
    if diagnosis.unknown:
        yield Line("not measured", "; ".join(diagnosis.unknown))


def _change(change: BatchChange) -> str:
    before = change.before
    after = change.after
    assert before.time_s is not None  # batch_changes takes rows that have one
    assert after.time_s is not None
    old_s = before.time_s.mean
    new_s = after.time_s.mean
    old = _time_text(old_s, _unit_for(old_s))
    new = _time_text(new_s, _unit_for(new_s))
    size = size_text(after)
    if change.dataset:
        size = f"{change.dataset}, {size}"
    batches = f"global batch {after.batch_size} instead of {before.batch_size}"
    text = f"{size}, {batches}: {old} to {new} ({old_s / new_s:.2f}× as fast)"
    if before.steps and after.steps:
        text += f", {before.steps} to {after.steps} steps per epoch"
    return text


class TimeUnit(NamedTuple):
    """A unit, and its seconds."""

    name: str
    seconds: float


def time_unit(series: Series) -> TimeUnit:
    """Return the best unit for the longest time of a series."""
    times_s = [row.time_s.mean for row in series.rows if row.time_s]
    return _unit_for(max(times_s, default=0.0))


def _unit_for(time_s: float) -> TimeUnit:
    return next(TimeUnit(name, seconds) for name, seconds, below in _UNITS if time_s < below)


def _time_text(time_s: float, unit: TimeUnit) -> str:
    return f"{number_text(time_s / unit.seconds)} {unit.name}"


def number_text(value: float | None) -> str:
    """Return a number with up to three significant digits.

    There is no fraction from 100 on: 0.0054, 3.5, 1234. The text is "" for None.
    """
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def mean_text(spread: Spread | None, factor: float = 1.0) -> str:
    """Return the mean in another unit; "" for None."""
    if spread is None:
        return ""
    return number_text(spread.mean * factor)


def percent_text(share: float) -> str:
    """Return ``87.3 %``, with halves rounded up: 3.49/4 is 87.25 %."""
    return f"{half_up(1000 * share) / 10:.1f} %"


def times_text(speedup: float) -> str:
    """Return ``3.43×``."""
    return f"{speedup:.2f}×"


def range_text(spread: Spread | None, factor: float = 1.0) -> str:
    """Return ``3.4–3.52``, the smallest and the largest repeat; "" if there is only one."""
    if spread is None or spread.n < 2:
        return ""
    low = number_text(spread.low * factor)
    high = number_text(spread.high * factor)
    return f"{low}–{high}"


def size_text(row: Row) -> str:
    """Return ``4 GPUs``, or ``4 GPUs on 2 nodes`` if there are several nodes."""
    size = units_text(row.gpus, row.unit)
    return f"{size} on {row.nodes} nodes" if row.nodes > 1 else size


def whole_percent(share: float) -> str:
    """Return ``87 %``."""
    return f"{to_percent(share)} %"


def two_digits(value: float) -> str:
    """Return at least two significant digits: 0.0062, 4.6, 13.0, 210."""
    if 1 <= abs(value) < 100:
        return f"{value:.1f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2g}"
