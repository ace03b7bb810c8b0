"""hpcrun metrics, gpu and shell of runs on this machine."""

from __future__ import annotations

import csv
import importlib.util
import io

import pytest

from hpcrun.views.text import without_colours
from tests.harness import Hpcrun, trust, wait_for
from tests.local.recorded import Recorded, record

TRAIN = """
from hpcrun_runtime import log_metrics
for step in range(30):
    log_metrics(step=step, loss=1 / (step + 1))
"""


def note(run: Recorded, *lines: str, rank: int = 0, attempt: int = 0) -> None:
    (run.attempt(attempt) / f"rank-{rank}.metrics").write_text(
        "".join(f"{line}\n" for line in lines)
    )


def test_what_a_script_notes_is_shown(hpcrun: Hpcrun) -> None:
    hpcrun.write("train.py", TRAIN)
    hpcrun("submit", "-P", "local", "--gpus", "0", "--wait", "train.py", check=True)
    shown = hpcrun("metrics", check=True)
    assert shown.stdout.splitlines()[0].split() == ["STEP", "loss", "TIME"]
    assert len(shown.stdout.splitlines()) == 21
    assert "the last 20 of 30 rows" in shown.stderr
    rows = list(csv.DictReader(io.StringIO(hpcrun("metrics", "--csv").stdout)))
    assert [float(row["loss"]) for row in rows] == [1 / (step + 1) for step in range(30)]
    assert len(hpcrun("metrics", "-n", "3").stdout.splitlines()) == 4
    picture = hpcrun("metrics", "--plot").stdout.splitlines()
    assert picture[0] == "loss by step"
    assert len(picture) == 12
    assert max(map(len, picture)) <= 80


def test_attempts_and_ranks_are_joined(hpcrun: Hpcrun) -> None:
    run = record(hpcrun)
    note(run, '{"step": 1, "loss": 9}', '{"step": 2, "loss": 8}', rank=1)
    note(run, '{"step": 2, "loss": 7}', '{"half a li', rank=1, attempt=1)
    note(run, '{"step": 1, "loss": 5}', rank=3)
    found = hpcrun.document("metrics", check=True)
    assert [(row["rank"], row["attempt"], row["step"], row["values"]) for row in found["rows"]] == [
        (1, 0, 1, {"loss": 9}),
        (1, 1, 2, {"loss": 7}),
    ]
    assert found["unreadable_lines"] == 1
    assert len(hpcrun.document("metrics", "--all-ranks")["rows"]) == 3
    assert "RANK" in hpcrun("metrics", "--rank", "1,3").stdout
    missing = hpcrun("metrics", "-m", "los")
    assert (missing.returncode, "did you mean 'loss'?" in missing.stderr) == (6, True)


def test_numbers_of_a_log_by_the_project_s_and_the_profile_s_patterns(hpcrun: Hpcrun) -> None:
    run = record(hpcrun)
    run.log("epoch 3: loss 0.5, 120 samples/s\nepoch 4: loss 0.25, 130 samples/s\n")
    hpcrun.write(
        ".hpcrun/config.yaml", r"metrics: {step: 'epoch (\d+)', loss: 'loss (?P<value>[0-9.]+)'}"
    )
    own = "scheduler: local\nmetrics:\n  samples_per_s: '([0-9]+) samples/s'\n  loss: 'never (x)'\n"
    hpcrun.write(".hpcrun/profiles/local.yaml", own)
    trust(hpcrun, hpcrun.folder)
    lines = hpcrun("metrics", "--csv", check=True).stdout.splitlines()
    assert sorted(lines[0].split(",")) == [
        "attempt",
        "loss",
        "rank",
        "samples_per_s",
        "step",
        "time",
    ]
    rows = list(csv.DictReader(lines))
    assert [(row["step"], row["loss"], row["samples_per_s"]) for row in rows] == [
        ("3", "0.5", "120"),
        ("4", "0.25", "130"),
    ]
    hpcrun.write(".hpcrun/config.yaml", "metrics: {loss: 'loss [0-9]'}")
    trust(hpcrun, hpcrun.folder)
    wrong = hpcrun("metrics")
    assert wrong.returncode == 3
    assert "has no group for the number" in wrong.stderr


def test_a_loss_in_the_log_needs_no_pattern_and_what_was_recorded_comes_first(
    hpcrun: Hpcrun,
) -> None:
    run = record(hpcrun)
    run.log("epoch 1 loss 0.5\nepoch 2 loss 0.25\nval_loss=0.3\n")
    rows = list(csv.DictReader(hpcrun("metrics", "--csv", check=True).stdout.splitlines()))
    assert [(row["step"], row["loss"], row["val_loss"]) for row in rows] == [
        ("1", "0.5", "0.3"),
        ("2", "0.25", ""),
    ]
    note(run, '{"step": 7, "loss": 9}')
    rows = list(csv.DictReader(hpcrun("metrics", "--csv", check=True).stdout.splitlines()))
    assert [(row["step"], row["loss"]) for row in rows] == [("7", "9")]
    assert "val_loss" not in rows[0]


