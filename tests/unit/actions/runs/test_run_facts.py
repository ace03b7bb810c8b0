"""The facts of a run by section, and those in which two runs differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.runs.run_facts import FactDifference, differences, facts_of
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.store import RunStore
from tests.unit.builders import run

PLAN = {
    "added": [["OMP_NUM_THREADS", "8"]],
    "env": [["AMP_MODE", "bf16"], ["WANDB_API_KEY", None]],
    "modules": ["cuda/12"],
    "python": {"executable": "/venv/bin/python"},
    "shape": {"gpu_type": "h100"},
}
REQUEST = {
    "script": "fit.py",
    "args": ["--lr", "0.1"],
    "gpus": {"count": 4},
    "env": [["AMP_MODE", "bf16"]],
    "sbatch": ["a=1", "b"],
}


def facts(tmp_path: Path, element: int | None = None, **fields: Any) -> dict[str, dict[str, str]]:
    """The facts of a run on two nodes."""
    made = run(**{"request": REQUEST, "plan": PLAN, "cwd": "/home/me", **fields})
    return facts_of(made, RunStore(tmp_path), element, "n1,n2")


def test_the_facts_of_a_run_by_section(tmp_path: Path) -> None:
    assert facts(tmp_path) == {
        "arguments": {"program": "fit.py", "lr": "0.1"},
        "options": {"--profile": "big", "--gpus": "4", "--sbatch": "a=1, b"},
        "environment": {
            "OMP_NUM_THREADS": "8",
            "AMP_MODE": "bf16",
            "WANDB_API_KEY": "***",
            "modules": "cuda/12",
            "Python": "/venv/bin/python",
        },
        "nodes": {"size": "2×2", "cluster": "alpha", "GPU": "h100", "nodes": "n1,n2"},
        "versions": {},
        "code": {"folder": "/home/me"},
    }


def test_the_versions_are_those_of_the_newest_attempt(tmp_path: Path) -> None:
    made = run(request=REQUEST)
    folder = RunStore(tmp_path).create(made, "")
    for number, version in enumerate(("2.3.0", "2.4.0")):
        attempt = RunFolder(folder).element(0).attempt(number)
        attempt.path.mkdir(parents=True)
        attempt.versions.write_text(f'{{"torch": "{version}"}}')
    assert facts(tmp_path)["versions"] == {"torch": "2.4.0"}


@pytest.mark.parametrize(
    ("plan", "nodes"),
    [({}, {"size": "2", "GPU": "none"}), ({"batch": {"name": "x"}}, {"size": "2"})],
)
def test_gpus_that_a_script_decides_are_unknown_and_not_none(
    tmp_path: Path, plan: dict[str, Any], nodes: dict[str, str]
) -> None:
    of_one = facts(tmp_path, gpus_per_node=0, plan=plan)["nodes"]
    assert of_one == {**nodes, "cluster": "alpha", "nodes": "n1,n2"}


def test_an_element_has_its_own_arguments_and_no_options_of_a_sweep(tmp_path: Path) -> None:
    request = {
        "script": "fit.py",
        "args": ["--run", "{element}"],
        "sweep": [[["lr", "1"]], [["lr", "2"]]],
    }
    plan = {"sweep": {"indices": "0-1", "first": 0}}
    of_one = facts(tmp_path, 1, request=request, plan=plan)
    assert of_one["arguments"] == {"program": "fit.py", "run": "1", "lr": "2"}
    assert of_one["options"] == {"--profile": "big"}
    unfilled = {**request, "args": ["{lr2}"]}
    assert facts(tmp_path, 1, request=unfilled, plan=plan)["arguments"]["1"] == "{lr2}"


def test_the_commit_may_be_that_of_an_earlier_run(tmp_path: Path) -> None:
    code = {"root": "/src", "files": 1, "bytes": 1, "commit": "c0ffee" * 6, "changes": ""}
    of_one = facts(tmp_path, code=code)["code"]
    assert of_one == {"folder": "/src", "commit": "c0ffeec0ffee", "changes": "none"}
    earlier = run("20260102-030405-fit-0000", code=code)
    RunStore(tmp_path).create(earlier, "")
    assert facts(tmp_path, code_of=earlier.run_id)["code"] == of_one
    assert facts(tmp_path, code_of="20260102-030405-fit-0001")["code"] == {"folder": "/home/me"}


@pytest.mark.parametrize(
    ("digests", "changes"),
    [
        ([], "2 changed files (not compared)"),
        ([["a.py", "0badc0de"], ["data/", ""]], "a.py (0badc0de), data/ (not compared)"),
        ([["a.py", "0badc0de"], ["b.py", "gone"]], "a.py (0badc0de), b.py (gone)"),
    ],
)
def test_changed_files_have_digests(tmp_path: Path, digests: list[list[str]], changes: str) -> None:
    code = {"root": "/src", "files": 0, "bytes": 0, "commit": "c0ffee" * 6, "copied": False}
    code |= {"changes": "2 changed files", "changed": 2, "digests": digests}
    assert facts(tmp_path, code=code)["code"]["changes"] == changes


def test_what_was_not_given_differs_and_what_is_unknown_does_not(tmp_path: Path) -> None:
    before = facts(tmp_path)
    after = facts(tmp_path, request={**REQUEST, "args": []}, plan={**PLAN, "shape": {}}, cwd=None)
    assert differences(before, after) == [FactDifference("arguments", "lr", "0.1", None)]
    assert differences(before, before) == []


@pytest.mark.parametrize("plan", [{"env": 3, "modules": "x", "python": [], "shape": 1}, {}])
def test_another_version_may_have_written_the_record(tmp_path: Path, plan: dict[str, Any]) -> None:
    of_one = facts(tmp_path, request={"script": "a.py", "gpus": "many"}, plan=plan, code=None)
    assert of_one["options"] == {"options": "cannot be read"}
    assert of_one["environment"] == {}
