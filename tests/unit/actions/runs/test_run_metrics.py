"""The metrics of a run: of which ranks and elements, some of their names, their last rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.runs.run_metrics import (
    Metrics,
    choose_metrics,
    last_rows,
    metric_patterns,
    read_elements,
    read_metrics,
)
from hpcrun.errors import NotFoundError
from hpcrun.job.run_paths import AttemptFolder, RunFolder
from hpcrun.runs.metric_files import MetricsRow
from tests.unit.builders import write

FIRST = MetricsRow(0, 0, 1.0, None, {"loss": 3.0})
SECOND = MetricsRow(0, 0, 2.0, None, {"loss": 2.0, "epoch": 1})
THIRD = MetricsRow(0, 0, 3.0, None, {"epoch": 2})
METRICS = Metrics(("loss", "epoch"), (FIRST, SECOND, THIRD))


@pytest.mark.parametrize(
    ("number", "rows"),
    [
        (None, (FIRST, SECOND, THIRD)),
        (0, ()),
        (1, (THIRD,)),
        (2, (SECOND, THIRD)),
        (9, (FIRST, SECOND, THIRD)),
    ],
)
def test_the_last_rows_are_as_many_as_were_named(
    number: int | None, rows: tuple[MetricsRow, ...]
) -> None:
    assert last_rows(METRICS, number).rows == rows


def test_a_row_without_a_chosen_metric_is_left_out() -> None:
    chosen = choose_metrics(METRICS, ["loss"])
    assert chosen.names == ("loss",)
    assert [row.values for row in chosen.rows] == [{"loss": 3.0}, {"loss": 2.0}]


def test_a_metric_that_no_row_has_is_an_error() -> None:
    with pytest.raises(NotFoundError, match="there is no metric 'los'"):
        choose_metrics(METRICS, ["los"])


def test_without_names_all_metrics_are_chosen() -> None:
    assert choose_metrics(METRICS, []) is METRICS


# --- from the files of ranks ---


def attempt(folder: Path, number: int = 0, element: int = 0) -> AttemptFolder:
    """An attempt that has started."""
    made = RunFolder(folder).element(element).attempt(number)
    write(made.start, f'{{"job_id": "7", "host": "n0", "started": {number + 1}.0}}')
    return made


def test_the_ranks_of_metrics_are_the_first_that_recorded_some(tmp_path: Path) -> None:
    made = attempt(tmp_path)
    write(made.rank_log(0, "out"), "{'loss': 9.0, 'epoch': 1.0}\n")
    write(made.rank_metrics(1), '{"step": 1, "loss": 3}\n')
    write(made.rank_metrics(2), '{"step": 1, "loss": 4}\n')
    assert read_metrics(tmp_path, None).ranks == (1,)
    assert read_metrics(tmp_path, None, wanted=[2]).ranks == (2,)
    assert read_metrics(tmp_path, None, all_ranks=True).ranks == (1, 2)
    assert read_metrics(tmp_path, {}, all_ranks=True).ranks == (0, 1, 2)


def test_the_metrics_of_all_attempts_follow_one_another(tmp_path: Path) -> None:
    for number in (0, 1):
        path = attempt(tmp_path, number).rank_metrics(0)
        write(path, f'{{"step": {number}, "epoch": 1, "loss": {number}}}\nbroken\n')
    metrics = read_metrics(tmp_path, None)
    assert [row.attempt for row in metrics.rows] == [0, 1]
    assert metrics.names == ("loss", "epoch")
    assert metrics.unreadable == 2


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        pytest.param(None, ("loss",), id="recorded only"),
        pytest.param({}, ("loss",), id="usual"),
        pytest.param({"loss": r"loss (\S+)", "rate": r"lr (\S+)"}, ("rate", "loss"), id="more"),
    ],
)
def test_a_log_adds_metrics_that_were_not_recorded(
    patterns: dict[str, str] | None, names: tuple[str, ...], tmp_path: Path
) -> None:
    made = attempt(tmp_path)
    write(made.rank_log(0, "out"), "step 1 loss 9 lr 0.1\n")
    write(made.rank_metrics(0), '{"step": 1, "loss": 3}\n')
    metrics = read_metrics(tmp_path, patterns)
    assert sorted(metrics.names) == sorted(names)
    assert {row.values["loss"] for row in metrics.rows if "loss" in row.values} == {3}


def sweep(folder: Path) -> Path:
    """A sweep: the first element has a loss, the second an accuracy, the third has not started."""
    write(attempt(folder, element=0).rank_metrics(0), '{"loss": 3}\n')
    write(attempt(folder, element=1).rank_metrics(0), '{"accuracy": 0.5}\n')
    return folder


@pytest.mark.parametrize(
    ("names", "found"),
    [
        pytest.param([], {0: ("loss",), 1: ("accuracy",), 2: ()}, id="all"),
        pytest.param(["loss"], {0: ("loss",), 2: ()}, id="one"),
        pytest.param(["accuracy", "loss"], {0: ("loss",), 1: ("accuracy",), 2: ()}, id="both"),
    ],
)
def test_an_element_without_a_named_metric_is_left_out(
    names: list[str], found: dict[int, tuple[str, ...]], tmp_path: Path
) -> None:
    elements = read_elements(sweep(tmp_path), [0, 1, 2], {}, names=names)
    assert {index: metrics.names for index, metrics in elements.items()} == found


def test_a_metric_that_no_element_has_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no metric 'los'") as refused:
        read_elements(sweep(tmp_path), [0, 1], {}, names=["los"])
    assert refused.value.hint == "did you mean 'loss'?"


PATTERNS = {"loss": "loss=(.*)"}


def test_the_patterns_of_the_configuration_have_priority(tmp_path: Path) -> None:
    profile = write(tmp_path / "mine.yaml", "metrics: {loss: 'x=(.*)', rate: 'lr=(.*)'}\n")
    patterns, remark = metric_patterns(str(profile), [tmp_path], PATTERNS)
    assert patterns == {"loss": "loss=(.*)", "rate": "lr=(.*)"}
    assert remark is None


def test_a_profile_by_its_path_is_read_on_request(tmp_path: Path) -> None:
    profile = write(tmp_path / "mine.yaml", "metrics: {rate: 'lr=(.*)'}\n")
    found = metric_patterns(str(profile), [tmp_path], PATTERNS, reads_paths=False)
    assert found == (PATTERNS, None)


def test_the_metrics_of_a_missing_profile_are_a_remark(tmp_path: Path) -> None:
    patterns, remark = metric_patterns("none", [tmp_path], PATTERNS, reads_paths=False)
    assert patterns == PATTERNS
    assert remark is not None
    assert remark.startswith("the metrics of profile none are left out: ")
