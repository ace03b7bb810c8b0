"""How a report looks: in 80 columns, in Markdown, LaTeX, HTML and figures, whatever its names are."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.studies.report import Report, ReportOptions, make_report, read_tables
from hpcrun.scaling.points import Epoch, Point
from hpcrun.views.report.document import report_json
from hpcrun.views.report.figures import draw_figures
from hpcrun.views.report.html import report_html
from hpcrun.views.report.tables import summary_csv, summary_tex, tex_text
from hpcrun.views.report.text import report_markdown, report_text

SEEDS = Path(__file__).parents[2] / "data" / "seeds"
HOSTILE = "<script>alert(1)</script> \x1b[31m$x_1$ \\input{/etc/passwd} | `id` 100% 数 &\n**x**"


def report(*points: Point, **options: Any) -> Report:
    return make_report(points, ReportOptions("study", **options))


def seed(name: str) -> Report:
    table = read_tables([SEEDS / name])
    return make_report(table.points, ReportOptions("study"), claims=table.claims)


def full(dataset: str = "", sizes: tuple[int, ...] = (1, 2, 4), repeats: int = 2) -> list[Point]:
    """Runs that have said everything."""
    return [
        Point(
            n,
            dataset=dataset,
            repeat=r,
            epochs=tuple(
                Epoch(e, time_s=(1 + 9 / n) * r, samples_per_s=99.0 * n, accuracy=0.5 + e / 10, data_s=0.1, sync_s=0.5)
                for e in (1, 2, 3)
            ),
            total_s=60,
            startup_s=9,
            batch_size=64,
            samples=1000,
            rank_samples=(10,) * n,
        )
        for n in sizes
        for r in range(1, repeats + 1)
    ]


def test_the_guide_of_four_gpus_on_two_nodes() -> None:
    lines = report_text(seed("002.csv"))
    assert [line.split() for line in lines[2:7]] == [
        "GPUS NODES TIME h SPEED-UP EFFIC. GPU-H VERDICT".split(),
        "1 1 12 1.00× 100.0 % 12 baseline".split(),
        "2 1 6.5 1.85× 92.3 % 13 excellent".split(),
        "4 2 3.5 3.43× 85.7 % 14 excellent".split(),
        "8 4 2 6.00× 75.0 % 16 good".split(),
    ]
    assert "best value        4 GPUs on 2 nodes: 3.5 h, 14 GPU-hours" in lines
    text = " ".join(" ".join(lines).split())
    assert "Going from 4 to 8 GPUs runs at 64 % marginal efficiency, below the 70 % target: use 4 GPUs." in text
    assert "Overall efficiency is at least 70 % up to 8 GPUs (75.0 %)." in text
    assert "2 GPUs, gpu_hours 14, but 2 × 6.5 h gives 13" in text
    assert "4 GPUs, gpu_hours 16, but 4 × 3.5 h gives 14" in text


def test_the_guide_of_one_data_set_that_scales_and_one_that_does_not() -> None:
    lines = report_text(seed("004.csv"))
    assert "excellent         4 GPUs: 3.49× = 87.3 %" in lines
    assert "negative scaling  4 GPUs: 0.46× = 11.5 %" in lines
    text = " ".join(" ".join(lines).split())
    assert "hpcrun scale --gpus 1,4 SCRIPT --batch-size 128" in text
    assert "2 sizes are too few for a confidence interval" in text
    assert "the time with 1 GPU was computed from the published speed-up" in text
    assert "95 %:" not in text


def test_the_notes_of_a_larger_batch() -> None:
    text = " ".join(" ".join(report_text(seed("000.csv"))).split())
    assert "4096 instead of 1024: 36 min to 17 min (2.12× as fast), 20000 to 5000 steps per epoch" in text


def test_text_keeps_to_80_columns_and_harmless_characters() -> None:
    wide = [*full(HOSTILE, tuple(2**n for n in range(11))), Point(64, dataset=HOSTILE, state="FAILED", problem=HOSTILE)]
    lines = report_text(report(*wide))
    commands = [line for line in lines if line.strip().startswith("hpcrun ")]
    assert commands
    assert max(len(line) for line in lines if line not in commands) <= 80
    assert all(line.isprintable() for line in lines)
    assert any("left out" in line for line in lines)


def test_many_series_are_named_and_not_all_shown() -> None:
    points = [point for number in range(12) for point in full(f"set {number}", (1, 2), 1)]
    lines = report_text(report(*points), most=8)
    assert "... and 4 more (see report.txt)" in lines
    assert "the first 6 of 12 series" in " ".join(draw_figures(report(*points)).missing)


def test_repeats_are_shown_with_number_and_range() -> None:
    lines = report_text(report(*full()))
    header, first = (next(line for line in lines if word in line) for word in ("RANGE", "10–20"))
    assert header.split()[:2] == ["GPUS", "N"]
    assert first.split()[:2] == ["1", "2"]


def test_times_that_slurm_counted_are_said_to_be_so() -> None:
    points = [Point(n, total_s=100 / n, source="elapsed") for n in (1, 2)]
    assert "Slurm's elapsed time" in " ".join(" ".join(report_text(report(*points))).split())


def test_markdown_is_text_and_nothing_else() -> None:
    text = report_markdown(report(*full(HOSTILE)), missing=["none"], figures=["cost.png"])
    assert r"\<script\>alert(1)\</script\>" in text
    assert r"\*\*x\*\*" in text
    assert "![cost.png](cost.png)" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.replace(r"\|", "").count("|") for line in rows}) == 1


class Tags(html.parser.HTMLParser):
    """Every tag of a page with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_needs_no_other_and_runs_nothing() -> None:
    study = report(*full(HOSTILE))
    drawn = draw_figures(study)
    page = report_html(study, figures=drawn.files, missing=drawn.missing)
    tags = Tags(page).found
    assert {tag for tag, _ in tags} <= set(
        "html head meta title style body h1 h2 p div table tr th td dl dt dd br code img".split()
    )
    sources = [attributes["src"] or "" for tag, attributes in tags if tag == "img"]
    assert len(sources) == 5
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not any("href" in attributes or "onerror" in attributes for _, attributes in tags)
    policy = [attributes["content"] or "" for _, attributes in tags if "http-equiv" in attributes]
    assert "default-src 'none'" in policy[0]
    assert "<script" not in page


