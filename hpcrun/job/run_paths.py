"""The layout of a runs folder: the only module of hpcrun that builds a path in it. Pure: no I/O.

Programs that run inside a job do not have the rest of hpcrun, and so repeat some of these names:
the templates,
``launch/``, ``probe/``, ``preflight/``, ``hpcrun_*.py`` and ``schedulers/supervisor.py``.
``tests/unit/job/test_run_paths.py`` checks that both sides use the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUN_ID = re.compile(r"\d{8}-\d{6}-(?P<name>.+)-[0-9a-f]{4}", re.ASCII)
"""``YYYYMMDD-HHMMSS-name-xxxx``: the name of a run's folder, and of a study's."""
JOB_ID = re.compile(r"L?\d{1,20}", re.ASCII)  # a Slurm job id, or one of the local scheduler
SUBMISSION_FILE = ".submission_file_"
"""The beginning of the name of the script to submit; Slurm shows it as the job's command."""

_ANY_RUN_ID = RUN_ID.pattern.replace("?P<name>", "?:")
_ASIDE = re.compile(
    rf"\.(?P<run_id>{_ANY_RUN_ID}|[0-9a-f]{{16}}\.[0-9a-f]{{8}})(?:\.gone)?", re.ASCII
)
_JOB_ENTRY = re.compile(rf"(?P<job_id>{JOB_ID.pattern})\.(?P<run_id>{_ANY_RUN_ID})", re.ASCII)
_NUMBER = re.compile(r"0|[1-9]\d{0,6}", re.ASCII)
_RANK_FILE = re.compile(rf"rank-(?P<rank>{_NUMBER.pattern})\.(?P<kind>\w+)", re.ASCII)
_NODE_FILE = re.compile(r"node-(?P<node>.+)\.(?P<kind>start|use|compiled)")
_ACTIVE = "active"
_JOBS = "jobs"
_STUDIES = "studies"
_ACTIONS = "actions.jsonl"
_ELEMENTS = "elements"
_CHECKPOINTS = "checkpoints"


