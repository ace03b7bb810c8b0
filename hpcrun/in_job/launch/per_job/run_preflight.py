"""The preflight of a job: a check on every node, and a judge who decides if the step may start."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import records

if TYPE_CHECKING:
    from .step_monitor import StepMonitor

PREFLIGHT_S = 24
"""The time of the checks, and then of their judge."""
NO_PROGRAMS = (
    "the programs of the preflight are put beside the script by hpcrun submit: "
    "submit it so, or render it without --preflight"
)


@dataclass(frozen=True)
class PreflightCommands:
    """The parts of ``CHECK ... && JUDGE ... [&& STEP ...]``; the step may be missing."""

    check: list[str]
    judge: list[str]
    step: list[str]


def split_commands(command: list[str]) -> PreflightCommands:
    """Return the parts of the command."""
    first = command.index("&&")
    rest = command[first + 1 :]
    second = rest.index("&&") if "&&" in rest else len(rest)
    return PreflightCommands(check=command[:first], judge=rest[:second], step=rest[second + 1 :])


def check_nodes(
    commands: PreflightCommands, monitor: StepMonitor, hosts: list[str], *, is_local: bool
) -> str:
    """Check the nodes; return why the step may not start, or the empty string.

    Args:
        commands: the check and the judge.
        monitor: starts the check, and knows of signals.
        hosts: the nodes.
        is_local: the nodes are of this machine.
    """
    folder = os.path.join(records.attempt_dir(), "preflight")
    os.makedirs(folder, exist_ok=True)
    programs = os.path.join(os.environ["HPCRUN_RUN_DIR"], "programs", "preflight")
    if not os.access(os.path.join(programs, "node.py"), os.R_OK):
        return NO_PROGRAMS
    limit_s = float(os.environ.get("HPCRUN_PREFLIGHT_S") or PREFLIGHT_S) + 1
    log = os.path.join(folder, "nodes.log" if is_local else "srun.log")
    monitor.run_check(commands.check, hosts, log, limit_s)
    if monitor.signalled:
        return ""
    return _judge(commands.judge, limit_s)


def _judge(command: list[str], limit_s: float) -> str:
    """Run the judge, and announce the result; return why the step may not start."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return "the preflight was not judged: the Python of the job does not respond"
    output = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode != 0:
        return output or "the preflight was not judged: the Python of the job does not run here"
    records.announce(output)
    return ""
