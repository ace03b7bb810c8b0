"""The record of a run, and its last known status: plain data, written as JSON.

Two versions of hpcrun may share a home directory. Fields of a run that this version does not know
are kept and written back; a status is only a copy. Only a higher schema number means that a record
has another meaning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any

from hpcrun.files import reading
from hpcrun.files.reading import kinds_of, needs_of, parse_object, read_bytes, read_fields
from hpcrun.job.request.after import CONDITIONS
from hpcrun.job.request.notify_options import variables_in
from hpcrun.job.request.parameters import parse_indices
from hpcrun.job.run_paths import RoleRanks
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.recognise_secrets import MASK, is_secret
from hpcrun.job.text.units import rank_text

SCHEMA = 1
# bytes of ``run.json``: a sweep of 10,000 elements has three kilobytes for each
MOST_RUN = 32 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """One run as it was submitted."""

    run_id: str  # ``YYYYMMDD-HHMMSS-name-xxxx``; sorted by name is sorted by time
    name: str
    scheduler: str  # ``slurm`` or ``local``
    # Slurm's ClusterName; None for a local run. Job ids are unique only within a cluster
    cluster: str | None
    host: str  # where it was submitted; a local run runs there
    created_s: float  # seconds since the epoch
    job_id: str | None  # None until the scheduler has given it
    profile: str
    nodes: int
    gpus_per_node: int
    world_size: int
    walltime_s: int | None = None
    # request, plan: the request and the plan, as JSON; secrets are masked
    request: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    cwd: str | None = None  # the folder it was submitted from
    # the profile's file if the profile was named by its file; None if it was named by its name
    profile_file: str | None = None
    # the runs on which it depends: ``run_id``, ``job_id`` and ``condition`` of each, whether it was
    # ``over``
    after: list[dict[str, Any]] = field(default_factory=list)
    # ``link`` (the first is 1), ``links``, and ``first``, the run id of the first; None outside of
    # a chain
    chain: dict[str, Any] | None = None
    resubmitted_from: str | None = None  # the earlier run with this request
    # the run whose folder has its checkpoints; None if they are in its own folder
    checkpoints_of: str | None = None
    # the run whose snapshot of the code it uses; None if it has its own snapshot, or none
    code_of: str | None = None
    # the folder and the commit of the code, and the number of ``changed`` files, None if it is not
    # known; ``copied`` is False without a snapshot, of which it has the contents else
    code: dict[str, Any] | None = None
    note: str | None = None  # a person's own words on it
    # the GPU-hours that it can use without requeues; None if they are not known
    gpu_hours_at_most: float | None = None
    # the GPUs that each of its jobs can have by its script; None if they are not known
    gpus_at_most: int | None = None
    # how it was submitted: whether ``terminal`` was there, and the name of the coding ``agent`` or
    # None. A hint, never a permission
    by: dict[str, Any] | None = None
    # fields that another version of hpcrun wrote
    unknown: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def gpu_hours_with_requeues(self) -> float | None:
        """The GPU-hours that it can use if it is requeued as often as it may be.

        They are None if they are not known: a directive alone lets Slurm requeue it without end.
        """
        requeue = self.plan.get("requeue") or {}
        times: int = requeue.get("times", 0)
        is_open = not times and "requeue" in dict(pairs_of(self.plan.get("directives")))
        if self.gpu_hours_at_most is None or is_open:
            return None
        return self.gpu_hours_at_most * (1 + times)

    @property
    def submitted_by(self) -> str | None:
        """The name of the coding agent, or ``terminal`` or ``script``; None if it is not known."""
        if self.by is None:
            return None
        agent: str | None = self.by["agent"]
        return agent or ("terminal" if self.by["terminal"] else "script")

    @property
    def place(self) -> str:
        """Where it can be asked about: the host of a local run, else the cluster."""
        if self.scheduler == "local":
            return f"host {self.host}"
        return f"cluster {self.cluster}"

    @property
    def gpus_on_node(self) -> int:
        """The GPUs that each node has for the run: 0 on a machine whose ranks run on the CPU."""
        on_cpu = self.plan.get("scheduler") == "local" and not self.plan.get("local_gpus", True)
        return 0 if on_cpu else self.gpus_per_node

    @property
    def has_copied_code(self) -> bool:
        """Whether it has a snapshot of the code of its own."""
        return self.code is not None and self.code.get("copied", True)

    @property
    def outlives_failed_tasks(self) -> bool:
        """Whether the srun of a person's script lets the other tasks run on when one has failed."""
        batch = self.plan.get("batch") or {}
        requeue = self.plan.get("requeue") or {}
        continues = requeue.get("on_failure") or requeue.get("restarts")
        ends_them = continues or "kill-on-bad-exit" in dict(pairs_of(self.plan.get("srun")))
        return bool(batch.get("by_srun")) and not ends_them

    @property
    def node_choice(self) -> str:
        """The numbers of nodes from which Slurm chooses; empty if it has chosen, or has no choice.

        Until then ``nodes`` and ``world_size`` are the largest numbers.
        """
        shape = self.plan.get("shape")
        choice = shape.get("node_choice") if isinstance(shape, dict) else None
        is_choice = isinstance(choice, str) and re.fullmatch(r"[\d,:-]+", choice, re.ASCII)
        return str(choice) if is_choice else ""

    @property
    def roles(self) -> tuple[RoleRanks, ...]:
        """The roles of a job of several programs, in the order of their ranks.

        Other jobs have none.
        """
        roles = []
        for recorded in self.plan.get("roles", ()):
            known = {name: recorded[name] for name in _ROLE if name in recorded}
            roles.append(RoleRanks(**known))
        return tuple(roles)

    @property
    def deciding_role(self) -> RoleRanks | None:
        """The role whose end ends the job; None without roles."""
        return next((role for role in reversed(self.roles) if role.on_exit == "end"), None)

    @property
    def main_rank(self) -> int:
        """The rank whose output is shown where none is chosen: the first of the deciding role."""
        return self.deciding_role.first_rank if self.deciding_role else 0

    def rank_name(self, rank: int) -> str:
        """Return ``rank 4``; with roles ``trainer 3``, or ``server`` alone."""
        for role in self.roles:
            rank_in_role = rank - role.first_rank
            if 0 <= rank_in_role < role.ranks:
                return rank_text(rank_in_role, role=role).replace(" rank ", " ")
        return f"rank {rank}"

    @property
    def secrets(self) -> list[str]:
        """The names of the variables whose values only the environment of the job has."""
        names = list(self.request.get("secrets", ()))
        for pair in [*(self.plan.get("env") or ()), *self.request.get("env", ())]:
            if isinstance(pair, list | tuple) and pair[1:] in ([None], [MASK]):
                names.append(pair[0])
        return list(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class LastStatus:
    """The last known status of a run, which is shown if the scheduler does not respond."""

    state: str
    asked_s: float  # the time of this status, in seconds since the epoch
    # its last attempt has ended; Slurm can requeue it as long as it lists the job
    final: bool = False
    reason: str | None = None
    # the time of the last attempt; since its allocation began, where Slurm says so
    elapsed_s: int | None = None
    limit_s: int | None = None
    hosts: str | None = None
    exit_status: int | None = None
    signal: int | None = None
    attempt: int = 0  # the number of the attempt, 0 for the first
    before: str | None = None  # why the attempt before ended, in words; None if there was none
    # since when the scheduler's answers have lacked the run, in seconds since the epoch; None if
    # they have it
    missed_s: float | None = None
    # the first line of explain for a failed run; empty if it has none, None if explain has not run
    cause: str | None = None
    # the name of explain's rule that knows the cause; empty if none does, None if explain has not
    # run
    rule: str | None = None
    # when the scheduler expects to start it while it is pending, in seconds since the epoch
    start_s: float | None = None
    total_elapsed_s: int | None = None  # the time of all attempts together; None if there is one
    forgotten: bool = False  # final, and Slurm no longer lists the job

    @property
    def ran_s(self) -> int | None:
        """For how many seconds all of its attempts have run."""
        if self.total_elapsed_s is None:
            return self.elapsed_s
        return self.total_elapsed_s


RUN_ID = reading.matching(r"[^/\0\s.][^/\0\s]{0,254}", "a run id")
# Slurm's 4711, 4711_3, and hpcrun's own L4711; never a text that squeue would read as an option
JOB_ID = reading.matching(r"[A-Za-z0-9_][\w.+\[\]-]{0,63}", "a job id")
AGENT = r"[A-Za-z][\w.+-]{0,39}"
_COUNT = reading.whole(0, 10**7)
_SECONDS = reading.whole(-(10**10), 10**10)

_ROLE = {
    "name": reading.matching(r"[A-Za-z][\w-]{0,40}", "the name of a role"),
    **dict.fromkeys(("first_rank", "ranks", "first_node", "nodes"), _COUNT),
    **dict.fromkeys(("on_exit", "launcher", "ready"), reading.text),
    "after": reading.list_of(reading.text),
}
_SWEEP = reading.table(
    {"indices": reading.text, "first": _COUNT, "pack": reading.whole(1, 10**6)},
    ("indices", "first"),
)
_REQUEUE = reading.table({"times": _COUNT, "restarts": _COUNT})
_PYTHON = reading.table({"prefix": reading.optional(reading.text), "variable": reading.text})
_PLAN = reading.table(
    {
        "sweep": reading.optional(_SWEEP),
        "requeue": reading.optional(_REQUEUE),
        "python": reading.optional(_PYTHON),
        "workdir": reading.optional(reading.text),
        "cpus_per_node": reading.optional(_COUNT),
        "roles": reading.list_of(reading.table(_ROLE, needs_of(RoleRanks))),
        "batch": reading.optional(reading.table()),
        "env": reading.optional(reading.list_of(lambda pair: pair)),
    }
)
_rows = reading.list_of(reading.list_of(reading.pair))


def _rows_of_sweep(value: Any) -> Any:
    """Take lists of pairs of texts: thousands of good ones are checked together, and not copied."""
    try:
        pairs = list(chain.from_iterable(value))
        texts = list(chain.from_iterable(pairs))
    except TypeError:  # a number in place of a list
        return _rows(value)
    are_lists = {list} == {type(item) for item in (value, *value, *pairs)}
    if are_lists and {2} == set(map(len, pairs)) and {str} == set(map(type, texts)):
        if "\0" not in "".join(texts):
            return value
    return _rows(value)


_words = reading.list_of(reading.text)


def _arguments(value: Any) -> Any:
    """Take a list of texts: good ones are checked together, and not copied."""
    if type(value) is list and {str} >= set(map(type, value)) and "\0" not in "".join(value):
        return value
    return _words(value)


_GPUS = reading.optional(
    reading.table(
        {"count": reading.whole(0, 10**9), "type": reading.optional(reading.text)}, ("count",)
    )
)
_ROLE_REQUEST = reading.table({"name": reading.text, "command": _words}, ("name",))
REQUEST = reading.table(
    {
        "script": reading.text,
        "args": _arguments,
        "module": reading.flag,
        "wrap": reading.optional(reading.text),
        "gpus": _GPUS,
        "gpus_per_node": _GPUS,
        "roles": reading.list_of(_ROLE_REQUEST),
        "secrets": _words,
        "sweep": _rows_of_sweep,
        "env": reading.list_of(reading.pair),
        "workdir": reading.optional(reading.text),
        "snapshot": reading.flag,
        "name": reading.optional(reading.text),
    }
)
_AFTER = reading.table(
    {
        "run_id": RUN_ID,
        "job_id": reading.optional(JOB_ID),
        "condition": reading.one_of(*CONDITIONS),
        "over": reading.flag,
    },
    ("run_id", "job_id", "condition"),
)
_CODE = reading.table(
    {
        "files": reading.whole(0, 10**12),
        "bytes": reading.whole(0, 10**18),
        "root": reading.text,
        "changes": reading.text,
        "commit": reading.optional(reading.text),
        "changed": reading.optional(reading.whole(0, 10**9)),
        "copied": reading.flag,
        "digests": reading.list_of(reading.pair),
    },
    ("files", "bytes", "root", "commit", "changes"),
)
_BY = reading.table(
    {
        "terminal": reading.flag,
        "agent": reading.optional(reading.matching(AGENT, "the name of an agent")),
    },
    ("terminal", "agent"),
)
_CHAIN = reading.table(
    {"link": _COUNT, "links": _COUNT, "first": reading.text}, ("link", "links", "first")
)


_RUN_KINDS = kinds_of(
    Run,
    integer=_COUNT,
    real=reading.time_s,
    run_id=RUN_ID,
    scheduler=reading.one_of("slurm", "local"),
    job_id=reading.optional(JOB_ID),
    walltime_s=reading.optional(reading.whole(0, 10**10)),
    request=REQUEST,
    plan=_PLAN,
    after=reading.list_of(_AFTER),
    chain=reading.optional(_CHAIN),
    resubmitted_from=reading.optional(RUN_ID),
    checkpoints_of=reading.optional(RUN_ID),
    code_of=reading.optional(RUN_ID),
    code=reading.optional(_CODE),
    note=reading.optional(reading.matching(r"[^\0\n]{1,1000}", "a line of text")),
    gpu_hours_at_most=reading.optional(reading.hours),
    by=reading.optional(_BY),
)
_STATUS_KINDS = kinds_of(
    LastStatus,
    integer=_COUNT,
    real=reading.time_s,
    state=reading.matching(r"[A-Z][A-Z_]{0,40}", "a state"),
    elapsed_s=reading.optional(_SECONDS),
    limit_s=reading.optional(_SECONDS),
    total_elapsed_s=reading.optional(_SECONDS),
    exit_status=reading.optional(reading.whole(-(10**6), 10**6)),
    signal=reading.optional(reading.whole(-1000, 1000)),
)


class RecordError(ValueError):
    """A record that cannot be used."""


class NewerRecordError(RecordError):
    """A complete record that a newer hpcrun wrote."""


def run_to_json(run: Run) -> str:
    """Return the text of ``run.json``."""
    record = {"schema": SCHEMA, **known_fields(run), **run.unknown}
    return json.dumps(record, indent=1) + "\n"


def load_run(path: Path) -> Run:
    """Read the file ``run.json``.

    Raises:
        OSError: the file cannot be read.
        RecordError: as in :func:`run_from_json`.
    """
    run = run_from_json(read_bytes(path, MOST_RUN))
    HIDER.learn(named=(*run.secrets, *variables_in(str(run.plan.get("notify")))))
    return run


def run_from_json(content: str | bytes) -> Run:
    """Read the text of ``run.json``.

    Raises:
        NewerRecordError: a newer hpcrun wrote the record.
        RecordError: the record is damaged.
    """
    try:
        data = parse_object(content)
        newer = check_schema(data.pop("schema", SCHEMA), SCHEMA)
        if newer:
            raise NewerRecordError(newer)
        known, unknown = read_fields(data, _RUN_KINDS, needs_of(Run))
        _check_sweep(known)
        nul: Any = rb"\u0000" if isinstance(content, bytes) else r"\u0000"
        # the first test is cheap, and a request may be long
        if nul in content and _has_nul([known.get("request"), known.get("plan")]):
            raise RecordError("its request or plan has text with NUL, which no argument can hold")
    except RecordError:
        raise
    except ValueError as error:
        raise RecordError(str(error)) from None
    return Run(**known, unknown=unknown)


def _has_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_nul, value.values()))
    if isinstance(value, list):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\0" in value


