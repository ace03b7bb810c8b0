"""Laws of scaling fitted to a series: the serial fraction, the cost of communication, and the next two doublings.

All three laws are linear in coefficients that cannot be negative, so a fit is least squares for each of the few
choices of zero coefficients. With N GPUs, and times and throughputs over those of the smallest size:

* Amdahl (1967), strong scaling: ``time = a + b/N``, so that ``S(N) = 1/(s + (1−s)/N)`` with ``s = a/(a+b)``.
* Gustafson (1988), weak scaling: ``throughput = a + b·N``, so that ``S(N) = N − s(N−1)`` with ``s = a/(a+b)``.
* Communication (Gunther's universal scalability law, 1993): Amdahl's time, and ``c·(N−1)``, the cost of each
  further GPU, like the 2(N−1) latencies of a ring all-reduce (Patarasuk & Yuan 2009). The ring's other part,
  ``2(N−1)/N`` of the bytes, is a constant minus a multiple of 1/N, which no fit can separate from Amdahl's two terms.
  In a weak study the time per unit of work of a GPU is ``a + c·(N−1)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from hpcrun.scaling.series import Row, Series

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Law = Literal["amdahl", "gustafson", "communication"]
FEWEST_SIZES = 3
"""With fewer sizes a law goes through all of them, and its fit error is unknown."""
FAR_OFF = 0.15
"""A law with a larger fit error than this, relative, makes no predictions."""
_DRAWS = 1000
_LEVEL = (2.5, 97.5)
_SEED = 20_260_101  # any fixed seed: the same numbers must give the same report


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval; None if there are too few sizes for an interval."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """A law's prediction for a size that was not run."""

    gpus: int
    speedup: Estimate
    efficiency: Estimate


@dataclass(frozen=True, slots=True)
class Fit:
    """A law fitted to a series.

    Attributes:
        serial: fraction of the work on one GPU that does not become faster; None if the law has none.
        communication: cost of each further GPU, as a fraction of the time of one; None if the law has no such
            term.
        error: root mean square of the relative differences between the law and the sizes.
        sizes: the number of sizes to which it was fitted.
        predictions: for the next two doublings.
        peak: the number of GPUs with which the law is fastest; None if more are always faster.
    """

    law: Law
    serial: Estimate | None
    communication: Estimate | None
    error: float
    sizes: int
    predictions: tuple[Prediction, ...]
    peak: int | None = None

    @property
    def describes(self) -> bool:
        """Whether the sizes follow the law."""
        return self.error <= FAR_OFF


@dataclass(frozen=True, slots=True)
class _LawTerms:
    """The form of a law: its terms for N GPUs, and their sum for a speed-up."""

    terms: Callable[[Array], list[Array]]
    total: Callable[[Array, Array], Array]
    """(speed-up, N over the smallest) → the sum of the terms; it is its own inverse in the first argument."""
    serial: bool
    communication: bool


_STRONG: dict[Law, _LawTerms] = {
    "amdahl": _LawTerms(lambda n: [n**0, 1 / n], lambda speedup, _: 1 / speedup, serial=True, communication=False),
    "communication": _LawTerms(
        lambda n: [n**0, 1 / n, n - 1], lambda speedup, _: 1 / speedup, serial=True, communication=True
    ),
}
_WEAK: dict[Law, _LawTerms] = {
    "gustafson": _LawTerms(lambda n: [n**0, n], lambda speedup, _: speedup, serial=True, communication=False),
    "communication": _LawTerms(
        lambda n: [n**0, n - 1], lambda speedup, growth: growth / speedup, serial=False, communication=True
    ),
}


def fit_series(series: Series) -> tuple[Fit, ...]:
    """Return the laws for which the series has enough sizes: two sizes for two coefficients, three for three."""
    rows = series.sizes
    shapes = _WEAK if series.weak else _STRONG
    return tuple(_fit(law, shape, rows) for law, shape in shapes.items() if len(rows) >= _coefficients(shape))


def best_fit(fits: Sequence[Fit]) -> Fit | None:
    """Return the law for predictions.

    In a strong study the law with communication contains Amdahl's law and always fits better: so it is used only if its
    communication is certainly more than zero. In a weak study both laws have two terms, and the better fit is used.
    """
    found = {fit.law: fit for fit in fits}
    amdahl, full = found.get("amdahl"), found.get("communication")
    if amdahl is None:
        return min(fits, key=lambda fit: fit.error, default=None)
    surely = full is not None and full.communication is not None and (full.communication.low or 0) > 0
    return full if surely else amdahl


def scaled_speedup(serial: Estimate, gpus: int) -> Estimate:
    """Return the speed-up by Gustafson's law if the work grows with the GPUs, from the serial fraction on one GPU."""
    bounds = (None if bound is None else gpus - bound * (gpus - 1) for bound in (serial.high, serial.low))
    return Estimate(gpus - serial.value * (gpus - 1), *bounds)


def _coefficients(shape: _LawTerms) -> int:
    import numpy as np

    return len(shape.terms(np.ones(1)))


