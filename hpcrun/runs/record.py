"""The record of a run, and what was last known of it: plain data, written as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = 1
_LEGIBLE = re.compile(r'^ "(name|job_id|cluster|host|profile|nodes|world_size)": (".*"|\d+|null),$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """One run as it was submitted.

    Attributes:
        run_id: ``YYYYMMDD-HHMMSS-name-xxxx``; sorted by name is sorted by time.
        scheduler: ``slurm`` or ``local``.
        cluster: Slurm's ClusterName; None for a local run. Job ids are unique only within a cluster.
        host: where it was submitted; a local run lives there.
        created_s: seconds since the epoch.
        job_id: None until the scheduler has named it.
        request, plan: what was asked for and decided, as JSON; secrets are masked.
        cwd: the folder it was submitted from.
        profile_file: the profile's file where it was named by that; None where the name finds it.
        after: the runs it waits for: ``run_id``, ``job_id`` and ``condition`` of each, whether it was ``over``.
        chain: ``link`` (the first is 1), ``links``, and ``first``, the run id of the first; None outside of a chain.
        resubmitted_from: the run whose request this was.
        checkpoints_of: the run in whose folder its checkpoints lie; None where they lie in its own.
        code_of: the run whose snapshot of the code it uses; None where it has its own, or none.
        code: what was copied into the snapshot, and from where.
    """

    run_id: str
    name: str
    scheduler: str
    cluster: str | None
    host: str
    created_s: float
    job_id: str | None
    profile: str
    nodes: int
    gpus_per_node: int
    world_size: int
    walltime_s: int | None
    request: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    cwd: str | None = None
    profile_file: str | None = None
    after: list[dict[str, Any]] = field(default_factory=list)
    chain: dict[str, Any] | None = None
    resubmitted_from: str | None = None
    checkpoints_of: str | None = None
    code_of: str | None = None
    code: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LastStatus:
    """What was last known of a run, so that it can be shown when nobody answers.

    Attributes:
        asked_s: when it was learned, in seconds since the epoch.
        final: it will not change any more.
        attempt: which start of the job this is, 0 for the first.
        before: why the attempt before that ended, in words; None where there was none.
        missed_s: since when the scheduler's answers have left it out, in seconds since the epoch; None where they
            did not.
        cause: what explain says first of a run that failed; empty where it knows nothing, None where it was not asked.
    """

    state: str
    asked_s: float
    final: bool = False
    reason: str | None = None
    elapsed_s: int | None = None
    limit_s: int | None = None
    hosts: str | None = None
    exit_status: int | None = None
    signal: int | None = None
    attempt: int = 0
    before: str | None = None
    missed_s: float | None = None
    cause: str | None = None


def run_to_json(run: Run) -> str:
    """Return the text of ``run.json``."""
    return json.dumps({"schema": SCHEMA, **asdict(run)}, indent=1) + "\n"


def run_from_json(text: str) -> Run:
    """Read ``run.json``.

    Raises:
        ValueError: it is damaged, or was written by a later hpcrun.
    """
    data = _object(text)
    if data.pop("schema", None) != SCHEMA:
        raise ValueError("written by another version of hpcrun")
    try:
        return Run(**data)
    except TypeError as error:
        raise ValueError(str(error)) from None


def salvage(text: str) -> dict[str, str]:
    """Return what is still legible of a ``run.json`` that was cut off: each of these stands on a line of its own."""
    return {key: value.strip('"') for key, value in _LEGIBLE.findall(text) if value != "null" and value.isprintable()}


def status_to_json(status: LastStatus) -> str:
    """Return the text of ``status.json``."""
    return json.dumps(asdict(status)) + "\n"


def status_from_json(text: str) -> LastStatus:
    """Read ``status.json``.

    Raises:
        ValueError: it is damaged.
    """
    try:
        return LastStatus(**_object(text))
    except TypeError as error:
        raise ValueError(str(error)) from None


def _object(text: str) -> dict[str, Any]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return data
