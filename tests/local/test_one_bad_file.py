"""One damaged run costs one line, and not the others: hostile records, FIFOs, endless files,
expressions, cells.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dev.hostile.fuzz_folders import fuzz
from hpcrun.schedulers.supervisor import boot_id, start_ticks
from tests.harness import Hpcrun
from tests.local.recorded import Recorded, record, replace_fields

WITHIN_S = 60
"""Of a command that takes half a second on an idle machine."""


def fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def zero(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


DAMAGES: dict[str, Callable[[Recorded], object]] = {
    "empty object": lambda bad: (bad.attempt() / "rank-7.exit").write_text("{}"),
    "rank is text": lambda bad: (bad.attempt() / "rank-7.exit").write_text('{"rank":"x"}'),
    "too large": lambda bad: (bad.attempt() / "rank-7.exit").write_text(
        '{"rank":0,"node":"n","status":1,"ended":1e999}'
    ),
    "deep": lambda bad: (bad.folder / "run.json").write_text("[" * 200_000),
    "plan is text": lambda bad: replace_fields(bad.folder / "run.json", plan="x"),
    "after is a number": lambda bad: replace_fields(bad.folder / "run.json", after=5),
    "requeue is a list": lambda bad: replace_fields(bad.folder / "run.json", plan={"requeue": [1]}),
    "script is a list": lambda bad: replace_fields(
        bad.folder / "run.json", request={"script": ["x"]}
    ),
    "log is a FIFO": lambda bad: fifo(bad.attempt() / "rank-0.out"),
    "log is endless": lambda bad: zero(bad.attempt() / "rank-0.err"),
    "batch log is endless": lambda bad: zero(bad.folder / "batch.log"),
    "record is a FIFO": lambda bad: fifo(bad.folder / "run.json"),
    "status is a FIFO": lambda bad: fifo(bad.folder / "status.json"),
    "exit is endless": lambda bad: zero(bad.attempt() / "exit"),
}


def test_damaged_runs_hide_no_other(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    record(hpcrun, "good")
    for name, damage in DAMAGES.items():
        bad = record(hpcrun, name.replace(" ", "-"))
        replace_fields(bad.folder / "status.json", state="FAILED", final=True)
        bad.log("x\n")
        damage(bad)
    for options in (("--all",), ("-v", "--all"), ("--json", "--all")):
        with subtests.test(options=options):
            shown = hpcrun("status", *options, timeout=WITHIN_S)
            assert shown.returncode == 0, shown.stderr
            assert "good" in shown.stdout
            assert [
                name
                for name in DAMAGES
                if name.replace(" ", "-") not in shown.stdout + shown.stderr
            ] == []
    assert hpcrun("clean", timeout=WITHIN_S).returncode == 0
    for name in ("log-is-a-FIFO", "log-is-endless", "batch-log-is-endless"):
        with subtests.test(name=name):
            for words in (("logs", name, "-n", "3"), ("explain", name)):
                shown = hpcrun(*words, timeout=WITHIN_S)
                assert shown.returncode != 1, shown.stderr


def test_an_unknown_field_is_no_damage_and_a_newer_schema_is_said(hpcrun: Hpcrun) -> None:
    kept, newer = record(hpcrun, "kept"), record(hpcrun, "newer")
    replace_fields(kept.folder / "run.json", colour="red")
    replace_fields(kept.folder / "status.json", shade=3)
    replace_fields(newer.folder / "run.json", schema=99, host=["x"])
    hpcrun.write(f"runs/jobs/L1.{newer.folder.name}", "")  # as submit writes it
    shown = hpcrun("status", check=True)
    assert "kept" in shown.stdout
    assert "needs a newer hpcrun" in shown.stderr
    assert "run newer, job L1, last known COMPLETED" in shown.stderr
    failed = hpcrun("explain", "newer")
    assert failed.returncode == 6
    assert "hint: pip install --upgrade hpcrun-slurm" in failed.stderr


def test_following_ends_with_a_message_when_the_folder_goes_away(hpcrun: Hpcrun) -> None:
    here, host = record(hpcrun, "gone"), os.uname().nodename
    replace_fields(here.folder / "run.json", host=host)
    (here.folder / "status.json").unlink()
    here.log("begun\n").with_name("exit").unlink()
    with subprocess.Popen(["sleep", "60"]) as lives:
        said = {
            "job_id": "L1",
            "pid": lives.pid,
            "start_ticks": start_ticks(lives.pid),
            "boot_id": boot_id(),
            "host": host,
            "started": 1.7e9,
            "limit_s": 0,
        }
        (here.folder / "supervisor.json").write_text(json.dumps(said))
        follower = subprocess.Popen(
            hpcrun.argv("logs", "-f", "gone"),
            env=hpcrun.environ,
            cwd=hpcrun.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert follower.stdout is not None
        assert follower.stdout.readline() == "begun\n"
        shutil.rmtree(here.folder)
        _, words = follower.communicate(timeout=WITHIN_S)
        lives.kill()
    assert follower.returncode == 6, words
    assert words.startswith("hpcrun: there is no run")


def test_no_expression_of_a_project_holds_up_status(hpcrun: Hpcrun) -> None:
    bad = record(hpcrun, "bad")
    replace_fields(bad.folder / "status.json", state="FAILED", final=True)
    bad.log("Error: " + "a" * 3000 + "!\nloss=" + "a" * 3000 + "\n", stream="err")
    own = hpcrun.home / ".config/hpcrun"
    own.mkdir(parents=True)
    (own / "rules.yaml").write_text("slow:\n  contains: [Error]\n  pattern: '(a+)+$'\n  cause: x\n")
    (own / "config.yaml").write_text("metrics:\n  loss: 'loss=((a+)+)$'\n")
    assert hpcrun("status", check=True, timeout=WITHIN_S).stdout
    assert hpcrun("explain", "bad", check=True, timeout=WITHIN_S).stdout
    assert hpcrun("metrics", "bad", timeout=WITHIN_S).returncode == 0
    assert hpcrun("logs", "bad", "--grep", "(a+)+$", timeout=WITHIN_S).returncode == 0
    (own / "rules.yaml").write_text(
        "ahead:\n  contains: [Error]\n  pattern: 'a(?=b)'\n  cause: x\n"
    )
    refused = hpcrun("explain", "bad")
    assert refused.returncode == 3
    assert (
        "rules.yaml:3: rule ahead: not a regular expression that can be used: RE2 refuses it: "
        "invalid" in refused.stderr
    )
    wrong = hpcrun("logs", "bad", "--grep", r"(a)\1")
    assert wrong.returncode == 2
    assert "invalid escape sequence" in wrong.stderr


def test_csv_holds_nothing_that_a_spreadsheet_runs_or_that_acts_on_a_terminal(
    hpcrun: Hpcrun,
) -> None:
    cells = record(hpcrun, "cells")
    replace_fields(cells.folder / "run.json", profile="=cmd|' /C calc'!A0")
    noted = {"time": 1.7e9, "step": 1, "loss": -0.5, "note": "=1+1", "delta": "-1.5", "@SUM": 1}
    (cells.attempt() / "rank-0.metrics").write_text(json.dumps(noted) + "\n")
    (row,) = csv.DictReader(io.StringIO(hpcrun("status", "--csv", check=True).stdout))
    assert row["profile"] == "'=cmd|' /C calc'!A0"
    (row,) = csv.DictReader(io.StringIO(hpcrun("metrics", "cells", "--csv", check=True).stdout))
    assert row["note"] == "'=1+1"
    assert row["delta"] == "-1.5"
    assert row["loss"] == "-0.5"
    assert row["'@SUM"] == "1"

    evil = "a\x1b]0;title\x07\r\b\u202eb\x9bc"
    bad, sweep = record(hpcrun, "bad"), record(hpcrun, "sweep")
    replace_fields(bad.folder / "run.json", profile=evil)
    plan = {"sweep": {"elements": 1, "indices": "0", "first": 0}}
    replace_fields(sweep.folder / "run.json", plan=plan, request={"sweep": [[["lr", "1"]]]})
    for run in (bad, sweep):
        (run.attempt() / "rank-0.metrics").write_text(
            json.dumps({"time": 1.7e9, "step": 1, evil: evil}) + "\n"
        )
    hpcrun.write("t.csv", f'dataset,gpus,time_s\n"{evil}",1,10\n"{evil}",2,6\n')
    hpcrun("scale", "report", "--from-csv", "t.csv", "--out", "out", check=True)
    texts = [
        hpcrun(*words, "--csv", check=True).stdout
        for words in (("metrics", "bad"), ("metrics", "sweep"), ("status",))
    ]
    assert [r"\x1b]0;title\x07" in text for text in texts] == [True] * 3
    for text in (*texts, (hpcrun.folder / "out/summary.csv").read_text()):
        assert all(line.isprintable() for line in text.split("\n"))


def test_damaged_folders_at_random(tmp_path: Path) -> None:
    """The short form of ``make fuzz``; ``dev.hostile.fuzz_folders`` tries 2,000 others."""
    tally = fuzz(12, tmp_path, seed=10)
    assert tally.folders == 12
    assert not tally.findings, "\n".join(map(str, tally.findings.values()))


def test_a_log_that_is_a_link_is_refused(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    secret = hpcrun.home / "secret"
    secret.write_text("RuntimeError: password\n")
    bad = record(hpcrun, "bad")
    bad.log("fine\n", rank=1)
    link = bad.attempt() / "rank-0.out"
    link.symlink_to(secret)
    for options in (
        (),
        ("-n", "3"),
        ("--grep", "a"),
        ("--all-ranks",),
        ("--rank", "0", "--follow"),
    ):
        with subtests.test(options=options):
            shown = hpcrun("logs", "bad", *options, timeout=WITHIN_S)
            assert "password" not in shown.stdout + shown.stderr
            if "--follow" not in options:
                assert (shown.returncode, shown.stderr) == (
                    6,
                    f"hpcrun: {link} cannot be read: is a symbolic link\n",
                )
    assert "password" not in hpcrun("explain", "bad", timeout=WITHIN_S).stdout
    assert "password" not in hpcrun("metrics", "bad", timeout=WITHIN_S).stdout
