"""hpcrun plan: what more GPUs would bring."""

from __future__ import annotations

import csv
import io
import json

import pexpect
import pytest

from hpcrun.views.text import without_colours
from tests.harness import Hpcrun

MEASURED = ("plan", "--samples", "20.48M", "--batch-size", "1024", "--lr", "1e-3", "--epoch-time", "36m")
SEED = (*MEASURED, "--gpus", "1,2,4,8", "-P", "h100")


def test_a_batch_of_1024_over_four_h100s_is_flagged_with_its_remedy(hpcrun: Hpcrun) -> None:
    shown = hpcrun(*SEED, check=True).stdout
    (warning,) = [line for line in shown.splitlines() if line.startswith("warning")]
    assert "fixed, 4 GPUs (per-GPU batch 256) and 8 GPUs (per-GPU batch 128)" in warning
    assert "instead  hpcrun submit -P h100 --gpus 4 SCRIPT --batch-size 4096 --lr 0.004\n         5000 steps" in shown
    flagged = [line.split()[0] for line in shown.splitlines() if line.endswith("!")]
    assert flagged == ["4", "8"]


def test_a_batch_that_was_measured_fits(hpcrun: Hpcrun) -> None:
    asked = (*MEASURED, "--reference-gpus", "4", "--gpus", "4", "-P", "h100")
    assert "batch-size 2048" in (unmeasured := hpcrun(*asked, check=True).stdout)
    assert "if 512 samples fit in the GPU's memory" in unmeasured
    assert "5000 steps and 17:00 an epoch\n" in hpcrun(*asked, "--also", "4096=17m", check=True).stdout


def test_the_command_names_a_profile_s_file(hpcrun: Hpcrun) -> None:
    (hpcrun.folder / "my own.yaml").write_text("extends: h100\n")
    shown = hpcrun(*MEASURED, "--gpus", "4", "-P", "./my own.yaml", check=True).stdout
    assert "hpcrun submit -P './my own.yaml' --gpus 4 SCRIPT --batch-size 4096" in shown


def test_the_line_of_the_guide(hpcrun: Hpcrun) -> None:
    line = "plan --samples 1.2M --batch-size 1024 --lr 1e-3 --epoch-time 36m --gpus 1,2,4,8 -P h100"
    shown = hpcrun(*line.split(), check=True).stdout
    assert "4 GPUs (per-GPU batch 256)" in shown
    assert "communication is left out: add --parameters 25M" in shown
    assert "the last step of an epoch has only 896 samples" in shown
    assert "COMM" not in shown


@pytest.mark.parametrize(("gpus", "said"), [("1", False), ("2", True), ("1,2", True)])
def test_two_gpus_talk_to_each_other_and_one_talks_to_nobody(hpcrun: Hpcrun, gpus: str, said: bool) -> None:
    asked = ("plan", "--samples", "1.2M", "--batch-size", "1024", "--epoch-time", "36m", "-P", "h100")
    shown = hpcrun(*asked, "--gpus", gpus, check=True).stdout
    assert ("communication is left out" in shown) == said


def test_json_and_csv_say_the_same(hpcrun: Hpcrun) -> None:
    args = (*SEED, "--parameters", "25M", "--epochs", "30", "--price-per-gpu-hour", "2", "--optimizer", "adamw")
    found = json.loads(hpcrun(*args, "--json", check=True).stdout)
    rows = list(csv.DictReader(io.StringIO(hpcrun(*args, "--csv", check=True).stdout)))
    assert [(row["case"], row["gpus"]) for row in rows] == [(row["case"], str(row["gpus"])) for row in found["rows"]]
    assert [float(row["epoch_s"]) for row in rows] == [row["epoch_s"] for row in found["rows"]]
    one, four = found["rows"][0], found["rows"][2]
    assert [one[name] for name in ("epoch_s", "gpu_hours", "cost", "comm_s")] == pytest.approx([2160, 18, 36, 0])
    assert four["concerns"] == ["little work"]
    assert 0 < four["exposed_s"] < four["comm_s"]
    assert found["remedies"][0]["command"].endswith("--batch-size 4096 --lr 0.002")
    assert found["remedies"][0]["warmup_steps"] == 25_000
    assert len(found["warnings"]) == 1