def _fit(law: Law, shape: _LawTerms, rows: Sequence[Row]) -> Fit:
    import numpy as np

    gpus = np.array([row.gpus for row in rows], dtype=float)
    target = shape.total(np.array([row.speedup.mean for row in rows]), gpus / gpus[0])
    design = np.stack(shape.terms(gpus), axis=1)
    # every size has the same weight, whatever its time: the relative differences are squared
    found = _least_squares(design / target[:, None], np.ones((len(rows), 1)))
    residual = (design @ found)[:, 0] / target - 1
    noise = _noise(rows, residual, design.shape[1])
    draws = None if noise is None else _least_squares(design / target[:, None], 1 + residual[:, None] + noise.draw())
    one = np.stack(shape.terms(np.ones(1)), axis=1)

    def part(term: int) -> Estimate:
        """The share of one term in the whole at one GPU."""
        return _estimate(_share(found, one, term)[0], None if draws is None else _share(draws, one, term))

    return Fit(
        law,
        part(0) if shape.serial else None,
        part(-1) if shape.communication else None,
        float(np.sqrt(np.mean(residual**2))),
        len(rows),
        tuple(_prediction(shape, gpus[-1] * factor, gpus[0], found, draws) for factor in (2, 4)),
        _peak(found[:, 0]) if shape.serial and shape.communication else None,
    )


def _peak(coefficients: Array) -> int | None:
    """Return the N for which ``a + b/N + c·(N−1)`` is least."""
    _, parallel, communication = map(float, coefficients)
    return max(1, round((parallel / communication) ** 0.5)) if communication > 0 else None


def _least_squares(design: Array, targets: Array) -> Array:
    """Return for each column of targets the best coefficients without negative ones.

    There are at most three terms, so every choice of zero coefficients can be tried.
    """
    import numpy as np

    scale = np.sqrt(np.sum(design**2, axis=0))  # scale the terms to one size: thousands of GPUs would lose all digits
    unit = design / scale
    gram, wanted = unit.T @ unit, unit.T @ targets
    terms, best, error = design.shape[1], np.zeros_like(wanted), np.sum(targets**2, axis=0)
    for number in range(1, terms + 1):
        for chosen in map(list, combinations(range(terms), number)):
            found = np.linalg.pinv(gram[np.ix_(chosen, chosen)], hermitian=True) @ wanted[chosen]
            error_here = np.sum((unit[:, chosen] @ found - targets) ** 2, axis=0)
            better = (found >= 0).all(axis=0) & (error_here < error)
            best[:, better] = 0.0
            best[np.ix_(chosen, better)] = found[:, better]
            error = np.where(better, error_here, error)
    coefficients: Array = best / scale[:, None]
    return coefficients


@dataclass(frozen=True, slots=True)
class _Noise:
    """The relative random error of sizes, and the number of independent differences from which it is known."""

    sigma: Array
    freedom: int

    def draw(self) -> Array:
        """Return sizes × draws: normal, widened like Student's t, since sigma is itself an estimate."""
        import numpy as np

        random = np.random.default_rng(_SEED)
        widened = np.sqrt(self.freedom / random.chisquare(self.freedom, _DRAWS))
        return self.sigma[:, None] * random.standard_normal((len(self.sigma), _DRAWS)) * widened


def _noise(rows: Sequence[Row], residual: Array, terms: int) -> _Noise | None:
    """Return the noise of the sizes' means: the larger one of the repeats' noise and the law's fit error.

    Thousands of repeats do not make a law true if the sizes do not follow it.
    """
    import numpy as np

    if len(rows) < FEWEST_SIZES:
        return None
    runs = np.array([row.speedup.n for row in rows])
    again = int(np.sum(runs - 1))
    squares = float(np.sum([(row.speedup.n - 1) * row.speedup.deviation**2 for row in rows]))
    repeats = _Noise(np.sqrt(squares / again / runs), again) if again else None
    left = len(rows) - terms
    misfit = _Noise(np.full(len(rows), np.sqrt(np.sum(residual**2) / left)), left) if left else None
    known = [noise for noise in (misfit, repeats) if noise is not None]
    return max(known, key=lambda noise: float(np.mean(noise.sigma)), default=None)


def _share(coefficients: Array, one: Array, term: int) -> Array:
    import numpy as np

    whole: Array = (one @ coefficients)[0]
    share: Array = np.divide(coefficients[term], whole, out=np.zeros_like(whole), where=whole > 0)
    return share


def _prediction(shape: _LawTerms, gpus: float, smallest: float, found: Array, draws: Array | None) -> Prediction:
    import numpy as np

    terms = np.stack(shape.terms(np.array([gpus])), axis=1)
    growth = np.array([gpus / smallest])

    def speedup(coefficients: Array) -> Array:
        return shape.total(np.maximum((terms @ coefficients)[0], 1e-9), growth)

    expected = _estimate(speedup(found)[0], None if draws is None else speedup(draws))
    return Prediction(int(gpus), expected, _scaled(expected, float(smallest / gpus)))


def _estimate(value: float, draws: Array | None) -> Estimate:
    import numpy as np

    if draws is None:
        return Estimate(float(value))
    low, high = np.percentile(draws, _LEVEL)
    # the draws lie around the law, but with a bound of zero the law's own value can be at their edge
    return Estimate(float(value), float(min(low, value)), float(max(high, value)))


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    low, high = (None if bound is None else bound * factor for bound in (estimate.low, estimate.high))
    return Estimate(estimate.value * factor, low, high)
