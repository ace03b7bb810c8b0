"""What commands print, mostly of runs that are over, compared with golden files.

The first line of each file in tests/golden/commands is the command. `make golden` writes the rest:
a new case is a file with that one line. In tests/golden/sessions each line of a command
begins with "$". The runs are in tests/data/runs. A session with jobs begins by copying
tests/golden/programs, a small Slurm whose jobs are files; one with a cluster begins with programs
that print tests/data/22.05.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness import REPO, SYSTEM_PATH, Hpcrun

RUNS = REPO / "tests/data/runs"
RECORDED = REPO / "tests/data/22.05"
PROGRAMS = Path(__file__).parent / "programs"
GOLDEN = Path(__file__).parent / "commands"
SESSIONS = Path(__file__).parent / "sessions"
"""Commands of which one changes what the next one sees."""
ENDED_S = 1769744760.0
"""The end of the last of these runs."""
SUBMITTED_FROM = "/home/researcher/work"
CHANGES = (
    (r'(?<=_s": )(?!17697)1\d{9}(\.\d+)?', "NOW"),
    (r"\b(?!20260130)20\d{6}-\d{6}-([\w-]+)-[0-9a-f]{4}\b", r"NOW-\1-ID"),
    (rf'(?<="host": "){re.escape(socket.gethostname())}(?=")', "HOST"),
    (r"as of \d+ s ago", "as of TIME ago"),
    (r"--user=\d+", "--user=ID"),
    (r"\b\d+ d ago  ", "DAYS ago "),
    (r'\b\d+K\b|(?<=bytes": )\d+', "SIZE"),  # file systems differ
    (r"(?<=Detected by hpcrun on )\S+ for user \w+", "HOST for user NAME"),
    (r"(?s)# Seen on .*?(?=# NCCL)", "# WHAT THIS MACHINE HAS\n"),
    (r"(?ms)^checked +Slurm.*?^\d+ ok\b[^\n]*", "CHECKED"),  # what doctor finds
    (r"hpcrun: no test job, because of the errors above.*\n", ""),
)
"""What another time, machine or user changes, and what stands in its place."""
SLURM = "sacct sacctmgr sbatch scancel scontrol sinfo squeue srun sshare sstat".split()
BATCH = """\
#!/bin/bash
#SBATCH --job-name=fit --nodes=2 --gpus-per-node=4
#SBATCH --time=02:00:00
#SBATCH --array=0-3%2
module load cuda
export OMP_NUM_THREADS=8
srun torchrun --nnodes 2 --nproc-per-node 4 train.py --lr 0.1 --seed $SLURM_ARRAY_TASK_ID
"""


@contextmanager
def person_with_runs() -> Iterator[Hpcrun]:
    """Yield a person with these runs, in a folder whose path has always the same length."""
    with tempfile.TemporaryDirectory(prefix="runs-", dir="/tmp") as folder:
        path = f"{folder}/bin:{sys.prefix}/bin:{SYSTEM_PATH}"
        hpcrun = Hpcrun(Path(folder), REPO, Path(sys.prefix), extra={"PATH": path})
        shutil.copytree(RUNS, hpcrun.runs, dirs_exist_ok=True)
        for copied in hpcrun.runs.rglob("*"):  # in a new clone they would be a minute old
            os.utime(copied, (ENDED_S, ENDED_S))
        for name in SLURM:  # on each machine alike
            hpcrun.program(f"bin/{name}", "echo 'Unable to contact slurm controller' >&2; exit 1")
        # a session on a cluster has programs that print these files
        (Path(folder) / "recorded").symlink_to(RECORDED)
        (Path(folder) / "programs").symlink_to(PROGRAMS)
        hpcrun.write("work/train.py", "print(1)\n")
        hpcrun.write("train.sbatch", BATCH)
        for record in (*hpcrun.runs.glob("*/run.json"), *hpcrun.runs.glob("studies/*/*.json")):
            text = record.read_text("utf-8")
            record.write_text(text.replace(SUBMITTED_FROM, f"{folder}/work"), "utf-8")
        yield hpcrun


@pytest.fixture(scope="module")
def person() -> Iterator[Hpcrun]:
    """Return a person whose runs no command of a test changes."""
    with person_with_runs() as hpcrun:
        yield hpcrun


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.iterdir()))
def test_a_command_prints_what_it_did(person: Hpcrun, name: str, update_golden: bool) -> None:
    path = GOLDEN / f"{name}.txt"
    golden = path.read_text("utf-8")
    text = transcript(person, golden.partition("\n")[0])
    if update_golden:
        path.write_text(text, "utf-8")
        return
    assert text == golden, "make golden, and read the difference"


@pytest.mark.parametrize("name", sorted(path.stem for path in SESSIONS.iterdir()))
def test_a_session_goes_as_it_did(name: str, update_golden: bool) -> None:
    path = SESSIONS / f"{name}.txt"
    golden = path.read_text("utf-8")
    lines = [line for line in golden.splitlines() if line.startswith("$ ")]
    with person_with_runs() as own:
        text = "".join(transcript(own, line) for line in lines)
    if update_golden:
        path.write_text(text, "utf-8")
        return
    assert text == golden, "make golden, and read the difference"


def transcript(person: Hpcrun, line: str) -> str:
    """Return a command, its exit status and its output, without this test's folders and times."""
    if "|" in line:
        done = person.shell(f"cd {person.folder}; {line[2:]}")
    else:
        done = person(*shlex.split(line)[2:])
    text = f"{line}\nexit status {done.returncode}\n"
    for stream, printed in (("stdout", done.stdout), ("stderr", done.stderr)):
        text += f"--- {stream}\n{printed}"
    # tests/golden/scripts has those
    text = re.sub(r'(?<="script": )"#!.*', "THE SCRIPT", text)
    text = re.sub(r"(?s)(?<=stdout\n)#!/bin/bash.*?(?=--- stderr)", "THE SCRIPT\n", text)
    for pattern, instead in CHANGES:
        text = re.sub(pattern, instead, text)
    for folder, name in ((person.venv, "VENV"), (REPO, "CHECKOUT"), (person.folder, "FOLDER")):
        text = text.replace(str(folder), name)
    return text
