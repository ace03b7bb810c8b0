"""shell: a person's shell inside the allocation of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hpcrun.actions.runs.allocation import allocation_of, check_node, check_running
from hpcrun.actions.status.status import RunStatus
from hpcrun.errors import SchedulerError, UsageError
from hpcrun.schedulers.process import run_on_terminal


def open_shell(item: RunStatus, node: str | None, env: Mapping[str, str], *, is_terminal: bool) -> int:
    """Give a person a shell on a node of a run, in the folder where its job started; return its exit status.

    Raises:
        PlanError: it does not run.
        NotFoundError: it has no such node.
        SchedulerError: there is no srun here.
    """
    check_running(item)
    workdir = item.run.plan.get("workdir") or item.run.cwd
    workdir = str(workdir) if workdir and Path(str(workdir)).is_dir() else None
    try:
        if item.run.scheduler == "local":
            if node not in (None, item.run.host):
                raise UsageError(f"{item.run.run_id} runs on this machine: leave out --node")
            # env(1) changes the folder for the shell alone
            argv = ["env", *([f"--chdir={workdir}"] if workdir else []), "bash", "-l"]
            return run_on_terminal(argv, {**env, "HPCRUN_RUN_DIR": str(item.folder)})
        check_node(item, node)
        return allocation_of(item, env).shell(node=node, workdir=workdir, is_terminal=is_terminal)
    except OSError as error:
        raise SchedulerError(f"cannot start the shell: {error.strerror}", hint="hpcrun doctor looks for srun") from None
