"""The command of a script's step: which programs of hpcrun stand around those of the script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.in_job.launch.batch import launch_words, torchrun_rank
from hpcrun.in_job.launch.batch.launch_words import Launch, plain_words, split_launch, step_words
from tests.unit.in_job.attempts import Attempt

OF_RANK = str(Path(launch_words.__file__).with_name("torchrun_rank.py"))


@pytest.mark.parametrize(
    ("words", "srun", "torchrun", "program"),
    [
        (":: python t.py", "", "", "python t.py"),
        ("srun -N2 :: t.py :: x", "srun -N2", "", "t.py :: x"),
        ("::: torchrun --x :: t.py", "", "torchrun --x", "t.py"),
        ("srun ::: torchrun --x :: t.py ::: y", "srun", "torchrun --x", "t.py ::: y"),
    ],
)
def test_the_marks_divide_a_launch(words: str, srun: str, torchrun: str, program: str) -> None:
    launch = split_launch(words.split())
    assert launch == Launch(srun.split(), torchrun.split(), program.split())
    assert plain_words(words.split()) == f"{srun} {torchrun} {program}".split()


@pytest.mark.parametrize("words", ["srun python t.py", "srun ::", "srun :: --help"])
def test_a_launch_without_a_program_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match=f"^it starts no program: {words}$"):
        split_launch(words.split())


@pytest.mark.parametrize(
    ("words", "local", "expected"),
    [
        pytest.param(
            "srun -N2 :: t.py",
            False,
            "srun --added -N2 W rank --task --as-is -- t.py",
            id="srun",
        ),
        pytest.param("srun -N2 :: t.py", True, "W rank --task --as-is -- t.py", id="srun, local"),
        pytest.param(
            ":: t.py", False, "W node --as-is -- W rank --once --as-is -- t.py", id="alone"
        ),
        pytest.param(
            "srun ::: torchrun --x=1 :: t.py -v",
            False,
            f"srun --added W node --as-is -- torchrun --x=1 {OF_RANK} W -- t.py -v",
            id="torchrun",
        ),
        pytest.param(
            "::: torchrun --x=1 -m :: t",
            False,
            f"W node --as-is -- torchrun --x=1 {OF_RANK} W -m -- t",
            id="module",
        ),
        pytest.param(
            "::: python -m torch.distributed.run --module --x=1 :: t",
            False,
            f"W node --as-is -- python -m torch.distributed.run --x=1 {OF_RANK} W -m -- t",
            id="python -m",
        ),
        pytest.param(
            "::: torchrun --no-python :: ./t",
            False,
            "W node --as-is -- torchrun --no-python W rank --as-is -- ./t",
            id="no Python",
        ),
        pytest.param(
            "::: torchrun --no_python :: ./t",
            False,
            "W node --as-is -- torchrun --no_python W rank --as-is -- ./t",
            id="no Python, as torch has it",
        ),
        pytest.param(
            "srun --container-image=x ::: torchrun :: t.py",
            False,
            "srun --added --container-image=x --output=A/rank-%t.out --error=A/rank-%t.err"
            " torchrun t.py",
            id="container",
        ),
    ],
)
def test_the_step_starts_the_ranks_behind_their_wrappers(
    attempt: Attempt, words: str, local: bool, expected: str
) -> None:
    command = step_words(split_launch(words.split()), ["W"], ["--added"], local=local)
    assert " ".join(command).replace(str(attempt.folder), "A") == expected


@pytest.mark.parametrize(
    "option",
    [
        "-o log",
        "-e log",
        "--output log",
        "--error log",
        "-olog",
        "-elog",
        "--output=x",
        "--error=x",
    ],
)
def test_the_ranks_output_goes_into_their_own_logs(attempt: Attempt, option: str) -> None:
    words = ["srun", "-N2", *option.split(), "--mem=1", "::", "t.py"]
    command = step_words(split_launch(words), ["W"], [], local=False)
    assert command[:3] == ["srun", "-N2", "--mem=1"]
    assert command[3] == "W"


SHOW = "import sys; print(sys.argv[1:])"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--", "t.py", "a"], ["-u", "t.py", "a"]),
        (["-m", "--", "t", "a"], ["-u", "-m", "t", "a"]),
        (["--local-rank=1", "-m", "--", "t", "a"], ["-u", "-m", "t", "--local-rank=1", "a"]),
    ],
)
def test_the_wrapper_of_a_rank_runs_torchrun_s_python(
    tmp_path: Path, words: list[str], expected: list[str]
) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    wrapper.chmod(0o755)
    argv = [sys.executable, "-S", torchrun_rank.__file__, str(wrapper), "launch", *words]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    before = ["launch", "rank", "--as-is", "--", sys.executable]
    assert done.stdout.split() == [*before, *expected]


def test_without_the_wrapper_the_program_runs_alone(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(SHOW)
    argv = [sys.executable, "-S", torchrun_rank.__file__, "/no-such-program", "rank"]
    done = subprocess.run(
        [*argv, "--", str(tmp_path / "t.py"), "a"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == "['a']\n"
