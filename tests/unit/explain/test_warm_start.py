"""What explain says of an attempt that keeps compiled files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.ended import Explanation, explain
from hpcrun.explain.warm_start import remark_on_warm_start
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run, write
from tests.unit.explain.written import RULES

WARM = {"run": "run-1", "files": 66}
SIGBUS = 135


def failed(
    path: Path, warm: dict[str, object] | None, *, status: int, out: str = "", err: str = ""
) -> RunStatus:
    """A run whose only rank has failed."""
    folder = RunFolder(path).element(0).attempt(0)
    folder.path.mkdir(parents=True)
    write(folder.start, json.dumps({"job_id": "1", "host": "n0", "started": 1000.0}))
    write(folder.exit, json.dumps({"status": status, "signal": "", "ended": 1100.0}))
    end = {"rank": 0, "node": "n0", "status": status, "ended": 1099.0}
    write(folder.rank_exit(0), json.dumps(end))
    write(folder.rank_log(0, "out"), out)
    write(folder.rank_log(0, "err"), err)
    if warm is not None:
        write(folder.warm, json.dumps(warm))
    return RunStatus(run(), path, LastStatus("FAILED", 1101.0, exit_status=status))


def explained(item: RunStatus) -> Explanation:
    return explain(item, RULES)


def test_a_signal_after_a_warm_start_suspects_a_compiled_file(tmp_path: Path) -> None:
    found = explained(failed(tmp_path, WARM, status=SIGBUS))
    assert found.summary.endswith("; a compiled file of run run-1 may be damaged")
    assert found.fix.startswith("start without it: hpcrun resubmit ")
    assert found.fix.endswith(" --no-warm")


def test_an_error_that_names_a_compiled_file_suspects_it(tmp_path: Path) -> None:
    err = "OSError: /tmp/hpcrun-compiled-1-ab-n0/files/inductor/ab/c.so: file too short\n"
    found = explained(failed(tmp_path, WARM, status=1, err=err))
    assert "a compiled file of run run-1 may be damaged" in found.summary


def test_the_evidence_says_how_the_attempt_started(tmp_path: Path) -> None:
    found = explained(failed(tmp_path, WARM, status=1))
    (evidence,) = [each for each in found.evidence if each.who == "compiled files"]
    assert evidence.lines == ("warm: 66 compiled files of run run-1; no new file is known",)


@pytest.mark.parametrize(
    ("warm", "status", "out"),
    [
        pytest.param(WARM, 1, "", id="another error"),
        pytest.param(WARM, SIGBUS, "step 1 loss 2.5\nstep 2 loss 2.4\n", id="after steps"),
        pytest.param({}, SIGBUS, "", id="cold"),
    ],
)
def test_no_compiled_file_is_suspected(
    tmp_path: Path, warm: dict[str, object], status: int, out: str
) -> None:
    remark = remark_on_warm_start(failed(tmp_path, warm, status=status, out=out))
    assert remark
    assert remark.suspicions == ()


def test_a_run_without_compiled_files_has_no_remark(tmp_path: Path) -> None:
    assert remark_on_warm_start(failed(tmp_path, None, status=SIGBUS)) is None
