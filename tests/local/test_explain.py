"""hpcrun explain on runs of this machine, as a person calls it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.harness import REPO, Completed, Hpcrun
from tests.unit.explain.written import CASES, write_run


def run(hpcrun: Hpcrun, name: str, program: str) -> Completed:
    """Run a program to its end."""
    hpcrun.write(f"{name}.py", program)
    return hpcrun("submit", "-P", "local", "-G", "0", "--wait", f"{name}.py")


def keep(hpcrun: Hpcrun, case: str) -> str:
    """Put a run of the corpus among one's own; return its id."""
    source = REPO / "tests/data/explain" / case
    run_id = str(json.loads((source / "run.json").read_text())["run_id"])
    shutil.copytree(source, hpcrun.runs / run_id)
    return run_id


def test_a_missing_module_is_named_with_the_line_that_wants_it(hpcrun: Hpcrun) -> None:
    waited = run(hpcrun, "train", "import json\nimport flash_attn_9\n")
    assert "the Python module flash_attn_9 is not installed" in waited.stderr
    assert "hint: hpcrun explain" in waited.stderr
    shown = hpcrun("explain", "train", check=True).stdout
    assert shown.splitlines()[0].endswith(
        "the Python module flash_attn_9 is not installed in the job's environment "
        "(ModuleNotFoundError at train.py:2)"
    )
    assert "elements/0/attempts/0/rank-0.err:4" in shown
    assert "train.py:2 in <module>: import flash_attn_9" in shown
    assert "next  hpcrun doctor -P local" in shown
    said = hpcrun.document("explain", "train", check=True)
    assert said["rule"] == "module-missing"
    assert said["level"] == "cause"
    assert said["rank"] == 0
    (log,) = hpcrun.runs.glob("*/elements/0/attempts/0/rank-0.err")
    for _ in range(2):  # status says it too, and remembers
        assert "the Python module flash_attn_9" in hpcrun("status", check=True).stdout
        log.unlink(missing_ok=True)
    assert "flash_attn_9" in hpcrun.status()["cause"]


def test_what_no_rule_knows_is_shown_and_not_guessed(hpcrun: Hpcrun) -> None:
    waited = run(hpcrun, "train", "def build(config):\n    return config['lr']\nbuild({})\n")
    first = "rank 0 on local-0 failed first: KeyError: 'lr' at train.py:2"
    said = waited.stderr.splitlines()
    assert said[0] == f"hpcrun: {first}"
    assert said[1] == "hpcrun: rank 0 ended with exit status 1; the end of its stderr:"
    shown = hpcrun("explain", check=True).stdout
    assert shown.splitlines()[0] == first
    assert "train.py:2 in build: return config['lr']" in shown
    assert "fix " not in shown
    assert hpcrun.document("explain", "last", check=True)["rule"] is None


def test_a_launch_that_failed_in_a_script_that_completed_is_explained(hpcrun: Hpcrun) -> None:
    hpcrun.write(
        "train.py", "import os\nif os.environ['RANK'] == '1':\n    raise KeyError('wdith')\n"
    )
    path = f'PATH="{Path(sys.executable).parent}:$PATH"'
    hpcrun.write(
        "old.sbatch",
        f"#!/bin/bash\n#SBATCH --nodes=1\n{path}\ntorchrun --nproc-per-node 2 train.py\necho "
        "done\n",
    )
    waited = hpcrun("submit", "-P", "local", "--wait", "old.sbatch", check=True)
    first = (
        "old.sbatch ended with status 0, its launch with 1: "
        "rank 1 on local-0 failed first: KeyError: 'wdith' at train.py:3"
    )
    assert f"hpcrun: {first}" in waited.stderr
    said = hpcrun.document("explain", "old", check=True)
    assert said["summary"] == first
    assert said["rank"] == 1
    assert "set -e" in said["fix"]
    assert "COMPLETED" in said["evidence"][-1]["lines"][0]
    assert "KeyError: 'wdith'" in hpcrun("logs", "old", check=True).stdout
    assert hpcrun("status", "old", check=True).stdout.count("its launch with 1") == 1


