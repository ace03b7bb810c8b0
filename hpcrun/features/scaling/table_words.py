"""The words of published tables: what a header measures, and what a unit means. Pure.

A header is a quantity, its unit, and "per" what: ``Throughput (tokens/s/GPU)``, ``Training time
(s/1 epoch)``. Every word of a header must be understood, or the column is not read:
``Communication time (s)`` is no time of a run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

_SECONDS = {
    **dict.fromkeys(("us", "µs"), 1e-6),
    **dict.fromkeys(("ms", "msec", "millisecond"), 1e-3),
    **dict.fromkeys(("s", "sec", "second"), 1.0),
    **dict.fromkeys(("min", "minute"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour"), 3600.0),
    "day": 86400.0,
}
"""Units of time."""
_TIME_NAMES = {"time", "runtime", "duration", "elapsed", "walltime"}
_LONG_UNITS = {"hr", "hrs", "hour", "minute", "second", "day"}
"""Units that name a time where nothing else does: ``Hours``."""
_SHORT_RATES = {"tps": "tokens", "qps": "queries", "rps": "requests", "ips": "images"}
"""Short names of rates, and what they count."""
_COUNTED = {
    **_SHORT_RATES,
    "ns": "ns",
    **dict.fromkeys(("s", "sample", "smp"), "samples"),
    **dict.fromkeys(("t", "tok", "token"), "tokens"),
    **dict.fromkeys(("img", "image", "im"), "images"),
    **dict.fromkeys(("q", "query", "querie"), "queries"),
    **dict.fromkeys(("req", "request"), "requests"),
    **dict.fromkeys(("seq", "sequence"), "sequences"),
    **dict.fromkeys(("ex", "example"), "examples"),
}
"""What a rate counts, as people shorten it; of other words, the plural has an s."""
_NOT_COUNTED = {
    *("b", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "bit", "gbit", "byte"),
    *("flop", "gflop", "tflop", "pflop", "cost", "price", "usd", "dollar", "joule", "kwh", "op"),
}
"""Words whose rate is not the speed of a training."""
_SCALES = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6}
_STEPS = {"step", "iteration", "iter", "it", "batch", "batche", "update"}

_GPU = {"gpu", "device", "accelerator"}
_NODE = {"node", "server", "host", "machine"}
_NUMBER_OF = {"number", "num", "no", "n", "of", "count", "total"}
_MEAN = {"average", "avg", "mean", "measured", "actual", "observed", "achieved"}
_EXPECTED = {"expected", "estimated", "predicted", "projected"}
_TRAINING = {"training", "train", "trained"}
_SCALING = {"scaling", "strong", "weak", "parallel", "relative"}
_OVER = {"vs", "over", "baseline", "single", "x", "to"}
_CARD = re.compile(r"[a-z]{1,4}\d+[a-z]*")
"""The name of a card, ``a100``, which may stand beside GPUs."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a header measures, or what a unit says."""

    quantity: str
    """A column of hpcrun, or ``batch_per_gpu``, ``step_time``, ``steps_per_s``."""
    factor: float | None = None
    """To seconds, or to a second; None if no unit stands there."""
    per_gpu: bool = False
    counted: str = ""
    """What a rate counts: ``tokens``."""
    expected: bool = False
    """It was not measured."""


@dataclass(frozen=True, slots=True)
class _Quantity:
    """A column, the words of which one names it, and the words that may stand beside."""

    column: str
    names: set[str]
    beside: set[str]


_QUANTITIES = (
    _Quantity("gpus", _GPU, _NUMBER_OF),
    _Quantity("nodes", _NODE, _NUMBER_OF),
    _Quantity("speedup", {"speedup"}, {*_SCALING, *_OVER, *_MEAN, *_GPU, *_TRAINING}),
    _Quantity("speedup", {"scaling"}, {"factor", "x"}),
    _Quantity("efficiency_percent", {"efficiency", "eff"}, {*_SCALING, *_MEAN, *_TRAINING}),
    _Quantity("batch_size", {"batch"}, {"global", "size", "total", "effective", "local"}),
)
_TIME_BESIDE = {
    *("epoch", "total", "wall", "clock", "run", "execution", "to", "end"),
    *(*_TRAINING, *_MEAN, *_STEPS),
}
_RATE_NAMES = {"throughput", "speed", "rate", "performance", "processed"}
_RATE_BESIDE = {
    *("global", "aggregate", "agg", "system", "overall"),
    *(*_TRAINING, *_MEAN, *_NUMBER_OF),
}


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a header in the singular."""

    plain: list[str]
    per: list[str]  # those behind "per" or a slash


def header_meaning(header: str) -> Meaning | None:
    """Return what a header measures; None if one of its words is not understood.

    A remark in brackets may stand behind a rate with its unit: ``Tokens/sec (decode, batch=32)``.
    """
    head, bracket, _ = header.partition("(")
    if bracket and _whole_meaning(header) is None:
        rate = _rate(_split(head))
        return rate if _split(head).per else None
    return _whole_meaning(header)


def _whole_meaning(header: str) -> Meaning | None:
    words = _split(header)
    expected = bool(_EXPECTED.intersection(words.plain))
    plain = [token for token in words.plain if token not in _EXPECTED]
    meaning = _meaning(_Words(plain, words.per))
    if meaning is not None and expected:
        return replace(meaning, expected=True)
    return meaning


def unit_meaning(unit: str) -> Meaning | None:
    """Return what the unit of a cell says.

    ``ms`` is a time, ``tok/s`` a rate, ``%`` an efficiency and ``x`` a speed-up.
    """
    if unit.lower() in ("x", "×"):
        return Meaning("speedup")
    if unit == "%":
        return Meaning("efficiency_percent")
    words = _split(unit)
    if words.plain and not words.per and words.plain[0] in _SECONDS:
        return Meaning("time", _SECONDS[words.plain[0]]) if len(words.plain) == 1 else None
    return _rate(words)


def _split(text: str) -> _Words:
    """Return the words of a header: camel case is split, and a 1 left out (``s/1 epoch``)."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    text = re.sub(r"speed[\s_-]+up", "speedup", text.lower())
    text = re.sub(r"time[\s_-]+steps?", "step", text)
    words = _Words([], [])
    is_behind = False
    for token in re.findall(r"[^\W\d_]+(?:\d\w*)?|\d+|[/]", text):
        if token in ("/", "per"):
            is_behind = True
            continue
        if token == "1":
            continue
        singular = token.removesuffix("s") if len(token) > 3 else token
        (words.per if is_behind else words.plain).append(singular)
        is_behind = False
    return words


