"""A run is found by its job id as fast as by its own: without reading the records of all the
others.
"""

from __future__ import annotations

import socket
from pathlib import Path

from hpcrun.runs.record import LastStatus, run_to_json, status_to_json
from hpcrun.runs.store import RunStore
from tests.harness import Hpcrun
from tests.unit.builders import run, write

JOB = ("submit", "-P", "local", "--gpus", "0", "--wait")
RUNS = 300
FEW = 12

COUNTED = """
import runpy, sys

root, sys.argv = sys.argv[1], ["hpcrun", *sys.argv[2:]]
opened = []

def watch(name, args):
    if name in ("open", "os.listdir", "os.scandir") and str(args[0]).startswith(root):
        opened.append(str(args[0]))

sys.addaudithook(watch)
try:
    runpy.run_module("hpcrun", run_name="__main__", alter_sys=True)
finally:
    print(*opened, sep="\\n", file=sys.stderr)
"""


def opened_by(person: Hpcrun, *args: str) -> tuple[str, list[str]]:
    """What a command prints, and what it opens below the runs folder."""
    python, *_ = person.argv()
    done = person.run(python, "-c", COUNTED, str(person.runs), *args)
    return done.stdout, [
        line for line in done.stderr.splitlines() if line.startswith(str(person.runs))
    ]


def many(person: Hpcrun, number: int = RUNS) -> RunStore:
    """Runs that are over, as an hpcrun made them that wrote no index."""
    store = RunStore(person.runs)
    for index in range(number):
        run_id = (
            f"20260101-{index // 3600:02}{index // 60 % 60:02}{index % 60:02}-train-{index:04x}"
        )
        made = run(
            run_id,
            scheduler="local",
            host=socket.gethostname(),
            cluster=None,
            job_id=f"L{100000 + index}",
        )
        write(store.folder(run_id) / "run.json", run_to_json(made))
        over = LastStatus("COMPLETED", 1.0, final=True, elapsed_s=1)
        write(store.folder(run_id) / "status.json", status_to_json(over))
    return store


def test_by_job_id_as_few_files_are_opened_as_by_run_id(hpcrun: Hpcrun) -> None:
    store = many(hpcrun)
    said = hpcrun(*JOB, "true", check=True).stdout
    newest = store.run_ids()[-1]
    job_id = store.load(newest).job_id
    assert job_id is not None
    assert f"hpcrun status {job_id}" in said
    older = store.run_ids()[5]
    # once: runs without an entry are read, and have one from then on
    shown, opened = opened_by(hpcrun, "status", "L100005")
    assert "COMPLETED" in shown
    assert len(opened) > RUNS
    for word, run_id in (("L100005", older), (job_id, newest)):
        shown, opened = opened_by(hpcrun, "status", word)
        by_id, needed = opened_by(hpcrun, "status", run_id)
        assert shown == by_id
        assert len(opened) <= len(needed) + 2 <= FEW, opened


def test_an_element_and_a_run_that_lies_elsewhere_are_found_and_the_entry_goes_with_the_run(
    hpcrun: Hpcrun, tmp_path: Path
) -> None:
    far = tmp_path / "scratch"
    hpcrun(*JOB, "--output-dir", str(far), "-J", "far", "true", check=True)
    hpcrun(*JOB, "-J", "many", "--sweep", "x=1,2", "echo", "{x}", check=True)
    store = RunStore(hpcrun.runs)
    for run_id in store.run_ids():
        word = store.load(run_id).job_id
        assert word is not None
        assert hpcrun.status(word)["run_id"] == run_id
        if "-many-" in run_id:
            assert [item["element"] for item in hpcrun.status(f"{word}_1")["elements"]] == [1]
    entries = sorted(path.name for path in (hpcrun.runs / "jobs").iterdir())
    assert entries == sorted(f"{store.load(run_id).job_id}.{run_id}" for run_id in store.run_ids())
    assert hpcrun("status", "jobs").returncode == 6  # the index is no run
    assert len(hpcrun.document("status", "--all")["runs"]) == 2
    hpcrun("clean", "--yes", "far", check=True)
    assert [path.name for path in (hpcrun.runs / "jobs").iterdir()] == [
        name for name in entries if "-many-" in name
    ]
