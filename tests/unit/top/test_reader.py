"""What hpcrun top learns of the runs while it is shown, from real run folders."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hpcrun.errors import ProfileError
from hpcrun.explain.diagnosis.rules import Rule
from hpcrun.features.top.reader import Reader
from hpcrun.job.layout import RunFolder
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from tests.unit.given import ports, run, write
from tests.unit.top.test_screens import Answers


def until(true: Callable[[], bool], within_s: float = 10.0) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_failed_run_whose_cause_could_not_be_worked_out_is_asked_again(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    known = run("20260102-030405-bad-0a1b", created_s=1000.0, job_id="70")
    store.create(known, "")
    store.save_status(known.run_id, LastStatus("FAILED", 1.0, final=True, exit_status=1))
    folder = RunFolder(store.folder(known.run_id)).element(0).attempt(0)
    folder.path.mkdir(parents=True)
    write(folder.start, json.dumps({"job_id": "70", "host": "n0", "started": 1.0}))
    write(folder.rank_exit(0), json.dumps({"rank": 0, "node": "n0", "status": 1, "ended": 2.0}))
    broken = [True]

    def rules() -> Sequence[Rule]:
        if broken:
            raise ProfileError("rules.yaml: line 3 cannot be read")
        return ()

    reader = Reader(ports(store, Answers(), time.time()), {}, rules, lambda _: {})

    def cause() -> str | None:
        return reader.run_status(known.run_id).status.cause

    reader.start()
    reader.go_on()
    until(lambda: reader.reading.answered_s is not None)
    assert cause() is None
    broken.clear()
    reader.refresh()
    until(lambda: cause() is not None)
    assert (cause() or "").startswith("rank 0 on n0 failed")