def variables_text(request: Mapping[str, Any]) -> str:
    """Return the variables of ``--env`` as they were given; the values of secrets are masked."""
    texts = []
    for name, value in pairs_of(request.get("env")):
        is_hidden = value is None or is_secret(name, str(value))
        texts.append(f"{name}={MASK if is_hidden else value}")
    return " ".join(texts)


def pairs_of(value: Any) -> list[tuple[str, Any]]:
    """Return the pairs in a list of a recorded plan, such as its directives.

    An item that is no pair is left out.
    """
    pairs = []
    for item in value if isinstance(value, list) else []:
        if isinstance(item, list) and len(item) == 2:
            name, setting = item
            pairs.append((str(name), setting))
    return pairs


def check_schema(schema: Any, mine: int) -> str | None:
    """Return a message about a record that a newer hpcrun wrote.

    Returns None if this hpcrun can read the record.
    """
    if reading.whole(0, 10**6)(schema) <= mine:
        return None
    return f"written by a newer hpcrun (schema {schema}; this version reads up to {mine})"


def _check_sweep(known: Mapping[str, Any]) -> None:
    """Refuse a sweep in which some elements have no parameters.

    The calls of Python functions have no parameters at all.

    Raises:
        ValueError: an element has no parameters, although others have.
    """
    sweep = known.get("plan", {}).get("sweep")
    if not sweep:
        return
    chosen = parse_indices(sweep["indices"])
    rows = known.get("request", {}).get("sweep", ())
    if rows and chosen[-1] >= len(rows):
        raise ValueError(
            f"it has parameters of {len(rows)} elements, and none of element {chosen[-1]}"
        )


def known_fields(record: Run | LastStatus) -> dict[str, Any]:
    """Return the fields by their names, without those of another version.

    asdict would copy all that is in them, for each of a thousand elements.
    """
    names = [each.name for each in fields(record) if each.name != "unknown"]
    return {name: getattr(record, name) for name in names}


def status_to_json(status: LastStatus) -> str:
    """Return the text of ``status.json``."""
    return json.dumps(known_fields(status)) + "\n"


def status_from_json(content: str | bytes) -> LastStatus:
    """Read ``status.json``; it raises ValueError if it is damaged."""
    return read_status(parse_object(content))


def read_status(
    data: Mapping[str, Any], needed: tuple[str, ...] = ("state", "asked_s")
) -> LastStatus:
    """Return a status from its fields.

    Raises:
        ValueError: a needed field is missing, or a field has a wrong type.
    """
    known, _ = read_fields(data, _STATUS_KINDS, needed)
    return LastStatus(**{"state": "", "asked_s": 0.0, **known})
