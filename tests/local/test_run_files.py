"""The files that a run leaves: how many, who can write them; and the variables of its ranks."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.harness import Hpcrun, inodes, writable_by_others

JOB = ("submit", "-P", "local", "--gpus", "0", "--wait")
PRINT = """
import hpcrun_runtime, json, os
hpcrun_runtime.log_metrics(step=1, loss=2.0)
open("own", "w").close()
print(json.dumps({**os.environ, "umask": os.umask(0)}))
"""


def test_a_run_leaves_few_files(hpcrun: Hpcrun) -> None:
    hpcrun(*JOB, "-J", "one", "true", check=True)
    files, folders = inodes(next(hpcrun.runs.glob("*-one-*")))
    assert files <= 20
    assert folders <= 6
    hpcrun(*JOB, "-J", "many", "--sweep", "n=1,2", "sh", "-c", 'echo $2; echo >&2; exit "$2"', "sh")
    run = next(hpcrun.runs.glob("*-many-*"))
    for element in (run / "elements").iterdir():
        files, folders = inodes(element)
        assert files <= 5
        assert folders <= 4
    assert list((run / "batch").iterdir()) == []
    assert hpcrun("logs", "many/1", "--batch", check=True).stdout == ""
    # the records of an element that failed are read from one file
    assert not [*run.rglob("rank-0.exit")]
    assert [element["exit_status"] for element in hpcrun.status("many")["elements"]] == [1, 2]
    assert (
        "rank 0 on local-0 failed first with exit status 2"
        in hpcrun("explain", "many/1", check=True).stdout
    )


def test_no_other_user_can_write_what_a_run_leaves(hpcrun: Hpcrun) -> None:
    hpcrun.write("print.py", PRINT)
    before = os.umask(0)
    try:
        for name, more in (("one", ("--snapshot",)), ("many", ("--sweep", "n=1,2"))):
            hpcrun(*JOB, "-J", name, *more, "print.py", check=True)
            (hpcrun.folder / "own").unlink(missing_ok=True)
    finally:
        os.umask(before)
    # the program's own
    assert writable_by_others(hpcrun.runs) == [*hpcrun.runs.glob("*-one-*/code/own")]
    for log in hpcrun.runs.rglob("rank-0.out"):
        assert json.loads(log.read_text())["umask"] == 0


def test_what_a_person_or_their_shell_sets_wins_and_the_plan_shows_what_the_person_set(
    hpcrun: Hpcrun,
) -> None:
    hpcrun.write("print.py", PRINT)
    given = {"TORCH_FR_BUFFER_SIZE": "100", "TORCH_FR_DUMP_ON_TIMEOUT": "0", "MASTER_PORT": "29999"}
    env = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
    shown = hpcrun(*JOB, *env, "print.py", check=True).stdout
    run = next(hpcrun.runs.glob("2*"))
    rank: dict[str, Any] = json.loads((run / "elements/0/attempts/0/rank-0.out").read_text())
    assert given.items() <= rank.items()
    attempt = str(run / "elements/0/attempts/0")
    assert (
        rank["TORCH_FR_DUMP_TEMP_FILE"]
        == rank["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"]
        == f"{attempt}/flight/rank_"
    )
    plan = json.loads((run / "run.json").read_text())["plan"]
    planned = {
        name: value.replace("$HPCRUN_ATTEMPT_DIR", attempt)
        for name, value in [*plan["env"], *plan["added"]]
    }
    assert planned.items() <= rank.items()
    assert {name for name in rank if name.startswith("TORCH_")} <= {*planned}
    assert {name for name in planned if f"{name}=" in shown} == given.keys()
    shown = hpcrun(
        *JOB, "-J", "exported", "print.py", env={"TORCH_FR_BUFFER_SIZE": "7"}, check=True
    ).stdout
    log = next(hpcrun.runs.glob("*-exported-*/elements/0/attempts/0/rank-0.out"))
    assert json.loads(log.read_text())["TORCH_FR_BUFFER_SIZE"] == "7"
    assert "TORCH_FR_BUFFER_SIZE" not in shown