def test_nodes_price_and_fabric_are_the_profile_s(hpcrun: Hpcrun) -> None:
    folder = hpcrun.home / ".config/hpcrun/profiles"
    folder.mkdir(parents=True)
    (folder / "ours.yaml").write_text("extends: h100\ngpu: {per_node: 4}\nprice: {per_gpu_hour: 2.5}\n")
    (folder / "unknown.yaml").write_text("extends: h100\nfabric: {bandwidth_gbit_s: null}\n")
    asked = (*MEASURED, "--gpus", "4,16", "--parameters", "250M", "--mode", "scaled")
    ours = json.loads(hpcrun(*asked, "-P", "ours", "--json", check=True).stdout)
    assert [row["nodes"] for row in ours["rows"]] == [1, 4]
    assert [row["cost"] for row in ours["rows"]] == [pytest.approx(2.5 * row["gpu_hours"]) for row in ours["rows"]]
    assert ours["rows"][1]["comm_s"] > ours["rows"][0]["comm_s"]
    unknown = hpcrun(*asked, "-P", "unknown", check=True).stdout
    assert "has no network bandwidth (fabric.bandwidth_gbit_s)" in unknown
    assert [line.split()[6] for line in unknown.splitlines() if line.startswith("  16")] == ["?"]
    spread = json.loads(hpcrun(*asked, "-P", "ours", "--nodes", "2,8", "--json", check=True).stdout)
    assert [row["nodes"] for row in spread["rows"]] == [2, 8]
    twice = json.loads(hpcrun(*asked, "-P", "ours", "--gpus", "4,4,4", "--nodes", "1,2,2", "--json", check=True).stdout)
    assert [(row["gpus"], row["nodes"]) for row in twice["rows"]] == [(4, 1), (4, 2)]


def test_gpus_of_a_named_type(hpcrun: Hpcrun) -> None:
    folder = hpcrun.home / ".config/hpcrun/profiles"
    folder.mkdir(parents=True)
    types = "{big: {per_node: 2}, small: {per_node: 8}}"
    (folder / "mixed.yaml").write_text(f"extends: [base/slurm, fabric/infiniband-hdr]\ngpu: {{types: {types}}}\n")
    found = json.loads(hpcrun(*MEASURED, "--gpus", "big:1,2,4", "-P", "mixed", "--json", check=True).stdout)
    assert [row["nodes"] for row in found["rows"]] == [1, 1, 2] * 2
    refused = hpcrun(*MEASURED, "--gpus", "1,2", "-P", "mixed")
    assert (refused.returncode, "several types: big, small" in refused.stderr) == (2, True)


def test_a_profile_without_a_card_says_what_it_cannot_know(hpcrun: Hpcrun) -> None:
    shown = hpcrun(*MEASURED, "--gpus", "2", "-P", "local", "--parameters", "1M", check=True).stdout
    assert "profile 'local' has no GPU model" in shown
    assert "has no bandwidth between the GPUs of a node" in shown
    measured = hpcrun(*MEASURED, "--gpus", "8", "-P", "local", "--also", "256=1h30m", check=True).stdout
    assert "8 GPUs (per-GPU batch 128): step time is dominated by fixed overhead: below" in measured
    assert "has no GPU model" not in measured


@pytest.mark.parametrize("columns", [50, 80])
def test_a_narrow_terminal(hpcrun: Hpcrun, columns: int) -> None:
    args = (*MEASURED, "--gpus", "1,8,64", "-P", "h100", "--parameters", "1G", "--price-per-gpu-hour", "2")
    argv = hpcrun.argv(*args)
    terminal = pexpect.spawn(argv[0], argv[1:], env={**hpcrun.environ, "TERM": "dumb"}, dimensions=(60, columns),
                             encoding="utf-8", cwd=str(hpcrun.folder))  # fmt: skip
    terminal.expect(pexpect.EOF)
    lines = without_colours(str(terminal.before)).splitlines()
    headings = [line.split() for line in lines if line.startswith("GPUS")]
    assert [{"GPUS", "EPOCH", "EFF.", "GPU-HOURS", "COST"} <= set(heading) for heading in headings] == [True, True]
    # a command is one line, whatever the width
    whole = ("instead", "measured", "profile", "         ", "learning", "scaled", "fixed")
    assert [line for line in lines if len(line) > columns and not line.startswith(whole)] == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--epoch-time", "36"), "--epoch-time: '36' has no unit; write it as 36m"),
        (("--samples", "1.2m"), "--samples: '1.2m' is not a number"),
        (("--lr", "1e400"), "--lr: '1e400' is not a number above zero"),
        (("--gpus", "0,1"), "--gpus: '0,1' contains 0"),
        (("--gpus", "1,٤"), "--gpus: '٤' is not a number of GPUs"),
        (("--price-per-gpu-hour", ""), "--price-per-gpu-hour: '' is not a number above zero"),
        (("--gpus", "12"), "--batch-size 1024 does not divide by --gpus 12"),
        (("--gpus", "9"), "9 GPUs do not divide by 2 nodes"),
        (("--nodes", "1,2"), "--nodes names 2 numbers, and --gpus 4"),
        (("--price-per-gpu-hour", "inf"), "--price-per-gpu-hour: 'inf' is not a number above zero"),
        (("--parameters", "\x1b[31m5M"), "--parameters: '\\x1b[31m5M' is not a number"),
        (("--reference-gpus", "8", "--parameters", "900G"), "its communication alone takes"),
        (("--csv", "--json"), "--json and --csv cannot be combined"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_one_message(hpcrun: Hpcrun, args: tuple[str, ...], message: str) -> None:
    done = hpcrun(*SEED, *args)
    assert done.returncode == 2
    assert message in (json.loads(done.stdout)["error"]["message"] if "--json" in args else done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == "" or "--json" in args
