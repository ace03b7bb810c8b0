"""submit_many: several jobs, one submitted after the other; what stays submitted where one is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.actions.jobs.lineage import Lineage
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.jobs.submit import SubmitResult, submit
from hpcrun.actions.ports import Ports
from hpcrun.errors import HpcrunError, InterruptedByUser, SubmissionUncertainError


@dataclass(frozen=True, slots=True)
class JobSeries:
    """Jobs that are submitted one after the other.

    Attributes:
        noun: what a message calls one of them.
        lineage: the jobs submitted so far → what the next one has to do with them, and with earlier runs.
        run_ids: their ids; new ones where there are none.
    """

    noun: str
    jobs: Sequence[Prepared]
    lineage: Callable[[Sequence[SubmitResult]], Lineage]
    run_ids: Sequence[str] = ()


def submit_many(
    series: JobSeries, ports: Ports, surroundings: Surroundings, output_dir: Path | None = None
) -> Iterator[SubmitResult | HpcrunError]:
    """Submit jobs one after the other, and yield each, or why it was refused, as soon as it is known.

    The next one is submitted when the caller asks for it.
    """
    done: list[SubmitResult] = []
    for job, run_id in zip_longest(series.jobs, series.run_ids):
        item: SubmitResult | HpcrunError
        try:
            item = submit(job, ports, surroundings, run_id, output_dir=output_dir, lineage=series.lineage(tuple(done)))
            done.append(item)
        except HpcrunError as error:
            item = error
        yield item


def submit_all(
    series: JobSeries, ports: Ports, surroundings: Surroundings, output_dir: Path | None = None
) -> Iterator[SubmitResult]:
    """Submit jobs one after the other, and yield each as soon as it is submitted.

    Raises:
        HpcrunError: one was refused; those before it stay, and the message says so.
    """
    done: list[SubmitResult] = []
    for item in submit_many(series, ports, surroundings, output_dir):
        if isinstance(item, HpcrunError):
            raise _half_made(item, series, done) from None
        done.append(item)
        yield item


def _half_made(error: HpcrunError, series: JobSeries, done: Sequence[SubmitResult]) -> HpcrunError:
    if not done:
        return error
    is_unsure = isinstance(error, SubmissionUncertainError | InterruptedByUser)
    what = f"{series.noun} {len(done) + 1} of {len(series.jobs)} {'may not be' if is_unsure else 'was not'} submitted"
    stay = f"the {len(done)} jobs before it stay submitted" if len(done) > 1 else "the job before it stays submitted"
    cancel = f"hpcrun cancel {' '.join(str(item.run.job_id) for item in done)} cancels the submitted jobs"
    return type(error)(f"{what}; {stay}:\n{error.message}", hint="; ".join(filter(None, (cancel, error.hint))))
