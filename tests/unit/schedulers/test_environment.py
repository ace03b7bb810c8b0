"""The environment of a submission: without what an enclosing job would add."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from hpcrun.schedulers.environment import FUNCTIONS, clean_env, env_for_slurm


@pytest.mark.parametrize(
    "name",
    [
        "SLURM_JOB_ID",
        "SLURM_NTASKS",
        "SBATCH_PARTITION",
        "SQUEUE_STATES",
        "RANK",
        "MASTER_ADDR",
        "LOCAL_RANK",
        "TORCHELASTIC_RUN_ID",
        "HPCRUN_RUN_DIR",
        "SUBMITIT_EXECUTOR",
        "PMI_RANK",
        "BASH_FUNC_on_rank%%",
    ],
)
def test_what_describes_an_enclosing_job_is_left_out(name: str) -> None:
    assert clean_env({name: "x", "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "name", ["SLURM_CONF", "HPCRUN_RUNS", "HPCRUN_PROFILE", "HPCRUN_SITE", "HF_TOKEN", "CUDA_VISIBLE_DEVICES"]
)
def test_all_else_is_kept(name: str) -> None:
    assert clean_env({name: "x"}) == {name: "x"}


def test_a_program_s_gpus_are_handed_on_to_this_machine_but_not_to_slurm() -> None:
    inside = {"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert clean_env(inside) == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert env_for_slurm(inside) == {}
    assert env_for_slurm({"CUDA_VISIBLE_DEVICES": "0,1"}) == {"CUDA_VISIBLE_DEVICES": "0,1"}


def test_what_torchrun_sets_by_itself_is_left_out_and_what_a_person_has_set_is_kept() -> None:
    by_itself = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "ROLE_NAME": "default"}
    assert clean_env({"TORCHELASTIC_RUN_ID": "x", **by_itself}) == {}
    assert clean_env(by_itself) == by_itself
    other = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3", "ROLE_NAME": "mine"}
    assert clean_env({"TORCHELASTIC_RUN_ID": "x", **other}) == other


TEMPLATES = Path(__file__).parents[3] / "templates"
CHANGE = r"""
export ADDED=1 CHANGED="new 'value'" PATH="/venv/bin:$PATH" PYTHONPATH=/run/runtime LINES_="$LINES_"$'\n'more
unset TAKEN
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("", {}),
        ("export OWN=x", {"OWN": "x"}),
        ("export CHANGED=mine ADDED=mine", {"CHANGED": "mine", "ADDED": "mine"}),
        ("export PATH=/own:$PATH PYTHONPATH=/own:$PYTHONPATH", {"PATH": "/own:/usr/bin:/bin", "PYTHONPATH": "/own"}),
        ("unset CHANGED; export TAKEN=again", {"CHANGED": None, "TAKEN": "again"}),
    ],
)
def test_what_a_script_changes_is_handed_on_as_it_came(program: str, expected: dict[str, str | None]) -> None:
    came = {"PATH": "/usr/bin:/bin", "CHANGED": "", "TAKEN": "a b", "LINES_": "one\ntwo", "KEPT": "\udcff"}
    first, last = ((TEMPLATES / f"environment/{name}.sh.j2").read_text() for name in ("came", "changed"))
    print_it = "/usr/bin/env python3 -c 'import json, os; print(json.dumps(dict(os.environ)))'"
    script = "\n".join([first, CHANGE, last, program, print_it])
    done = subprocess.run(["bash", "-euc", script], env=came, capture_output=True, text=True, check=True)
    inside = json.loads(done.stdout)
    assert inside.get("ADDED", "1") in ("1", "mine")
    handed_on = clean_env(inside)
    own = {name for name in handed_on if name in ("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE")}
    assert {name: value for name, value in handed_on.items() if name not in own} == {
        name: value for name, value in {**came, **expected}.items() if value is not None
    }


def test_every_function_that_a_script_exports_is_known() -> None:
    texts = [path.read_text() for path in TEMPLATES.rglob("*.j2")]
    exported = {word for text in texts for line in re.findall(r"export -f (.*)", text) for word in _words(line)}
    assert exported
    assert exported - FUNCTIONS == set()


def _words(line: str) -> set[str]:
    return set(re.findall(r"[a-z_]{4,}", re.sub(r" if [^}]*", "", line)))
