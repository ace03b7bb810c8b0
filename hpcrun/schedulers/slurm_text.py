"""Slurm's commands as argument lists, and their answers as records. Pure text.

Fields are requested one by one, with a separator that no field can contain: ``--json`` differs from
version to version, and sacct's reports SUCCESS for any exit status before 23.11 (Slurm's
src/plugins/openapi/dbv0.0.38/parse.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from hpcrun.job.job_states import PENDING, JobInfo, base_state
from hpcrun.job.request.parameters import parse_indices
from hpcrun.job.run_paths import SUBMISSION_FILE, JobFolder
from hpcrun.job.text.spelling import spell_row
from hpcrun.job.text.units import slurm_seconds
from hpcrun.schedulers.protocol import ArrayLimits, JobRef

SEPARATOR = "\x1f"

# squeue(1): job id, state, reason, time used, time limit, node list, command (the script's path),
# (expected) start
_SQUEUE_FIELDS = ("%i", "%T", "%r", "%M", "%l", "%N", "%o", "%S")
# JobID and not JobIDRaw: an element of an array is 7_4, as in squeue. SubmitLine (since Slurm
# 21.08) names the script; it comes last, since it may have several lines.
_SACCT_FIELDS = (
    "JobID",
    "State",
    "ExitCode",
    "ElapsedRaw",
    "TimelimitRaw",
    "NodeList",
    "Reason",
    "Submit",
    "SubmitLine",
)
_LONGEST_NUMBER = 18  # digits
_IDS_AT_ONCE = 8_000  # of up to 15 characters
_SETTING = re.compile(r"^\s*([A-Za-z]\w*(?:\[\d+\])?)\s*=[ \t]*(.*?)\s*$", re.MULTILINE | re.ASCII)
_SUBMITTED = re.compile(r"^Submitted batch job (\d+)", re.MULTILINE)
_UNCERTAIN = re.compile(
    r"Socket timed out|Zero Bytes were transmitted|timed out on send/recv|Transport endpoint is "
    r"not connected"
)
# sbatch's messages when it refuses (slurm_errno.c) | advice for the user
_REFUSALS = """
[Ii]nvalid partition | \
  choose a partition (`sinfo -s` lists them) with --partition, or in the profile
Invalid account or account/partition | \
  `sacctmgr show assoc user=$USER` lists your accounts; choose one with --account
unrecognized option '--segment | \
  segments need Slurm 23.11 and a block topology: leave out --segment, \
  or --no-sbatch segment for the profile's
unrecognized option '--container-type | \
  only Slurm 26.05 has container-type; Slurm 26.11 calls it runtime
unrecognized option '--runtime | runtime needs Slurm 26.11; Slurm 26.05 calls it container-type
unrecognized option '--(consolidate-segments|resources|spread-segments) | this needs Slurm 25.11
unrecognized option '--mem-update | mem-update needs Slurm 26.05
is not a valid node count | \
  write --nodes N or MIN-MAX; lists such as 2,4,8 need Slurm 23.11
option '--requeue' doesn't allow an argument | \
  expedited requeue needs Slurm 25.11: remove requeue.expedite from the profile
Requested operation not supported on this system | \
  this Slurm is not set up for it; for expedited requeue: remove requeue.expedite from the profile
Invalid qos | `sacctmgr show assoc user=$USER format=account,qos` lists yours; choose one with --qos
violates accounting/QOS policy | \
  request less, or wait for your other jobs; `sacctmgr show qos` shows the limits
Requested node configuration is not available | \
  no node has all requested resources, or such nodes are drained or reserved; \
  `sinfo -N -o '%N %T %c %m %G %f'` lists the nodes
Invalid generic resource | \
  `sinfo -o '%N %G'` shows the GPU types; the profile's gpu.type must be one of them
Requested time limit is invalid | \
  `sinfo -o '%P %l'` shows each partition's limit; ask for a shorter --time
Invalid job array specification | `scontrol show config | grep MaxArraySize` shows the largest array
[Jj]ob dependency problem | \
  Slurm may just have purged the job of --after: submit again, and hpcrun uses its record
Unable to contact slurm controller | \
  the controller does not respond, and nothing was submitted; try again when `sinfo` works
