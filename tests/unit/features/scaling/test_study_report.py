"""How studies are reported on, from what their records say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcrun.errors import UsageError
from hpcrun.features.scaling.sizes import ScaleCommand, Size
from hpcrun.features.scaling.studies import Study
from hpcrun.features.scaling.study_report import (
    ReportOptions,
    command_of,
    report_name,
    side_by_side,
    study_options,
    study_remarks,
)

SIZES = (Size(1), Size(4))
STRONG = Study(
    "20260101-000000-train-aaaa",
    "train",
    0.0,
    "a100",
    "/",
    request={"script": "train.py"},
    warmup=2,
)
AGAIN = replace(STRONG, study_id="20260103-000000-train-cccc")
WEAK = replace(STRONG, study_id="20260102-000000-big-bbbb", name="big", scaling="weak", warmup=3)


def options(*studies: Study, weak: bool | None = None, warmup: int | None = None) -> ReportOptions:
    return study_options(studies, name="x", weak=weak, warmup=warmup, min_efficiency=50)


def test_a_report_follows_the_study_unless_options_differ_and_proposes_no_command_of_several() -> (
    None
):
    chosen = [options(WEAK), options(STRONG), options(WEAK, weak=False, warmup=0), options()]
    assert [(each.weak, each.warmup) for each in chosen] == [
        (True, 3),
        (False, 2),
        (False, 0),
        (False, 1),
    ]
    assert options(STRONG, WEAK, weak=True).warmup == 3
    assert chosen[0].min_efficiency == 0.5
    with pytest.raises(UsageError, match="cannot be compared"):
        options(STRONG, WEAK)
    other = replace(STRONG, request={"script": "other.py"})
    assert options(STRONG, AGAIN).command == command_of(STRONG)
    assert options(STRONG, other).command == ScaleCommand()


def test_several_studies_have_names_for_their_data_sets_and_one_for_a_folder() -> None:
    def names(*studies: Study, tables: bool = False) -> list[str]:
        return [study.dataset for study in side_by_side(studies, tables=tables)]

    assert names(STRONG) == [""]
    assert names(STRONG, AGAIN) == ["", ""]
    assert names(STRONG, tables=True) == ["train"]
    assert names(STRONG, replace(WEAK, dataset="imdb")) == ["train", "imdb"]
    assert report_name(["a", "b", "a"]) == "a-b"
    assert len(report_name("x" * number for number in range(90, 100))) < 200


def test_what_the_reader_must_know() -> None:
    assert study_remarks([STRONG]) == []
    assert study_remarks([replace(STRONG, unit="ranks")]) == []
    assert options(STRONG).unit == "GPUs"
    assert options(replace(STRONG, unit="ranks")).unit == "ranks"
    said = study_remarks([replace(STRONG, unit="ranks"), WEAK])
    assert said[0].startswith("train: the sizes are CPU ranks")
    assert "differ in --warmup" in said[1]


def test_the_command_of_a_study_is_quoted_for_a_shell_and_asks_slurm_for_the_same() -> None:
    request = {"script": "my train.py", "args": ["--b={batch_size}", "a;b"], "launcher": "srun"}
    study = replace(
        WEAK, request=request, unit="ranks", dataset="$(x)", batch_size=8, profile="my p.yaml"
    )
    assert (
        command_of(study).scale(SIZES)
        == "hpcrun scale run -P 'my p.yaml' --ranks 1,4 --dataset '$(x)' --launcher srun --weak "
        "--batch-size 8 "
        "'my train.py' '--b={batch_size}' 'a;b'"
    )
    module = replace(STRONG, request={"script": "pkg.train", "module": True})
    assert command_of(module).scale(SIZES) == "hpcrun scale run -P a100 --gpus 1,4 -m pkg.train"
    typed = {
        "script": "train.py",
        "walltime_s": 7200,
        "partition": "gpu",
        "gpus": {"count": 4},
        "nodes": 2,
        "env": [["A", "1 2"], ["API_TOKEN", "***"]],
    }
    study = replace(STRONG, request=typed, gpu_type="h100")
    command = command_of(study).scale(SIZES, options={"--time": "3h"})
    assert command.startswith("hpcrun scale run -P a100 --gpus h100:1,4 ")
    assert command.count("--time") == 1
    assert all(text in command for text in ("--time 3h", "--partition gpu", "--env 'A=1 2'"))
