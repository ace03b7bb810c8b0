"""What wandb and MLflow get from a job's environment."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hpcrun.in_job.launch import tracker_environment
from hpcrun.machine.clean_environment import clean_env

RUN = "20260102-030405-train-0a1b"
BEGUN = "wandb: Run data is saved locally in /work/wandb/{}run-20260102_030405-{}\n"


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    attempt = tmp_path / RUN / "elements/3/attempts/1"
    attempt.mkdir(parents=True)
    (attempt.parent / "0").mkdir()
    env = {
        "HPCRUN_RUN_DIR": str(tmp_path / RUN),
        "HPCRUN_JOB_ID": "4711_3",
        "HPCRUN_ELEMENT": "3",
        "HPCRUN_ATTEMPT": "1",
        "HPCRUN_ATTEMPT_DIR": str(attempt),
    }
    monkeypatch.setattr(os, "environ", env)
    return env


def test_an_element_of_a_sweep_has_tags_and_the_sweeps_group_and_a_single_job_none(
    env: dict[str, str],
) -> None:
    single = {
        **env,
        "HPCRUN_JOB_ID": "4711",
        "HPCRUN_RUN_DIR": f"/work/20260102-030405-{'x' * 100}-0a1b",
    }
    tracker_environment.label()
    assert env["WANDB_TAGS"] == f"{RUN},job-4711_3"
    assert env["WANDB_RUN_GROUP"] == RUN
    assert json.loads(env["MLFLOW_RUN_CONTEXT"]) == {
        "hpcrun.run": RUN,
        "hpcrun.job": "4711_3",
        "hpcrun.element": "3",
    }
    assert not {"WANDB_NAME", "WANDB_RUN_ID", "WANDB_RESUME"} & env.keys()
    env.clear()
    env |= single
    tracker_environment.label()
    assert "WANDB_RUN_GROUP" not in env
    assert json.loads(env["MLFLOW_RUN_CONTEXT"]).keys() == {"hpcrun.run", "hpcrun.job"}
    assert max(map(len, env["WANDB_TAGS"].split(","))) == tracker_environment.LONGEST_TAG


def test_the_users_own_variable_stays_and_that_of_an_enclosing_job_does_not(
    env: dict[str, str],
) -> None:
    env |= {"WANDB_TAGS": "mine", "WANDB_RUN_GROUP": "outer", "HPCRUN_PUT_WANDB_RUN_GROUP": "outer"}
    tracker_environment.label()
    assert env["WANDB_TAGS"] == "mine"
    assert env["WANDB_RUN_GROUP"] == RUN


@pytest.mark.parametrize("name", ['a,b"c', "tab\there", "ü" * 10, "", "a b", "$(reboot)"])
def test_a_folder_with_a_strange_name_gives_no_labels(env: dict[str, str], name: str) -> None:
    env |= {"HPCRUN_RUN_DIR": f"/work/{name}", "HPCRUN_JOB_ID": "" if not name else "4711"}
    tracker_environment.label()
    assert not [each for each in env if each.startswith(("WANDB", "MLFLOW"))]


def log(env: dict[str, str], attempt: int, text: str, rank: int = 0) -> None:
    Path(env["HPCRUN_ATTEMPT_DIR"]).parent.joinpath(str(attempt), f"rank-{rank}.err").write_text(
        text
    )


def test_a_requeued_rank_continues_its_own_run(env: dict[str, str]) -> None:
    env["WANDB_RESUME"] = "allow"
    log(env, 0, "x\n" * 10 + BEGUN.format("offline-", "ab12cd34") + BEGUN.format("", "ab12cd34"))
    log(env, 0, BEGUN.format("", "of-rank1"), rank=1)
    tracker_environment.continue_run(1)
    assert env["WANDB_RUN_ID"] == "of-rank1"
    assert "WANDB_RUN_ID" not in clean_env(env), "a job submitted inside this one is another run"
    del env["WANDB_RUN_ID"]
    tracker_environment.continue_run(0)
    assert env["WANDB_RUN_ID"] == "ab12cd34"


@pytest.mark.parametrize(
    ("said", "more"),
    [
        # wandb.init twice
        (BEGUN.format("", "one") + BEGUN.format("", "two"), {"WANDB_RESUME": "allow"}),
        ("no tracker\n", {"WANDB_RESUME": "allow"}),
        (BEGUN.format("", "one"), {}),
        (BEGUN.format("", "one"), {"WANDB_RESUME": "never"}),
        (BEGUN.format("", "one;rm"), {"WANDB_RESUME": "allow"}),
        (BEGUN.format("", "one"), {"WANDB_RESUME": "allow", "WANDB_RUN_ID": "mine"}),
    ],
)
def test_no_run_is_continued(env: dict[str, str], said: str, more: dict[str, str]) -> None:
    env |= more
    log(env, 0, said)
    tracker_environment.continue_run(0)
    assert env.get("WANDB_RUN_ID") == more.get("WANDB_RUN_ID")


def test_a_line_across_two_blocks_is_found_and_an_endless_log_is_not_read(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = BEGUN.format("", "ab12cd34")
    log(env, 0, "x" * (tracker_environment._BLOCK - len(line) // 2) + line)
    assert tracker_environment._ids_before(0) == {"ab12cd34"}
    monkeypatch.setattr(tracker_environment, "MOST_READ", 10)
    assert tracker_environment._ids_before(0) == set()