def test_ones_own_rules_come_first(hpcrun: Hpcrun) -> None:
    rules = hpcrun.home / ".config/hpcrun/rules.yaml"
    rules.parent.mkdir(parents=True)
    rules.write_text(
        'license:\n  contains: no free seat\n  cause: "all seats are taken[ until {when}]"\n'
        '  pattern: "no free seat(?: until (?P<when>[^ ]+))?"\n  fix: wait\n'
    )
    run(hpcrun, "train", "import sys\nsys.exit('no free seat until noon')\n")
    assert "all seats are taken until noon" in hpcrun("explain", check=True).stdout
    rules.write_text("license:\n  contains: no free seat\n  cuase: x\n")
    broken = hpcrun("explain")
    assert broken.returncode == 3
    assert "rules.yaml:3" in broken.stderr
    assert "did you mean 'cause'?" in broken.stderr
    assert hpcrun("status").returncode == 0


def test_the_rank_with_the_cause_is_named_and_not_the_one_that_aborted(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    run_id = keep(hpcrun, "oom-on-rank-1")
    shown = hpcrun("explain", run_id, check=True).stdout
    assert shown.startswith(
        "rank 1 on l40s-2 failed first: the GPU ran out of memory: 2.00 GiB requested"
    )
    assert "rank 0 on l40s-1 (another rank had already ended)" in shown
    assert len(shown.splitlines()) < 23
    log = hpcrun.runs / run_id / "elements/0/attempts/0/rank-1.err"
    for options in ((), ("-f",), ("-n", "100")):
        with subtests.test(options=options):
            logs = hpcrun("logs", *options, run_id, check=True)
            assert logs.stdout.endswith(log.read_text())
            assert (
                logs.stderr
                == "hpcrun: showing rank 1, which failed first; others: --rank 0, or --all-ranks\n"
            )
    rank_0 = hpcrun("logs", "--rank", "0", run_id, check=True)
    assert (rank_0.stderr, "torch.OutOfMemoryError" in rank_0.stdout) == ("", False)
    assert hpcrun("logs", "--attempt", "1", run_id, check=True).stderr == ""
    log.write_text("")
    log.with_suffix(".out").write_text("")  # killed before it wrote anything
    assert hpcrun("logs", run_id, check=True).stdout != ""


def test_damaged_and_missing_runs_and_logs_are_told_apart(hpcrun: Hpcrun) -> None:
    run_id = keep(hpcrun, "key-error")
    folder = hpcrun.runs / run_id
    shutil.rmtree(folder / "elements")
    (folder / "batch.log").unlink()
    bare = hpcrun("explain", run_id, check=True).stdout
    assert bare.startswith("the job ended as FAILED with exit status 1\n")
    (folder / "run.json").write_text('{"schema": 1, "run_')
    damaged = hpcrun("explain", run_id)
    assert damaged.returncode != 0
    assert "run.json cannot be read" in damaged.stderr
    assert hpcrun("explain", "nobody").returncode == 6
    write_run(CASES["cuda-oom"], hpcrun.runs / "20260102-030405-train-0a1b")
    log = hpcrun.runs / "20260102-030405-train-0a1b/elements/0/attempts/0/rank-5.err"
    log.unlink()
    log.mkdir()
    shown = hpcrun("explain", "train", check=True).stdout
    assert "not read: elements/0/attempts/0/rank-5.err: is not a regular file" in shown


LOG = """\
epoch 0
Traceback (most recent call last):
  File "/project/train.py", line 9, in main
    batch = loader["valid"]
KeyError: 'valid'
"""


def test_log_files_are_explained_without_a_run(hpcrun: Hpcrun) -> None:
    hpcrun.write("job.err", LOG)
    hpcrun.write("job.out", "epoch 0\n")
    shown = hpcrun("explain", "--log", "job.out", "job.err", check=True).stdout.splitlines()
    assert shown[0] == "KeyError: 'valid' at train.py:9"
    assert shown[2] == "log  job.err:5"
    assert shown[-1] == "next  less job.out job.err"
    for words in (["-"], ["--log", "-"]):
        piped = hpcrun("explain", *words, stdin=LOG, check=True).stdout
        assert piped.splitlines()[0] == shown[0]
        assert "next" not in piped
    said = hpcrun.document("explain", "--log", "job.err", check=True)
    assert said["run_id"] is None
    assert said["job_id"] is None
    assert said["rule"] is None
    assert hpcrun("explain", "--log", "job.out", check=True).stdout.startswith(
        "no failure is recognized in this log"
    )
    hpcrun.write("empty.out", "")
    (hpcrun.folder / "model.pt").write_bytes(b"PK\x03\x04\0\0" + b"\x93" * 300)
    text = hpcrun("explain", "--log", "job.err", "empty.out", "model.pt", check=True).stdout
    assert text.startswith("KeyError: 'valid' at train.py:9\n")
    assert "not read: empty.out: it is empty\nnot read: model.pt: it is not a text file\n" in text


def test_a_log_that_cannot_be_read_is_one_message(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    (hpcrun.folder / "folder").mkdir()
    for name, words in (
        ("none.err", "cannot read none.err: No such file"),
        ("folder", "cannot read folder: "),
        ("~nobody-here/x", "cannot read ~nobody-here/x: No such file"),
    ):
        with subtests.test(name=name):
            failed = hpcrun("explain", "--log", name)
            assert failed.returncode == 6
            assert words in failed.stderr
            assert "hint: give the job's output files, or - for a pipe" in failed.stderr
    two = hpcrun("explain", "one", "two")
    assert (two.returncode, "explain takes one run; unexpected: 'two'" in two.stderr) == (2, True)


def test_what_of_a_log_was_skipped_is_said_and_a_long_last_line_is_read(hpcrun: Hpcrun) -> None:
    hpcrun.write("job.out", "an expected error\n" * 60_000)
    shown = hpcrun("explain", "--log", "job.out", check=True).stdout
    assert "not read: job.out: too long; only its beginning and end were searched" in shown
    numbers = ", ".join(["1.0"] * 30_000)
    hpcrun.write("long.err", LOG.replace("KeyError: 'valid'", f"ValueError: bad tensor {numbers}"))
    assert "ValueError: bad tensor 1.0" in hpcrun("explain", "--log", "long.err", check=True).stdout
    # which hung once
    hpcrun.write("f", "hello\nFatal Python error: Traceback (most recent call last)\nbye\n")
    assert "Fatal Python error" in hpcrun("explain", "--log", "f", check=True).stdout


def test_what_is_no_run_leads_to_the_way_that_explains_it(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    hpcrun.write("f1.log", "all is well\n")
    hpcrun("submit", "-P", "local", "--gpus", "0", "--wait", "true", check=True)
    assert "hint: hpcrun explain --log f1.log" in hpcrun("explain", "f1.log").stderr
    assert "not read: key: " in hpcrun("explain", "key", "--log", "f1.log").stdout
    assert "hpcrun logs RUN --rank N" in hpcrun("explain", "true", "--rank", "3").stderr
    for command in ("explain", "status", "logs", "cancel"):
        with subtests.test(command=command):
            assert "the name of the run is empty" in hpcrun(command, "").stderr


def test_a_torchrun_whose_rendezvous_was_closed_is_one_of_several(hpcrun: Hpcrun) -> None:
    log = """\
Traceback (most recent call last):
  File "/v/site-packages/torch/distributed/run.py", line 1032, in <module>
    main()
  File "/v/site-packages/torch/distributed/launcher/api.py", line 378, in launch_agent
    if result.is_failed():
AttributeError: 'NoneType' object has no attribute 'is_failed'
srun: error: n1: task 2: Exited with exit code 1
srun: error: n1: task 0: Exited with exit code 1
"""
    hpcrun.write("job.log", log)
    shown = hpcrun("explain", "--log", "job.log", check=True).stdout
    assert shown.startswith("srun ran torchrun several times on n1 (tasks 0,2 failed)")
