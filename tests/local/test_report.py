"""hpcrun scale report: the files it writes, and the folders it leaves alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness import REPO, Completed, Hpcrun

SEED = REPO / "tests/data/seeds/002.csv"
TEXTS = {"report.txt", "report.md", "report.html", "summary.csv", "summary.tex"}


@pytest.fixture
def without_figures(hpcrun: Hpcrun) -> Hpcrun:
    """hpcrun where matplotlib is not installed, which is quicker too."""
    lib = hpcrun.write("lib/matplotlib.py", "raise ImportError\n").parent
    (hpcrun.folder / "here").mkdir()
    return replace(hpcrun, folder=hpcrun.folder / "here", extra={"PYTHONPATH": str(lib)})


def report(hpcrun: Hpcrun, *args: str) -> Completed:
    return hpcrun("scale", "report", "--from-csv", str(SEED), *args)


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} - {".hpcrun-report"}


def test_two_tables_make_one_report_with_every_file(without_figures: Hpcrun) -> None:
    """The figures are shown by tests/unit/features/scaling/test_report.py, and the guide on scaling
    has them all.
    """
    hpcrun = without_figures
    hpcrun.write(
        "mine.csv",
        "dataset,gpus,repeat,epoch,epoch_time_s,samples_per_s,accuracy\n"
        + "".join(
            f"mine,{n},{r},{e},{9 / n + r},{n * 90},{e / 9}\n"
            for n in (1, 2)
            for r in (1, 2)
            for e in (1, 2)
        ),
    )
    done = hpcrun(
        "scale",
        "report",
        "--from-csv",
        str(SEED),
        "--from-csv",
        "mine.csv",
        "--out",
        "out",
        check=True,
    )
    assert names(hpcrun.folder / "out") == TEXTS
    assert done.stdout.startswith("002: Ask for 4 GPUs on 2 nodes: 3.43× at 86 %; 8 would be 75 %")
    assert "\nmine: No answer yet: the times are unreliable (" in done.stdout
    assert "\n002: strong scaling, time of the run" in done.stdout
    assert "mine: strong scaling, time of an epoch" in done.stdout
    assert (hpcrun.folder / "out/report.txt").read_text() == done.stdout
    assert f"written  out: report.html and {len(TEXTS) - 1} other files\n" in done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_report_replaces_a_report_and_nothing_else(without_figures: Hpcrun) -> None:
    folder = without_figures.folder / "report-002"
    first = report(without_figures)
    assert first.returncode == 0, first.stderr
    assert names(folder) == TEXTS
    assert 'matplotlib is not installed; pip install "hpcrun-slurm[plot]"' in " ".join(
        first.stdout.split()
    )
    (folder / "notes.txt").write_text("mine")
    refused = report(without_figures)
    assert (refused.returncode, "other files: notes.txt" in refused.stderr) == (4, True)
    (folder / "report.txt").write_text("old")
    assert report(without_figures, "--force").returncode == 0
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "report.txt").read_text().startswith("Ask for 4 GPUs on 2 nodes")
    found = json.loads(
        report(without_figures, "--json", "--min-efficiency", "60", "--out", "a/b").stdout
    )
    assert found["kind"] == "scaling-report"
    assert found["schema"] == 1
    assert found["folder"] == "a/b"
    assert found["answers"] == [
        "Ask for 8 GPUs on 4 nodes: 6.00× at 75 %; no larger size was measured."
    ]
    assert found["series"][0]["advice"]["best_value"] == {"gpus": 8, "nodes": 4}
    assert set(found["files"]) == TEXTS


def test_a_mistake_is_one_message_and_nothing_is_written(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    hpcrun.write("file", "")
    for args, status, message in (
        ("--min-efficiency 0.65", 2, "--min-efficiency: '0.65' is not a valid integer"),
        ("--min-efficiency 0", 2, "it must be from 1 to 100 %"),
        ("--warmup -1", 2, "--warmup -1: must be 0 or more"),
        ("--from-csv absent.csv", 2, "cannot read absent.csv: No such file or directory"),
        ("--out file", 4, "file is not a folder"),
    ):
        with subtests.test(args=args):
            before = names(hpcrun.folder)
            done = report(hpcrun, *args.split())
            assert (done.returncode, done.stdout, message in done.stderr) == (status, "", True), (
                done.stderr
            )
            assert len(done.stderr.splitlines()) <= 2
            assert names(hpcrun.folder) == before
