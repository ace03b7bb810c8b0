"""The use of the hardware by all attempts of a run, and advice for the next request."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path

from hpcrun.job.units import format_rate, format_size
from hpcrun.runs.attempt import attempts
from hpcrun.runs.use import NodeUse, UseSummary, read_use, summarise

ENOUGH_S = 180.0
"""Advice needs as many seconds of samples."""
_MOST_ATTEMPTS = 20
_GB = 1 << 30
_MARGIN = 1.3
_WORTH_GB, _WORTH_CPUS = 8, 4
"""Smaller requests start no sooner if they are smaller still."""
_FAR_OFF, _NEARLY_ALL = 0.5, 0.92
_OFTEN_IDLE = 0.25
_ALL_BUSY, _ONE_BUSY = 0.85, 0.7


def all_samples(folder: Path, element: int = 0) -> list[NodeUse]:
    """Return the samples of all attempts of a run, or of one element of it; the oldest attempt first."""
    newest = list(islice(attempts(folder, element), _MOST_ATTEMPTS))
    return [use for attempt in reversed(newest) for use in read_use(attempt.folder)]


def run_use(folder: Path, element: int = 0) -> UseSummary | None:
    """Return the use by all attempts of a run; None if nothing is recorded."""
    return summarise(all_samples(folder, element))


def use_advice(use: UseSummary, *, completed: bool) -> list[str]:
    """Return advice for the next request, with the numbers that show why; none without enough samples.

    Args:
        completed: the run completed; otherwise it may have ended before its peak.
    """
    if use.seconds < ENOUGH_S:
        return []
    advice = [*_idle_gpus(use), *_memory(use, completed=completed)]
    return advice if advice and use.gpus and _is_idle(use) else [*advice, *_cpus(use, completed=completed)]


def _is_idle(use: UseSummary) -> bool:
    return use.gpu_idle is not None and use.gpu_idle >= _OFTEN_IDLE


def _idle_gpus(use: UseSummary) -> list[str]:
    """Return what the CPUs did while the GPUs were idle: it shows whether the data loader is the cause."""
    if not _is_idle(use) or use.gpu_idle is None:
        return []
    if use.gpus_unused:
        used = use.gpus - use.gpus_unused
        if not used:
            all_gpus = {1: "the GPU was", 2: "both GPUs were"}.get(use.gpus, f"all {use.gpus} GPUs were")
            return [f"{all_gpus} idle throughout: does the script use CUDA? If it needs no GPU: --gpus 0"]
        were = "was" if use.gpus_unused == 1 else "were"
        ask = f"ask for --gpus {used}, or give each rank a GPU of its own"
        return [f"{use.gpus_unused} of {use.gpus} GPUs {were} idle throughout: {ask}"]
    fact = f"the GPUs were idle for {use.gpu_idle:.0%} of the time"
    each = max(1, math.ceil(use.gpus / use.nodes))
    if use.idle_cpus is None:
        return [f"{fact}, but never all of a node at once: compare the ranks' shares of the work"]
    cpus = use.cpus_asked or 0
    did = f"while {use.idle_cpus:.1f} of {cpus or 'the'} CPUs per node were busy"
    if cpus and use.idle_cpus >= _ALL_BUSY * cpus:
        more = 2 * math.ceil(cpus / each)
        return [f"{fact} {did}, most likely in the data loader: ask for --cpus-per-gpu {more}, and use as many workers"]
    if use.idle_cpus >= _ONE_BUSY * each:
        workers = max(2, cpus // each - 1)
        return [f"{fact} {did}, most likely in the data loader: use more of its workers (num_workers={workers})"]
    return [f"{fact} {did}: the CPUs were not the limit: they waited, for example for the storage or the network"]


def _memory(use: UseSummary, *, completed: bool) -> list[str]:
    requested = use.memory_asked
    if not requested:
        return []
    enough = math.ceil(use.memory_peak * _MARGIN / _GB)
    fact = f"memory: at most {use.memory_peak / _GB:.1f} of {requested / _GB:.0f} GB per node in use"
    if use.memory_peak > _NEARLY_ALL * requested:
        return [f"{fact}: ask for --mem {enough}G"]
    if (
        completed
        and requested >= _WORTH_GB * _GB
        and use.memory_peak < _FAR_OFF * requested
        and enough * _GB < requested
    ):
        return [f"{fact}: --mem {enough}G is enough, and smaller requests start sooner"]
    return []


def _cpus(use: UseSummary, *, completed: bool) -> list[str]:
    requested = use.cpus_asked
    if not completed or not requested or requested <= _WORTH_CPUS or use.cpus_peak >= _FAR_OFF * requested:
        return []
    fact = f"CPUs: at most {use.cpus_peak:.1f} of {requested} per node busy"
    if use.gpus:
        each = max(1, math.ceil(use.gpus / use.nodes))
        wanted = math.ceil(use.cpus_peak * _MARGIN / each)
        return [f"{fact}: --cpus-per-gpu {wanted} is enough"] if wanted * each < requested else []
    return [f"{fact}: --cpus {math.ceil(use.cpus_peak * _MARGIN)} is enough"]


def use_rows(use: UseSummary) -> list[tuple[str, str]]:
    """Return the use of the hardware as short rows: label and text."""
    nodes = " per node" if use.nodes > 1 else ""
    rows = []
    if use.gpus and use.gpu_busy is not None:
        full = f", memory {use.gpu_memory:.0%} full at most" if use.gpu_memory is not None else ""
        watts = f", {use.watts:.0f} W" if use.watts is not None else ""
        idle = f", idle {use.gpu_idle:.0%} of the time" if use.gpu_idle else ""
        gpus = "1 GPU" if use.gpus == 1 else f"{use.gpus} GPUs"
        rows.append(("GPUs", f"{gpus}, {use.gpu_busy:.0%} busy{idle}{full}{watts}"))
    requested = f" of {use.cpus_asked}" if use.cpus_asked else ""
    rows.append(("CPUs", f"{use.cpus:.1f}{requested} busy{nodes}, {use.cpus_peak:.1f} at most"))
    part = f" of {format_size(use.memory_asked)} ({use.memory_peak / use.memory_asked:.0%})" if use.memory_asked else ""
    rows.append(("memory", f"{format_size(use.memory_peak)}{part}{nodes} at most"))
    rdma = f", RDMA {format_rate(use.rdma)}" if use.rdma is not None else ""
    if use.network >= 1e3 or rdma:
        rows.append(("network", f"{format_rate(use.network)}{rdma}{nodes}"))
    return rows
