"""A job that hpcrun did not submit, and that runs."""

from __future__ import annotations

import os
from pathlib import Path

from hpcrun.explain.any_job import AnyJob
from hpcrun.explain.any_log import explain_job, explain_logs
from hpcrun.explain.diagnosis.rules import load_rules
from hpcrun.runs.record import LastStatus

NOW_S = 1_800_000_000.0


def job(state: str, *outputs: Path) -> AnyJob:
    return AnyJob("4711", "theirs", LastStatus(state, 0.0, elapsed_s=7200), 1, Path("/home/me"), outputs)


def test_a_job_that_runs_is_said_to_have_written_some_time_ago(tmp_path: Path) -> None:
    out, err = tmp_path / "slurm-4711.out", tmp_path / "slurm-4711.err"
    for path, ago_s in ((out, 725), (err, 5000)):
        path.write_text("step\n")
        os.utime(path, (NOW_S - ago_s,) * 2)
    found = explain_job(job("RUNNING", out, err), (), NOW_S)
    assert found.summary == "the job is running: it has not ended; it last wrote 12 min ago"
    assert explain_job(job("RUNNING", tmp_path / "gone"), (), NOW_S).summary == "the job is running: it has not ended"
    assert "wrote" not in explain_job(job("PENDING", out), (), NOW_S).summary


def test_a_log_alone_shows_that_the_time_limit_ended_a_job_that_had_failed_before(tmp_path: Path) -> None:
    log = tmp_path / "slurm-4711.out"
    limit = "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-11-22T10:00:00 DUE TO TIME LIMIT ***\n"
    log.write_text(f"step 3\n{limit}")
    assert explain_logs([str(log)], load_rules([])).rule == "time-limit"
    trace = "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    main()\nKeyError: 'lr'\n"
    log.write_text(f"step 3\n{trace}{limit}")
    said = explain_logs([str(log)], load_rules([]))
    assert (said.rule, "KeyError: 'lr'" in said.summary) == (None, True)
