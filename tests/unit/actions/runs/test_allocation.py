"""Which element of a sweep is looked into, and what it looks like as a run of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pexpect
import pytest

from hpcrun.actions.runs.allocation import check_running, job_shell, open_shell, unlisted_words
from hpcrun.actions.status.run_status import ElementStatus, RunStatus, one_element
from hpcrun.errors import NotFoundError, PlanError, SchedulerError, UsageError
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run, write


def sweep(*states: str) -> RunStatus:
    elements = tuple(
        ElementStatus(
            index,
            f"4711_{index}",
            (("n", str(index)),),
            LastStatus(state, 1.0, state == "COMPLETED"),
        )
        for index, state in enumerate(states)
    )
    return RunStatus(run(), Path("/r"), LastStatus("RUNNING", 1.0), elements=elements)


def test_the_only_element_that_runs_is_meant_and_that_is_said() -> None:
    found, said = one_element(sweep("COMPLETED", "PENDING", "RUNNING", "FAILED"), None)
    assert found.run.name == "train/2"
    assert found.run.job_id == "4711_2"
    assert found.element == 2
    assert said == "train is a sweep; showing element 2"
    none_runs = sweep("COMPLETED", "PENDING")  # the sweep itself is meant
    assert one_element(none_runs, None) == (none_runs, None)


def test_where_several_run_one_must_be_named() -> None:
    item = sweep("RUNNING", "COMPLETED", "RUNNING")
    with pytest.raises(UsageError, match="2 of its elements run: 0,2") as refused:
        one_element(item, None)
    assert refused.value.hint == "name one: 4711/0"
    assert one_element(item, 2)[0].element == 2


PLAN = {
    "python": {"prefix": "/p y/.venv", "variable": "VIRTUAL_ENV"},
    "modules": ["cuda/12"],
    "env": [["A", "it's $HOME"], ["HF_TOKEN", None]],
}
SHOW = 'echo "$VIRTUAL_ENV|${PATH%%:*}|$A|${HF_TOKEN-unset}"\n'
SHOWN = "/p y/.venv|/p y/.venv/bin|it's $HOME|unset"


def test_a_shell_has_the_environment_of_the_job(tmp_path: Path) -> None:
    (tmp_path / ".profile").write_text("module() { echo module $*; }\n")
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    argv = job_shell(PLAN, is_terminal=False)
    done = subprocess.run(
        argv, env=env, input=SHOW, capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.splitlines() == ["module load cuda/12", SHOWN]
    plan = {"python": {"executable": "/p y/bin/python3.12"}}
    for path in ("/usr/bin:/bin", "/usr/bin:/p y/bin:/bin"):
        (tmp_path / ".profile").write_text(f"PATH='{path}'\n")
        done = subprocess.run(
            job_shell(plan, is_terminal=False),
            env=env,
            input="echo $PATH",
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert done.stdout.strip() == (path if "/p y" in path else f"/p y/bin:{path}")


def test_on_a_terminal_it_comes_after_what_bashrc_sets(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text(
        "PATH=/conda/bin:/usr/bin:/bin; module() { :; }; PS1='ready> '\n"
    )
    program, *rest = job_shell(PLAN, is_terminal=True)
    terminal = pexpect.spawn(
        program,
        rest,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "TERM": "dumb"},
        encoding="utf-8",
        timeout=30,
    )
    terminal.expect("ready> ")
    terminal.sendline(SHOW.strip())
    terminal.expect("\n(/p.*)\r\n")
    assert terminal.match is not None
    assert terminal.match[1] == SHOWN
    terminal.sendline("exit")
    terminal.expect(pexpect.EOF)


def item(state: str = "RUNNING", folder: Path = Path("/r"), **said: Any) -> RunStatus:
    """A run in this state that the scheduler lists."""
    values = {"live": True, **said}
    status = LastStatus(state, 1.0, final=state == "FAILED")
    return RunStatus(run(), folder, status, **values)


@pytest.mark.parametrize(
    ("state", "live", "problem"),
    [
        ("FAILED", True, f"{run().run_id} is FAILED: its allocation has ended"),
        ("PENDING", True, "train is pending: hpcrun shell works once it has started"),
        ("RUNNING", False, "Slurm does not know job 4711: its nodes cannot be reached"),
    ],
)
def test_only_a_listed_running_job_has_an_allocation(state: str, live: bool, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        check_running(item(state, live=live), "hpcrun shell")


def test_a_running_job_has_an_allocation() -> None:
    check_running(item(), "hpcrun shell")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"elsewhere": True}, "job 4711 belongs to cluster alpha"),
        ({"stale": True}, "Slurm did not respond about job 4711"),
        ({}, "Slurm does not know job 4711"),
    ],
    ids=["elsewhere", "stale", "unknown"],
)
def test_why_a_job_is_not_known_to_exist(said: dict[str, Any], words: str) -> None:
    assert unlisted_words(item(**said)) == words


def shell(folder: Path, srun: str | None, node: str | None = None) -> int:
    """The status of a shell in a job of two nodes, with this program for srun."""
    attempt = folder / "elements/0/attempts/0"
    write(attempt / "start", json.dumps({"job_id": "4711", "host": "n1", "started": 5.0}))
    write(attempt / "hosts", "n1\nn2\n")
    env = {"PATH": f"{folder}/bin", "HOME": str(folder)}
    if srun is not None:
        env["PATH"] += ":/usr/bin:/bin"
        write(folder / "bin/srun", f"#!/bin/sh\n{srun}\n").chmod(0o755)
    return open_shell(item(folder=folder), node, env, is_terminal=False)


def test_a_shell_is_a_step_of_the_job_on_its_node(tmp_path: Path) -> None:
    assert shell(tmp_path, f'echo "$*" >{tmp_path}/args; exit 3', "n2") == 3
    args = (tmp_path / "args").read_text()
    assert args.startswith("--jobid=4711 --overlap --mem=0 --nodes=1 ")
    assert "--nodelist=n2" in args
    assert "--pty" not in args


def test_a_node_of_another_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no node n9") as refused:
        shell(tmp_path, "exit 0", "n9")
    assert refused.value.hint == "its nodes: n1, n2"


def test_without_srun_there_is_no_shell(tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match="cannot start the shell: srun is not on PATH"):
        shell(tmp_path, None)
