"""The sentences of a report, each with a label, and its numbers in readable form.

The sentences are for text, Markdown and HTML.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import NamedTuple

from hpcrun.features.scaling.bottlenecks import ScalingDiagnosis
from hpcrun.features.scaling.points import Source, Spread
from hpcrun.features.scaling.series import BASIS_WORDS, BatchChange, Row, Series
from hpcrun.features.scaling.sizes import Unit, units_text
from hpcrun.features.scaling.step_model import Outlook
from hpcrun.features.scaling.study_report import Part, Report
from hpcrun.features.scaling.worth_its_gpus import Advice, reaches, verdict, whole
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
    sources = ", ".join(SOURCES[source] for source in series.sources)
    of = "the run" if series.time_of == "run" else "one epoch"
    if any(row.time_s for row in series.rows):
        times = f"; time and {hours_name(series.unit)} of {of}"
    else:
        times = ""
    return f"{kind}, {BASIS_WORDS[series.basis]}{f', source: {sources}' if sources else ''}{times}"


def hours_name(unit: Unit) -> str:
    """Return ``GPU-hours``, or for ranks ``rank-hours``."""
    return f"{unit.removesuffix('s')}-hours"


def answer_lines(report: Report) -> list[Line]:
    """Return the answer for each series, and what makes it doubtful: a report's first lines."""
    if report.unfinished:
        return [
            Line(
                "",
                f"Study not finished: {report.unfinished}. No verdict yet, and nothing is written.",
            )
        ]
    several = len(report.parts) > 1
    lines: list[Line] = []
    for part in report.parts:
        name = f"{heading(part.series, report)}: " if several else ""
        lines.append(Line("", f"{name}{_answer(part)}"))
        lines += [Line(doubt.kind, f"{doubt.evidence}; {doubt.remedy}") for doubt in part.doubts]
        if part.again:
            if "--chain" in part.again:
                alone = ", one run after the other"
            else:
                alone = ""
            lines.append(Line("measure again", f"three runs of each size{alone}:", part.again))
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
        return (
            f"No answer: only one size was measured, {size_text(series.rows[0])}. Run at least "
            "one other size."
        )
    why = (
        "No answer yet: the times are unreliable "
        f"({', '.join(doubt.kind for doubt in part.doubts)})."
    )
    if part.tentative is None or any(doubt.kind == "super-linear" for doubt in part.doubts):
        return why
    return f"{why} They suggest {_recommended(part.tentative)}"


def _recommended(advice: Advice) -> str:
    """Return the advice as one sentence.

    An example: ``2 GPUs: 1.74× at 87 %; 4 would be 46 %.``
    """
    row = advice.value
    following = advice.next_step
    speed = f"{_full(row)}; " if advice.step else ""
    if following is None or advice.next_row is None:
        if any(gpus > row.gpus for gpus in advice.doubtful):
            rest = "the larger sizes are uncertain"
        else:
            rest = ""
        return f"{size_text(row)}: {speed}{rest or 'no larger size was measured'}."
    other = advice.next_row
    if other.speedup.mean < _NO_FASTER * row.speedup.mean:
        slower = other.speedup.mean < row.speedup.mean / _NO_FASTER
        would = f"{'slower' if slower else 'no faster'}, {times_text(other.speedup.mean)}"
    elif not reaches(other.efficiency, advice.min_efficiency):
        if advice.step:
            would = f"{whole_percent(other.efficiency)}"
        else:
            would = _full(other)
    else:
        added = units_text(other.gpus - row.gpus, row.unit)
        would = (
            f"{whole_percent(other.efficiency)}, the added {added} only "
            f"{whole_percent(following.added)}"
        )
    return f"{size_text(row)}: {speed}{other.gpus} would be {would}."


def _full(row: Row) -> str:
    return f"{times_text(row.speedup.mean)} at {whole_percent(row.efficiency)}"


