"""The request of a run, as it would be typed again."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.actions.jobs.resubmit import repeated, same_python
from hpcrun.errors import UsageError
from hpcrun.job.request.job_request import given_fields
from hpcrun.job.request.read_request import read_request
from tests.unit.builders import run


def again(
    request: dict[str, Any], here: dict[str, str] | None = None, /, **asked: Any
) -> dict[str, Any]:
    said = repeated(run(request={"script": "train.py", **request}), asked, here or {})
    return given_fields(read_request(said))


def test_nothing_is_changed_that_was_not_said() -> None:
    same = {"gpus": {"count": 4, "type": "a100"}, "walltime_s": 60, "requeue": 2}
    before = {**same, "args": ["--lr", "1"], "sbatch": ["nice=1"], "env": [["A", "1"]]}
    after = {**same, "args": ("--lr", "1"), "sbatch": ("nice=1",), "env": (("A", "1"),)}
    assert again(before) == {"script": "train.py", "name": "train", **after}


@pytest.mark.parametrize(
    ("before", "asked", "after"),
    [
        ({"srun": ["mpi=pmix"]}, {"srun": ["mpi=none"]}, {"srun": ("mpi=pmix", "mpi=none")}),
        ({"torchrun": ["max-restarts=1"]}, {}, {"torchrun": ("max-restarts=1",)}),
        ({"segment": 4}, {"segment": 2}, {"segment": 2}),
        ({"gpus_per_node": {"count": 2}}, {"gpus": "8"}, {"gpus": {"count": 8}}),
        ({"gpus": {"count": 2}}, {"gpus_per_node": "4"}, {"gpus_per_node": {"count": 4}}),
        ({"cpus": 4}, {"cpus_per_gpu": 2}, {"cpus_per_gpu": 2}),
        ({"env": [["A", "1"], ["B", "2"]]}, {"env": ["A=3"]}, {"env": (("B", "2"), ("A", "3"))}),
        ({"sbatch": ["nice=1"]}, {"sbatch": ["nice=2"]}, {"sbatch": ("nice=1", "nice=2")}),
        ({"load": ["cuda/12"]}, {"load": ["cuda/13"]}, {"load": ("cuda/13",)}),
        ({"args": ["x"]}, {"args": []}, {}),
        # the arguments of the script that an interpreter runs, and not those of the interpreter
        (
            {"script": "python", "args": ["-u", "train.py", "--lr", "1"]},
            {"args": ["--lr", "2"]},
            {"script": "python", "args": ("-u", "train.py", "--lr", "2")},
        ),
        (
            {"script": "env", "args": ["A=1", "python", "-m", "train", "x"]},
            {"args": []},
            {"script": "env", "args": ("A=1", "python", "-m", "train")},
        ),
    ],
)
def test_what_is_said_counts(
    before: dict[str, Any], asked: dict[str, Any], after: dict[str, Any]
) -> None:
    assert again(before, **asked) == {"script": "train.py", "name": "train", **after}


def test_a_secret_comes_from_here() -> None:
    request = {"env": [["HF_TOKEN", "***"], ["STARS", "***"]]}
    assert again(request, {"HF_TOKEN": "x"})["env"] == (("HF_TOKEN", "x"), ("STARS", "***"))
    assert again(request, env=["HF_TOKEN=y"])["env"] == (("STARS", "***"), ("HF_TOKEN", "y"))
    with pytest.raises(UsageError, match="HF_TOKEN is a secret"):
        again(request)


def test_the_python_environment_is_the_runs() -> None:
    python = {"executable": "/v/bin/python", "prefix": "/v", "variable": "VIRTUAL_ENV"}
    env = {"CONDA_PREFIX": "/c", "VIRTUAL_ENV": "/other", "A": "1"}
    assert same_python(python, env) == {"A": "1", "VIRTUAL_ENV": "/v"}
    assert same_python({**python, "prefix": None}, env) == {"A": "1"}
