"""Secrets: their values stand nowhere but in the environment of the submission."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from hpcrun.actions.prepare import prepare
from hpcrun.job.resources import Machine
from hpcrun.job.secrets import is_secret
from hpcrun.runs.store import RunStore
from hpcrun.views.plan import plan_lines, prepared_json
from tests.harness import Hpcrun
from tests.unit.given import cluster, plan, request, script, surroundings, write

VALUE = "hf_s3cr3t"


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "DB_PASSWORD",
        "TOKEN",
        "hf_token",
        "NCCL_PSK",
    ],
)
def test_a_variable_so_named_is_a_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["TOKENIZERS_PARALLELISM", "MONKEY", "KEYBOARD", "PASSWORDLESS", "NCCL_DEBUG", "HF_HOME", "KEYS", ""]
)
def test_a_variable_so_named_is_none(name: str) -> None:
    assert not is_secret(name)


def test_a_secret_s_value_is_neither_in_the_plan_nor_in_the_script() -> None:
    decided = plan(cluster(env={"WANDB_API_KEY": VALUE}), env=[f"HF_TOKEN={VALUE}", "HF_HOME=/data"])
    assert decided.env == (("WANDB_API_KEY", None), ("HF_TOKEN", None), ("HF_HOME", "/data"))
    assert VALUE not in json.dumps(asdict(decided))
    assert VALUE not in "\n".join(plan_lines(decided))
    assert "HF_TOKEN=***" in "\n".join(plan_lines(decided))
    text = script(decided).text
    assert VALUE not in text
    assert "export HF_TOKEN\n" in text
    assert "|| fail 'HF_TOKEN is not set" in text


def test_a_secret_goes_through_the_environment_alone(tmp_path: Path) -> None:
    write(tmp_path / "job.py", "")
    asked = request("job.py", gpus="0", env=[f"HF_TOKEN={VALUE}", "HF_HOME=/data"])
    ready = prepare(asked, "local", surroundings(tmp_path), lambda: Machine(cpus=1))
    assert ready.secrets() == {"HF_TOKEN": VALUE}
    assert VALUE not in json.dumps(prepared_json(ready))


def test_a_secret_reaches_the_job_and_stands_in_no_file_of_the_run(hpcrun: Hpcrun) -> None:
    write(hpcrun.folder / "job.py", f"import os\nassert os.environ['HF_TOKEN'] == {VALUE!r}\n")
    done = hpcrun("submit", "-P", "local", "--gpus", "0", "--wait", "--env", f"HF_TOKEN={VALUE}", "job.py", check=True)
    assert VALUE not in done.stdout + done.stderr
    store = RunStore(hpcrun.runs)
    (run_id,) = store.run_ids()
    record = store.load(run_id)
    assert ["HF_TOKEN", "***"] in record.request["env"]
    assert ["HF_TOKEN", None] in record.plan["env"]
    files = [path for path in hpcrun.runs.rglob("*") if path.is_file()]
    assert {"run.json", "script.sh"} <= {path.name for path in files}
    assert all(VALUE.encode() not in path.read_bytes() for path in files)
