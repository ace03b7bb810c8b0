"""The allocation of a running run or element, and a shell in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import NotFoundError, PlanError, SchedulerError, UsageError
from hpcrun.job.text.quoting import quote_bash
from hpcrun.machine.on_terminal import run_on_terminal
from hpcrun.runs.attempt import hosts, last_attempt
from hpcrun.schedulers.job_steps import Allocation, plain_job_id

# The job's PATH is set after .bashrc, which may change it. srun waits until no process has the
# terminal open, so the background jobs of the shell are ended, too. Only under srun are they in the
# session of this process.
_ON_TERMINAL = """bash --rcfile <(printf '%s\\n' '[ ! -r ~/.bashrc ] || . ~/.bashrc' "$1")
status=$?
trap '' HUP
pkill -HUP -s $$
exit $status"""
_WHEN = "hpcrun status shows its reason"


def check_running(item: RunStatus, command: str) -> None:
    """Raise an error if a run has no allocation now, for a command such as ``hpcrun shell``.

    Raises:
        PlanError: the run has ended, has not started, or the scheduler does not list it.
    """
    run = item.run
    status = item.status
    if status.final:
        raise PlanError(
            f"{run.run_id} is {status.state}: its allocation has ended",
            hint=f"hpcrun logs {run.run_id} shows its output",
        )
    if status.state != "RUNNING":
        raise PlanError(
            f"{run.name} is {status.state.lower()}: {command} works once it has started", hint=_WHEN
        )
    if not item.live:
        raise PlanError(f"{unlisted_words(item)}: its nodes cannot be reached", hint=_WHEN)


def unlisted_words(item: RunStatus) -> str:
    """Return why a run's job is not known to exist: its id alone may be that of another job."""
    run = item.run
    if item.elsewhere:
        return f"job {run.job_id} belongs to {run.place}"
    who = "this machine" if run.scheduler == "local" else "Slurm"
    if item.stale and item.status.missed_s is None:
        return f"{who} did not respond about job {run.job_id}"
    return f"{who} does not know job {run.job_id}"


def nodes_of(item: RunStatus) -> list[str]:
    """Return the nodes of a run's last attempt, in Slurm's order."""
    attempt = last_attempt(item.folder, item.element or 0)
    if attempt is None:
        return []
    return hosts(attempt.folder)


def allocation_of(item: RunStatus, env: Mapping[str, str]) -> Allocation:
    """Return the allocation of a Slurm run that runs."""
    cpus = item.run.plan.get("cpus_per_node")
    job_id = plain_job_id(str(item.run.job_id), env)
    if not isinstance(cpus, int):
        cpus = None
    return Allocation(job_id, item.run.nodes, cpus, env)


def job_environment(plan: Mapping[str, Any]) -> str:
    """Return the lines of bash that set the environment of a job's plan.

    The environment has the modules, the Python environment and the variables of the plan.
    """
    python = plan.get("python") or {}
    lines = [f"module load {quote_bash(str(module))}" for module in plan.get("modules") or ()]
    if python.get("prefix"):
        lines.append(f"export {python['variable']}={quote_bash(python['prefix'])}")
        lines.append(f'export PATH={quote_bash(python["prefix"] + "/bin")}:"$PATH"')
    else:
        folder = os.path.dirname(str(python.get("executable")))
        if folder.startswith("/"):
            quoted = quote_bash(folder)
            lines.append(f'[[ :$PATH: == *:{quoted}:* ]] || export PATH={quoted}:"$PATH"')
    for name, value in plan.get("env") or ():
        if value is not None:
            lines.append(f"export {name}={quote_bash(value)}")
    return "\n".join(lines)


def job_shell(plan: Mapping[str, Any], *, is_terminal: bool) -> list[str]:
    """Return the command of a login shell with the environment of a job's plan.

    The environment has the modules, the Python environment and the variables of the plan. Set-up
    commands are not run again. Without a terminal the shell reads commands from stdin.
    """
    start = _ON_TERMINAL if is_terminal else 'eval "$1"; exec bash'
    return ["bash", "-l", "-c", start, "bash", job_environment(plan)]


def open_shell(
    item: RunStatus, node: str | None, env: Mapping[str, str], *, is_terminal: bool
) -> int:
    """Open a shell on a node of a run, and return the exit status of the shell.

    The shell starts in the folder where the job of the run started.

    Raises:
        UsageError: the run is local, and the user named another node.
        NotFoundError: the run has no such node.
        SchedulerError: the shell cannot be started.
    """
    check_running(item, "hpcrun shell")
    workdir: str | None = str(item.run.plan.get("workdir") or item.run.cwd or "")
    if not workdir or not Path(workdir).is_dir():
        workdir = None
    shell = job_shell(item.run.plan, is_terminal=is_terminal)
    try:
        if item.run.scheduler == "local":
            if node not in (None, item.run.host):
                raise UsageError(f"{item.run.run_id} runs on this machine: leave out --node")
            argv = ["env"]
            if workdir:
                argv.append(f"--chdir={workdir}")  # env(1) changes the folder for the shell alone
            argv += shell
            return run_on_terminal(argv, {**env, "HPCRUN_RUN_DIR": str(item.folder)})
        nodes = nodes_of(item)
        if node is not None and nodes and node not in nodes:
            raise NotFoundError(
                f"{item.run.run_id} has no node {node}", hint=f"its nodes: {', '.join(nodes)}"
            )
        return allocation_of(item, env).shell(
            shell, node=node, workdir=workdir, is_terminal=is_terminal
        )
    except OSError as error:
        raise SchedulerError(
            f"cannot start the shell: {error.strerror}", hint="hpcrun doctor looks for srun"
        ) from None
