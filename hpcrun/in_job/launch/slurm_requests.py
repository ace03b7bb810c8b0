"""The requests to Slurm from inside a job."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass
from itertools import product
from typing import Any

from . import records

ASK_S = 30
"""Timeout of a command in seconds."""
TRIES = 5
"""How often a request is repeated that matters for the job, with growing pauses."""
_SIZE = re.compile(r"SLURM_(NTASKS|NPROCS|CPUS_PER|GPUS|MEM|TRES|GRES|THREADS|NNODES|EXACT).*")
_FILTERS = ("SCONTROL_", "SCANCEL_", "SQUEUE_", "SINFO_", "SACCT_")
"""How the variables begin that change what Slurm's commands do or print."""
_DEAD = re.compile(r"(?:down|fail|unk).*|.*\*", re.ASCII)


@dataclass(frozen=True)
class JobSays:
    """scontrol's information on this job; empty if Slurm does not respond.

    Attributes:
        restarts: how often Slurm has requeued it, None if not reported.
        preempted: it is being preempted by another job.
        batch_host: the node of its script.
        nodes: the list of its nodes.
    """

    state: str = ""
    reason: str = ""
    restarts: int | None = None
    preempted: bool = False
    excluded: str = ""
    batch_host: str = ""
    nodes: str = ""

    @property
    def lost_its_script(self) -> bool:
        """Whether Slurm has removed the node of the script from the job."""
        return bool(self.batch_host and self.nodes) and self.batch_host not in expand(self.nodes)

    def was_requeued_after(self, requeues: int) -> bool:
        """Return whether Slurm has requeued the job since it had done so this many times."""
        return self.restarts is not None and self.restarts != requeues


def job() -> JobSays:
    """Ask about this job."""
    return parse_job(_ask("scontrol", "--oneliner", "show", "job", os.environ["HPCRUN_JOB_ID"])[1])


def parse_job(text: str) -> JobSays:
    """Read a line of ``scontrol show job``."""
    names = "JobState|Reason|Restarts|PreemptTime|ExcNodeList|BatchHost|NodeList"
    fields = dict(re.findall(rf"(?:^| )({names})=(\S*)", text))
    restarts = fields.get("Restarts", "")
    return JobSays(
        state=fields.get("JobState", ""),
        reason=fields.get("Reason", ""),
        restarts=int(restarts) if restarts.isdigit() else None,
        preempted=fields.get("PreemptTime", "None") not in ("None", "Unknown", "N/A"),
        excluded=_nodes_in(fields, "ExcNodeList"),
        batch_host=_nodes_in(fields, "BatchHost"),
        nodes=_nodes_in(fields, "NodeList"),
    )


def _nodes_in(fields: dict[str, str], name: str) -> str:
    return fields.get(name, "").replace("(null)", "")


def node_address(node: str) -> str:
    """Return the address of a node in Slurm's configuration; empty if Slurm does not show it."""
    status, text = _ask("scontrol", "--oneliner", "show", "node", node)
    match = re.search(r"(?:^| )NodeAddr=(\S+)", text)
    return match[1] if match and status == 0 else ""


def nodes_dead(hosts: list[str]) -> dict[str, bool]:
    """Return whether Slurm reports each node as down or not responding.

    The result is empty if Slurm does not respond.
    """
    names = ",".join(hosts)
    status, text = _ask("sinfo", "--noheader", "--Node", "--nodes", names, "--format=%N %t")
    if status != 0:
        return {}
    dead = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2:
            node, state = words
            dead[node] = bool(_DEAD.fullmatch(state))
    return dead


def removed_nodes(hosts: list[str]) -> list[str]:
    """Return which of the nodes Slurm has removed from this job, as it does after their failure.

    A node that an administrator has set down may have returned, and this remains. The result is
    empty if Slurm does not respond.
    """
    answer = job()
    if answer.state != "RUNNING" or not answer.nodes:
        return []
    left = expand(answer.nodes)
    return [host for host in hosts if host not in left]


def requeue(exclude: list[str]) -> str:
    """Requeue this job, without some nodes; return Slurm's message if it refuses."""
    job_id = os.environ["HPCRUN_JOB_ID"]
    status, answer = _ask("scontrol", "requeue", job_id)
    if status != 0 and "pending execution" not in answer:
        return answer.strip() or f"scontrol requeue ended with status {status}"
    if exclude:
        before = [name for name in job().excluded.split(",") if name]
        nodes = ",".join(before + exclude)
        if _ask("scontrol", "update", f"JobId={job_id}", f"ExcNodeList={nodes}")[0] == 0:
            records.say(f"{','.join(exclude)} is excluded from now on")
    return ""


