"""The style of every figure that matplotlib draws, with the check that it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.errors import PlanError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("figure.mplstyle")
COLUMN = 3.5
PAGE = 7.0
"""The widths of a column and of a page of a paper, in inches."""
GREY = "#777777"
DARK = "#222222"
_LIGHTEST = 0.75
"""Where viridis ends: what follows is too pale on white."""


@contextmanager
def paper_style(option: str = "--png") -> Iterator[None]:
    """Draw with the style of hpcrun alone, whatever a matplotlibrc says.

    Letters that the font lacks are boxes.

    Args:
        option: the option that draws, for the message.

    Raises:
        PlanError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise PlanError(
            f"{option} needs matplotlib, which is not installed",
            hint='pip install "hpcrun-slurm[plot]"',
        ) from None
    import warnings

    with matplotlib.rc_context(matplotlib.rcParamsDefault), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matplotlib.rcParams.update(
            matplotlib.rc_params_from_file(STYLE, use_default_template=False)
        )
        # each figure is laid out once, for all formats
        matplotlib.rcParams["figure.constrained_layout.use"] = False
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return a figure; width and height are in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def style_of(number: int) -> dict[str, Any]:
    """Return the colour, marker and dashes of a curve.

    An earlier curve is wider, and visible below an equal curve.
    """
    import matplotlib

    cycle = matplotlib.rcParams["axes.prop_cycle"].by_key()
    style = {name: values[number % len(values)] for name, values in cycle.items()}
    style["linewidth"] = max(1.2, 2.4 - 0.4 * number)
    style["markersize"] = max(4.0, 6.0 - 0.7 * number)
    return style


def ordered_styles(number: int) -> list[dict[str, Any]]:
    """Return the styles of curves in an order, from dark to light.

    The styles are distinct in grey and without colour vision, too.
    """
    from matplotlib import colormaps

    shades = colormaps["viridis"]
    last = max(1, number - 1)
    styles = []
    for place in range(number):
        styles.append({**style_of(place), "color": shades(_LIGHTEST * place / last)})
    return styles


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure to a file.

    Raises:
        PlanError: the file cannot be written.
    """
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise PlanError(f"cannot write {path}: {error}") from None