"""
# Arrays: 7_4 is an element, 7_[5-9%2] are pending elements.
_WAITING = re.compile(r"(\d+)_\[([\d,:-]+)(?:%\d+)?\]")


def squeue_command(uid: int) -> list[str]:
    """Ask for all jobs of a user, with ended jobs as long as the controller remembers them."""
    return squeue(f"--user={uid}", "--states=all", fields=_SQUEUE_FIELDS)


def parse_squeue(text: str) -> list[JobInfo]:
    """Read the answer to :func:`squeue_command`; other lines are ignored."""
    jobs = []
    for row in rows_of(text, len(_SQUEUE_FIELDS)):
        job_id, slurm_state, reason, used, limit, hosts, script, start = row
        state = base_state(slurm_state)
        jobs.append(
            JobInfo(
                job_id,
                state,
                reason=known_text(reason),
                elapsed_s=slurm_seconds(used),
                limit_s=slurm_seconds(limit),
                hosts=known_text(hosts),
                script=known_text(script),
                start_s=parse_time(start) if state == PENDING else None,
            )
        )
    return jobs


def rows_of(text: str, width: int, separator: str = SEPARATOR) -> list[list[str]]:
    """Return the fields of each line that has ``width`` of them; other lines are ignored."""
    rows = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(separator)]
        if len(fields) == width:
            rows.append(fields)
    return rows


def squeue(*options: str, fields: Sequence[str]) -> list[str]:
    """Ask the controller for fields, in the form that :func:`rows_of` reads."""
    return ["squeue", *options, "--noheader", f"--format={SEPARATOR.join(fields)}"]


def sacct(*options: str, fields: Sequence[str]) -> list[str]:
    """Ask the accounting database for fields, in the form that :func:`rows_of` reads."""
    return [
        "sacct",
        *options,
        "--parsable2",
        "--noheader",
        f"--delimiter={SEPARATOR}",
        f"--format={','.join(fields)}",
    ]


def in_parts(job_ids: Sequence[str]) -> list[Sequence[str]]:
    """Return job ids in the fewest parts that fit on a command line.

    Linux allows 128 KiB per argument (execve(2)).
    """
    begins = range(0, len(job_ids), _IDS_AT_ONCE)
    return [job_ids[begin : begin + _IDS_AT_ONCE] for begin in begins]


def sacct_command(job_ids: Sequence[str]) -> list[str]:
    """Ask the accounting database for these jobs, without their steps.

    Without ``--duplicates`` sacct shows only the newest job with an id (sacct(1)), which may be a
    different job.
    """
    jobs = f"--jobs={','.join(job_ids)}"
    return sacct("--allocations", "--duplicates", jobs, fields=_SACCT_FIELDS)


def sacct_lines_command(since_s: float) -> list[str]:
    """Return the command that asks the accounting database for the user's jobs since a time.

    The time is one minute earlier, for clocks that differ.
    """
    start = datetime.fromtimestamp(max(0.0, since_s - 60))
    since = start.isoformat(timespec="seconds")
    return sacct("--allocations", f"--starttime={since}", fields=_SACCT_FIELDS)


def parse_sacct(text: str) -> list[JobInfo]:
    """Read the answer to :func:`sacct_command` or :func:`sacct_lines_command`.

    The newest submission comes last. A requeued job has a line for each time that it was submitted.
    """
    rows = rows_of(text, len(_SACCT_FIELDS))
    rows.sort(key=lambda fields: fields[-2])  # local time as ISO 8601: later is larger
    jobs = []
    for job_id, state, exit_code, elapsed, limit, hosts, reason, _, command in rows:
        status, _, signal = exit_code.partition(":")
        limit_minutes = whole_number(limit)
        jobs.append(
            JobInfo(
                job_id,
                base_state(state),
                reason=known_text(reason),
                elapsed_s=whole_number(elapsed),
                limit_s=None if limit_minutes is None else limit_minutes * 60,
                hosts=known_text(hosts),
                exit_status=whole_number(status),
                signal=whole_number(signal) or None,
                script=known_text(command),
                archived=True,
            )
        )
    return jobs


def node_states_command(hosts: str) -> list[str]:
    """Ask for the state of each node of a node list."""
    return ["sinfo", "--Node", "--noheader", f"--nodes={hosts}", "--format=%N %T"]


def parse_node_states(text: str) -> dict[str, str]:
    """Read the answer to :func:`node_states_command`: node → state.

    A node has a line for each of its partitions.
    """
    states = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 2:
            node, state = fields
            states[node] = state
    return states


def parse_time(text: str) -> float | None:
    """Return squeue's start time in seconds since the epoch; None for N/A."""
    try:
        return datetime.fromisoformat(text).timestamp()  # local time, in this process's own TZ
    except ValueError:
        return None


def parse_submitted(text: str) -> str | None:
    """Return the job id from sbatch's answer."""
    match = _SUBMITTED.search(text)
    return match[1] if match else None


def submission_is_uncertain(stderr: str) -> bool:
    """Return whether sbatch failed without knowing whether the controller accepted the job."""
    return _UNCERTAIN.search(stderr) is not None


def refusal_hint(stderr: str) -> str | None:
    """Return advice for sbatch's refusal, None for an unknown one."""
    for row in _REFUSALS.strip().splitlines():
        pattern, hint = row.split(" | ", 1)
        if re.search(pattern, stderr):
            return spell_row(" ".join(hint.split()))
    return None