class _Below:
    """The path of a file or folder below the folder that has this attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: Any, _: type) -> Path:
        return Path(folder.path, self._name)


@dataclass(frozen=True, slots=True)
class RoleRanks:
    """The ranks of a role: a range of the job's ranks, which the role itself counts from 0."""

    name: str
    first_rank: int
    ranks: int
    first_node: int
    nodes: int
    on_exit: str  # ``end`` if its end ends the job, with its exit status
    launcher: str = ""
    ready: str = ""  # what is checked before other roles start: ``tcp:{port}``; empty for nothing
    after: Sequence[str] = ()  # the roles that must be ready before it starts


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """The folder of one attempt of an element."""

    path: Path
    # it has only the ranks of this role, as the role counts them; None for all ranks
    role: RoleRanks | None = None

    def role_ranks(self, ranks: Iterable[int]) -> list[int]:
        """Return those of the job's ranks that it has, as their role counts them."""
        if self.role is None:
            return list(ranks)
        counted = (rank - self.role.first_rank for rank in ranks)
        return [rank for rank in counted if 0 <= rank < self.role.ranks]

    def _rank_file(self, rank: int, kind: str) -> Path:
        first_rank = self.role.first_rank if self.role else 0
        return self.path / f"rank-{first_rank + rank}.{kind}"

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.path.parents[3]

    start = _Below("start")  # the start record of the script
    heartbeat = _Below("heartbeat")  # the time of the script's last heartbeat
    exit = _Below("exit")  # the exit record of the script
    idle = _Below("idle")  # the warning that all GPUs are idle, as long as they are
    # the node without samples of its GPUs: ``--cancel-idle`` has no effect
    idle_unknown = _Below("idle-unknown")
    hosts = _Below("hosts")  # the nodes in Slurm's order
    # its nodes that were down when the next attempt began, if it left no exit record
    dead_nodes = _Below("dead-nodes")
    imports = _Below("code")  # the record of the code that ran, if the run has a snapshot
    versions = _Below("versions")  # the versions of Python, torch, CUDA and the driver
    warm = _Below("warm")  # with which compiled files it started
    stop = _Below("stop")  # the folder of the requests to stop, a file for each reason
    preflight = _Below("preflight")  # the folder of the preflight's reports, one per node
    verdict = _Below("preflight/verdict.json")  # the verdict of the preflight

    @property
    def flight(self) -> Path:
        """The folder of the dumps of torch's flight recorder, one per rank."""
        return self.path / "flight" / (self.role.name if self.role else "")

    def ready(self, role: str) -> Path:
        """Return the record of when a role became ready."""
        return self.path / "roles" / f"{role}.ready"

    def rank_log(self, rank: int, stream: str) -> Path:
        """Return the log of a rank's ``out`` or ``err``."""
        return self._rank_file(rank, stream)

    def rank_exit(self, rank: int) -> Path:
        """Return the exit record of a rank."""
        return self._rank_file(rank, "exit")

    def rank_metrics(self, rank: int) -> Path:
        """Return the metrics that a rank logged."""
        return self._rank_file(rank, "metrics")

    def node_file(self, node: str, kind: str = "start") -> Path:
        """Return a file of a node; the kinds are those of ``parse_nodes``."""
        return self.path / f"node-{node}.{kind}"


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The folder that identifies a job for a scheduler.

    This is the folder of a run, or of an element if each element is a job.
    """

    path: Path

    @property
    def is_element(self) -> bool:
        """Whether it is the folder of an element."""
        return self.path.parent.name == _ELEMENTS

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.path.parents[1] if self.is_element else self.path

    cancelled = _Below("cancelled")  # the mark that the job was cancelled
    supervisor_record = _Below("supervisor.json")  # the record of a local job's supervisor


@dataclass(frozen=True, slots=True)
class ElementFolder(JobFolder):
    """The folder of one element of a run."""

    attempts = _Below("attempts")  # the folder of the attempts
    # the folder for the script's checkpoints, which all attempts share
    checkpoints = _Below(_CHECKPOINTS)

    def chain(self, name: str = "") -> Path:
        """Return the folder of what the links of a chain share besides the checkpoints.

        With a name, return a file in the folder: ``stopped``. The checkpoints of a later link are a
        symbolic link.
        """
        return self.path / _CHECKPOINTS / ".." / "chain" / name

    def attempt(self, number: int) -> AttemptFolder:
        """Return the folder of an attempt."""
        return AttemptFolder(self.attempts / str(number))


@dataclass(frozen=True, slots=True)
class RunFolder(JobFolder):
    """The folder of one run."""

    # the mark that hpcrun made the folder; it is removed when the run is complete
    marker = _Below(".made-by-hpcrun")
    record = _Below("run.json")  # the run's record: request and plan
    script = _Below("script.sh")  # the script that was submitted
    stdin = _Below("stdin.sbatch")  # the batch script that submit has read from stdin
    batch_log = _Below("batch.log")  # the log of the batch script
    batch_logs = _Below("batch")  # the folder of a sweep's batch logs

    def task_log(self, task: int | str) -> Path:
        """Return the batch log of one task of a sweep's array."""
        return self.batch_logs / f"{task}.log"

    # the log of hpcrun's commands for the run: each command, and how it ended
    journal = _Below("hpcrun.log")
    status = _Below("status.json")  # the last known status
    # the lock of the process that submits a run which continues from the checkpoints
    resubmit_lock = _Below("resubmit.lock")

    def tracker_sync(self, kind: str) -> Path:
        """Return the ``log`` of ``wandb sync``, or the ``lock`` of the process that uploads."""
        return self.path / f"wandb-sync.{kind}"

    element_statuses = _Below("elements.json")  # the last known status of each element of a sweep
    code = _Below("code")  # the snapshot of the code
    # the difference between the snapshot of the code and its commit
    code_diff = _Below("code.diff")

    def programs(self, part: str = "") -> Path:
        """Return the link to the programs that run inside the job, which runs share.

        With a part, return one of the programs: ``launch``.
        """
        return self.path / "programs" / part

    # the folder of submitit's pickles, where the program is a Python function
    submitit = _Below("submitit")
    calls = _Below("submitit/calls.zip")  # the archive of the pickled calls, one per element

    def submit_claim(self, now: str = "ready") -> Path:
        """Return the claim to submit the run: ``ready``, ``called`` or ``revoked``.

        See ``schedulers/submit_claim.py``.
        """
        return self.path / f"submit.{now}"

    def messages(self, name: str = "") -> Path:
        """Return the folder of the messages about the run.

        With a name, return a file in the folder: ``sender``, ``log``, ``tried``.
        """
        return self.path / "messages" / name

    sbatch_stderr = _Below("sbatch.err")  # the stderr of sbatch
    supervisor_log = _Below("supervisor.log")  # the log of a local job's supervisor
    elements = _Below(_ELEMENTS)  # the folder of the elements

    def element(self, index: int) -> ElementFolder:
        """Return the folder of an element; a run that is not a sweep has element 0."""
        return ElementFolder(self.elements / str(index))


WITHIN = RunFolder(Path())  # the paths of a run relative to its folder


def read_by_people() -> list[Path]:
    """Return patterns of the files that people read of a run, relative to its folder.

    These files are the logs and metrics of all ranks, the record, the script and the changed code.
    """
    attempt = ElementFolder(WITHIN.elements / "*").attempts / "*"
    of_ranks = [attempt / f"rank-*.{kind}" for kind in ("out", "err", "metrics")]
    return [WITHIN.record, WITHIN.script, WITHIN.code_diff, *of_ranks]


