"""The checker of tests/as_without notices what differs, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.as_without.both_ways import BY_HPCRUN, BY_SBATCH, Seen, with_probe
from tests.as_without.cases import is_public, read_cases
from tests.as_without.compare import differences

RECORD = {
    "name": "python",
    "arguments": ["train.py", "--lr", "1e-3"],
    "umask": "0o22",
    "limits": [[1024, 4096]],
    "nice": 0,
    "cpus": 2,
    "stdin": "/dev/null",
    "descriptors": [],
    "received": [],
    "signals": {"SigIgn": "0000000000000000", "SigBlk": "0000000000000000"},
}


def seen(way: str, job: str, node: str) -> Seen:
    """What is seen of a job with one step of one task."""
    root = Path("/cases/case-0", way)
    environment = {"LR": "1e-3", "SLURM_JOB_ID": job, "PATH": f"{root}/bin:/bin"}
    record = {**RECORD, "folder": f"{root}/work"}
    script = {"kind": "script", "name": "", "flags": "hB", "traps": "trap -- 'echo' ERR"}
    task = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "CUDA_VISIBLE_DEVICES": "0,1"}
    return Seen(
        root,
        job,
        "",
        jobs=[{"JobId": job, "JobState": "COMPLETED", "ExitCode": "0:0", "NodeList": node}],
        steps=[{"name": name, "end": "COMPLETED 0:0"} for name in ("batch", "python")],
        records=[
            {**record, **script, "environment": environment},
            {**record, "kind": "program", "environment": {**environment, **task}},
        ],
        output=Counter({f"job {job} on {node}": 1, "16 ranks": 2}),
        files=[f"slurm-{job}.out", "train.py"],
    )


BY_SLURM = seen(BY_SBATCH, "16", "a100-1")
THE_SAME = seen(BY_HPCRUN, "23", "h100-2")


def changed(number: int, **fields: Any) -> Seen:
    """The same but for some fields of a record."""
    records = list(THE_SAME.records)
    records[number] = {**records[number], **fields}
    return replace(THE_SAME, records=records)


def with_environment(**variables: str) -> Seen:
    """The same but for some variables of the task."""
    return changed(1, environment={**THE_SAME.records[1]["environment"], **variables})


def without_variable() -> Seen:
    environment = {**THE_SAME.records[1]["environment"]}
    del environment["LR"]
    return changed(1, environment=environment)


def ended_with(status: str) -> Seen:
    job = {**THE_SAME.jobs[0], "ExitCode": status}
    return replace(THE_SAME, jobs=[job])


FAULTS: dict[str, tuple[Callable[[], Seen], str]] = {
    "a dropped export": (without_variable, "program python: $LR"),
    "another value": (lambda: with_environment(LR="1"), "program python: $LR"),
    "an added variable": (lambda: with_environment(PMI_FD="3"), "program python: $PMI_FD"),
    "fewer GPUs": (
        lambda: with_environment(CUDA_VISIBLE_DEVICES="0"),
        "program python: $CUDA_VISIBLE_DEVICES",
    ),
    "another folder": (lambda: changed(1, folder="/runs/x"), "program python: folder"),
    "a lost trap": (lambda: changed(0, traps=""), "script: traps"),
    "another option of the shell": (lambda: changed(0, flags="hBE"), "script: flags"),
    "another argument": (lambda: changed(1, arguments=["train.py"]), "program python: arguments"),
    "a signal": (lambda: changed(1, received=["SIGTERM"]), "program python: received"),
    "an ignored signal": (
        lambda: changed(1, signals={"SigIgn": f"{2:016x}", "SigBlk": f"{0:016x}"}),
        "program python: SigIgn",
    ),
    "an open file": (lambda: changed(1, descriptors=["socket"]), "program python: descriptors"),
    "another input": (lambda: changed(1, stdin="pipe"), "program python: stdin"),
    "another exit status": (lambda: ended_with("9:0"), "job: ExitCode"),
    "a missing step": (lambda: replace(THE_SAME, steps=THE_SAME.steps[:1]), "names of steps"),
    "a program less": (lambda: replace(THE_SAME, records=THE_SAME.records[:1]), "programs"),
    "a missing file": (lambda: replace(THE_SAME, files=THE_SAME.files[:1]), "files"),
    "a lost line": (
        lambda: replace(THE_SAME, output=Counter({"job 23 on h100-2": 1, "16 ranks": 1})),
        "output '16 ranks'",
    ),
    "a line more": (
        lambda: replace(THE_SAME, output=THE_SAME.output + Counter({"srun: killed": 1})),
        "output 'srun: killed'",
    ),
    "a refusal": (lambda: Seen(THE_SAME.root, "", "no"), "submission"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault: str) -> None:
    make, what = FAULTS[fault]
    assert what in [difference.what for difference in differences(BY_SLURM, make())]


def test_what_differs_between_any_two_jobs_is_no_difference() -> None:
    assert differences(BY_SLURM, THE_SAME) == []
    assert differences(BY_SLURM, with_environment(HPCRUN_RUN="x", SLURM_TASK_PID="7")) == []


@pytest.mark.parametrize(
    ("partition", "is_same"), [("gpu", True), ("gpu,h100", True), ("cpu", False), ("", False)]
)
def test_slurm_takes_any_of_several_partitions(partition: str, is_same: bool) -> None:
    several = frozenset({"h100", "gpu"})
    jobs = [{**job, "Partition": "h100"} for job in BY_SLURM.jobs]
    by_sbatch = replace(BY_SLURM, jobs=jobs, partitions=several)
    jobs = [{**job, "Partition": partition} for job in THE_SAME.jobs]
    by_hpcrun = replace(THE_SAME, jobs=jobs, partitions=several)
    assert (differences(by_sbatch, by_hpcrun) == []) == is_same
    one_alone = [replace(seen, partitions=frozenset()) for seen in (by_sbatch, by_hpcrun)]
    assert [one.what for one in differences(*one_alone)] == ["job: Partition"]


def test_the_probe_stands_before_the_first_command() -> None:
    script = "#!/bin/bash\n#SBATCH -n1\n\n# text\nset -e\n"
    probed = with_probe(script, Path("/x y/probe")).splitlines()
    assert probed[:4] + probed[5:] == script.splitlines()
    assert probed[4].startswith("'/x y/probe' \"$-\"")


def test_25_cases_are_written_after_public_scripts_which_they_name() -> None:
    public = {case.path: case.text for case in read_cases().values() if is_public(case)}
    assert len(public) == 25
    for text in public.values():
        assert "\n# after " in text.partition("\n#SBATCH")[0]
