"""The sizes of a study, the script's arguments for each, and the command that measures them.

This module is pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from hpcrun.errors import UsageError, did_you_mean
from hpcrun.job.request.parameters import fill_places
from hpcrun.job.text.quoting import with_ending
from hpcrun.job.text.units import count, parse_positive

MOST = 1000
"""The most runs of a study: more are a mistake."""

UNKNOWN_SCRIPT = "SCRIPT"
"""Stands for a script with its arguments; of a table nothing is known of them."""
BATCH_PLACES = ("{batch_size}", "{per_gpu_batch_size}")
Unit = Literal["GPUs", "ranks"]
_SIZES = re.compile(r"(?:(?P<type>[\w.-]+):)?(?P<numbers>[1-9]\d{0,5}(,[1-9]\d{0,5})*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of one run: GPUs (or ranks) of the whole job, and nodes if given."""

    gpus: int
    nodes: int | None = None


def parse_sizes(text: str, nodes: str | None, option: str) -> tuple[str | None, tuple[Size, ...]]:
    """Read the sizes behind --gpus or --ranks, and the number of nodes of each size.

    The sizes are written ``[TYPE:]1,2,4``. ``nodes`` has a number for each size, or one number of
    nodes for all.

    Returns:
        The type of the GPUs, None if none is named, and the sizes in their order.

    Raises:
        UsageError: the text is no list of sizes, or ``nodes`` does not fit the sizes.
    """
    match = _SIZES.fullmatch(text.replace(" ", ""))
    if match is None or (match["type"] and option != "--gpus"):
        hint = f"write {option} 1,2,4,8; of CPUs: hpcrun scale run --ranks 1,2,4"
        raise UsageError(f"{option} {text}: not a list of sizes", hint=hint)
    gpu_type = match["type"]
    numbers = _numbers(match)
    if nodes is None:
        return gpu_type, tuple(map(Size, numbers))
    match = _SIZES.fullmatch(nodes.replace(" ", ""))
    if match is None or match["type"]:
        raise UsageError(
            f"--nodes {nodes}: not a list of numbers of nodes", hint="write --nodes 1,1,2"
        )
    counts = _numbers(match)
    if len(counts) == 1:
        counts *= len(numbers)
    if len(counts) != len(numbers):
        raise UsageError(
            f"--nodes names {len(counts)} numbers, and {option} {len(numbers)} sizes",
            hint="give one number of nodes for all sizes, or one for each",
        )
    return gpu_type, tuple(map(Size, numbers, counts))


def _numbers(match: re.Match[str]) -> list[int]:
    """Return the numbers of a list of sizes."""
    return [int(number) for number in match["numbers"].split(",")]


def units_text(number: int, unit: Unit) -> str:
    """Return ``1 GPU``, ``4 GPUs`` or ``4 ranks``."""
    return count(number, unit.removesuffix("s"))


def in_order(sizes: Iterable[Size], repeat: int) -> list[tuple[Size, int]]:
    """Return the runs of a study, size and repeat (from 1): each size once, then each once more.

    So slow changes on a cluster affect all sizes equally.
    """
    listed = list(sizes)
    return [(size, number) for number in range(1, repeat + 1) for size in listed]


def point_name(name: str, size: Size, repeat: int, unit: Unit, *, with_nodes: bool) -> str:
    """Return the name of one run, such as ``train-g4-r2``.

    With ranks, it is ``train-p4-r2``; with nodes, ``train-g4-n2-r2``.
    """
    letter = "g" if unit == "GPUs" else "p"
    ending = f"-{letter}{size.gpus}"
    if with_nodes:
        ending += f"-n{size.nodes}"
    return with_ending(name, f"{ending}-r{repeat}")


