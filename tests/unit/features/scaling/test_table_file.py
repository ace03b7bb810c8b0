"""Runs from CSV: what is read, what is refused, and where a table contradicts itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from hpcrun.errors import UsageError
from hpcrun.features.scaling.sentences import answer_lines
from hpcrun.features.scaling.series import build_series
from hpcrun.features.scaling.study_report import make_report, study_options
from hpcrun.features.scaling.table_cells import cell_number, cell_size
from hpcrun.features.scaling.table_claims import contradictions
from hpcrun.features.scaling.table_columns import COLUMNS
from hpcrun.features.scaling.table_file import Table, load_table, parse_table
from hpcrun.features.scaling.table_words import header_meaning

SEEDS = Path(__file__).parents[3] / "data" / "seeds"


def table(text: str) -> Table:
    return parse_table(text, "runs.csv")


def refused(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        table(text)
    return caught.value.message


def test_a_row_for_each_run_repeat_or_epoch_and_what_is_passed_over() -> None:
    (point,) = table(
        "Dataset, GPUs ,nodes,time_h,batch_size,rank_samples\nIMDB,4,2,3.5,64,10;11;12;13\n"
    ).points
    assert point.dataset == "IMDB"
    assert point.gpus == 4
    assert point.nodes == 2
    assert point.total_s == 12600
    assert point.source == "csv"
    assert point.batch_size == 64
    assert point.rank_samples == (10, 11, 12, 13)
    assert point.epochs == ()
    points = table("gpus,time_s\n1,10\n1,11\n2,6\n").points
    assert [(point.gpus, point.repeat) for point in points] == [(1, 1), (1, 2), (2, 1)]
    text = "gpus;repeat;epoch;epoch_time_s;accuracy\n2;1;2;5;0.8\n2;1;1;9;0.5\n2;2;1;9;0.6\n"
    first, second = table(text).points
    assert [(epoch.number, epoch.time_s, epoch.accuracy) for epoch in first.epochs] == [
        (1, 9, 0.5),
        (2, 5, 0.8),
    ]
    assert len(second.epochs) == 1
    # comments, empty lines, and columns that are not known
    found = table('# from a "paper\n\ngpus\ttime_s\towner\n# more\n1\t10\tme\n')
    assert len(found.points) == 1
    assert found.remarks == ("runs.csv: not read: owner",)


def test_tables_as_people_write_them(subtests: pytest.Subtests) -> None:
    for text, speedups in (
        ("GPUs,Time\n1,1h 30m\n2,50m\n4,~26m\n", [1, 1.8, 3.46]),
        ("gpu,Speed-up\n1,1.0x\n2,~1.8x\n4,3.49×\n", [1, 1.8, 3.49]),
        ("GPUs;efficiency\n1;100%\n2;90 %\n4;87.3%\n", [1, 1.8, 3.49]),
        ("num_gpus\tEfficiency\n1\t1.0\n2\t0.9\n4\t0.873\n", [1, 1.8, 3.49]),
        (
            "| GPUs | Time (min) | Efficiency |\n|---:|:--|--|\n| 1 | 90 | 100% |\n| 2 | 50 | 90% "
            "|\n",
            [1, 1.8],
        ),
        ("# Results\n\n | GPUs | Time (min) |\n |--|--|\n | 1 | 90 |\n | 2 | 50 |\n", [1, 1.8]),
        ("n GPUs,images/sec\n1,100\n8,700\n", [1, 7]),
        ("GPUs,Efficiency (%)\n1,100\n2,90\n", [1, 1.8]),
        # of one GPU, which the table does not list
        ("GPUs,Efficiency (%)\n2,95\n4,90\n", [1, 1.9, 3.6]),
        ("# of the paper\n#GPUs,time_s\n1,100\n# a pause\n2,50\n", [1, 2]),
        ("|gpus|time_s|notes|\n|--|--|--|\n|1|100|slow|\n|2|50||\n", [1, 2]),
        ("GPUs,Time per epoch,Batch size\n1,10:00,64\n2,5m30s,64\n", [1, 1.82]),
    ):
        with subtests.test(text=text):
            found = table(text)
            (series,) = build_series(found.points)
            assert [row.speedup.mean for row in series.rows] == pytest.approx(speedups, abs=0.01)
            assert len(found.remarks) <= 1  # which column was read as what


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "runs.csv: it is empty"),
        ("gpus,time_s\n", "runs.csv: it has a header and no rows"),
        ("nodes,time_s\n1,2\n", "runs.csv: there is no column gpus"),
        ("gpus,gpus\n1,2\n", "runs.csv: column 'gpus' appears twice in the header"),
        (
            "gpus,time_s,time_h\n1,2,3\n",
            "runs.csv: column time_s repeats another column in another unit",
        ),
        ("gpus,epoch_tmie_s\n1,2\n", "runs.csv: column 'epoch_tmie_s' is not known"),
        (
            "gpus,time_s\n1,2\n\n4,fast\n",
            "runs.csv:4: column time_s: 'fast': Input should be a valid number",
        ),
        ("GPUs,Time\n1,36\n", "runs.csv:2: column time: '36': has no unit; write 36m"),
        (
            "gpus,time_s\n1,nan\n",
            "runs.csv:2: column time_s: 'nan': Input should be a finite number",
        ),
        ("gpus,time_s\n1,-3\n", "runs.csv:2: column time_s: '-3': Input should be greater than 0"),
        (
            "gpus,time_s\n0,3\n",
            "runs.csv:2: column gpus: '0': Input should be greater than or equal to 1",
        ),
        ("gpus,time_s\n2.5,3\n", "runs.csv:2: column gpus: '2.5': Input should be a valid integer"),
        ("gpus,time_s\n,3\n", "runs.csv:2: column gpus is empty"),
        ("gpus,time_s\n1\n", "runs.csv:2: the line has 1 values, the header 2"),
        (
            "gpus,epoch,epoch_time_s\n1,1,3\n1,1,3\n",
            "runs.csv:3: epoch 1 of this run stands in runs.csv:2 too",
        ),
        (
            "gpus,epoch,time_s\n1,1,3\n1,2,4\n",
            "runs.csv:3: column time_s: it differs from an earlier line of the same",
        ),
        ('gpus,dataset\n1,"open\n', "runs.csv:2: unexpected end of data"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text: str, message: str) -> None:
    assert refused(text).startswith(message)


def test_the_efficiencies_of_each_data_set_refer_to_its_own_smallest_size() -> None:
    rows = "A,1,100\nA,2,90\nA,4,80\nB,2,100\nB,4,90\nB,8,80\n"
    for text in (rows, "".join(reversed(rows.splitlines(keepends=True)))):
        series = {
            each.name: each
            for each in build_series(table(f"dataset,gpus,efficiency\n{text}").points)
        }
        sizes = {
            name: {row.gpus: row.speedup.mean for row in each.rows} for name, each in series.items()
        }
        assert sizes == {
            "A": pytest.approx({1: 1, 2: 1.8, 4: 3.2}),
            "B": pytest.approx({2: 1, 4: 1.8, 8: 3.2}),
        }


def test_a_hostile_table_is_refused_soon(subtests: pytest.Subtests) -> None:
    begun_s = time.process_time()
    for text, message in (
        (
            "gpus," + ",".join(f"colum{number}" for number in range(20_000)),
            "runs.csv: the header has 20001 columns",
        ),
        ("gpus," + "time_s" * 20_000, "runs.csv: the name of a column has 120000 characters"),
        ('gpus,"time_s' + "1,2\n" * 60_000, "runs.csv:"),
        ("gpus,dataset\n1," + "x " * 50_000, "runs.csv:2: column dataset: 'x x x x"),
        ('gpus,time_s\n1,"' + "1,2\n" * 60_000, "runs.csv:"),
    ):
        with subtests.test(text=text):
            assert refused(text).startswith(message)
    assert time.process_time() - begun_s < 3


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "picture.csv").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(UsageError, match="is no UTF-8 text"):
        load_table(tmp_path / "picture.csv")
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        load_table(tmp_path / "absent.csv")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(
            st.sampled_from([*COLUMNS, "1", "0.5", "-1", "x", '"', "", "#", "1e999"]), max_size=5
        )
    )
)
def test_any_text_is_read_or_refused(rows: list[list[str]]) -> None:
    text = "\n".join(",".join(row) for row in rows)
    try:
        points = table(text).points
    except UsageError as error:
        assert error.message.startswith("runs.csv")
    else:
        build_series(points)


def wrong(name: str) -> list[tuple[int, str, str, float]]:
    found = load_table(SEEDS / name)
    return [
        (each.gpus, each.what, each.written, each.follows)
        for each in contradictions(found.claims, build_series(found.points))
    ]


def test_the_guide_that_gives_two_prices_and_repeats_that_need_not_say_what_their_mean_says() -> (
    None
):
    assert sorted(each[:3] for each in wrong("002.csv")) == [
        (2, "gpu_hours", "14"),
        (2, "samples_per_s", "80"),
        (4, "gpu_hours", "16"),
        (4, "samples_per_s", "160"),
    ]
    assert [each[3] for each in wrong("002.csv") if each[1] == "gpu_hours"] == [13, 14]
    assert wrong("000.csv") == wrong("004.csv") == []  # guides that agree with themselves
    found = table("gpus,time_s,samples_per_s\n1,100,100\n1,100,80\n2,50,160\n2,50,240\n")
    assert contradictions(found.claims, build_series(found.points)) == ()


def test_each_number_that_follows_from_others_is_checked(subtests: pytest.Subtests) -> None:
    head = (
        "gpus,time_s,speedup,efficiency_percent,samples,batch_size,steps\n"
        "1,100,1,100,10000,1000,10\n"
    )
    for row, wrong in (
        ("4,25,3.5,87.5,10000,1000,10", ["speedup"]),
        ("4,25,4.0,90,10000,1000,10", ["efficiency_percent"]),
        ("4,25,4.0,100,10000,1000,20", ["steps"]),
        ("4,25,4,99.6,10000,1000,10", []),
    ):
        with subtests.test(row=row):
            found = table(f"{head}{row}\n")
            assert [
                each.what for each in contradictions(found.claims, build_series(found.points))
            ] == wrong


def test_a_column_of_cards_is_read_as_gpus_and_two_types_are_remarked() -> None:
    table = load_table(SEEDS / "001.md")
    assert [(point.gpus, point.speedup) for point in table.points] == [
        (1, 1.0),
        (2, 1.8),
        (4, 3.5),
        (8, 7.0),
    ]
    assert (
        table.remarks[-1]
        == "001.md: A100 and V100: a speed-up from one to another also compares the cards"
    )


def test_the_speed_up_of_a_weak_study_does_not_follow_from_its_times() -> None:
    found = table("gpus,time_s,speedup\n1,100,1\n4,110,0.5\n")
    assert contradictions(found.claims, build_series(found.points, weak=True)) == ()
    (contradiction,) = contradictions(found.claims, build_series(found.points))
    assert contradiction.what == "speedup"


PUBLISHED = YAML(typ="safe").load(SEEDS.parent / "published_tables.yaml")


@pytest.mark.parametrize("case", PUBLISHED, ids=[case["name"] for case in PUBLISHED])
def test_a_table_is_read_as_it_was_published(case: dict[str, Any]) -> None:
    speedups: dict[str, dict[int, float]] = {}
    for each in build_series(table(case["text"]).points):
        rows = {row.gpus: row.speedup.mean for row in each.sizes}
        speedups[each.name] = {gpus: rows[gpus] for gpus in case["gives"].get(each.name, rows)}
    expected = {name: pytest.approx(gives, abs=0.001) for name, gives in case["gives"].items()}
    assert speedups == expected


def remark(text: str) -> str:
    (only,) = table(text).remarks
    return only.removeprefix("runs.csv: ")


def test_one_line_says_what_was_read_and_what_was_not() -> None:
    assert remark("|# GPUs|Tok/s/GPU|MFU|\n|--|--|--|\n|1|10|40|\n|2|9|38|\n") == (
        "read: # GPUs as gpus, Tok/s/GPU as samples_per_s times the GPUs; not read: MFU"
    )


def test_a_row_that_failed_is_left_out_and_named() -> None:
    found = table("|GPUs|img/s|\n|--|--|\n|1|100|\n|2|190|\n|4|OOM|\n")
    assert [point.gpus for point in found.points] == [1, 2]
    assert found.remarks[-1] == "runs.csv:5: left out: img/s 'OOM'"


@pytest.mark.parametrize("cell", ["4,450", "12,46"])
def test_a_comma_in_a_number_is_refused_where_semicolons_separate(cell: str) -> None:
    assert f"column Time (s): {cell!r}: the comma" in refused(f"GPUs;Time (s)\n1;{cell}\n2;6\n")


def test_rows_that_differ_in_a_text_get_no_verdict() -> None:
    found = table("|GPUs|Best config|tok/s|\n|--|--|--|\n|1|TP1|10|\n|2|TP2|19|\n|4|TP2 DP2|35|\n")
    report = make_report(found.points, study_options([], **UNSTUDIED))
    answer, doubt = answer_lines(report)
    assert answer.text == "No answer: the rows differ in more than their size."
    assert doubt.text.startswith("with 1 GPU Best config TP1, with 2 Best config TP2;")


UNSTUDIED: dict[str, Any] = {"name": "t", "weak": None, "warmup": None, "min_efficiency": 65}


@pytest.mark.parametrize(
    "labels", [("TP=1", "TP=2", "TP=4"), ("single GPU", "DDP x2", "DDP x4"), ("A", "A", "A")]
)
def test_a_text_that_repeats_the_size_takes_no_verdict(labels: Sequence[str]) -> None:
    first, second, third = labels
    rows = f"|{first}|1|10|\n|{second}|2|19|\n|{third}|4|36|\n"
    found = table(f"|Setup|GPUs|tok/s|\n|--|--|--|\n{rows}")
    assert {point.conditions for point in found.points} == {""}


@pytest.mark.parametrize(
    ("header", "column"),
    [
        ("Training time (s/1 epoch)", "epoch_time"),
        ("Time/epoch (min)", "epoch_time"),
        ("sec/epoch", "epoch_time"),
        ("Wall-clock hours", "time"),
        ("ms/step", "step_time"),
        ("it/s", "steps_per_s"),
        ("Throughput (QPS)", "samples_per_s"),
        ("Per-GPU batch", "batch_per_gpu"),
        ("batch_size_per_gpu", "batch_per_gpu"),
        ("GlobalBatchSize", "batch_size"),
        ("# of H100 GPUs", "gpus"),
        ("Speedup vs. 1 GPU", "speedup"),
        ("GPU hours", "gpu_hours"),
        ("Tokens/sec (decode, batch=32)", "samples_per_s"),
        ("Time (communication)", None),
        ("Communication time (s)", None),
        ("Ideal speedup", None),
        ("Bandwidth (GB/s)", None),
        ("TFLOP/s/GPU", None),
        ("GlobalBatchSize (T)", None),
        ("Latency (ms)", None),
        ("Cost/hour", None),
    ],
)
def test_a_header_is_read_only_if_every_word_is_understood(header: str, column: str | None) -> None:
    meaning = header_meaning(header)
    assert (meaning and meaning.quantity) == column


@pytest.mark.parametrize(
    ("cell", "number", "unit"),
    [
        ("2.5M tok/s", 2.5e6, "tok/s"),
        ("**92.9 %**", 92.9, "%"),
        ("4,872 ± 33", 4872, ""),
        ("~3.5×", 3.5, "×"),
        ("7.2x (90 %)", 7.2, "x"),
        ("1.2k", 1200, ""),
    ],
)
def test_a_number_may_have_a_scale_an_error_a_unit_and_a_remark(
    cell: str, number: float, unit: str
) -> None:
    value = cell_number(cell)
    assert value is not None
    assert float(value.text) == pytest.approx(number)
    assert value.unit == unit


@pytest.mark.parametrize("cell", ["0,124", "12,46", "1 / 2 / 4", "15ms / 20ms", "fast", "3-4x"])
def test_a_cell_that_is_more_or_less_than_a_number_is_none(cell: str) -> None:
    assert cell_number(cell) is None


@pytest.mark.parametrize(
    ("cell", "gpus", "nodes"),
    [
        ("1,024", 1024, None),
        ("4x V100", 4, None),
        ("4*8", 32, 4),
        ("2S - 8GPU", 8, 2),
        ("16 (2 nodes)", 16, 2),
        ("2 nodes (16 GPUs)", 16, 2),
        ("8 × A100-80GB", 8, None),
        ("Single GPU", 1, None),
        ("8 H100", 8, None),
    ],
)
def test_a_size_is_read_as_people_write_it(cell: str, gpus: int, nodes: int | None) -> None:
    size = cell_size(cell)
    assert size is not None
    assert (size.gpus, size.nodes) == (gpus, nodes)


def test_a_wide_table_without_a_unit_is_asked_for_it_and_read_with_it() -> None:
    rows = "|1 GPU|8 GPUs|\n|--|--|--|\n|A|100|700|\n|B|50|200|\n"
    assert "does not say what its numbers are" in refused(f"|Model{rows}")
    found = build_series(table(f"|Model (img/s){rows}").points)
    assert {each.name: each.rows[-1].speedup.mean for each in found} == {"A": 7, "B": 4}


def test_nodes_become_gpus_with_their_number_on_a_node() -> None:
    text = "|Nodes|Time (min)|\n|--|--|\n|1|60|\n|2|33|\n"
    assert refused(text) == "runs.csv: there is no column gpus"
    points = parse_table(text, "runs.csv", gpus_per_node=4).points
    assert [(point.gpus, point.nodes) for point in points] == [(4, 1), (8, 2)]


def test_the_time_of_a_step_counts_with_the_batch() -> None:
    head = "|GPUs|Batch/GPU|Step time (ms)|\n|--|--|--|\n"
    (series,) = build_series(table(f"{head}|1|32|100|\n|4|32|110|\n").points)
    assert series.rows[-1].speedup.mean == pytest.approx(4 / 1.1)
    assert "no column is a time" in refused("GPUs,Step time (ms)\n1,100\n4,110\n")


def test_two_columns_of_one_quantity_must_agree() -> None:
    differing = refused("GPUs,img/s,tok/s\n1,10,1000\n2,19,1500\n")
    assert "columns 'img/s' and 'tok/s' are both samples_per_s, and differ" in differing
    assert len(table("GPUs,img/s,tok/s\n1,10,1000\n2,19,1900\n").points) == 2


def test_a_table_is_found_in_the_text_around_it() -> None:
    text = "# Guide\n\nSome | prose.\n\n| Option | Default |\n|--|--|\n| lr | 1 |\n\n"
    found = table(f"{text}| GPUs | img/s |\n|--|--|\n| 1 | 100 |\n| 2 | 190 |\n\nMore, prose.\n")
    assert [point.gpus for point in found.points] == [1, 2]
    two = "| GPUs | img/s |\n|--|--|\n| 1 | 100 |\n\n"
    assert refused(two * 2) == "runs.csv: several tables: they begin in lines 1, 5"


def test_a_report_names_what_a_rate_counts() -> None:
    (series,) = build_series(table("GPUs,tok/s\n1,10\n2,19\n").points)
    assert series.basis_words == "tokens per second"
