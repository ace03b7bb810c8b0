"""The real program: launchers behind it, and options on the wrong side of SCRIPT."""

from __future__ import annotations

import json
import os

import pytest

from tests.harness import Hpcrun

SUBMIT = ("submit", "-P", "local", "--gpus", "2")
COUNT = "from pathlib import Path\nimport os\nPath(f'started-{os.getpid()}').touch()\n"


def started(hpcrun: Hpcrun) -> int:
    """How often the training was started."""
    return len(list(hpcrun.folder.glob("started-*")))


def runs(hpcrun: Hpcrun) -> list[str]:
    return [path.name for path in hpcrun.runs.iterdir() if path.name[0].isdigit()]


@pytest.fixture(autouse=True)
def _script(hpcrun: Hpcrun) -> None:
    hpcrun.write("train.py", COUNT)


def test_what_torchrun_was_to_start_is_run(hpcrun: Hpcrun) -> None:
    done = hpcrun(
        *SUBMIT, "--wait", "torchrun", "--nproc-per-node", "2", "train.py", "--lr", "1", check=True
    )
    assert (
        "hpcrun starts them: hpcrun submit -P local --gpus 2 --wait train.py --lr 1\n"
        in done.stdout
    )
    assert started(hpcrun) == 2


def test_a_script_with_torchrun_trains_once(hpcrun: Hpcrun) -> None:
    hpcrun.program("multi.sh", "#!/bin/bash\ntorchrun --nproc-per-node $NPROC_PER_NODE train.py\n")
    done = hpcrun(*SUBMIT, "--wait", "./multi.sh", check=True)
    assert "no GPU, the command once per node\n" in done.stdout
    assert "note     " in done.stdout
    assert "`torchrun` in ./multi.sh, line 2, starts its own ranks" in done.stdout
    assert started(hpcrun) == 2
    # what is no text is not read
    os.mkfifo(hpcrun.folder / "pipe.sh")
    hpcrun.program("a.out", "#!\0torchrun\n")
    for command in (("bash", "pipe.sh"), ("./a.out",)):
        assert (
            "by torchrun" in hpcrun(*SUBMIT, "--dry-run", *command, timeout=60, check=True).stderr
        )


def test_an_option_behind_the_script_that_only_hpcrun_has_is_refused(hpcrun: Hpcrun) -> None:
    for command, options in (("submit", ()), ("scale run", ("--gpus", "1,2"))):
        done = hpcrun(
            *command.split(),
            "-P",
            "local",
            *options,
            "train.py",
            "--gpus",
            "1",
            "--dry-run",
            "--lr",
            "1",
        )
        assert done.returncode == 2
        refused = (
            "--gpus, --dry-run after train.py would go to the script, but its text has no "
            '"--gpus", "--dry-run"'
        )
        assert refused in done.stderr
        as_meant = f"hpcrun {command} -P local --gpus 1 --dry-run train.py --lr 1"
        given = " ".join((command, "-P", "local", *options))
        assert (
            f"hint: {as_meant}; for the script: hpcrun {given} -- train.py --gpus 1" in done.stderr
        )
    for words in (("submit", "bash", "-c", "true"), ("submit", "-m", "train")):
        done = hpcrun(words[0], "-P", "local", *words[1:], "--nodes=2")
        assert done.returncode == 2
        assert "--nodes after " in done.stderr
    assert not runs(hpcrun)


def test_an_option_that_the_script_defines_is_the_script_s(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    (hpcrun.folder / "train.py").write_text(
        'import argparse\nparser.add_argument("--nodes", type=int)\n'
    )
    args = ("submit", "-P", "local", "--gpus", "0", "--dry-run")
    for words in (("train.py",), ("python", "train.py"), ("-m", "train")):
        with subtests.test(words=words):
            done = hpcrun(*args, *words, "--nodes", "2", check=True)
            assert (
                f"note       --nodes after {words[-1] if '-m' in words else words[0]} went to the "
                "script" in done.stderr
            )
            refused = hpcrun(*args, *words, "--nodes", "2", "--gpus", "1")
            assert "--gpus after " in refused.stderr
            assert "--nodes after" not in refused.stderr


def test_a_study_of_a_launcher_is_refused(hpcrun: Hpcrun) -> None:
    done = hpcrun(
        "scale",
        "run",
        "-P",
        "local",
        "--ranks",
        "1,2",
        "torchrun",
        "--nproc-per-node",
        "2",
        "train.py",
    )
    assert done.returncode == 2
    assert "hint: hpcrun scale run -P local --ranks 1,2 train.py\n" in done.stderr
    assert not runs(hpcrun)


def test_two_dashes_before_the_script_pass_dry_run_on(hpcrun: Hpcrun) -> None:
    done = hpcrun(
        "submit",
        "-P",
        "local",
        "--gpus",
        "0",
        "--wait",
        "--json",
        "--",
        "train.py",
        "--dry-run",
        check=True,
    )
    document = json.loads(done.stdout)
    assert document["plan"]["command"][-2:] == ["train.py", "--dry-run"]
    assert document["plan"]["notes"] == []
    assert started(hpcrun) == 1


def test_the_plan_has_the_command_and_names_options_that_went_to_the_script(hpcrun: Hpcrun) -> None:
    (hpcrun.folder / "train.py").write_text("def main(nodes: int = 1, /): ...\n")
    args = ("submit", "-P", "local", "--gpus", "0", "--dry-run")
    done = hpcrun(*args, "train.py", "--nodes", "2", "it's", check=True)
    assert f"command    {hpcrun.python_word} -u train.py --nodes 2 'it'\\''s'\n" in done.stderr
    line = "hpcrun submit -P local --gpus 0 --dry-run --nodes 2 train.py 'it'\\''s'"
    assert (
        f"note       --nodes after train.py went to the script; for hpcrun, write: {line}\n"
        in done.stderr
    )
    assert (
        "-u train.py --lr 0.1\n"
        in hpcrun(*args, "--sweep", "lr=0.1,0.2", "train.py", check=True).stderr
    )
    document = json.loads(
        hpcrun(*args, "--json", "train.py", "--nodes", "2", "it's", check=True).stdout
    )
    assert document["plan"]["command"] == [
        f"{hpcrun.venv}/bin/python",
        "-u",
        "train.py",
        "--nodes",
        "2",
        "it's",
    ]
    assert (
        document["plan"]["command_line"] == f"{hpcrun.python_word} -u train.py --nodes 2 'it'\\''s'"
    )