def parse_cluster_name(conf: str) -> str | None:
    """Return ClusterName from the text of slurm.conf or of ``scontrol show config``."""
    match = re.search(r"^\s*ClusterName\s*=\s*([^\s#]+)", conf, re.MULTILINE | re.IGNORECASE)
    return match[1].lower() if match else None


def parse_array_limits(config: str) -> ArrayLimits | None:
    """Return the limits of arrays from the text of ``scontrol show config``."""
    settings = parse_config(config)
    array = whole_number(settings.get("MaxArraySize"))
    jobs = whole_number(settings.get("MaxJobCount"))
    # MaxArraySize 0 turns arrays off (slurm.conf(5)): leave the message to sbatch
    return ArrayLimits(array, jobs) if array and jobs else None


def parse_requeue(job: str) -> bool | None:
    """Return whether Slurm may requeue a job, None if that is unknown.

    Args:
        job: the answer of ``scontrol --oneliner show job``.
    """
    match = re.search(r" Requeue=(\d)", job)
    return match[1] != "0" if match else None


def parse_config(text: str) -> dict[str, str]:
    """Read ``scontrol show config``; settings without a value are left out."""
    return {key: value for key, value in _SETTING.findall(text) if value not in ("", "(null)")}


def known_text(text: str) -> str | None:
    """Return a field of Slurm's, None if it holds one of Slurm's words for nothing."""
    if text in ("", "None", "(null)", "n/a", "None assigned"):
        return None
    return text


def whole_number(text: str | None) -> int | None:
    """Return a number of Slurm's; None of another text.

    A text that is too long for any number of Slurm's also gives None.
    """
    if text and len(text) <= _LONGEST_NUMBER and text.isascii() and text.isdigit():
        return int(text)
    return None


def array_id(job_id: str) -> str:
    """Return the array's id for the id of an element; any other id is returned unchanged."""
    return job_id.partition("_")[0]


def element_ids(job_id: str) -> list[str]:
    """Return the ids of the elements for the id of several; any other id is returned unchanged."""
    match = _WAITING.fullmatch(job_id)
    if match is None:
        return [job_id]
    try:
        indices = parse_indices(match[2])
    except ValueError:
        return [job_id]
    return [f"{match[1]}_{index}" for index in indices]


def allocated_gpus(tres: str) -> int:
    """Return the GPUs of ``cpu=4,gres/gpu=2``.

    Where a site counts only GPUs with a type, the result is the sum of all types.
    """
    of_all_types = 0
    for name, value in resources(tres).items():
        number = whole_number(value) or 0
        if name == "gres/gpu":
            return number
        if name.startswith("gres/gpu:"):
            of_all_types += number
    return of_all_types


def resources(tres: str) -> dict[str, str]:
    """Read Slurm's list of trackable resources: ``cpu=4,mem=16G``."""
    amounts = {}
    for part in tres.split(","):
        name, _, amount = part.partition("=")
        amounts[name] = amount
    return amounts


_SCRIPT = re.compile(r"/([^/\s]+)/" + re.escape(SUBMISSION_FILE))


def run_id_of_line(command: str) -> str | None:
    """Return the id of the run whose script a command line submits.

    Returns None if the command line belongs to no run.
    """
    match = _SCRIPT.search(command)
    return match[1] if match else None


def jobs_of_runs(listed: Iterable[JobInfo], jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
    """Return the listed jobs that were asked about: folder → its job.

    Of several jobs with an id, the last counts. A job that is not listed is left out, and so is a
    job that only has the same id.
    """
    run_ids = {job.folder: JobFolder(job.folder).run.name for job in jobs}
    wanted = set(run_ids.values())  # others have arrays of thousands of elements as well
    last_of_run: dict[str, JobInfo] = {}
    by_id: dict[tuple[str, str], JobInfo] = {}  # the id of a run and that of a job → the job
    for info in listed:
        listed_run = run_id_of_line(info.script or "")
        if listed_run is None or listed_run not in wanted:
            continue
        last_of_run[listed_run] = info
        for job_id in element_ids(info.job_id):
            by_id[listed_run, job_id] = info
    jobs_by_folder: dict[Path, JobInfo] = {}
    for job in jobs:
        run_id = run_ids[job.folder]
        if job.job_id is None:
            last = last_of_run.get(run_id)
            if last:
                jobs_by_folder[job.folder] = replace(last, job_id=array_id(last.job_id))
        else:
            same_id = by_id.get((run_id, job.job_id))
            if same_id:
                jobs_by_folder[job.folder] = replace(same_id, job_id=job.job_id)
    return jobs_by_folder
