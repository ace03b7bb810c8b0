"""Train gradient-boosted trees, XGBoost's and LightGBM's, on all CPUs of one node.

    hpcrun submit -P cpu --gpus 0 --cpus 64 --launcher python examples/tree_models.py --trees 2000

One process with as many threads as the job has CPUs: no ranks, no torchrun. The trees guess how
many stars a person gives a film, from who they are, what the film is, and both's earlier ratings.
The data is MovieLens-100k; see movielens.py.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from datetime import datetime, timezone
from pathlib import Path

import lightgbm
import numpy as np
import xgboost
from board import add_argument, open_board
from hpcrun_runtime import checkpoint_dir, log_metrics  # every job of hpcrun finds it
from movielens import ratings, rows
from numpy.typing import NDArray

Array = NDArray[np.float32]

HELD_OUT = 0.1
"""The newest ratings are for the validation: the trees must not know the future."""


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("both", "xgboost", "lightgbm"), default="both")
    parser.add_argument("--trees", type=int, default=200)
    parser.add_argument("--leaves", type=int, default=63, help="of each tree")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    add_argument(parser)
    return parser.parse_args()


def threads() -> int:
    """Return how many CPUs this job was given; a library that counts those of the node takes its
    neighbours'.
    """
    given = os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("OMP_NUM_THREADS")
    return int(given) if given else len(os.sched_getaffinity(0))


# --- the data ------------------------------------------------------------------------------------


def known_of_people_and_films() -> tuple[list[list[float]], list[list[float]]]:
    """Return for each person age, gender and occupation, and for each film its year and genres, as
    numbers.
    """
    people = [(int(age), gender, job) for _, age, gender, job, _ in rows("user")]
    jobs = sorted({job for _, _, job in people})
    films = [
        (int(year) if year.isdigit() else 0, genres.split()) for _, _, year, genres in rows("item")
    ]
    genres = sorted({genre for _, of_film in films for genre in of_film})
    return (
        [[age, gender == "F", jobs.index(job)] for age, gender, job in people],
        [[year, *(genre in of_film for genre in genres)] for year, of_film in films],
    )


def load_data() -> tuple[Array, Array]:
    """Return what is known before each rating, oldest first, and the stars that were given."""
    people, films = known_of_people_and_films()
    # how many before, their mean
    given: defaultdict[tuple[str, int], list[float]] = defaultdict(lambda: [0, 3.5])
    features: list[list[float]] = []
    stars: list[float] = []
    for rating in ratings():
        hour = datetime.fromtimestamp(rating.time_s, timezone.utc).hour
        so_far = given["user", rating.user], given["film", rating.film]
        features.append([*people[rating.user], *films[rating.film], *so_far[0], *so_far[1], hour])
        stars.append(rating.stars)
        for count_and_mean in so_far:
            count_and_mean[0] += 1
            count_and_mean[1] += (rating.stars - count_and_mean[1]) / count_and_mean[0]
    return np.array(features, dtype=np.float32), np.array(stars, dtype=np.float32)


# --- the models: each trains, writes itself to a file and returns its guesses --------------------


def train_xgboost(
    args: argparse.Namespace, features: Array, stars: Array, held_out: Array, path: Path
) -> Array:
    model = xgboost.XGBRegressor(
        n_estimators=args.trees,
        max_leaves=args.leaves,
        max_depth=0,  # as many levels as the leaves need
        grow_policy="lossguide",
        learning_rate=args.lr,
        random_state=args.seed,
        n_jobs=threads(),
    )
    model.fit(features, stars)
    model.save_model(path.with_suffix(".json"))
    return np.asarray(model.predict(held_out), dtype=np.float32)


def train_lightgbm(
    args: argparse.Namespace, features: Array, stars: Array, held_out: Array, path: Path
) -> Array:
    model = lightgbm.LGBMRegressor(
        n_estimators=args.trees,
        num_leaves=args.leaves,
        learning_rate=args.lr,
        random_state=args.seed,
        n_jobs=threads(),
        verbosity=-1,
    )
    model.fit(features, stars)
    model.booster_.save_model(path.with_suffix(".txt"))
    return np.asarray(model.predict(held_out), dtype=np.float32)


MODELS = {"xgboost": train_xgboost, "lightgbm": train_lightgbm}


def main() -> None:
    args = parse_args()
    write = open_board(args.tensorboard)
    features, stars = load_data()
    cut = round(len(stars) * (1 - HELD_OUT))
    answers = stars[cut:]

    def error(guesses: Array | np.float32) -> float:
        return float(np.sqrt(np.mean((guesses - answers) ** 2)))

    print(f"{cut} ratings to train on, {len(answers)} to validate with, {threads()} threads")
    print(f"always the mean: off by {error(stars[:cut].mean()):.4f} stars")
    for step, name in enumerate([args.model] if args.model in MODELS else MODELS, start=1):
        started = time.perf_counter()
        guesses = MODELS[name](
            args, features[:cut], stars[:cut], features[cut:], checkpoint_dir() / name
        )
        seconds = time.perf_counter() - started
        off, right = error(guesses), float(np.mean(np.round(guesses) == answers))
        samples = cut * args.trees  # every tree goes through all of them
        print(f"{name}: off by {off:.4f} stars, {right:.1%} exactly right, in {seconds:.2f} s")
        results = {
            "epoch_time": seconds,
            "samples_per_s": samples / seconds,
            "loss": off,
            "accuracy": right,
        }
        log_metrics(step=step, samples=samples, **results)
        write(args.trees, **{f"{name}/{result}": number for result, number in results.items()})


if __name__ == "__main__":
    main()