def part_lines(part: Part) -> list[Line]:
    """Return all sentences about one series."""
    unit = part.series.unit
    left_out = (
        f"{units_text(point.gpus, unit)}, repeat "
        f"{point.repeat}{point.run and f', run {point.run}'}: {problem}"
        for point, problem in part.series.left_out
    )
    lines = (
        _verdicts(part),
        _advice(part.advice, part.series) if part.advice else (),
        _outlook(part.outlook, part.series) if part.outlook else (),
        _causes(part.diagnosis) if part.diagnosis else (),
        _first("left out", left_out),
        (Line("note", remark) for remark in part.series.remarks),
    )
    return _clean(chain.from_iterable(lines))


def _first(label: str, texts: Iterable[str]) -> list[Line]:
    """Return the first lines of one kind, and how many more there are."""
    listed = list(texts)
    if len(listed) > _MOST:
        more = [Line(label, f"{len(listed) - _MOST} more (see --json)")]
    else:
        more = []
    return [*(Line(label, text) for text in listed[:_MOST]), *more]


def report_lines(report: Report) -> list[Line]:
    """Return the sentences about all series together."""
    contradictions = (
        f"{each.place}: {count(each.gpus, 'GPU')}, {each.what} {each.written}, but {each.because} "
        "gives " + (f"{each.follows:.2f}" if each.what == "speedup" else number_text(each.follows))
        for each in report.contradictions
    )
    notes = list(report.remarks)
    several = any(
        len(p.epochs) > 1 for part in report.parts for row in part.series.rows for p in row.points
    )
    if several and (number := report.options.warmup):
        if number == 1:
            first = "the first epoch of each run is"
        else:
            first = f"the first {number} epochs of each run are"
        notes.append(f"{first} left out as warm-up")
    changes = [Line("batch", _change(change)) for change in report.changes]
    return _clean(
        [
            *changes,
            *_first("contradiction", contradictions),
            *(Line("note", text) for text in notes),
        ]
    )


def _verdicts(part: Part) -> Iterator[Line]:
    """Yield a line for each group of neighbouring sizes with the same verdict.

    The numbers of a line are those of the last size.
    """
    series = part.series
    judged = [(verdict(row, series, part.advice), row) for row in series.sizes[1:]]
    for label, group in groupby(
        (item for item in judged if item[0] != "no verdict"), key=lambda item: item[0]
    ):
        rows = [row for _, row in group]
        last = rows[-1]
        if len(rows) > 1:
            upto = f"{rows[0].gpus} to {size_text(last)}"
        else:
            upto = size_text(last)
        yield Line(
            label, f"{upto}: {times_text(last.speedup.mean)} = {percent_text(last.efficiency)}"
        )


def _advice(advice: Advice, series: Series) -> Iterator[Line]:
    yield Line("fastest", _priced(advice.fastest, series))
    yield Line(f"fewest {hours_name(series.unit)}", _priced(advice.cheapest, series))
    yield Line("best value", _priced(advice.value, series))
    target, unit = f"{100 * advice.min_efficiency:g} %", advice.value.unit
    if advice.step:
        last = f"{whole_percent(advice.step.added)} up to {units_text(advice.step.gpus, unit)}"
    else:
        last = ""
    why = f"Marginal efficiency reaches the {target} target: {last}."
    after = advice.next_step
    if after:
        marginal = f"{whole_percent(after.added)} marginal efficiency, below the {target} target"
        step = f"from {after.before} to {units_text(after.gpus, unit)}"
        why = f"Going {step} runs at {marginal}: use {units_text(advice.value.gpus, unit)}."
    yield Line("why", why)


def _priced(row: Row, series: Series) -> str:
    if row.time_s is None or row.gpu_hours is None:
        return size_text(row)
    time = _time_text(row.time_s.mean, time_unit(series))
    return f"{size_text(row)}: {time}, {number_text(row.gpu_hours)} {hours_name(row.unit)}"