def test_a_run_without_numbers_says_how_to_have_some(hpcrun: Hpcrun) -> None:
    record(hpcrun).log("nothing\n")
    shown = hpcrun("metrics", check=True)
    assert shown.stdout == ""
    assert "log_metrics" in shown.stderr
    assert hpcrun.document("metrics")["rows"] == []


def test_a_png(hpcrun: Hpcrun) -> None:
    note(record(hpcrun), '{"step": 1, "loss": 9}', '{"step": 2, "loss": 8}')
    done = hpcrun("metrics", "--png", "loss.png")
    if importlib.util.find_spec("matplotlib"):
        assert done.returncode == 0, done.stderr
        assert (hpcrun.folder / "loss.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert done.returncode == 4
        assert 'hint: pip install "hpcrun-slurm[plot]"' in done.stderr


@pytest.mark.parametrize("columns", [20, 40])
def test_a_narrow_terminal(hpcrun: Hpcrun, columns: int) -> None:
    note(record(hpcrun), '{"step": 1, "a_long_name_of_a_metric": 0.123456, "time": 1763700000}')
    for option in ("--plot", "-n5"):
        lines = without_colours(hpcrun.screen("metrics", option, columns=columns)).splitlines()
        assert len(lines) > 1
        shown = [line for line in lines if "metric" not in line and "newest" not in line]
        assert [line for line in shown if len(line) > columns] == []


def test_gpus_and_a_shell_of_this_machine(hpcrun: Hpcrun) -> None:
    hpcrun(
        "submit",
        "-P",
        "local",
        "--gpus",
        "0",
        "-J",
        "long",
        "bash",
        "-c",
        "echo begun; sleep 60",
        check=True,
    )
    wait_for(lambda: hpcrun("logs").stdout == "begun\n", 20, "its first line")
    env = hpcrun.shims(nvidia_smi="echo '0, GPU-1, NVIDIA L40S, 50, 1024, 46068, 99.6, 350.00, 41'")
    shown = hpcrun("status", "--gpus", env=env, check=True).stdout.splitlines()
    assert shown[1].split()[1:] == "0 0 NVIDIA L40S 50 % 1.0/45 GB 100/350 W 41 °C".split()
    watching = hpcrun.terminal("status", "--gpus", "-w", env=env)
    watching.expect("every 15 s")
    watching.expect("NVIDIA L40S")
    watching.sendintr()
    watching.expect("stopped watching; the jobs are not affected")
    told = hpcrun("shell", stdin="pwd; echo in $HPCRUN_RUN_DIR; exit 5\n", cwd=hpcrun.home)
    assert told.stdout.splitlines()[0] == str(hpcrun.folder)  # where its job runs
    assert (told.stdout.split("/")[-1].strip()[16:20], told.returncode) == ("long", 5)
    hpcrun("cancel", "long", check=True)
    wait_for(lambda: hpcrun("shell").returncode == 4, 20, "its end")
    late = hpcrun.document("status", "--gpus")  # what it recorded, if it ran for long enough
    assert (
        "its allocation has ended" in late["error"]["message"]
        if "error" in late
        else late["recorded"]
    )


def test_a_sweep_shows_every_element_and_one_by_its_number(hpcrun: Hpcrun) -> None:
    text = "import sys\nfrom hpcrun_runtime import log_metrics\nx = float(sys.argv[2])\n"
    text += "log_metrics(step=1, loss=x)\nlog_metrics(step=2, loss=x / 10)\n"
    hpcrun.write("job.py", text)
    hpcrun(
        "submit", "-P", "local", "--gpus", "0", "--wait", "--sweep", "x=5,7", "job.py", check=True
    )
    shown = hpcrun("metrics", check=True)
    rows = [line.split()[:4] for line in shown.stdout.splitlines()]
    assert rows == [
        ["ELEMENT", "PARAMETERS", "STEP", "loss"],
        ["0", "x=5", "2", "0.5"],
        ["1", "x=7", "2", "0.7"],
    ]
    assert "the last 1 row of each element" in shown.stderr
    found = hpcrun.document("metrics", check=True)
    assert [
        (item["element"], item["parameters"], len(item["rows"])) for item in found["elements"]
    ] == [
        (0, {"x": "5"}, 2),
        (1, {"x": "7"}, 2),
    ]
    lines = hpcrun("metrics", "--csv", check=True).stdout.splitlines()
    assert lines[0] == "element,rank,attempt,step,time,loss"
    assert [line.split(",")[0] for line in lines[1:]] == ["0", "0", "1", "1"]
    one = hpcrun.document("metrics", "last/1", check=True)
    assert [row["values"] for row in one["rows"]] == [{"loss": 7}, {"loss": 0.7}]
    assert one["element"] == 1
    assert (
        "loss" in hpcrun("metrics", f"{hpcrun.status()['job_id']}_1", "--plot", check=True).stdout
    )
    refused = hpcrun("metrics", "--plot")
    assert refused.returncode == 2
    assert "draw one element" in refused.stderr
    assert "draws one of 0-1" in refused.stderr
    assert hpcrun("metrics", "last/7").returncode == 6
    for command in (("status", "--gpus"), ("shell",)):
        over = hpcrun(*command, "last/1")
        assert over.returncode == 4
        assert "is COMPLETED" in over.stderr