def requeue_patiently(exclude: list[str]) -> bool:
    """Requeue this job as ``requeue`` does, and try again while Slurm refuses.

    The result says whether Slurm accepts the request.
    """
    for pause_s in range(1, TRIES + 1):
        problem = requeue(exclude)
        if not problem:
            return True
        records.say(problem)
        time.sleep(pause_s)
    return False


def cancel() -> str:
    """Cancel this job; return Slurm's message if it refuses."""
    return _refusal("scancel", os.environ["HPCRUN_JOB_ID"])


def cancel_pending(job_ids: list[str]) -> str:
    """Cancel pending jobs, one after the other, and look at what Slurm lists afterwards.

    The result is why at least one of them still waits, the empty string if none is known to.
    """
    problem = _refusal("scancel", *job_ids)
    if problem:
        return problem
    names = ",".join(job_ids)
    # of jobs that Slurm has forgotten squeue ends with an error
    status, text = _ask(
        "squeue", "--noheader", "--states=PENDING", f"--jobs={names}", "--format=%i"
    )
    waiting = text.split()
    if status != 0 or not waiting:
        return ""
    return f"Slurm still lists {', '.join(waiting)} as pending"


def end_steps() -> str:
    """Send SIGTERM to the steps of this job, not to its script.

    The result is Slurm's message if Slurm refuses.
    """
    return _refusal("scancel", "--signal=TERM", os.environ["HPCRUN_JOB_ID"])


def requeue_no_more() -> None:
    """Prevent Slurm from requeueing this job by itself.

    Slurm 24.11 takes a job that was preempted before for preempted again when it ends, and would
    requeue it once more.
    """
    _ask("scontrol", "update", f"JobId={os.environ['HPCRUN_JOB_ID']}", "Requeue=0")


def small_step(*nodes: str) -> tuple[list[str], dict[str, str]]:
    """Return the srun of one task on each of some nodes of this job, and its environment.

    The srun runs beside the step of the job.
    """
    size = [f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", f"--nodelist={','.join(nodes)}"]
    env = {name: value for name, value in os.environ.items() if not _SIZE.fullmatch(name)}
    return ["srun", *size, "--overlap", "--gres=none"], env


def starts_step(node: str) -> bool:
    """Return whether a node of this job starts a step now.

    A node that does not respond is not always known to be down.
    """
    argv, env = small_step(node)
    return _ask(*argv, "true", env=env)[0] == 0


def jobs_with_nodes() -> set[str] | None:
    """Return the jobs of this user that are not pending, None if Slurm does not respond."""
    status, text = _ask("squeue", "--all", "--me", "--noheader", "--format=%i %T")
    if status:
        return None
    jobs = set()
    for line in text.splitlines():
        job_id, _, state = line.partition(" ")
        if state != "PENDING":
            jobs.add(job_id)
    return jobs


def skip_steps(count: int) -> None:
    """Start empty steps, so that the next steps of this job have higher numbers.

    When a failed node returns, the remains of its attempt end their own steps, by number: so the
    steps of the next attempt must have other numbers.
    """
    for _ in range(count):
        _ask("srun", "--nodes=1", "--ntasks=1", "true")


def expand(nodelist: str) -> list[str]:
    """Return the nodes of a list such as ``a[01-03,7],b1`` in its order.

    Raises:
        ValueError: it is not such a list.
    """
    nodes: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]+|\[[^\[\]]*\])+", nodelist):
        names = [""]
        for text, inside in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", part):
            choices = [text] if text else _numbers(inside)
            names = ["".join(pair) for pair in product(names, choices)]
        nodes += names
    if not nodes:
        raise ValueError(f"no list of nodes: {nodelist!r}")
    return nodes


def _numbers(spans: str) -> list[str]:
    """Return the numbers of ``01-03,7``, with the zeros in front."""
    numbers = []
    for span in spans.split(","):
        first, _, last = span.partition("-")
        for number in range(int(first), int(last or first) + 1):
            numbers.append(str(number).zfill(len(first)))
    return numbers


def _refusal(*argv: str) -> str:
    status, answer = _ask(*argv)
    return answer.strip() if status else ""


def _ask(*argv: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Run one of Slurm's commands; return its status and its output, stderr included."""
    given = os.environ if env is None else env
    plain = {name: value for name, value in given.items() if not name.startswith(_FILTERS)}
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": plain}
    try:
        done = subprocess.run(argv, timeout=ASK_S, check=False, **how)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")
