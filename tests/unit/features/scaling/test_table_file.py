"""Runs from CSV: what is read, what is refused, and where a table contradicts itself."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcrun.errors import UsageError
from hpcrun.features.scaling.series import build_series
from hpcrun.features.scaling.table_file import (
    COLUMNS,
    Table,
    contradictions,
    load_table,
    parse_table,
)

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
