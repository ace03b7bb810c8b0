"""plan: what to expect of other numbers of GPUs, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.errors import UsageError
from hpcrun.job.gpu_types import for_gpu_type
from hpcrun.job.profile import Profile
from hpcrun.job.request import GpuCount, JobRequest
from hpcrun.job.shape import decide_shape
from hpcrun.job.units import parse_count, parse_positive
from hpcrun.profiles.load import load_profile
from hpcrun.scaling.communication import Network, link_between, link_inside
from hpcrun.scaling.forecast import (
    CASES,
    Case,
    Forecast,
    JobSize,
    StepCost,
    communication_s,
    forecast,
    half_rows,
    step_cost,
    with_batch,
)
from hpcrun.scaling.workload import MeasuredTraining, one_of, read_option, read_workload

MOST_SIZES = 64

LINEAR_HOLDS = 8192
"""Goyal et al. 2017 (arXiv:1706.02677): the error of ResNet-50 on ImageNet stays up to this batch, and rises beyond."""


@dataclass(frozen=True, slots=True)
class ForecastRequest:
    """What is to be forecast.

    Attributes:
        counts: of GPUs, with their type where one was named.
        nodes: one for each of them; empty leaves them to the profile's GPUs per node.
        price: of a GPU for an hour; None takes the profile's.
    """

    work: MeasuredTraining
    counts: tuple[GpuCount, ...]
    nodes: tuple[int, ...]
    cases: tuple[Case, ...]
    price: float | None


@dataclass(frozen=True, slots=True)
class ForecastResult:
    """What to expect, and what it rests on.

    Attributes:
        profile_name: as it was asked for, by name or path.
        gpu_type: the one that was named.
        fills_gpu: samples of a step below which a GPU spends more than half of it on other things; None for not known.
        remedies: for each number of GPUs with too little work, a batch that gives them enough.
        notes: what was left out, or taken for granted.
    """

    question: ForecastRequest
    profile: Profile
    profile_name: str
    gpu_type: str | None
    network: Network
    rows: tuple[Forecast, ...]
    fills_gpu: float | None
    remedies: tuple[Forecast, ...]
    price: float | None
    notes: tuple[str, ...]


def read_question(said: Mapping[str, str]) -> ForecastRequest:
    """Build the question from what was typed, by the names of the options.

    Raises:
        UsageError: a value cannot be read, or contradicts another; the message names the option.
    """
    own = ("gpus", "nodes", "mode", "price_per_gpu_hour")
    work = read_workload({name: text for name, text in said.items() if name not in own})
    counts = read_option("gpus", said["gpus"], _gpu_counts)
    nodes = read_option("nodes", said["nodes"], _node_counts) if "nodes" in said else ()
    if len(nodes) == 1:
        nodes *= len(counts)
    if nodes and len(nodes) != len(counts):
        raise UsageError(
            f"--nodes names {len(nodes)} numbers, and --gpus {len(counts)}",
            hint="give one number for all, or one for each number of GPUs: --gpus 4,8 --nodes 1,2",
        )
    cases = read_option("mode", said.get("mode", "both"), lambda text: one_of(text, CASES))
    price = said.get("price_per_gpu_hour")
    return ForecastRequest(
        work, counts, nodes, cases, None if price is None else read_option("price_per_gpu_hour", price, parse_positive)
    )


def _gpu_counts(text: str) -> tuple[GpuCount, ...]:
    counts = tuple(GpuCount.parse(word.strip()) for word in text.split(","))
    if any(count.count == 0 for count in counts):
        raise ValueError(f"{text!r} contains 0; write 1,2,4,8")
    if len(counts) > MOST_SIZES:
        raise ValueError(f"{len(counts)} numbers are more than {MOST_SIZES}")
    types = {count.type for count in counts if count.type}
    if len(types) > 1:
        raise ValueError(f"two GPU types at once: {' and '.join(sorted(types))}")
    named = next(iter(types), None)
    return tuple(GpuCount(count=count.count, type=named) for count in counts)


def _node_counts(text: str) -> tuple[int, ...]:
    return tuple(parse_count(word) for word in text.split(","))


def make_forecast(question: ForecastRequest, profile_name: str, surroundings: Surroundings) -> ForecastResult:
    """Forecast every number of GPUs on a profile.

    Raises:
        UsageError: the numbers contradict each other, or do not divide.
        ProfileError: there is no such profile, or it is wrong.
        PlanError: no node of the profile has so many GPUs.
    """
    work = question.work
    profile = for_gpu_type(
        load_profile(profile_name, surroundings.profile_folders).profile, _request(question.counts[0])
    )
    sizes = _sizes(question, profile)
    reference = _size(GpuCount(count=work.gpus, type=question.counts[0].type), None, profile)
    network = Network(
        link_inside(profile.card, max(size.gpus_per_node for size in (*sizes, reference))), link_between(profile.fabric)
    )
    cost = step_cost(work, half_rows(profile.card), communication_s(work, reference, network) or 0.0)
    rows = forecast(work, question.cases, sizes, cost, network)
    return ForecastResult(
        question=question,
        profile=profile,
        profile_name=profile_name,
        gpu_type=question.counts[0].type,
        network=network,
        rows=rows,
        fills_gpu=cost.half_batch or None,
        remedies=_remedies(work, rows, cost),
        price=question.price if question.price is not None else profile.price.per_gpu_hour,
        notes=tuple(_notes(work, profile, rows, network)),
    )


def _request(count: GpuCount, nodes: int | None = None) -> JobRequest:
    return JobRequest(script="true", gpus=count, nodes=nodes)  # nothing runs; a request has a script


def _size(count: GpuCount, nodes: int | None, profile: Profile) -> JobSize:
    shape = decide_shape(_request(count, nodes), profile)
    return JobSize(shape.gpus, shape.nodes)


def _sizes(question: ForecastRequest, profile: Profile) -> tuple[JobSize, ...]:
    nodes = question.nodes or (None,) * len(question.counts)
    sizes = (_size(count, number, profile) for count, number in zip(question.counts, nodes, strict=True))
    return tuple(dict.fromkeys(sizes))


def _remedies(work: MeasuredTraining, rows: Sequence[Forecast], cost: StepCost) -> tuple[Forecast, ...]:
    """Return for each size with too little work the measured batch on each GPU, doubled until it is enough."""
    enough = work.batch_per_gpu
    while enough < cost.half_batch:
        enough *= 2
    little = {row.size: row for row in rows if "little work" in row.concerns}
    return tuple(
        with_batch(work, row, enough * size.gpus, cost)
        for size, row in little.items()
        if enough * size.gpus <= work.samples
    )


def _notes(work: MeasuredTraining, profile: Profile, rows: Sequence[Forecast], network: Network) -> list[str]:
    return [note for note, holds in (*_left_out(work, profile, rows, network), *_taken(work, profile, rows)) if holds]


def _left_out(
    work: MeasuredTraining, profile: Profile, rows: Sequence[Forecast], network: Network
) -> list[tuple[str, bool]]:
    nodes = any(row.size.nodes > 1 for row in rows)
    inside = any(row.size.gpus_per_node > 1 for row in rows)
    known = work.parameters is not None
    unsaid = "so communication is left out"
    return [
        (
            "communication is left out: add --parameters 25M (the model's size) to estimate it",
            not known and any(row.size.gpus > 1 for row in rows),
        ),
        (
            f"profile {profile.name!r} has no network bandwidth (fabric.bandwidth_gbit_s), {unsaid}",
            known and nodes and network.between is None,
        ),
        (
            f"profile {profile.name!r} has no bandwidth between the GPUs of a node (card.nvlink_gb_s), {unsaid}",
            known and inside and network.inside is None,
        ),
    ]


def _taken(work: MeasuredTraining, profile: Profile, rows: Sequence[Forecast]) -> list[tuple[str, bool]]:
    full = half_rows(profile.card)
    tokens, rest = work.tokens_per_sample, work.samples % work.batch_size
    sample = "a sample is one row (--tokens-per-sample)" if tokens == 1 else f"a sample is {tokens} rows"
    scaled = [row for row in rows if row.batch_size != work.batch_size and work.lr is not None]
    return [
        (
            f"profile {profile.name!r} has no GPU model: the step time is assumed proportional to the batch, the best "
            "case; to measure it, add --also BATCH=TIME",
            full is None and not work.second,
        ),
        (
            f"the fixed overhead of a step is estimated: {full or 0:.0f} rows fill the GPU, and {sample}; "
            "to measure it, add --also BATCH=TIME",
            full is not None and not work.second,
        ),
        (f"the last step of an epoch has only {rest} samples; it is counted as a full step", rest > 0),
        (
            "the right learning rate depends on the optimizer: add --optimizer sgd or --optimizer adam",
            bool(scaled) and work.optimizer is None,
        ),
        (
            f"the linear rule was shown up to a global batch of {LINEAR_HOLDS}, on ImageNet: check the accuracy",
            work.optimizer != "adam" and any(row.batch_size > LINEAR_HOLDS for row in scaled),
        ),
    ]
