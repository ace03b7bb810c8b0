"""Making a run: its record, its relations to earlier runs, and the files in its folder.

All of them exist before the job starts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hpcrun.actions.jobs.git import read_work_tree
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.ports import Ports, Surroundings
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.request.after import Dependency
from hpcrun.job.request.job_request import JobRequest, given_fields
from hpcrun.job.run_paths import WITHIN, RunFolder
from hpcrun.job.script import LAUNCH
from hpcrun.job.text.recognise_secrets import MASK, is_secret
from hpcrun.job.text.units import index_ranges
from hpcrun.profiles.load import LoadedProfile, profile_names
from hpcrun.runs.job_code import has_no_files, share_checkpoints, share_code
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunExistsError
from hpcrun.schedulers.submit_claim import claim_text


@dataclass(frozen=True, slots=True)
class Lineage:
    """The relations of a new run to earlier ones; by default it has none."""

    after: tuple[Dependency, ...] = ()  # the runs it waits for
    chain: tuple[int, int] | None = None  # its place in a chain, from 1, and the number of links
    # the folder of the run whose folder of checkpoints it continues
    checkpoints: Path | None = None
    code: Path | None = None  # the folder of the run whose snapshot of the code it uses
    code_run: Run | None = None  # the run for which that snapshot was made
    resubmitted_from: str | None = None  # the run whose request it repeats

    def without_checkpoints(self, elements: Sequence[int]) -> bool:
        """Whether it continues from checkpoints, and there are none for any of the elements."""
        if self.checkpoints is None:
            return False
        earlier = RunFolder(self.checkpoints)
        return all(has_no_files(earlier.element(index).checkpoints) for index in elements)

    def record(self, run_id: str) -> dict[str, Any]:
        """Return these relations as fields of the run's record."""
        chain = None
        if self.chain:
            link, links = self.chain
            first = run_id
            if self.checkpoints and link > 1:
                first = self.checkpoints.name
            chain = {"link": link, "links": links, "first": first}
        return {
            "after": [asdict(item) for item in self.after],
            "chain": chain,
            "resubmitted_from": self.resubmitted_from,
            "checkpoints_of": self.checkpoints.name if self.checkpoints else None,
            "code_of": self.code.name if self.code else None,
        }

    def fill(self, folder: Path, elements: Sequence[int]) -> None:
        """Link the folder of a new run to the snapshot and the checkpoints of earlier runs.

        Each element has its own checkpoints.
        """
        if self.checkpoints:
            for element in elements:
                share_checkpoints(folder, self.checkpoints, element)
        if self.code:
            share_code(folder, self.code)


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that has been recorded, and whose job has not been submitted."""

    run: Run
    folder: Path
    notes: tuple[str, ...]  # on the copy of the code, for the user


def new_run_id(name: str) -> str:
    """Return an id for a run that begins now; ids sort by time."""
    return f"{datetime.now():%Y%m%d-%H%M%S}-{name}-{os.urandom(2).hex()}"


def new_run(
    prepared: Prepared,
    ports: Ports,
    surroundings: Surroundings,
    run_id: str,
    *,
    output_dir: Path | None,
    files: Mapping[str, str | bytes],
    lineage: Lineage,
    elements: Sequence[int] = (),
) -> NewRun:
    """Make a run, completely or not at all.

    If another submission of the same second has drawn the same id, the run gets the next one.

    Raises:
        RunExistsError: all ids up to the last possible one are taken.
    """
    plan = prepared.plan
    code = None
    if plan.snapshot and not lineage.code:
        from hpcrun.actions.jobs.snapshot import code_to_copy  # few jobs have a snapshot

        assert prepared.listing is not None
        code = code_to_copy(
            prepared.listing, plan.snapshot, prepared.request.snapshot_limit_mb, output_dir
        )
    needed = {str(WITHIN.submit_claim()): claim_text(), **files}
    stdin = surroundings.typed.stdin
    if stdin and plan.batch and not plan.batch.secrets:
        needed[str(WITHIN.stdin)] = stdin
    if plan.notify:
        needed[str(WITHIN.messages("sender"))] = _message_sender(len(elements), plan.notify.events)
    programs = job_programs()
    record = run_record(prepared, ports, surroundings, elements)
    notes: tuple[str, ...] = ()
    if code:
        record = replace(record, code=code.record())
        notes = code.notes
    elif not plan.snapshot:
        record = replace(record, code=_commit_record(prepared.request, surroundings))

    def fill(folder: Path) -> None:
        lineage.fill(folder, elements or (0,))
        if elements:
            RunFolder(folder).batch_logs.mkdir(mode=0o700)  # Slurm makes no folder for logs
        if code:
            code.copy_to(folder)

    while True:
        run = replace(record, run_id=run_id, **lineage.record(run_id))
        try:
            folder = ports.store.create(run, prepared.script, output_dir, needed, fill, programs)
            return NewRun(run, folder, notes)
        except RunExistsError:
            number = int(run_id[-4:], 16) + 1
            if number > 0xFFFF:
                raise
            run_id = f"{run_id[:-4]}{number:04x}"


def _commit_record(request: JobRequest, surroundings: Surroundings) -> dict[str, Any] | None:
    """Return the commit of the code that the job runs where it lies; None if it is not known."""
    folder = surroundings.cwd / (request.workdir or "")
    if request.script.endswith(".py"):
        folder = (folder / request.script).parent
    tree = read_work_tree(folder.resolve(), surroundings.env)
    return tree.record() if tree else None


def run_record(
    prepared: Prepared, ports: Ports, surroundings: Surroundings, elements: Sequence[int] = ()
) -> Run:
    """Return the record of a run without its id, its code, and its relations to earlier runs.

    Args:
        prepared: the job of the run.
        ports: give the cluster, the host and the time.
        surroundings: give the folder in which the user submits the run, and the folders of
            profiles.
        elements: the numbers of the array's elements; empty for a single job.
    """
    plan = prepared.plan
    cost = prepared.cost(max(1, len(elements)))
    return Run(
        run_id="",
        name=plan.name,
        scheduler=plan.scheduler,
        cluster=ports.schedulers(plan.scheduler).cluster(),
        host=ports.host,
        created_s=ports.now_s(),
        job_id=None,
        profile=plan.profile,
        nodes=plan.shape.nodes,
        gpus_per_node=plan.shape.gpus_per_node,
        world_size=plan.shape.world_size,
        walltime_s=plan.walltime_s,
        request=request_record(prepared.request, prepared.profile.profile.secrets),
        plan=_plan_record(plan, elements),
        cwd=str(surroundings.cwd),
        profile_file=profile_file(prepared.profile, surroundings),
        note=surroundings.typed.note,
        gpu_hours_at_most=cost.gpu_hours,
        gpus_at_most=cost.gpus,
        by=surroundings.by,
    )


def profile_file(loaded: LoadedProfile, surroundings: Surroundings) -> str | None:
    """Return the path of the profile's file, if the user named the file.

    Returns:
        The path; None if the name is enough to find the file.
    """
    named = profile_names(surroundings.profile_folders).get(loaded.profile.name)
    if named == loaded.path:
        return None
    return str((surroundings.cwd / loaded.path).resolve())


def job_programs() -> dict[str, bytes]:
    """Return the programs that run inside jobs or beside the ranks of jobs.

    Returns:
        The path below ``programs`` → the content.
    """
    in_job = Path(LAUNCH).parent
    programs = {}
    for part in ("launch", "probe", "preflight"):
        for path in (in_job / part).rglob("*.py"):
            programs[path.relative_to(in_job).as_posix()] = path.read_bytes()
    # a feature has programs of its own, named in the same way
    for path in (*in_job.glob("hpcrun_*.py"), *in_job.parent.glob("features/*/hpcrun_*.py")):
        programs[f"runtime/{path.name}"] = path.read_bytes()
    return programs


def _message_sender(elements: int, events: Sequence[str]) -> str:
    """Return the record by which a job finds this Python and this hpcrun to send messages.

    See per_job/message_events.py.
    """
    package = str(Path(LAUNCH).resolve().parents[2])
    record = {
        "python": sys.executable,
        "package": package,
        "elements": elements,
        "events": events,
    }
    return json.dumps(record) + "\n"


def request_record(request: JobRequest, named: Collection[str] = ()) -> dict[str, Any]:
    """Return the given fields of a request as JSON.

    Secrets are masked; those whose name does not tell are listed.

    Args:
        request: the request of the job; fields with their default value are left out.
        named: the names of secrets in the profile.
    """
    record = given_fields(request)
    if "env" in record:
        known = {*named, *request.secrets}
        masked = {name for name, value in record["env"] if is_secret(name, value, known)}
        shown = []
        for name, value in record["env"]:
            shown.append([name, MASK if name in masked else value])
        record["env"] = shown
        unusual = [name for name in masked if not is_secret(name)]
        noted = sorted({*request.secrets, *unusual})
        if noted:
            record["secrets"] = noted
    return record


def _plan_record(plan: Plan, elements: Sequence[int]) -> dict[str, Any]:
    """Return the plan as JSON, without the parameters of a sweep, which the request has."""
    record = asdict(replace(plan, sweep=None, batch=None))
    if not plan.roles:
        del record["roles"]
    if plan.batch:
        record["batch"] = {
            "name": plan.batch.name,
            "changed": plan.batch.changed,
            "missing": plan.batch.missing,
            "by_srun": any(line.by_srun for line in plan.batch.launches),
        }
    if elements:
        sweep = {"indices": index_ranges(elements), "first": 0, "max_parallel": None}
        if plan.sweep:
            sweep["first"] = plan.sweep.first
            sweep["max_parallel"] = plan.sweep.max_parallel
            # else each is a job of its own
            if plan.sweep.pack and plan.scheduler == "slurm":
                sweep["pack"] = plan.sweep.pack
        record["sweep"] = sweep
    return record