@dataclass(frozen=True, slots=True)
class Workload:
    """The batch and the learning rate of a study.

    The learning rate follows the global batch (the linear scaling rule of Goyal et al., "Accurate,
    Large Minibatch SGD", arXiv:1706.02677): it stays if the global batch stays.
    """

    scaling: Literal["strong", "weak"] = "strong"
    # the global batch in strong scaling, the per-GPU batch in weak scaling
    batch_size: int | None = None
    lr: str | None = None  # for this batch, as typed
    dataset: str = ""

    def check(self, sizes: Iterable[Size]) -> str | None:
        """Return a note about the batch, or None if the batch divides.

        Raises:
            UsageError: the learning rate is not a positive number, or the batch is too small.
        """
        if self.lr is not None:
            try:
                parse_positive(self.lr)
            except ValueError:
                message = f"--lr {self.lr}: not a positive number"
                raise UsageError(message, hint="write --lr 1e-3") from None
        if self.batch_size is None:
            return None
        if self.batch_size < 1:
            raise UsageError(f"--batch-size {self.batch_size}: a batch has one sample or more")
        if self.scaling == "weak":
            return None
        gpus = [size.gpus for size in sizes]
        if max(gpus) > self.batch_size:
            few = f"less than one sample for each of {max(gpus)} ranks"
            raise UsageError(
                f"--batch-size {self.batch_size} is {few}",
                hint="--weak keeps the per-GPU batch instead",
            )
        uneven = [str(number) for number in gpus if self.batch_size % number]
        if uneven:
            return f"a batch of {self.batch_size} does not divide by {' or '.join(uneven)}"
        return None

    def global_batch(self, gpus: int) -> int | None:
        """Return the global batch, None if none was given."""
        if self.batch_size is None:
            return None
        if self.scaling == "weak":
            return self.batch_size * gpus
        return self.batch_size

    def values(self, gpus: int, nodes: int, repeat: int) -> dict[str, str]:
        """Return the values of the placeholders in the script's arguments.

        A global batch that does not divide by the GPUs gives no batch per GPU.
        """
        values = {"gpus": str(gpus), "nodes": str(nodes), "repeat": str(repeat)}
        batch = self.global_batch(gpus)
        if batch is not None:
            values["batch_size"] = str(batch)
            if batch % gpus == 0:
                values["per_gpu_batch_size"] = str(batch // gpus)
        if self.lr is not None:
            values["lr"] = self.lr
            if self.scaling == "weak" and gpus > 1:
                values["lr"] = f"{float(self.lr) * gpus:.6g}"
        if self.dataset:
            values["dataset"] = self.dataset
        return values

    def arguments(
        self, words: Iterable[str], gpus: int, nodes: int, repeat: int
    ) -> tuple[str, ...]:
        """Return the script's arguments at one size.

        Raises:
            UsageError: a batch or a learning rate is given that no argument receives, or an
                argument has a placeholder without a value.
        """
        values = self.values(gpus, nodes, repeat)
        placed, used = fill_places(
            tuple(words), values, lambda name: self._unknown(name, gpus, values)
        )
        if self.batch_size is not None and not used & {"batch_size", "per_gpu_batch_size"}:
            raise self._unused("batch_size")
        if self.lr is not None and "lr" not in used:
            raise self._unused("lr")
        return placed

    def _unused(self, name: str) -> UsageError:
        option = _OPTION_OF[name]
        place = f"{{{name}}}"
        return UsageError(
            f"{option} is given, but the script does not receive it: no argument has {place}",
            hint=f"train.py {option} {place}",
        )

    def _unknown(self, name: str, gpus: int, values: dict[str, str]) -> UsageError:
        place = f"{{{name}}}"
        option = _OPTION_OF.get(name)
        batch = self.batch_size
        if name == "per_gpu_batch_size" and batch is not None:
            divisible = -(-batch // gpus) * gpus
            return UsageError(
                f"{place}: a batch of {batch} does not divide by {gpus}: "
                f"{batch} / {gpus} = {batch / gpus:.2f}",
                hint=f"--batch-size {divisible}, or --weak",
            )
        if option:
            return UsageError(
                f"the arguments have {place}, and {option} is not given",
                hint=f"add {option} VALUE",
            )
        listed = f"it knows {', '.join(values)}; {{{place}}} stands for the text {place} itself"
        hint = did_you_mean(name, (*values, *_OPTION_OF), listed)
        return UsageError(f"the arguments have {place}, which a study does not know", hint=hint)


@dataclass(frozen=True, slots=True)
class Design:
    """The request of a study."""

    unit: Unit  # what its sizes count
    gpu_type: str | None  # if it was named
    sizes: tuple[Size, ...]
    workload: Workload
    repeat: int = 1  # the number of runs of each size
    warmup: int = 1  # the number of epochs of each run that do not count


def read_design(
    workload: Workload,
    *,
    gpus: str | None,
    ranks: str | None,
    nodes: str | None,
    repeat: int,
    warmup: int,
) -> tuple[Design, str | None]:
    """Return the study that the options describe, and a note on it.

    Raises:
        UsageError: not exactly one of ``gpus`` and ``ranks`` is given, or the runs are too many.
    """
    if (gpus is None) == (ranks is None):
        raise UsageError(
            "give the sizes with --gpus or with --ranks",
            hint="hpcrun scale run --gpus 1,2,4 train.py",
        )
    if gpus is None:
        unit: Unit = "ranks"
        gpu_type, sizes = parse_sizes(ranks or "", nodes, "--ranks")
    else:
        unit = "GPUs"
        gpu_type, sizes = parse_sizes(gpus, nodes, "--gpus")
    runs = len(sizes) * repeat
    if runs > MOST:
        raise UsageError(f"--repeat {repeat}: {runs} runs are more than a study may have, {MOST}")
    design = Design(unit, gpu_type, sizes, workload, repeat, warmup)
    return design, workload.check(sizes)


_OPTION_OF = {
    "batch_size": "--batch-size",
    "per_gpu_batch_size": "--batch-size",
    "lr": "--lr",
    "dataset": "--dataset",
}


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

    def scale(
        self,
        sizes: Iterable[Size],
        *,
        batch_size: int | None = None,
        options: Mapping[str, str] = MappingProxyType({}),
        args: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Return the command for these sizes.

        New options replace those of the command, and a flag has the value "". ``batch_size`` is the
        global batch of the last size. ``args`` that the script's command lacks are left out.
        """
        listed = list(sizes)
        options = dict(options)
        args = dict(args)
        batch = self._batch(listed[-1], batch_size)
        if batch is not None and any(place in self.script for place in BATCH_PLACES):
            options["--batch-size"] = str(batch)
        elif batch_size is not None:
            args = {"--batch-size": str(batch), **args}
        words = [
            "hpcrun scale run",
            self.profile,
            self.sizes,
            self._listed(listed),
            _nodes_option(listed),
            with_options(self.options, options),
            with_options(self.script, self._known(args)),
        ]
        return " ".join(filter(None, words))

    def _batch(self, largest: Size, batch_size: int | None) -> int | None:
        """Return the study's batch, or the one that makes a global batch on the largest size."""
        if batch_size is None:
            return self.batch_size
        if self.weak:
            return max(1, batch_size // largest.gpus)
        return batch_size

    def _known(self, args: Mapping[str, str]) -> dict[str, str]:
        """Return the arguments that the script's command has, or all if it is unknown."""
        if self.script == UNKNOWN_SCRIPT:
            return dict(args)
        known = {_option_name(text) for text in shlex.split(self.script)}
        return {name: value for name, value in args.items() if name in known}

    def _listed(self, sizes: Iterable[Size]) -> str:
        """Return the sizes as the command names them, with the type of the GPUs."""
        gpus = ",".join(str(size.gpus) for size in sizes)
        return shlex.quote(f"{self.gpu_type}:{gpus}") if self.gpu_type else gpus

    def change(self, sizes: Sequence[Size], **changes: Any) -> str:
        """Return the command with changes (arguments of ``scale``); "" if they change nothing."""
        line = self.scale(sizes, **changes)
        return "" if line == self.scale(sizes) else line

    def more(self, option: str, least: int) -> dict[str, str]:
        """Return an option with twice the number that the option has in the command.

        The number is at least ``least``.
        """
        command = f"{self.options} {self.script}".replace("_", "-")
        given = re.search(rf"(?<!\S){option}[= ](\d+)(?!\S)", command)
        if given is None:
            return {option: str(least)}
        return {option: str(max(least, 2 * int(given[1])))}

    def more_cpus(self, least: int) -> dict[str, str]:
        """Return the option for more CPUs.

        Return nothing where the command names no CPUs and has no GPUs.
        """
        given = re.search(r"(?<!\S)--cpus(-per-task)?(?!\S)", self.options)
        if given:
            return self.more(given[0], least)
        if self.sizes == "--gpus":
            return self.more("--cpus-per-gpu", least)
        return {}

    def preflight(self, gpus: int, nodes: int) -> str:
        """Return the command that checks the nodes and GPUs of such a run."""
        number = gpus if self.sizes == "--gpus" else 0
        words = ["hpcrun preflight", self.profile, f"--gpus {number}"]
        if nodes > 1:
            words.append(f"--nodes {nodes}")
        return " ".join(filter(None, words))


def _nodes_option(sizes: Iterable[Size]) -> str:
    """Return the option for the nodes of these sizes; "" if each is on one node."""
    nodes = [size.nodes or 1 for size in sizes]
    if max(nodes) == 1:
        return ""
    return f"--nodes {','.join(map(str, nodes))}"


def _option_name(text: str) -> str:
    """Return the name of an option as ``--batch-size`` is written."""
    name, _, _ = text.partition("=")
    return name.replace("_", "-")


def with_options(command: str, options: Mapping[str, str]) -> str:
    """Return a quoted command with each option once, with its new value.

    The value of a flag is "". ``--batch_size`` counts as ``--batch-size``.
    """
    words = shlex.split(command)
    for name, value in options.items():
        places = [at for at, text in enumerate(words) if _option_name(text) == name]
        first = len(words)
        written = name
        if places:
            first = places[0]
            written, _, _ = words[first].partition("=")
        for at in reversed(places):
            following = words[at + 1] if at + 1 < len(words) else ""
            has_value = bool(value) and "=" not in words[at] and not following.startswith("--")
            del words[at : at + (2 if has_value else 1)]
        words[first:first] = [written, value] if value else [written]
    return shlex.join(words)