def _meaning(words: _Words) -> Meaning | None:
    rate = _rate(words)
    if rate is not None:
        return rate
    plain = set(words.plain)
    if plain <= {*_GPU, "hour", "h", "total"} and plain & _GPU and plain & {"hour", "h"}:
        return Meaning("gpu_hours")
    units = [token for token in words.plain if token in _SECONDS]
    others = plain.difference(_SECONDS)
    if not units:
        if others & _RATE_NAMES and others <= _RATE_NAMES | _RATE_BESIDE:
            return _rate_without_unit(words)
        for quantity in _QUANTITIES:
            if others & quantity.names and _is_understood(others, quantity):
                return _of_quantity(quantity, words)
    return _time(words, units)


def _rate_without_unit(words: _Words) -> Meaning | None:
    if set(words.per) - _GPU:
        return None
    return Meaning("samples_per_s", per_gpu=bool(words.per))


def _is_understood(words: set[str], quantity: _Quantity) -> bool:
    rest = words - quantity.names - quantity.beside
    if quantity.column == "gpus":
        return all(_CARD.fullmatch(token) for token in rest)
    if quantity.column == "speedup":
        return all(token.isdigit() for token in rest)
    return not rest


def _of_quantity(quantity: _Quantity, words: _Words) -> Meaning | None:
    """Return the meaning of a header without a unit of time.

    A batch may be one of each GPU; nothing else is divided by anything.
    """
    per_gpu = bool(words.per) and set(words.per) <= _GPU
    if quantity.column == "batch_size":
        if per_gpu or "local" in words.plain:
            return Meaning("batch_per_gpu")
        return None if words.per else Meaning("batch_size")
    return None if words.per else Meaning(quantity.column)


def _rate(words: _Words) -> Meaning | None:
    """Return the meaning of ``Throughput (tokens/s/GPU)``, ``QPS`` or ``samples per second``."""
    short = [token for token in words.plain if token in _SHORT_RATES]
    times = [token for token in words.per if token in _SECONDS]
    if len(short) + len(times) != 1 or set(words.per) - set(times) - _GPU:
        return None
    rest = [token for token in words.plain if token not in _RATE_NAMES | _RATE_BESIDE]
    scale = 1.0
    if len(rest) == 2 and rest[0] in _SCALES:
        scale = _SCALES[rest.pop(0)]
    if len(rest) != 1 or rest[0] in _NOT_COUNTED:
        return None
    counted = rest[0]
    factor = scale if short else scale / _SECONDS[times[0]]
    per_gpu = bool(_GPU.intersection(words.per))
    if counted in _STEPS:
        return Meaning("steps_per_s", factor, per_gpu)
    plural = _COUNTED.get(counted, f"{counted}s")
    return Meaning("samples_per_s", factor, per_gpu, plural)


def _time(words: _Words, units: list[str]) -> Meaning | None:
    """Return the meaning of ``Time (s)``, ``Epoch time``, ``s/epoch`` or ``Time/iteration``."""
    others = set(words.plain).difference(_SECONDS)
    is_named = others & _TIME_NAMES or _LONG_UNITS.intersection(units) or (units and words.per)
    if not is_named or len(units) > 1:
        return None
    quantity = _timed(others, words.per)
    if not quantity:
        return None
    return Meaning(quantity, _SECONDS[units[0]] if units else None)


def _timed(words: set[str], per: Sequence[str]) -> str:
    """Return the time of a run, an epoch or a step, by words without units; "" for another time."""
    digits = {token for token in words if token.isdigit()}
    if len(per) > 1 or words - digits - _TIME_NAMES - _TIME_BESIDE:
        return ""
    if digits:  # of 10 epochs
        return "time" if "epoch" in words and not per else ""
    of_what = {*per, *words}
    if of_what & _STEPS:
        return "step_time"
    if "epoch" in of_what:
        return "epoch_time"
    return "" if per else "time"
