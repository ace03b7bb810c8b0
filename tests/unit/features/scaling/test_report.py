"""How a report looks: in 80 columns, in Markdown, LaTeX, HTML and figures, whatever its names
are.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from hpcrun.features.scaling.axes import whiskers
from hpcrun.features.scaling.figures import draw_figures, settled_figures
from hpcrun.features.scaling.points import Epoch, Point, spread
from hpcrun.features.scaling.report_files import (
    report_html,
    report_json,
    report_markdown,
    report_text,
    summary_csv,
    summary_tex,
    tex_text,
)
from hpcrun.features.scaling.study_report import Report, ReportOptions, make_report, read_tables
from hpcrun.views.figure import new_figure, paper_style

SEEDS = Path(__file__).parents[3] / "data" / "seeds"
HOSTILE = "<script>alert(1)</script> \x1b[31m$x_1$ \\input{/etc/passwd} | `id` 100% 数 &\n**x**"


def report(*points: Point, **options: Any) -> Report:
    return make_report(points, ReportOptions("study", **options))


def flat(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())


def figures_of(*points: Point) -> dict[str, Figure]:
    with paper_style():
        return dict(settled_figures(report(*points))[0])


def seed(name: str) -> Report:
    table = read_tables([SEEDS / name])
    return make_report(table.points, ReportOptions("study"), claims=table.claims)


# to shrink a case takes minutes
@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([1, 2, 3, 4, 8, 16, 64, 1000]),
            st.floats(1e-3, 1e6),
            st.none() | st.floats(0, 1),
            st.none() | st.integers(1, 10**6),
        ),
        min_size=1,
        max_size=5,
    )
)
@example(rows=[(4, 2160.0, None, 1024), (4, 1020.0, None, 4096)])
def test_any_table_is_drawn(rows: list[tuple[int, float, float | None, int | None]]) -> None:
    points = [
        Point(
            gpus,
            batch_size=batch,
            epochs=(Epoch(1, time_s=time_s, accuracy=accuracy),),
            source="csv",
        )
        for gpus, time_s, accuracy, batch in rows
    ]
    assert all(figure.axes for figure in figures_of(*points).values())


def full(dataset: str = "", sizes: tuple[int, ...] = (1, 2, 4), repeats: int = 2) -> list[Point]:
    """Runs that have said everything."""
    return [
        Point(
            n,
            dataset=dataset,
            repeat=r,
            epochs=tuple(
                Epoch(
                    e,
                    time_s=(1 + 9 / n) * r,
                    samples_per_s=99.0 * n,
                    accuracy=0.5 + e / 10,
                    data_s=0.1,
                    sync_s=0.5,
                )
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
    assert lines[:3] == [
        "Ask for 4 GPUs on 2 nodes: 3.43× at 86 %; 8 would be 75 %, the added 4 GPUs only",
        "64 %.",
        "",
    ]
    assert [line.split() for line in lines[5:10]] == [
        "GPUS NODES TIME h SPEED-UP EFFIC. GPU-H VERDICT".split(),
        "1 1 12 1.00× 100.0 % 12 baseline".split(),
        "2 1 6.5 1.85× 92.3 % 13 good".split(),
        "4 2 3.5 3.43× 85.7 % 14 good".split(),
        "8 4 2 6.00× 75.0 % 16 diminishing returns".split(),
    ]
    assert "best value           4 GPUs on 2 nodes: 3.5 h, 14 GPU-hours" in lines
    text = flat(lines)
    assert (
        "The GPUs added from 4 to 8 reach 64 % marginal efficiency, below the 65 % target: use 4 "
        "GPUs." in text
    )
    assert "2 GPUs, gpu_hours 14, but 2 × 6.5 h gives 13" in text
    larger_batch = flat(report_text(seed("000.csv")))
    assert (
        "4096 instead of 1024: 36 min to 17 min (2.12× as fast), 20000 to 5000 steps per epoch"
        in larger_batch
    )


def test_the_guide_of_one_data_set_that_scales_and_one_that_does_not() -> None:
    lines = report_text(seed("004.csv"))
    assert lines[:2] == [
        "IMDB: Ask for 4 GPUs: 3.49× at 87 %; no larger size was measured.",
        "AGNews: Ask for 1 GPU: 4 would be slower, 0.46×.",
    ]
    assert "good                 4 GPUs: 3.49× = 87.3 %" in lines
    assert "negative scaling     4 GPUs: 0.46× = 11.5 %" in lines
    text = flat(lines)
    assert "hpcrun scale run --gpus 1,4 SCRIPT --batch-size 128" in text
    assert (
        "serial 4.9 % of the work on one GPU, by 4 GPUs more work 4 GPUs with proportionally more "
        "work" in text
    )
    # of the data set that became slower there is none
    assert text.count("% of the work on one GPU") == 1
    assert "the time with 1 GPU was computed from the published speed-up" in text


def test_the_first_line_is_the_answer(subtests: pytest.Subtests) -> None:
    for speedups, answer in (
        ({1: 1, 2: 1.74, 4: 1.84}, "Ask for 2 GPUs: 1.74× at 87 %; 4 would be 46 %."),
        ({1: 1, 4: 0.46}, "Ask for 1 GPU: 4 would be slower, 0.46×."),
        ({1: 1, 2: 1.9, 4: 1.85}, "Ask for 2 GPUs: 1.90× at 95 %; 4 would be slower, 1.85×."),
        ({1: 1, 2: 0.999}, "Ask for 1 GPU: 2 would be no faster, 1.00×."),
        ({1: 1, 2: 1.2}, "Ask for 1 GPU: 2 would be 1.20× at 60 %."),
        ({1: 1, 2: 1.9}, "Ask for 2 GPUs: 1.90× at 95 %; no larger size was measured."),
        ({8: 7}, "Ask for 8 GPUs: 7.00× at 88 %; no larger size was measured."),
        ({1: 1, 2: 4.7}, "No answer yet: the times are unreliable (super-linear)."),
    ):
        with subtests.test(speedups=speedups):
            points = [
                Point(gpus, speedup=speedup, source="csv") for gpus, speedup in speedups.items()
            ]
            assert report_text(report(*points))[0] == answer


def test_two_neighbours_with_one_verdict_are_one_line() -> None:
    speedups = {1: 1, 2: 1.95, 4: 3.8}
    points = [Point(gpus, speedup=speedup, source="csv") for gpus, speedup in speedups.items()]
    lines = [" ".join(line.split()) for line in report_text(report(*points))]
    assert "good 2 to 4 GPUs: 3.80× = 95.0 %" in lines


def test_the_first_lines_say_why_there_is_no_answer() -> None:
    noisy = flat(report_text(report(*loaded())))
    assert "No answer yet: the times are unreliable (noise)" in noisy
    assert "cause 1" not in noisy
    assert "not measured" not in noisy  # no cause without an answer
    assert "three runs of each size, one run after the other: hpcrun scale run" in noisy
    assert "--repeat 3 --chain SCRIPT" in noisy  # the default with Slurm is --parallel
    runs = [Point(n, epochs=tuple(Epoch(e, time_s=9 / n) for e in (1, 2, 3))) for n in (1, 2, 4)]
    lines = report_text(report(*runs))
    text = flat(lines[: lines.index("")])
    assert text.startswith(
        "No answer yet: the times are unreliable (short epochs, no repeats). They suggest 4 GPUs: "
        "4.00× at 100 %;"
    )
    assert "with 4 GPUs an epoch takes 2.2 s: below 3 s" in text
    assert text.endswith("hpcrun scale run --gpus 1,2,4 --repeat 3 SCRIPT")
    elapsed = report(*(Point(n, total_s=100 / n, source="elapsed") for n in (1, 2)))
    assert "Slurm's elapsed time" in flat(report_text(elapsed))
    assert not any(line.startswith(("best value", "next", "good")) for line in lines)


def loaded() -> list[Point]:
    """Runs on a busy machine: three sizes, two runs of each, of which one took much longer."""
    return [
        Point(
            n,
            repeat=r,
            batch_size=64,
            epochs=tuple(Epoch(e, time_s=time_s * r**0.6 + e) for e in (1, 2, 3, 4)),
        )
        for n, time_s in ((1, 74.3), (2, 61.0), (4, 55.0))
        for r in (1, 2)
    ]


def test_equal_repeats_have_whiskers_without_length() -> None:
    with paper_style():
        figure = new_figure(3.5, 2)
        axes = figure.add_subplot()
        same = spread([60.3, 60.3, 60.3])
        assert same is not None
        assert same.mean < same.low
        whiskers(axes, [1], [same])
        assert len(axes.collections) == 1


def test_the_figures_of_doubtful_sizes_say_so_and_show_the_range_on_which_no_number_lies(
    subtests: pytest.Subtests,
) -> None:
    figures = figures_of(*loaded())
    for name in ("cost", "epoch_time", "speedup_efficiency"):
        with subtests.test(name=name):
            (legend,), first = figures[name].legends, figures[name].axes[0]
            words = [text.get_text() for text in legend.get_texts()]
            assert "no verdict" in words, name
            assert ("measured" in words) == (name != "cost")
            assert any(line.get_markerfacecolor() == "white" for line in first.lines), name
            assert len(first.collections) == 1, name  # the whiskers
            canvas: Any = FigureCanvasAgg(figures[name])
            renderer = canvas.get_renderer()
            for axes in figures[name].axes:
                bars: Any = axes.collections[0]
                ends = [axes.transData.transform(segment) for segment in bars.get_segments()]
                for text in (text for text in axes.texts if text.get_visible()):
                    left, low, right, high = text.get_window_extent(renderer).extents
                    assert left > axes.bbox.x0 + 2 and low > axes.bbox.y0 + 2, (
                        name,
                        text.get_text(),
                    )
                    for (x, lower), (_, upper) in ends:
                        assert not (left <= x <= right and low <= upper and lower <= high), (
                            name,
                            text.get_text(),
                        )


def test_one_size_has_a_time_and_nothing_else() -> None:
    lines = report_text(report(*full(sizes=(4,))))
    assert lines[0] == "No answer: only one size was measured, 4 GPUs. Run at least one other size."
    assert not any(
        word in line for line in lines for word in ("SPEED-UP", "VERDICT", "×", "no repeats")
    )
    document = report_json(report(*full(sizes=(4,))))
    assert document["series"][0]["rows"][0]["speedup"] is None


def test_columns_for_published_speedups_and_for_repeats() -> None:
    points = [
        Point(n, total_s=100 / n**0.5, speedup=s, source="csv") for n, s in ((1, 1.0), (4, 3.49))
    ]
    lines = report_text(report(*points))
    header, row = (
        next(line.split() for line in lines if word in line) for word in ("PUBL.", "3.49")
    )
    assert row[header.index("SPEED-UP") - 1] == "2.00×"
    assert row[header.index("PUBL.") - 1] == "3.49×"
    lines = report_text(report(*full()))
    header, row = (
        next(line.split() for line in lines if word in line) for word in ("RANGE", "10–20")
    )
    assert header[:2] == ["GPUS", "RUNS"]
    assert row[:2] == ["1", "2"]


def test_text_keeps_to_80_columns_and_harmless_characters() -> None:
    wide = [
        *full(HOSTILE, tuple(2**n for n in range(11))),
        Point(64, dataset=HOSTILE, state="FAILED", problem=HOSTILE),
    ]
    lines = report_text(report(*wide))
    commands = [line for line in lines if line.strip().startswith("hpcrun ")]
    assert commands
    assert max(len(line) for line in lines if line not in commands) <= 80
    assert all(line.isprintable() for line in lines)
    assert any("left out" in line for line in lines)


def test_hostile_names_are_text_in_markdown_and_in_a_page_that_runs_nothing() -> None:
    text = report_markdown(
        report(*full(HOSTILE)), missing=["none"], figures={"cost.png": bytes(24)}
    )
    assert r"\<script\>alert(1)\</script\>" in text
    assert r"\*\*x\*\*" in text
    assert "![cost.png](cost.png)" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.replace(r"\|", "").count("|") for line in rows}) == 1
    page = report_html(
        report(*full(HOSTILE, (1, 2), 1)),
        figures={"cost.png": b"\x89PNG" + bytes(20)},
        missing=["none"],
    )
    allowed = "html head meta title style body h1 h2 p div table tr th td dl dt dd br code img"
    assert set(re.findall(r"<(\w+)", page)) <= set(allowed.split())
    sources = re.findall(r'src="([^"]*)"', page)
    assert [source.partition(",")[0] for source in sources] == ["data:image/png;base64"]
    assert "href" not in page
    assert "onerror" not in page
    assert "content=\"default-src 'none'; " in page


FIGURES = (
    "speedup_efficiency",
    "epoch_time",
    "throughput",
    "cost",
    "time_by_epoch",
    "accuracy",
    "accuracy_by_epoch",
)


def test_every_figure_of_several_data_sets_in_every_format() -> None:
    drawn, missing = draw_figures(report(*full("$x_1$ &", (2, 8, 1024))))
    assert list(drawn) == [f"{name}.{kind}" for name in FIGURES for kind in ("png", "pdf", "svg")]
    assert missing == []
    for name in FIGURES:
        png, pdf, svg = (drawn[f"{name}.{kind}"] for kind in ("png", "pdf", "svg"))
        assert png.startswith(b"\x89PNG")
        assert int.from_bytes(png[16:20], "big") / 300 in (3.5, 7)
        assert b"/FontFile2" in pdf
        assert b"/Type3" not in pdf  # Type 42: publishers refuse Type 3
        assert b"<svg" in svg
        assert b"<script" not in svg


def labels(figure: Figure) -> list[tuple[str, Any]]:
    """Return every text that a reader of a figure sees, with its box."""
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    texts: list[Any] = [text for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        if axes.get_visible():
            texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                texts += [
                    tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
                ]
    return [
        (text.get_text(), tuple(text.get_window_extent(renderer).extents.tolist()))
        for text in texts
        if text.get_visible() and text.get_text()
    ]


SIX = (
    "IMDB",
    "AG News",
    "amazon-book",
    "last-fm",
    "the data set with much too long a name",
    "數據集的名字很長" * 4,
)


@pytest.mark.parametrize(
    "points",
    [
        full(sizes=(1, 2, 4, 8)),
        [point for name in SIX for point in full(name, (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64))],
        full(sizes=tuple(range(1, 33)), repeats=1),
        [
            Point(
                n, epochs=tuple(Epoch(e, 20.0 * n**0.6 * r, 9 / n, 0.5) for e in (1, 2)), repeat=r
            )
            for n in (1, 2, 4)
            for r in (1, 3)
        ],
    ],
    ids=["one", "six with many sizes", "32 sizes", "negative scaling with errors"],
)
def test_no_label_of_a_figure_lies_over_another(points: list[Point]) -> None:
    with paper_style():
        figures, _ = settled_figures(report(*points))
        for name, figure in figures.items():
            width, height = figure.canvas.get_width_height()
            seen = labels(figure)
            for text, (left, low, right, high) in seen:
                assert left >= 0 and low >= 0 and right <= width and high <= height, (name, text)
            for (one, a), (other, b) in combinations(seen, 2):
                assert a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3], (
                    name,
                    one,
                    other,
                )


@pytest.mark.parametrize(
    ("smallest", "baseline"),
    [((2, 2), "2 GPUs"), ((1, 1), "1 GPU"), ((1, 2), "the smallest size")],
    ids=["2 GPUs", "1 GPU", "two sizes"],
)
def test_the_axis_of_the_speed_up_names_the_size_that_is_one(
    smallest: tuple[int, int], baseline: str
) -> None:
    points = [
        Point(gpus, dataset=f"set {number}", total_s=100 / gpus)
        for number, first in enumerate(smallest)
        for gpus in (first, 4)
    ]
    speed = figures_of(*points)["speedup_efficiency"].axes[0]
    assert speed.get_ylabel() == f"speed-up over {baseline}"


@pytest.mark.parametrize("sizes", [(1, 2, 4), (1, 4, 16, 64)])
def test_the_ideal_is_a_straight_line(sizes: tuple[int, ...], subtests: pytest.Subtests) -> None:
    figures = figures_of(
        *(Point(n, epochs=(Epoch(1, time_s=10 / n**0.9, samples_per_s=n**0.9),)) for n in sizes)
    )
    for name in ("speedup_efficiency", "epoch_time", "throughput"):
        with subtests.test(name=name):
            axes = figures[name].axes[0]
            (ideal,) = [line for line in axes.lines if line.get_linestyle() == "--"]
            (x, y), *_, (x1, y1) = places = axes.transData.transform(ideal.get_xydata())
            assert all(
                (b - y) * (x1 - x) == pytest.approx((y1 - y) * (a - x), abs=1e-3) for a, b in places
            )


@pytest.mark.parametrize("first", [0, 1])
def test_the_band_of_the_warm_up_covers_the_epochs_that_are_not_counted(first: int) -> None:
    runs = [
        Point(n, epochs=tuple(Epoch(first + e, time_s=9 / n) for e in range(4))) for n in (1, 2)
    ]
    axes = figures_of(*runs)["time_by_epoch"].axes[0]
    (band,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
    assert band.get_x() == first - 0.5
    assert band.get_width() == 1.0


def test_a_figure_without_numbers_is_not_drawn_and_said_so_and_files_are_the_same_each_time() -> (
    None
):
    drawn, missing = draw_figures(seed("004.csv"))
    assert draw_figures(seed("004.csv"))[0] == drawn
    names = [f"{name}.png" for name in ("speedup_efficiency", "epoch_time", "cost")]
    assert [name for name in drawn if name.endswith(".png")] == names
    assert "accuracy: not drawn: no run has an accuracy" in missing
    assert "epoch_time: without IMDB (no run has a time)" in missing
    way = Point(4, 1, total_s=100.0, source="csv")
    slower = replace(way, nodes=2, total_s=200.0, epochs=(Epoch(1, samples_per_s=9.0),))
    # only the slower way over nodes has a number
    assert "throughput" not in figures_of(way, slower)
    nothing, missing = draw_figures(report(Point(1, state="FAILED")))
    assert nothing == {}
    assert len(missing) == len(FIGURES)
    bare = report(
        *(Point(n, dataset=f"set {number}", speedup=n) for number in range(12) for n in (1, 2))
    )
    with paper_style():
        assert "only the first 6 of 12 series are drawn" in settled_figures(bare)[1]


def pdflatex(source: str, folder: Path) -> str:
    """Set a document, and return what it shows."""
    (folder / "main.tex").write_text(source)
    argv = [
        "pdflatex",
        "-no-shell-escape",
        "-interaction=nonstopmode",
        "-halt-on-error",
        "main.tex",
    ]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


@pytest.mark.needs("pdflatex")
def test_the_table_is_set_by_latex_alone_and_within_another_document(tmp_path: Path) -> None:
    tex = summary_tex(report(*full(HOSTILE), *full("".join(map(chr, range(32, 384))))))
    assert "1 page" in pdflatex(tex, tmp_path)
    (tmp_path / "summary.tex").write_text(tex)
    outer = (
        r"\documentclass{article}\usepackage{booktabs}\begin{document}"
        r"\input{summary}\input{summary}\end{document}"
    )
    assert "Output written" in pdflatex(outer, tmp_path)
    empty = summary_tex(report(Point(1, state="FAILED")))
    assert "1 page" in pdflatex(empty, tmp_path)


def test_text_that_latex_would_obey() -> None:
    assert (
        tex_text("50%_{a}\\input ~^é数")
        == r"50\%\_\{a\}\textbackslash{}input $\sim$\textasciicircum{}e?"
    )


def test_csv_and_json_have_the_same_numbers() -> None:
    study = seed("002.csv")
    first, *_, last = csv.DictReader(io.StringIO(summary_csv(study)))
    names = ("gpus", "nodes", "gpu_hours", "pareto", "verdict")
    assert [first[name] for name in names] == ["1", "1", "12", "1", "baseline"]
    assert [last[name] for name in names] == ["8", "4", "16", "1", "diminishing returns"]
    document = json.loads(json.dumps(report_json(study), allow_nan=False))
    (series,) = document["series"]
    assert [row["gpu_hours"] for row in series["rows"]] == [12, 13, 14, 16]
    assert series["advice"]["best_value"] == {"gpus": 4, "nodes": 2}
    assert [series["advice"][name]["gpus"] for name in ("fastest", "fewest_gpu_hours")] == [8, 1]
    assert document["contradictions"]


def test_the_use_of_the_hardware_is_shown_where_runs_recorded_it() -> None:
    known = [replace(point, gpu_busy=0.9 / point.gpus, cpu_busy=0.25) for point in full(repeats=1)]
    text = report_text(report(*known))
    head = next(line.split() for line in text if "EFFIC." in line)
    rows = [line.split() for line in text if line.split()[:1] in (["1"], ["2"], ["4"])]
    place = head.index("GPU")
    assert head[place : place + 2] == ["GPU", "CPU"]
    assert [" ".join(row[place : place + 2]) for row in rows] == ["90 %", "45 %", "23 %"]
    table = list(csv.DictReader(io.StringIO(summary_csv(report(*known)))))
    assert [(row["gpu_busy"], row["cpu_busy"]) for row in table] == [
        (n, "0.25") for n in ("0.9", "0.45", "0.225")
    ]
    assert not any(" CPU " in line for line in report_text(report(*full())))


@pytest.mark.parametrize("whole", [1, 100])
def test_an_accuracy_axis_ends_at_the_whole_cuts_no_mark_and_panels_share_their_range(
    whole: int,
) -> None:
    points = [
        Point(
            n, dataset=name, epochs=(Epoch(1, time_s=scale / n, accuracy=whole * 0.999 / n**0.05),)
        )
        for name, scale in (("a", 50.0), ("b", 20.0))
        for n in (1, 2, 4)
    ]
    figures = figures_of(*points)
    assert all(
        axes.get_ylim()[1] == pytest.approx(whole, rel=0.01) for axes in figures["accuracy"].axes
    )
    assert not any(line.get_clip_on() for axes in figures["accuracy"].axes for line in axes.lines)
    assert len({axes.get_ylim() for axes in figures["epoch_time"].axes}) == 1