def _outlook(outlook: Outlook, series: Series) -> Iterator[Line]:
    low, high = (two_digits(100 * share) for share in outlook.serial_range)
    if low != high:
        over = f" ({low} to {high} % over the sizes)"
    else:
        over = ""
    if outlook.grows:
        grows = f": it grows with the {series.unit}, so it is their overhead, not serial work"
    else:
        grows = ""
    one = series.unit.removesuffix("s")
    largest = units_text(outlook.gpus, series.unit)
    if outlook.serial < 1:  # else nothing became faster, as the table says
        yield Line(
            "serial",
            f"{two_digits(100 * outlook.serial)} % of the work on one {one}, by "
            f"{largest}{over}{grows}",
        )
    if not (series.weak or outlook.grows or outlook.serial == 1):
        yield Line(
            "more work",
            f"{largest} with proportionally more work would reach {outlook.with_more_work:.3g}×",
        )
    words = [
        f"{units_text(each.gpus, series.unit)} {two_digits(each.speedup)}× ({two_digits(each.low)} "
        "to "
        f"{two_digits(each.high)}×) = {whole_percent(each.efficiency)}"
        for each in outlook.predictions
    ]
    yield Line("next", f"{'; '.join(words)}: 8 of 10 published trainings lay in such a range")


def _causes(diagnosis: ScalingDiagnosis) -> Iterator[Line]:
    at = f"at {units_text(diagnosis.row.gpus, diagnosis.row.unit)} "
    for number, cause in enumerate(diagnosis.causes, 1):
        yield Line(f"cause {number}", f"{at}{cause.evidence}: {cause.advice}", cause.command)
    if diagnosis.unknown:
        yield Line("not measured", "; ".join(diagnosis.unknown))


def _change(change: BatchChange) -> str:
    dataset = change.dataset
    before = change.before
    after = change.after
    if before.steps and after.steps:
        steps = f", {before.steps} to {after.steps} steps per epoch"
    else:
        steps = ""
    if dataset:
        at = f"{dataset}, {size_text(after)}"
    else:
        at = size_text(after)
    batches = f"global batch {after.batch_size} instead of {before.batch_size}"
    assert before.time_s is not None  # batch_changes takes rows that have one
    assert after.time_s is not None
    old_s = before.time_s.mean
    new_s = after.time_s.mean
    times = f"{_time_text(old_s, _unit_for(old_s))} to {_time_text(new_s, _unit_for(new_s))}"
    return f"{at}, {batches}: {times} ({old_s / new_s:.2f}× as fast){steps}"


class TimeUnit(NamedTuple):
    """A unit, and its seconds."""

    name: str
    seconds: float


def time_unit(series: Series) -> TimeUnit:
    """Return the best unit for the longest time of a series."""
    return _unit_for(max((row.time_s.mean for row in series.rows if row.time_s), default=0.0))


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
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def mean_text(spread: Spread | None, factor: float = 1.0) -> str:
    """Return the mean in another unit; "" for None."""
    return number_text(spread.mean * factor if spread else None)


def percent_text(share: float) -> str:
    """Return ``87.3 %``, with halves rounded up: 3.49/4 is 87.25 %."""
    return f"{math.floor(share * 1000 + 0.5) / 10:.1f} %"


def times_text(speedup: float) -> str:
    """Return ``3.43×``."""
    return f"{speedup:.2f}×"


def range_text(spread: Spread | None, factor: float = 1.0) -> str:
    """Return ``3.4–3.52``, the smallest and the largest repeat; "" if there is only one."""
    if spread is None or spread.n < 2:
        return ""
    return f"{number_text(spread.low * factor)}–{number_text(spread.high * factor)}"


def size_text(row: Row) -> str:
    """Return ``4 GPUs``, or ``4 GPUs on 2 nodes`` if there are several nodes."""
    return units_text(row.gpus, row.unit) + (f" on {row.nodes} nodes" if row.nodes > 1 else "")


def whole_percent(share: float) -> str:
    """Return ``87 %``."""
    return f"{whole(share)} %"


def two_digits(value: float) -> str:
    """Return at least two significant digits: 0.0062, 4.6, 13.0, 210."""
    if 1 <= abs(value) < 100:
        return f"{value:.1f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2g}"
