"""The sentences of a report, each with a label, for text, Markdown and HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from hpcrun.actions.studies.points import NOT_ENDED
from hpcrun.actions.studies.report import Part, Report
from hpcrun.scaling.causes import ScalingDiagnosis
from hpcrun.scaling.claims import Contradiction
from hpcrun.scaling.fit import FEWEST_SIZES, Fit, Prediction, scaled_speedup
from hpcrun.scaling.points import Point, Source
from hpcrun.scaling.series import BASIS_WORDS, BatchChange, Row, Series
from hpcrun.scaling.verdict import Advice, verdict
from hpcrun.views.report.numbers import interval_text, number_text, percent_text, size_text, time_unit, times_text
from hpcrun.views.text import count, one_line

SOURCES: dict[Source, str] = {
    "metrics": "metrics of the runs",
    "log": "patterns in the logs",
    "elapsed": "Slurm's elapsed time, start-up included",
    "csv": "a table",
}
LAWS = {"amdahl": "Amdahl", "gustafson": "Gustafson", "communication": "communication"}
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
    of = "the run" if series.basis == "run" else "one epoch"
    times = f"; time and GPU-hours of {of}" if any(row.time_s for row in series.rows) else ""
    return f"{kind}, {BASIS_WORDS[series.basis]}{f', source: {sources}' if sources else ''}{times}"


def part_lines(part: Part) -> list[Line]:
    """Return all sentences about one series."""
    lines = [
        *_verdicts(part.series),
        *(_advice(part.advice, part.series) if part.advice and len(part.series.sizes) > 1 else ()),
        *_fits(part),
        *(_causes(part.diagnosis) if part.diagnosis else ()),
        *_left_out(part.series),
        *(Line("note", remark) for remark in part.series.remarks),
    ]
    return [Line(line.label, one_line(line.text), one_line(line.command)) for line in lines]


def report_lines(report: Report) -> list[Line]:
    """Return the sentences about all series together."""
    lines = [
        *(_change(change) for change in report.changes),
        *_contradictions(report.contradictions),
        *(Line("note", remark) for remark in report.remarks),
        *_warmup(report),
    ]
    return [Line(line.label, one_line(line.text)) for line in lines]


def _verdicts(series: Series) -> Iterator[Line]:
    """Yield a line for each group of neighbouring sizes with the same verdict, with the numbers of the last size."""
    if not series.rows and (states := _unfinished(series)):
        yield Line("no verdict", f"Study not finished: {states}.")
    elif not series.rows:
        yield Line("no verdict", "no usable run")
    elif len(series.sizes) == 1:
        yield Line("no verdict", f"only one size was measured, {size_text(series.rows[0])}: run at least two")
    for word, group in groupby(series.sizes[1:], key=lambda row: verdict(row, series)):
        rows = list(group)
        last = rows[-1]
        upto = f"{rows[0].gpus} to {size_text(last)}" if len(rows) > 1 else size_text(last)
        yield Line(word, f"{upto}: {times_text(last.speedup.mean)} = {percent_text(last.efficiency)}")


def _advice(advice: Advice, series: Series) -> Iterator[Line]:
    yield Line("fastest", _priced(advice.fastest, series))
    yield Line("fewest GPU-hours", _priced(advice.cheapest, series))
    yield Line("best value", _priced(advice.value, series))
    yield Line("why", _why_value(advice))


def _why_value(advice: Advice) -> str:
    """Return the marginal efficiency behind the choice, and the sizes whose overall efficiency reaches the target."""
    target = f"{100 * advice.min_efficiency:g} %"
    if advice.next_step:
        step = f"from {advice.value.gpus} to {count(advice.next_step.row.gpus, 'GPU')}"
        marginal = f"{_whole(advice.next_step.added)} marginal efficiency, below the {target} target"
        text = f"Going {step} runs at {marginal}: use {count(advice.value.gpus, 'GPU')}."
    else:
        last = f"{_whole(advice.step.added)} up to {count(advice.step.row.gpus, 'GPU')}" if advice.step else ""
        text = f"Marginal efficiency stays above the {target} target: {last}."
    overall = f"{count(advice.overall.gpus, 'GPU')} ({percent_text(advice.overall.efficiency)})"
    return f"{text} Overall efficiency is at least {target} up to {overall}."


def _unfinished(series: Series) -> str:
    """Return how many runs have not ended, by state: ``1 running, 2 pending``."""
    states = [problem.removeprefix(NOT_ENDED) for _, problem in series.left_out if problem.startswith(NOT_ENDED)]
    numbers = Counter(state.removeprefix(": ").lower().replace("_", " ") for state in states)
    return ", ".join(f"{number} {state}" for state, number in numbers.items())


def _whole(share: float) -> str:
    return f"{100 * share:.0f} %"


def _priced(row: Row, series: Series) -> str:
    if row.time_s is None or row.gpu_hours is None:
        return size_text(row)
    unit = time_unit(series)
    time = f"{number_text(row.time_s.mean / unit.seconds)} {unit.name}"
    return f"{size_text(row)}: {time}, {number_text(row.gpu_hours)} GPU-hours"


def _fits(part: Part) -> Iterator[Line]:
    sizes = len(part.series.sizes)
    if 1 < sizes < FEWEST_SIZES:
        yield Line("laws", f"{sizes} sizes are too few for a confidence interval: measure a third")
    for fit in part.fits:
        yield Line(LAWS[fit.law], _fit(fit))
        if fit.law == "amdahl" and fit.serial and fit.describes:
            gpus = part.series.sizes[-1].gpus
            speedup = interval_text(scaled_speedup(fit.serial, gpus), 1, "×")
            yield Line(LAWS["gustafson"], f"{count(gpus, 'GPU')} with proportionally more work would reach {speedup}")
    if part.expected:
        words = "; ".join(map(_prediction, part.expected.predictions))
        yield Line("next", f"{words}, by {LAWS[part.expected.law]}{_peak(part.expected)}")
    elif part.fits:
        yield Line("next", "no prediction: no scaling law fits these sizes")


def _fit(fit: Fit) -> str:
    if not fit.describes:
        return f"does not fit: error {_whole(fit.error)}"
    words = []
    if fit.serial:
        words.append(f"serial fraction {interval_text(fit.serial, 100, ' %')} of the work on one GPU")
    if fit.communication:
        words.append(f"communication adds {interval_text(fit.communication, 100, ' %')} of the one-GPU time per GPU")
    off = f"; fit error {100 * fit.error:.1f} %" if fit.sizes >= FEWEST_SIZES else ""
    return ", ".join(words) + off


def _peak(fit: Fit) -> str:
    return f", fastest at {count(fit.peak, 'GPU')}" if fit.peak else ""


def _prediction(prediction: Prediction) -> str:
    speedup = interval_text(prediction.speedup, 1, "×")
    return f"{count(prediction.gpus, 'GPU')} {speedup} = {percent_text(prediction.efficiency.value)}"


def _causes(diagnosis: ScalingDiagnosis) -> Iterator[Line]:
    at = f"at {count(diagnosis.row.gpus, 'GPU')} "
    for number, cause in enumerate(diagnosis.causes, 1):
        yield Line(f"cause {number}", f"{at}{cause.evidence}: {cause.advice}", cause.command)
    if diagnosis.unknown:
        yield Line("not measured", "; ".join(diagnosis.unknown))


def _left_out(series: Series) -> Iterator[Line]:
    for point, problem in series.left_out[:_MOST]:
        yield Line("left out", f"{_point(point)}: {problem}")
    if len(series.left_out) > _MOST:
        yield Line("left out", f"{len(series.left_out) - _MOST} more (see --json)")


def _point(point: Point) -> str:
    return f"{count(point.gpus, 'GPU')}, repeat {point.repeat}" + (f", run {point.run}" if point.run else "")


def _change(change: BatchChange) -> Line:
    before, after = change.before, change.after
    steps = f", {before.steps} to {after.steps} steps per epoch" if before.steps and after.steps else ""
    at = f"{change.dataset}, {size_text(after)}" if change.dataset else size_text(after)
    batches = f"global batch {after.batch_size} instead of {before.batch_size}"
    assert before.time_s is not None  # batch_changes takes rows that have one
    assert after.time_s is not None
    minutes = f"{_clock(before.time_s.mean)} to {_clock(after.time_s.mean)}"
    return Line("batch", f"{at}, {batches}: {minutes} ({before.time_s.mean / after.time_s.mean:.2f}× as fast){steps}")


def _clock(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{number_text(seconds / length)} {unit}"
    return f"{number_text(seconds)} s"


def _contradictions(found: Sequence[Contradiction]) -> Iterator[Line]:
    for each in found[:_MOST]:
        follows = f"{each.follows:.2f}" if each.what == "speedup" else number_text(each.follows)
        says = f"{count(each.gpus, 'GPU')}, {each.what} {each.written}"
        yield Line("contradiction", f"{each.place}: {says}, but {each.because} gives {follows}")
    if len(found) > _MOST:
        yield Line("contradiction", f"{len(found) - _MOST} more (see --json)")


def _warmup(report: Report) -> Iterator[Line]:
    several = any(len(p.epochs) > 1 for part in report.parts for row in part.series.rows for p in row.points)
    if report.options.warmup and several:
        number = report.options.warmup
        first = "the first epoch" if number == 1 else f"the first {number} epochs"
        yield Line(
            "note",
            f"{first} of each run is left out as warm-up"
            if number == 1
            else f"{first} of each run are left out as warm-up",
        )