def test_every_figure_of_several_data_sets() -> None:
    drawn = draw_figures(report(*full("a"), *full(HOSTILE, (2, 8, 512, 1024)), *full("c", (3,), 1)))
    assert list(drawn.files) == [
        "epoch_time.png",
        "speedup_efficiency.png",
        "throughput.png",
        "accuracy.png",
        "cost.png",
    ]
    assert all(content.startswith(b"\x89PNG") for content in drawn.files.values())
    assert drawn.missing == ()


def test_a_figure_without_numbers_is_not_drawn_and_said_so() -> None:
    drawn = draw_figures(seed("004.csv"))
    assert list(drawn.files) == ["epoch_time.png", "speedup_efficiency.png", "cost.png"]
    assert "accuracy.png: not drawn: no run has an accuracy" in drawn.missing
    assert "epoch_time.png: without IMDB (no run has a time)" in drawn.missing
    nothing = draw_figures(report(Point(1, state="FAILED")))
    assert (nothing.files, len(nothing.missing)) == ({}, 5)


def pdflatex(source: str, folder: Path) -> str:
    """Set a document, and return what it shows."""
    (folder / "main.tex").write_text(source)
    argv = ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


@pytest.mark.needs("pdflatex")
def test_the_table_is_set_by_latex_alone_and_within_another_document(tmp_path: Path) -> None:
    tex = summary_tex(report(*full(HOSTILE), *full("".join(map(chr, range(32, 384))))))
    assert "1 page" in pdflatex(tex, tmp_path)
    (tmp_path / "summary.tex").write_text(tex)
    outer = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{summary}\input{summary}\end{document}"
    assert "Output written" in pdflatex(outer, tmp_path)
    empty = summary_tex(report(Point(1, state="FAILED")))
    assert "1 page" in pdflatex(empty, tmp_path)


def test_text_that_latex_would_obey() -> None:
    assert tex_text("50%_{a}\\input ~^é数") == r"50\%\_\{a\}\textbackslash{}input $\sim$\textasciicircum{}e?"


def test_csv_and_json_have_the_same_numbers() -> None:
    study = seed("002.csv")
    rows = list(csv.DictReader(io.StringIO(summary_csv(study))))
    assert [(row["gpus"], row["nodes"], row["gpu_hours"], row["pareto"], row["verdict"]) for row in rows] == [
        ("1", "1", "12", "1", "baseline"),
        ("2", "1", "13", "1", "excellent"),
        ("4", "2", "14", "1", "excellent"),
        ("8", "4", "16", "1", "good"),
    ]
    document = json.loads(json.dumps(report_json(study), allow_nan=False))
    (series,) = document["series"]
    assert [row["gpu_hours"] for row in series["rows"]] == [12, 13, 14, 16]
    assert series["advice"]["best_value"] == {"gpus": 4, "nodes": 2}
    assert series["advice"]["efficient_up_to_gpus"] == 8
    assert [
        (each["written"], each["follows"]) for each in document["contradictions"] if each["what"] == "gpu_hours"
    ] == [
        ("14", 13),
        ("16", 14),
    ]
