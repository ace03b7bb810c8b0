"""Why a size does not reach the ideal: the measured causes, the largest first, each with advice and a command.

A command that a report proposes is the study's own command with one change.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.sizes import BATCH_PLACES, Size
from hpcrun.features.scaling.verdict import Advice

Kind = Literal["batch", "sync", "data", "startup", "uneven"]
NOTABLE = 0.05
"""The least share of the time that is reported."""
UNKNOWN_SCRIPT = "SCRIPT"
"""Stands for a script with its arguments; of a table nothing is known of them."""
SMALL_BATCH = 32
"""Samples per GPU below which few models keep any card busy."""


@dataclass(frozen=True, slots=True)
class ScaleCommand:
    """The ``hpcrun scale run`` command of a study; by default one with unknown options."""

    script: str = UNKNOWN_SCRIPT  # with its arguments, quoted for a shell
    sizes: str = "--gpus"  # the option that names the sizes
    profile: str = ""  # the option that names the profile, quoted; "" if unknown
    options: str = ""  # its other options, quoted, without the batch size
    gpu_type: str | None = None  # of all its runs, if it was named
    batch_size: int | None = None  # the study's batch size, for the placeholders in the arguments
    weak: bool = False  # the batch size is the per-GPU batch
    one_by_one: bool = False  # a run of the study started when the run before it had ended

    def scale(
        self,
        sizes: Iterable[Size],
        *,
        batch_size: int | None = None,
        options: Mapping[str, str] = MappingProxyType({}),
        args: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Return the command for some sizes. An option that the command has already gets the new value.

        Args:
            batch_size: a new global batch of the last size.
            options: additional options of hpcrun; "" is the value of a flag.
            args: new values of the script's arguments; those that its command does not have are left out.
        """
        listed = list(sizes)
        batch, options, args = self.batch_size, dict(options), dict(args)
        if batch_size is not None:
            batch = max(1, batch_size // listed[-1].gpus) if self.weak else batch_size
        if batch is not None and any(place in self.script for place in BATCH_PLACES):
            options["--batch-size"] = str(batch)
        elif batch_size is not None:
            args = {"--batch-size": str(batch), **args}
        known = {text.partition("=")[0].replace("_", "-") for text in shlex.split(self.script)}
        args = {name: value for name, value in args.items() if name in known or self.script == UNKNOWN_SCRIPT}
        gpus, nodes = ",".join(str(size.gpus) for size in listed), ",".join(str(size.nodes or 1) for size in listed)
        typed = shlex.quote(f"{self.gpu_type}:{gpus}") if self.gpu_type else gpus
        spread = f"--nodes {nodes}" if any((size.nodes or 1) > 1 for size in listed) else ""
        study_options, script = with_options(self.options, options), with_options(self.script, args)
        return " ".join(
            filter(None, ("hpcrun scale run", self.profile, self.sizes, typed, spread, study_options, script))
        )

    def change(self, sizes: Sequence[Size], **changes: Any) -> str:
        """Return the command with a change, as ``scale`` takes it; "" where it is the same command without it."""
        line = self.scale(sizes, **changes)
        return "" if line == self.scale(sizes) else line

    def preflight(self, gpus: int, nodes: int) -> str:
        """Return the command that checks the nodes and GPUs of such a run."""
        spread = f"--nodes {nodes}" if nodes > 1 else ""
        return " ".join(filter(None, ("hpcrun preflight", self.profile, f"--gpus {gpus}", spread)))


def with_options(command: str, options: Mapping[str, str]) -> str:
    """Return a quoted command in which each option stands once, with its new value: ``--batch_size`` is one, too.

    Args:
        options: the name with its dashes, and the value; "" is the value of a flag.
    """
    words = shlex.split(command)
    for name, value in options.items():
        places = [at for at, text in enumerate(words) if text.partition("=")[0].replace("_", "-") == name]
        first = places[0] if places else len(words)
        written = words[first].partition("=")[0] if places else name
        for at in reversed(places):
            with_value = value and "=" not in words[at] and not "".join(words[at + 1 : at + 2]).startswith("--")
            del words[at : at + (2 if with_value else 1)]
        words[first:first] = [written, *([value] if value else [])]
    return shlex.join(words)


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A part of the time that a size loses."""

    kind: Kind
    share: float  # of the time of that size, 0 to 1
    evidence: str  # the measured number, in words
    advice: str  # what to do, in words
    command: str  # a command to try it; "" if the script's arguments do not name what it would change


@dataclass(frozen=True, slots=True)
class ScalingDiagnosis:
    """Why one size does not reach the ideal."""

    row: Row  # the size
    causes: tuple[Bottleneck, ...]  # the largest share first
    unknown: tuple[str, ...]  # causes that were not measured, with the metrics that they need


def diagnose_series(series: Series, advice: Advice, command: ScaleCommand) -> ScalingDiagnosis | None:
    """Return the causes for the first size that is not worth its GPUs, or else those known for the largest.

    Args:
        command: the study's own command, the basis of the proposed ones.
    """
    base, row = series.rows[0], advice.next_row or series.sizes[-1]
    if not advice.next_step and 1 - row.efficiency < NOTABLE:
        return None
    judged = [_batch(row, base, command), *_shares(row, base, command), _uneven(row, base, command)]
    causes = [cause for cause in judged if isinstance(cause, Bottleneck) and cause.share >= NOTABLE]
    # where every size is worth its GPUs, nobody has to measure more
    unknown = tuple(cause for cause in judged if isinstance(cause, str)) if advice.next_step else ()
    if not causes and not unknown:
        return None
    return ScalingDiagnosis(row, tuple(sorted(causes, key=lambda cause: -cause.share)), unknown)


def _batch(row: Row, base: Row, command: ScaleCommand) -> Bottleneck | str | None:
    """Judge the per-GPU batch: its share of the loss is all that waiting for data and other ranks does not explain.

    A fixed global batch gives each of more GPUs less work in a step, while the fixed cost of a step, its
    kernel launches and its synchronisation, stays.
    """
    if row.batch_size is None:
        return "the batch per GPU (batch_size)"
    each = row.batch_size / row.gpus
    before = base.batch_size / base.gpus if base.batch_size else each
    if each >= before:
        return None  # what did not change is not why more GPUs lose
    lost = 1 - row.efficiency - (row.shares.data or 0) - (row.shares.idle or 0)
    batch = max(round(before * row.gpus), SMALL_BATCH * row.gpus)
    one = row.unit.removesuffix("s")
    shrunk = f", {_number(before)} at {base.gpus}" if before != each else ""
    return Bottleneck(
        "batch",
        lost,
        f"global batch {row.batch_size} leaves a per-{one} batch of {_number(each)} on {row.gpus} {row.unit}{shrunk}",
        f"use a larger per-{one} batch, and scale the learning rate with the global batch",
        command.change(_sizes(base, row), batch_size=batch),
    )


def _shares(row: Row, base: Row, command: ScaleCommand) -> Iterable[Bottleneck | str]:
    """Yield the causes of which runs record the share, or what they would have to record."""
    sizes, shares = _sizes(base, row), row.shares
    workers = command.scale(sizes, options={"--cpus-per-gpu": "8"}, args={"--num-workers": "8"})
    causes: tuple[tuple[Kind, float | None, str, str, str, str], ...] = (
        ("sync", shares.sync, "communication (sync_s of an epoch)", "synchronising the ranks takes {} of an epoch",
         "synchronise less often (gradient accumulation), use fewer nodes, and check the network",
         command.preflight(row.gpus, row.nodes)),
        ("data", shares.data, "data loading (data_s of an epoch)", "waiting for data takes {} of an epoch",
         "use more DataLoader workers (num_workers, persistent_workers) and more CPUs", workers),
        ("startup", shares.startup, "launch overhead (startup_s and total_s)",
         "{} of the run passes before the first epoch", f"train longer in one job, or with fewer {row.unit}",
         command.change(sizes, args={"--epochs": "20"})),
    )  # fmt: skip
    for kind, share, unknown, evidence, advice, line in causes:
        percent = f"{100 * (share or 0):.0f} %"
        yield unknown if share is None else Bottleneck(kind, share, evidence.format(percent), advice, line)


def _uneven(row: Row, base: Row, command: ScaleCommand) -> Bottleneck | str | None:
    counts = row.points[0].rank_samples
    batch = row.batch_size
    if batch is not None and batch % row.gpus and not counts:
        rank = -(-batch // row.gpus)
        share, evidence = 1 - batch / (rank * row.gpus), f"a batch of {batch} does not divide by {row.gpus} {row.unit}"
    elif row.shares.idle is None:
        return None if batch is not None else "uneven batches (rank_samples)"
    else:
        share = row.shares.idle
        evidence = f"ranks have {min(counts, default=0)} to {max(counts, default=0)} samples in an epoch"
    even = max(1, round((batch or row.gpus) / row.gpus)) * row.gpus
    return Bottleneck(
        "uneven",
        share,
        evidence,
        f"give all ranks the same number of samples: a global batch divisible by the {row.unit}, DistributedSampler, "
        "drop_last",
        command.change(_sizes(base, row), batch_size=even),
    )


def _sizes(*rows: Row) -> list[Size]:
    return [Size(row.gpus, row.nodes) for row in rows]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
