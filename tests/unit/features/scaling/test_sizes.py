"""The sizes of a study, and what the script is told at each."""

from __future__ import annotations

import pytest

from hpcrun.errors import UsageError
from hpcrun.features.scaling.sizes import (
    MOST,
    Size,
    Workload,
    in_order,
    parse_sizes,
    point_name,
    read_design,
)


def test_sizes_are_read_with_their_nodes() -> None:
    assert parse_sizes("1,2,4", None, "--gpus") == (None, (Size(1), Size(2), Size(4)))
    assert parse_sizes("h100:4, 8", "1,2", "--gpus") == ("h100", (Size(4, 1), Size(8, 2)))
    assert parse_sizes("2,4", "2", "--gpus") == (None, (Size(2, 2), Size(4, 2)))


def test_what_is_no_list_of_sizes_is_refused() -> None:
    for text, nodes, option, words in (
        *((text, None, "--gpus", "not a list of sizes") for text in ("1,,2", "-1", "1.5", "٣")),
        ("a100:2", None, "--ranks", "not a list of sizes"),
        ("0,2", None, "--gpus", "not a list of sizes"),
        ("1,2", "1,1,2", "--gpus", "--nodes names 3 numbers, and --gpus 2 sizes"),
        *(
            ("1,2", nodes, "--gpus", "not a list of numbers of nodes")
            for nodes in ("0", "one", "a:1")
        ),
    ):
        with pytest.raises(UsageError, match=words):
            parse_sizes(text, nodes, option)


def test_a_study_that_cannot_be_is_refused() -> None:
    for said, words in (
        ({"gpus": None}, "--gpus or with --ranks"),
        ({"ranks": "2"}, "--gpus or with --ranks"),
        ({"repeat": 501}, "1002 runs are more"),
    ):
        typed = {"gpus": "1,2", "ranks": None, "nodes": None, "repeat": 1, "warmup": 1}
        with pytest.raises(UsageError, match=words):
            read_design(Workload(), **{**typed, **said})  # type: ignore[arg-type]


def test_the_order_and_the_names_of_points() -> None:
    one, two = Size(1), Size(2)
    assert in_order([one, two], 2) == [(one, 1), (two, 1), (one, 2), (two, 2)]
    assert point_name("train", Size(4, 2), 3, "GPUs", with_nodes=False) == "train-g4-r3"
    assert point_name("train", Size(4, 2), 3, "ranks", with_nodes=True) == "train-p4-n2-r3"
    assert len(point_name("x" * 100, Size(1024, 128), 12, "GPUs", with_nodes=True)) == 100


def test_what_the_script_is_told() -> None:
    work = Workload("strong", 256, "1e-3", "imdb")
    words = [
        "{batch_size}",
        "--own={per_gpu_batch_size}",
        "{lr}",
        "{gpus}x{nodes}#{repeat}",
        "{dataset}",
    ]
    assert work.arguments(words, 4, 2, 3) == ("256", "--own=64", "1e-3", "4x2#3", "imdb")
    work, words = Workload("weak", 32, "1e-3"), ["{batch_size}", "{per_gpu_batch_size}", "{lr}"]
    assert work.arguments(words, 8, 1, 1) == ("256", "32", "0.008")
    assert work.arguments(words, 1, 1, 1) == ("32", "32", "1e-3")
    with pytest.raises(UsageError, match="HOME"):
        Workload().arguments(["{HOME}x"], 1, 1, 1)
    assert Workload().arguments(["${HOME}x"], 1, 1, 1) == ("${HOME}x",)
    assert Workload().arguments(['{"lr": 1}', "{}", "{{batch_size}}"], 1, 1, 1) == (
        '{"lr": 1}',
        "{}",
        "{batch_size}",
    )


def test_a_place_without_a_value_is_an_error(subtests: pytest.Subtests) -> None:
    for word, message, hint in (
        ("{bath_size}", "which a study does not know", "did you mean 'batch_size'?"),
        ("{lr}", "--lr is not given", "add --lr VALUE"),
        (
            "{zzz}",
            "which a study does not know",
            "it knows gpus, nodes, repeat, batch_size; {{zzz}} stands for",
        ),
        ("{per_gpu_batch_size}", "100 / 3 = 33.33", "--batch-size 102, or --weak"),
    ):
        with subtests.test(word=word):
            with pytest.raises(UsageError) as refused:
                Workload("strong", 100).arguments([word], 3, 1, 1)
            assert message in refused.value.message
            assert (refused.value.hint or "").startswith(hint)


def test_a_value_of_which_the_script_is_not_told_is_an_error() -> None:
    for work, option in ((Workload(batch_size=64), "--batch-size"), (Workload(lr="0.1"), "--lr")):
        with pytest.raises(
            UsageError, match=f"{option} is given, but the script does not receive it"
        ):
            work.arguments(["--epochs", "3", "{{batch_size}}", "{gpus}"], 2, 1, 1)


def test_a_batch_that_does_not_divide_is_said_and_one_that_is_too_small_refused() -> None:
    sizes = [Size(1), Size(3), Size(4), Size(7)]
    assert Workload("strong", 100).check(sizes) == "a batch of 100 does not divide by 3 or 7"
    assert Workload("strong", 84).check(sizes) is None
    assert Workload("weak", 5).check(sizes) is None
    with pytest.raises(UsageError, match="less than one sample for each of 7 ranks"):
        Workload("strong", 6).check(sizes)


def test_a_learning_rate_is_a_positive_number() -> None:
    for lr in ("0", "-1e-3", "nan", "inf", "fast", ""):
        with pytest.raises(UsageError, match="not a positive number"):
            Workload(lr=lr).check([])


@pytest.mark.parametrize(
    ("typed", "unit", "sizes"),
    [
        ({"gpus": "1,2"}, "GPUs", (1, 2)),
        ({"ranks": "2,4"}, "ranks", (2, 4)),
        ({"gpus": "a100:4"}, "GPUs", (4,)),
    ],
)
def test_a_study_is_one_of_gpus_or_of_ranks(
    typed: dict[str, str], unit: str, sizes: tuple[int, ...]
) -> None:
    gpus = typed.get("gpus")
    ranks = typed.get("ranks")
    design, remark = read_design(Workload(), gpus=gpus, ranks=ranks, nodes=None, repeat=1, warmup=0)
    assert design.unit == unit
    assert tuple(size.gpus for size in design.sizes) == sizes
    assert remark is None


def test_a_study_has_only_so_many_runs() -> None:
    def runs(repeat: int) -> int:
        design, _ = read_design(
            Workload(), gpus="1,2", ranks=None, nodes=None, repeat=repeat, warmup=0
        )
        return design.repeat

    assert runs(MOST // 2) == MOST // 2
    with pytest.raises(UsageError, match=f"--repeat {MOST // 2 + 1}: {MOST + 2} runs are more"):
        runs(MOST // 2 + 1)


@pytest.mark.parametrize(
    ("workload", "gpus", "note"),
    [
        (Workload("strong", 8), (1, 8), None),
        (Workload("strong", 8), (1, 3, 5), "a batch of 8 does not divide by 3 or 5"),
        (Workload("weak", 1), (1, 8), None),
        (Workload("strong", None), (3,), None),
    ],
)
def test_a_batch_that_leaves_a_rest_is_noted(
    workload: Workload, gpus: tuple[int, ...], note: str | None
) -> None:
    assert workload.check([Size(number) for number in gpus]) == note