@dataclass(frozen=True, slots=True)
class StudyFolder:
    """The folder of one scaling study."""

    path: Path

    record = _Below("study.json")  # the study's record: its request and its runs
    measured = _Below("points.json")  # the measurements of the runs that have ended
    lock = _Below("lock")  # the lock of the process that submits the study's runs


@dataclass(frozen=True, slots=True)
class RunsFolder:
    """The folder of all runs, or the ``--output-dir`` of some."""

    path: Path

    def run(self, run_id: str) -> RunFolder:
        """Return the folder of a run."""
        return RunFolder(self.path / run_id)

    def incomplete(self, run_id: str) -> RunFolder:
        """Return the folder of a run that is being made."""
        return RunFolder(self.path / f".{run_id}")

    def removed(self, run_id: str) -> RunFolder:
        """Return the folder of a run that is being deleted."""
        return RunFolder(self.path / f".{run_id}.gone")

    def programs(self, version: str = "") -> Path:
        """Return the folder of the copies of the programs that run inside jobs, or one copy."""
        return self.path / ".programs" / version

    def programs_aside(self, version: str, number: int) -> Path:
        """Return the folder of a copy of the programs that is being made or deleted."""
        return self.programs(f".{version}.{number:08x}")

    def compiled(self, program: str, generation: str) -> Path:
        """Return the folder of what the compilers of one attempt of a program have made."""
        return self.path / ".compiled" / program / generation

    active = _Below(_ACTIVE)  # the folder of the markers of runs that have not ended

    def active_marker(self, run_id: str) -> Path:
        """Return the marker of a run that has not ended."""
        return self.active / run_id

    jobs = _Below(_JOBS)  # the folder of the index from job ids to runs

    def job_entry(self, job_id: str, run_id: str) -> Path:
        """Return the entry of a run in the index of job ids."""
        return self.jobs / f"{job_id}.{run_id}"

    actions = _Below(_ACTIONS)  # what commands did to runs
    lock = _Below(".records.lock")  # the lock of the process that changes a run's record
    limits_lock = _Below(".limits.lock")  # the lock of the process that checks the limit of a day
    studies = _Below(_STUDIES)  # the folder of the scaling studies

    def study(self, study_id: str) -> StudyFolder:
        """Return the folder of a study."""
        return StudyFolder(self.studies / study_id)


def run_names(names: Iterable[str]) -> list[str]:
    """Return those of the names in a runs folder that may be runs."""
    visible = [name for name in names if not name.startswith(".")]
    return [name for name in visible if name not in (_ACTIVE, _JOBS, _STUDIES, _ACTIONS)]


def run_name(run_id: str) -> str:
    """Return the name in a run id."""
    match = RUN_ID.fullmatch(run_id)
    return match["name"] if match else run_id


def parse_aside(name: str) -> str | None:
    """Return the run, or copy of the programs, to which a temporary folder belongs.

    A folder has a temporary name while hpcrun makes or deletes the folder. The result is None for
    another name.
    """
    match = _ASIDE.fullmatch(name)
    return match["run_id"] if match else None


def parse_job_entry(name: str) -> tuple[str, str] | None:
    """Return the job id and the run id in the name of an entry of the index.

    The result is None for another name.
    """
    match = _JOB_ENTRY.fullmatch(name)
    return (match["job_id"], match["run_id"]) if match else None


def parse_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers among the names in a folder of elements or attempts.

    The smallest number comes first.
    """
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name))


def parse_ranks(names: Iterable[str], *kinds: str) -> list[int]:
    """Return the ranks with a file of one of the kinds among the names.

    The kinds are ``out``, ``err``, ``exit``, ``metrics`` and ``alone``.
    """
    ranks = set()
    for match in map(_RANK_FILE.fullmatch, names):
        if match and match["kind"] in kinds:
            ranks.add(int(match["rank"]))
    return sorted(ranks)


def parse_nodes(names: Iterable[str], kind: str = "start") -> list[str]:
    """Return the nodes with a file of a kind among the names.

    The kind is ``start`` for the node's record, ``use`` for its samples, or ``compiled`` for what
    its compilers have made.
    """
    matches = map(_NODE_FILE.fullmatch, names)
    return [match["node"] for match in matches if match and match["kind"] == kind]


def is_checkpoint(parts: Sequence[str]) -> bool:
    """Return whether a path is in an element's folder of checkpoints.

    The path is below a run's folder, and given as parts.
    """
    return len(parts) > 2 and parts[0] == _ELEMENTS and parts[2] == _CHECKPOINTS
