"""What jobs on this machine print, record and leave behind, compared with golden files.

The first line of each file in tests/golden/jobs is the command. `make golden` writes the rest: a
new case is a file with that one line.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import REPO, Hpcrun, end_processes_of, process_ids, wait_for

GOLDEN = Path(__file__).parent / "jobs"
PROGRAM = """\
import os
import sys
import time

print(sys.argv[1:])
for name in os.environ["SHOWN"].split():
    print(name, os.environ.get(name, "-"))
sys.stdout.flush()
while sys.argv[2:] and not os.path.exists(os.path.expandvars(sys.argv[2])):
    time.sleep(0.02)
if sys.argv[1] == "fails" and os.environ["HPCRUN_ATTEMPT"] == "0":
    sys.exit("no data")
"""
SHOWN = """
A RANK MASTER_ADDR NNODES NODE_RANK OMP_NUM_THREADS PYTHONPATH CUDA_VISIBLE_DEVICES
HPCRUN_ATTEMPT HPCRUN_ELEMENT HPCRUN_REQUEUES HPCRUN_HEAD HPCRUN_HEAD_ADDR HPCRUN_NODE
HPCRUN_NODE_RANK HPCRUN_RANK_BASE HPCRUN_ROLE HPCRUN_ROLE_SERVER_HOSTS HPCRUN_CHECKPOINT_DIR
TORCH_FR_DUMP_TEMP_FILE OMPI_MCA_plm WANDB_TAGS WANDB_RUN_GROUP
"""
BATCH = """\
#!/bin/bash
#SBATCH --job-name=batch
echo the script began
python -u rank.py ends
"""
VOLATILE = frozenset(
    "started ended time pid start_ticks boot_id host addresses port rendezvous files".split()
)


@pytest.fixture
def person() -> Iterator[Hpcrun]:
    """Return a person in a folder whose path has always the same length."""
    older = process_ids()
    with tempfile.TemporaryDirectory(prefix="jobs-", dir="/tmp") as folder:
        hpcrun = Hpcrun(folder=Path(folder), checkout=REPO, venv=Path(sys.prefix))
        hpcrun.write("rank.py", PROGRAM)
        hpcrun.write("batch.sh", BATCH)
        yield hpcrun
        end_processes_of(Path(folder), older)


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.iterdir()))
def test_a_job_leaves_what_it_did(person: Hpcrun, name: str, update_golden: bool) -> None:
    path = GOLDEN / f"{name}.txt"
    golden = path.read_text("utf-8")
    text = account_of_job(person, golden.partition("\n")[0])
    if update_golden:
        path.write_text(text, "utf-8")
        return
    assert text == golden, "make golden, and read the difference"


def account_of_job(person: Hpcrun, line: str) -> str:
    """Return the command of a job, its exit status, its output and the files that the job wrote."""
    done = person(*shlex.split(line)[2:], env={"SHOWN": SHOWN})
    (run,) = person.runs.glob("2*")
    wait_for(lambda: has_ended(run), 30, "the supervisor's last record")
    text = f"{line}\nexit status {done.returncode}\n"
    for stream, printed in (("stdout", done.stdout), ("stderr", done.stderr)):
        text += f"--- {stream}\n{printed}"
    for path in sorted([*run.glob("elements/**/*"), *run.glob("batch*"), *run.glob("super*")]):
        if path.is_file() and path.name != "versions":
            text += f"--- {path.relative_to(run)}\n{file_text(path)}"
    text = re.sub(r"\bL\d+", "LJOB", text.replace(run.name, "RUN"))
    text = re.sub(r"after \d\d:\d\d:\d\d", "after TIME", text)
    text = re.sub(r"(?<=hpcrun-stage-LJOB-)\d+", "ID", text)
    text = re.sub(r"in [\d.]+ s, \d+ MB/s", "in TIME", text)
    for folder, name in ((person.folder, "FOLDER"), (person.venv, "VENV"), (REPO, "CHECKOUT")):
        text = text.replace(str(folder), name)
    return text


def has_ended(run: Path) -> bool:
    """Return whether the supervisor of a run has recorded the end; that of a sweep is the last."""
    return "state" in json.loads((run / "supervisor.json").read_text())


def file_text(path: Path) -> str:
    """Return the text of a file; of a record without its times and processes."""
    text = path.read_text("utf-8")
    try:
        record: dict[str, Any] = json.loads(text)
    except ValueError:
        return text
    if not isinstance(record, dict):
        return text
    kept = {name: "?" if name in VOLATILE else value for name, value in record.items()}
    return json.dumps(kept) + "\n"
