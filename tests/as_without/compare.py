"""Compares what was seen of a script by sbatch and by hpcrun: pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from tests.as_without.both_ways import Seen

OF_A_JOB = re.compile(
    r"""
    _ | SHLVL | HOSTNAME | SLURMD_NODENAME | INVOCATION_ID | JOURNAL_STREAM
    | SLURM_(JOB_SLUID | JOB_START_TIME | JOB_END_TIME | TASK_PID | GTIDS | PRIO_PROCESS)
    | SLURM_(TOPOLOGY_ADDR | LAUNCH_NODE_IPADDR | SRUN_COMM_HOST | SCRIPT_CONTEXT)
    | SLURM_(SRUN_COMM_PORT | STEP_LAUNCHER_PORT | STEP_?ID | JOB_GPUS | STEP_GPUS)
    | TORCHELASTIC_\w+
    """,
    re.VERBOSE,
)
"""Variables that differ between any two jobs."""
GPUS = re.compile(
    r"(\w+ENV_)?(CUDA_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ROCR_VISIBLE_DEVICES|ZE_AFFINITY_MASK)"
)
"""Which GPUs a job has is Slurm's choice: their number counts. A container has its own names."""
FIELDS_OF_A_JOB = set(
    """
    AccrueTime AllocNode:Sid BatchHost EligibleTime EndTime JobId LastSchedEval NodeList Priority
    RunTime SchedNodeList StartTime SubmitTime SubmitLine SuspendTime DerivedExitCode AllocTRES TRES
    ArrayJobId Scheduler Deadline PreemptTime PreemptEligibleTime SecsPreSuspend
    """.split()
)
"""The same of what Slurm shows."""
PARTS = (
    *"kind name path arguments folder flags traps umask limits nice cpus stdin".split(),
    *("descriptors", "received", "leads its group"),
)
"""What is compared of a record besides its environment and its signal masks."""
NODES = re.compile(r"\b(?:a100|h100|v100|l40s|h200|a40|cpu)-(?:\d+|\[[\d,-]+\])|\b10\.78\.0\.\d+\b")
COPY = re.compile(r"/\S+/(?:job\d+/slurm_script|attempts/\d+/[\w.]+\.(?:sbatch|py))\b")
"""The script as it runs, in what bash prints: $0 is compared by itself."""
OF_SLURM = re.compile(
    r"srun: (got SIGCONT|Job \S+ step creation|Step created|Job step aborted|error: \S+: tasks? )"
    r"|slurmstepd-\S+: error: \*\*\* (JOB|STEP) "
)
"""What Slurm prints of steps that wait or end: how often, and in which words, time decides."""
OWN_SIGNALS = 0b11 << 31
"""Signals 32 and 33: glibc keeps them for itself, and ignores them in posix_spawn."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same: what it is, and what it is by each way."""

    what: str
    by_sbatch: str
    by_hpcrun: str

    def __str__(self) -> str:
        return f"{self.what}: {self.by_sbatch} by sbatch, {self.by_hpcrun} by hpcrun"


