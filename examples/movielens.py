"""MovieLens-100k, as the package recbole 1.2.1 carries it: 943 people's 100,000 ratings of 1,682
films.

Its files are read; the package itself, which wants an older numpy, is not imported.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Rating(NamedTuple):
    """Who saw what: user and film counted from 0, 1 to 5 stars, seconds since 1970."""

    user: int
    film: int
    stars: float
    time_s: int


def folder() -> Path:
    """Return the folder with the data set's files."""
    spec = importlib.util.find_spec("recbole")
    for package in (spec and spec.submodule_search_locations) or []:
        if (path := Path(package, "dataset_example/ml-100k")).is_dir():
            return path
    raise SystemExit(
        "MovieLens-100k comes with recbole: python -m pip install --no-deps recbole==1.2.1"
    )


def rows(kind: str) -> Iterable[list[str]]:
    """Return the rows of a file, such as ``inter`` or ``kg``, as text."""
    with (folder() / f"ml-100k.{kind}").open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(lines)  # names and types of the columns
        yield from lines


def ratings() -> list[Rating]:
    """Return all ratings, the oldest first."""
    lines = (
        Rating(int(user) - 1, int(film) - 1, float(stars), int(time))
        for user, film, stars, time in rows("inter")
    )
    return sorted(lines, key=lambda rating: (rating.time_s, rating.user, rating.film))


def films_by_user(seen: Iterable[Rating]) -> list[list[Rating]]:
    """Return each user's ratings, in the order in which they are given."""
    by_user: dict[int, list[Rating]] = {}
    for rating in seen:
        by_user.setdefault(rating.user, []).append(rating)
    return [by_user[user] for user in sorted(by_user)]
