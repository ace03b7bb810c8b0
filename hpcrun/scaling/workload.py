"""The measured training from which a forecast starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from hpcrun.errors import UsageError
from hpcrun.job.shape import multiples_around
from hpcrun.job.units import COUNT_FORMS, parse_count, parse_duration, parse_positive

Optimizer = Literal["sgd", "adam"]

WARMUP_EPOCHS = 5
"""Goyal et al. 2017 (arXiv:1706.02677, section 2.2): the rate is raised gradually over the first 5 epochs."""

GRADIENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of one parameter's gradient. Under autocast the parameters, and so the summed gradients, stay fp32."""

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": "sgd",
    "momentum": "sgd",
    "adam": "adam",
    "adamw": "adam",
    "nadam": "adam",
    "rmsprop": "adam",
}
"""Name of an optimizer → the optimizer whose rule applies."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class MeasuredTraining:
    """One measured epoch, and the properties of the training.

    Attributes:
        samples: of the data set in one epoch.
        batch_size: the global batch of the measured GPUs.
        epoch_s: the time of an epoch on them.
        gpus: the number of measured GPUs.
        second: another batch size on the same GPUs, and the time of an epoch with it, in seconds.
        parameters: of the model; None leaves communication out.
        overlap: the share of communication that may overlap with the backward pass; None: as DDP's buckets allow.
        tokens_per_sample: tokens, patches or pixels of one sample that pass through a layer together.
    """

    samples: int
    batch_size: int
    epoch_s: float
    gpus: int = 1
    second: tuple[int, float] | None = None
    lr: float | None = None
    optimizer: Optimizer | None = None
    warmup_epochs: float | None = None
    epochs: int = 1
    parameters: int | None = None
    gradient_bytes: int = 4
    overlap: float | None = None
    tokens_per_sample: int = 1

    @property
    def batch_per_gpu(self) -> int:
        """The measured batch of one GPU."""
        return self.batch_size // self.gpus

    @property
    def most_per_gpu(self) -> int:
        """The largest measured batch of one GPU."""
        return max(self.batch_per_gpu, self.second[0] // self.gpus if self.second else 0)

    @property
    def step_s(self) -> float:
        """The measured time of a step."""
        return self.epoch_s / steps_per_epoch(self.samples, self.batch_size)

    @property
    def warmup(self) -> float:
        """Epochs of warm-up: as given, else those of Goyal et al., and at most half of a short training."""
        if self.warmup_epochs is not None:
            return self.warmup_epochs
        return min(WARMUP_EPOCHS, self.epochs / 2) if self.epochs > 1 else WARMUP_EPOCHS


def steps_per_epoch(samples: int, batch_size: int) -> int:
    """Return the steps of an epoch, the last one with the rest, like torch's DataLoader by default."""
    return -(-samples // batch_size)


def read_workload(said: Mapping[str, str]) -> MeasuredTraining:
    """Build the workload from the typed values, by the names of the options.

    Raises:
        UsageError: a value cannot be read, or contradicts another; the message names the option.
    """
    values = {_READERS[name][0]: read_option(name, text, _READERS[name][1]) for name, text in said.items()}
    work = MeasuredTraining(**values)
    _check(work)
    return work


def read_option(name: str, text: str, parse: Callable[[str], _Item]) -> _Item:
    """Read the value of one option, which an error message names.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"--{name.replace('_', '-')}: {error}", hint="see hpcrun plan --help") from None


def one_of(text: str, known: Mapping[str, _Item]) -> _Item:
    """Return the meaning of a word.

    Raises:
        ValueError: it is not a known word.
    """
    if text.lower() not in known:
        raise ValueError(f"{text!r} is none of {', '.join(known)}")
    return known[text.lower()]


def _share(text: str) -> float:
    share = 0.0 if text.strip() in ("0", "0.0") else parse_positive(text)
    if share > 1:
        raise ValueError(f"{text!r} is not a share; write it as 0, 0.5 or 1")
    return share


def _second(text: str) -> tuple[int, float]:
    batch_size, equals, time = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} has no '='; write BATCH=TIME, such as 4096=17m")
    return parse_count(batch_size), parse_duration(time)


_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "samples": ("samples", parse_count),
    "batch_size": ("batch_size", parse_count),
    "epoch_time": ("epoch_s", parse_duration),
    "reference_gpus": ("gpus", parse_count),
    "also": ("second", _second),
    "lr": ("lr", parse_positive),
    "optimizer": ("optimizer", lambda text: one_of(text, OPTIMIZERS)),
    "warmup_epochs": ("warmup_epochs", parse_positive),
    "epochs": ("epochs", parse_count),
    "parameters": ("parameters", parse_count),
    "dtype": ("gradient_bytes", lambda text: one_of(text, GRADIENT_BYTES)),
    "overlap": ("overlap", _share),
    "tokens_per_sample": ("tokens_per_sample", parse_count),
}
"""Option → the field of the workload, and how it is read."""


def _check(work: MeasuredTraining) -> None:
    sizes = [("--batch-size", work.batch_size), *([("--also", work.second[0])] if work.second else [])]
    for option, size in sizes:
        if size > work.samples:
            raise UsageError(
                f"{option} {size} is more than the {work.samples} samples of an epoch",
                hint=f"--samples takes {COUNT_FORMS}",
            )
        if size % work.gpus:
            raise UsageError(
                f"{option} {size} does not divide by --reference-gpus {work.gpus}: {size / work.gpus:.2f} each",
                hint=f"give the global batch: {multiples_around(size, work.gpus)}",
            )
    if work.second and work.second[0] == work.batch_size:
        raise UsageError(
            f"--also {work.second[0]} is the batch of --batch-size",
            hint=f"measure an epoch with another batch, such as {work.batch_size * 2}",
        )
    if work.warmup_epochs is not None and work.epochs > 1 and work.warmup_epochs > work.epochs:
        raise UsageError(
            f"--warmup-epochs {work.warmup_epochs:g} is more than --epochs {work.epochs}",
            hint=f"--epochs is the total number of epochs; Goyal et al. took {WARMUP_EPOCHS} of 90",
        )