def differences(by_sbatch: Seen, by_hpcrun: Seen) -> list[Difference]:
    """Return all that differs between the two ways of a case."""
    if not by_sbatch.job or not by_hpcrun.job:
        if bool(by_sbatch.job) == bool(by_hpcrun.job):
            return []
        messages = [seen.message.strip() for seen in (by_sbatch, by_hpcrun)]
        return [Difference("submission", *messages)]
    return list(dict.fromkeys(_Comparison(by_sbatch, by_hpcrun).differences()))


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Both ways of a case, whose jobs were submitted."""

    by_sbatch: Seen
    by_hpcrun: Seen

    def differences(self) -> Iterator[Difference]:
        yield from self._of_jobs()
        yield from self._of_records()
        yield from self._of_output()
        for part in ("name", "end"):
            steps = [
                [step[part] for step in seen.steps] for seen in (self.by_sbatch, self.by_hpcrun)
            ]
            yield from self._of(f"{part}s of steps", sorted(steps[0]), sorted(steps[1]))
        yield from self._of("files", self.by_sbatch.files, self.by_hpcrun.files)

    def _of(self, what: str, one: Any, other: Any) -> Iterator[Difference]:
        if what.endswith(("job: Partition", "$SLURM_JOB_PARTITION")):
            one = _of_several(one, self.by_sbatch)
            other = _of_several(other, self.by_hpcrun)
        texts = (_plain(one, self.by_sbatch), _plain(other, self.by_hpcrun))
        if not self._is_same(*texts):
            yield Difference(what, *texts)

    def _is_same(self, one: str, other: str) -> bool:
        """Whether two texts are the same, where each way has ids of its own jobs."""
        ones = re.split(r"(\d+)", one)
        others = re.split(r"(\d+)", other)
        ids = set(zip(_ids(self.by_sbatch), _ids(self.by_hpcrun), strict=False))
        pairs = zip_longest(ones, others)
        return all(pair[0] == pair[1] or pair in ids for pair in pairs)

    def _of_jobs(self) -> Iterator[Difference]:
        jobs = (self.by_sbatch.jobs, self.by_hpcrun.jobs)
        if len(jobs[0]) != len(jobs[1]):
            yield Difference("jobs", str(len(jobs[0])), str(len(jobs[1])))
        for one, other in zip(*jobs, strict=False):
            for name in sorted({*one, *other} - FIELDS_OF_A_JOB):
                yield from self._of(f"job: {name}", one.get(name, ""), other.get(name, ""))

    def _of_records(self) -> Iterator[Difference]:
        keys = (_keys(self.by_sbatch), _keys(self.by_hpcrun))
        if len(keys[0]) != len(keys[1]):
            names = [sorted(key[1:4] for key in each) for each in keys]
            yield Difference("programs", str(names[0]), str(names[1]))
            return
        for key, other_key in zip(sorted(keys[0]), sorted(keys[1]), strict=True):
            yield from self._of_record(keys[0][key], keys[1][other_key])

    def _of_record(self, one: Record, other: Record) -> Iterator[Difference]:
        label = f"{one['kind']} {one['name']}".strip()
        for part in PARTS:
            yield from self._of(f"{label}: {part}", one.get(part, ""), other.get(part, ""))
        for name, mask in one["signals"].items():
            if (int(mask, 16) ^ int(other["signals"][name], 16)) & ~OWN_SIGNALS:
                yield Difference(f"{label}: {name}", mask, other["signals"][name])
        environments = (one["environment"], other["environment"])
        for name in sorted({*environments[0], *environments[1]}):
            if OF_A_JOB.fullmatch(name) or name.startswith("HPCRUN_"):
                continue
            values = [environment.get(name) for environment in environments]
            if GPUS.fullmatch(name):
                values = [value and f"{value.count(',') + 1} GPUs" for value in values]
            yield from self._of(f"{label}: ${name}", *values)

    def _of_output(self) -> Iterator[Difference]:
        """Compare what was printed; a line of a rank may also be in the log of the script."""
        ones = _lines(self.by_sbatch)
        others = _lines(self.by_hpcrun)
        lost: dict[str, int] = {}  # line → how many of its copies there are by hpcrun
        for line, count in ones.items():
            same = [other for other in others if self._is_same(line, other)]
            copies = sum(others[other] for other in same)
            if copies < count:
                lost[line] = copies
        added = [other for other in others if not any(self._is_same(line, other) for line in ones)]
        for line, copies in lost.items():
            yield Difference(f"output {line!r}", str(ones[line]), str(copies))
        for other in added:
            yield Difference(f"output {other!r}", "0", str(others[other]))


def _of_several(partition: str | None, seen: Seen) -> str | None:
    """Return the partition of a job; of several that are requested, Slurm takes any."""
    if partition and {*partition.split(",")} <= seen.partitions:
        return " or ".join(sorted(seen.partitions))
    return partition


def _ids(seen: Seen) -> list[str]:
    """Return the ids of the job, and of the tasks of an array."""
    return [seen.job, *(fields["JobId"] for fields in seen.jobs)]


def _keys(seen: Seen) -> dict[tuple[str, ...], Record]:
    """Return the records by what those of the same program have in common, and their number."""
    keys: dict[tuple[str, ...], Record] = {}
    for number, record in enumerate(seen.records):
        environment = record["environment"]
        is_of_step = "SLURM_STEP_ID" in environment
        key = (
            environment.get("SLURM_ARRAY_TASK_ID", ""),
            record["kind"],
            record["name"],
            environment.get("SLURM_PROCID", "") if is_of_step else "",
            environment.get("RANK", ""),
            _plain(record["arguments"], seen),
            f"{number:04}",
        )
        keys[key] = record
    return keys


def _lines(seen: Seen) -> dict[str, int]:
    """Return the lines that were printed, and how often; srun --label is none of a rank's log."""
    lines: dict[str, int] = {}
    for line, count in seen.output.items():
        plain = re.sub(r"^\s*\d+: ", "", _plain(line, seen)).rstrip()
        plain = COPY.sub("SCRIPT", plain)
        if not OF_SLURM.match(plain):
            lines[plain] = lines.get(plain, 0) + count
    return lines


def _plain(value: Any, seen: Seen) -> str:
    """Return a value as text, without the names that differ between any two jobs."""
    text = value if isinstance(value, str) else json.dumps(value)
    return NODES.sub("NODE", text.replace(str(seen.root), "ROOT"))
