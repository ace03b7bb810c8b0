"""hpcrun import: a script is read and never run, and the page's commands show what the page
says.
"""

from __future__ import annotations

import pytest

from tests.docs.page import File, steps
from tests.docs.test_guides import type_command
from tests.harness import REPO, Hpcrun

WHOLE = (
    "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=4 --gres=gpu:4 -p gpu -t 2:00:00\nsrun "
    "python "
    "train.py --lr 1\n"
)
SECRET = "0123456789abcdef0123456789abcdef01234567"


def test_the_page(hpcrun: Hpcrun) -> None:
    for step in steps((REPO / "docs/import.md").read_text()):
        if isinstance(step, File):
            (hpcrun.folder / step.name).write_text(step.text)
        else:
            type_command(hpcrun, step, 0, may_fail=False)


def test_nothing_of_a_script_is_run(hpcrun: Hpcrun) -> None:
    lines = [
        "touch a",
        "x=$(touch b)",
        "export Y=`touch c`",
        "source d",
        "python $(touch e) t.py",
        "[[ -n $(touch f) ]]",
    ]
    hpcrun.write("d", "touch d2\n")
    hpcrun.write("old.sbatch", "#!/bin/bash\n#SBATCH --gpus=1\n" + "\n".join(lines) + "\n")
    hpcrun("import", "old.sbatch", check=True)
    hpcrun("submit", "-P", "a100", "--dry-run", "old.sbatch", check=True)
    assert sorted(path.name for path in hpcrun.folder.iterdir() if len(path.name) < 3) == ["d"]


def test_a_launch_that_is_not_taken_over_is_said(hpcrun: Hpcrun) -> None:
    hpcrun.write("old.sbatch", f"{WHOLE}for x in 1 2; do srun python train.py $x; done\n")
    done = hpcrun("import", "old.sbatch")
    assert done.returncode == 4
    assert "line 4: it is in a loop, and would be started several times" in done.stdout
    assert "complete:" not in done.stdout
    document = hpcrun.document("import", "old.sbatch")
    assert document["complete"] is False
    assert document["changed"] == []
    assert document["error"]["exit_code"] == 4
    plan = hpcrun("submit", "-P", "a100", "--dry-run", "old.sbatch", check=True)
    assert "no logs per rank: hpcrun does not take over the launch: line 4" in plan.stderr
    assert "HPCRUN_LAUNCH" not in plan.stdout


def test_a_directive_that_sbatch_cannot_get_is_refused(hpcrun: Hpcrun) -> None:
    hpcrun.write("old.sbatch", WHOLE.replace("\n", "\n#SBATCH hetjob\n", 1))
    shown = hpcrun("import", "old.sbatch")
    assert (shown.returncode, "hpcrun submit" in shown.stdout) == (4, False)
    assert "a heterogeneous job" in shown.stdout
    assert "a heterogeneous job" in hpcrun("submit", "-P", "a100", "old.sbatch").stderr


def test_a_secret_is_written_nowhere(hpcrun: Hpcrun) -> None:
    hpcrun.write("old.sbatch", f"{WHOLE}export WANDB_API_KEY={SECRET}\n# \x1b[2J é\n")
    for command in (("import", "old.sbatch"), ("submit", "-P", "a100", "--dry-run", "old.sbatch")):
        done = hpcrun(*command)
        assert SECRET not in done.stdout + done.stderr
        assert "\x1b" not in done.stdout


def test_bad_input_is_one_clear_message(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    hpcrun.write("old.sbatch", WHOLE)
    hpcrun.write("array.sbatch", WHOLE.replace("-N 2", "-N 2 -a 1-3"))
    hpcrun.write("dos.sbatch", WHOLE.replace("\n", "\r\n"))
    hpcrun.write("bare.sbatch", WHOLE.partition("\n")[2])
    for line, says in (
        ("import none.sbatch", "cannot read"),
        ("import .", "is not a regular file"),
        ("submit -P a100 --gpus 3 old.sbatch", "3 GPUs cannot be split over 2 nodes"),
        (
            "submit -P a100 --launcher torchrun --srun label old.sbatch",
            "--launcher and --srun have no effect",
        ),
        ("submit -P a100 --container x.sif old.sbatch", "start the container in its launch"),
        ("scale run -P a100 --gpus 1,2 old.sbatch", "scale cannot change the ranks of old.sbatch"),
        ("submit -P a100 --sweep x=1,2 array.sbatch", "cannot be combined with --sweep"),
        ("submit -P a100 dos.sbatch", "CR line ends"),
        ("submit -P a100 bare.sbatch", "does not begin with #!"),
        ("submit -P local old.sbatch", "without srun and other nodes"),
        (
            "submit -P a100 --restarts 1 --spares 1 old.sbatch",
            "--spares has no effect on old.sbatch",
        ),
    ):
        with subtests.test(line=line):
            done = hpcrun(*line.split())
            assert (done.returncode in (2, 3, 4), says in done.stderr) == (True, True), (
                line,
                done.stderr,
            )
            assert "Traceback" not in done.stderr


@pytest.mark.parametrize("gpus", [("--gpus-per-node", "2"), ("--gpus", "a100:8")])
def test_options_override_the_script_s_lines_as_those_of_sbatch_do(
    hpcrun: Hpcrun, gpus: tuple[str, str]
) -> None:
    hpcrun.write("old.sbatch", WHOLE.replace("gpu:4", "gpu:a100:4,tmp:10"))
    options = (
        "--nodes",
        "4",
        *gpus,
        "-t",
        "10m",
        "-p",
        "debug",
        "--sbatch",
        "comment=x",
        "--cpus-per-gpu",
        "3",
    )
    shown = hpcrun(
        "submit", "-P", "a100", "--dry-run", *options, "--segment", "2", "old.sbatch", check=True
    )
    assert "4 ranks of a node share 2 GPUs: the script decides the number of ranks" in shown.stderr
    assert {line for line in shown.stdout.splitlines() if line.startswith("#SBATCH")} == {
        "#SBATCH --cpus-per-gpu=3",
        "#SBATCH --gres=tmp:10",
        "#SBATCH --segment=2",
        "#SBATCH --job-name=old",
        "#SBATCH --open-mode=append",
        "#SBATCH --nodes=4",
        "#SBATCH --ntasks-per-node=4",
        "#SBATCH --gpus-per-node=a100:2",
        "#SBATCH --partition=debug",
        "#SBATCH --time=00:10:00",
        "#SBATCH --comment=x",
    }
