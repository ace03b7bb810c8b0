"""hpcrun import: a script is read and never run, and the page's commands show what the page
says.
"""

from __future__ import annotations

import shlex

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


def test_a_script_that_calls_sbatch_in_a_loop_is_shown_with_hpcrun_in_its_place(
    hpcrun: Hpcrun,
) -> None:
    hpcrun.write("job.sbatch", WHOLE.replace("--lr 1", '"$@"'))
    hpcrun.write("launch.sh", "for lr in 1 2; do sbatch job.sbatch --lr $lr; done\n")
    shown = hpcrun("import", "launch.sh", check=True).stdout
    assert "line 1:\n  hpcrun submit job.sbatch --lr $lr\n" in shown
    (call,) = hpcrun.document("import", "launch.sh")["sbatch_calls"]
    assert call["sweep"] in shown
    words = shlex.split(call["sweep"])[1:]
    plan = hpcrun(*words[:1], "-P", "a100", "--dry-run", *words[1:], check=True)
    assert "sweep      2 elements (lr 2 values)" in plan.stderr
    assert "command    job.sbatch --lr 1\n" in plan.stderr
    hpcrun.write("launch.sh", "sbatch $OPTIONS job.sbatch\n")
    unread = hpcrun("import", "launch.sh")
    assert unread.returncode == 4
    assert "not taken over: $OPTIONS may hold options of sbatch" in unread.stdout


def test_a_directive_that_sbatch_cannot_get_is_refused(hpcrun: Hpcrun) -> None:
    hpcrun.write("old.sbatch", WHOLE.replace("\n", "\n#SBATCH hetjob\n", 1))
    shown = hpcrun("import", "old.sbatch")
    assert (shown.returncode, "hpcrun submit" in shown.stdout) == (4, False)
    assert "a heterogeneous job" in shown.stdout
    assert "a heterogeneous job" in hpcrun("submit", "-P", "a100", "old.sbatch").stderr


def test_a_secret_is_written_nowhere(hpcrun: Hpcrun) -> None:
    hpcrun.write("old.sbatch", f"{WHOLE}export WANDB_API_KEY={SECRET}\n# \x1b[2J é\n")
    hpcrun.write("launch.sh", f"WANDB_API_KEY={SECRET} sbatch --export=ALL,TOKEN={SECRET} a.sh")
    dry_run = ("submit", "-P", "a100", "--dry-run", "old.sbatch")
    for command in (("import", "old.sbatch"), ("import", "launch.sh"), dry_run):
        done = hpcrun(*command)
        assert SECRET not in done.stdout + done.stderr
        assert "\x1b" not in done.stdout


def test_bad_input_is_one_clear_message(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    hpcrun.write("old.sbatch", WHOLE)
    hpcrun.write("array.sbatch", WHOLE.replace("-N 2", "-N 2 -a 1-3"))
    hpcrun.write("dos.sbatch", WHOLE.replace("\n", "\r\n"))
    hpcrun.write("bare.sbatch", WHOLE.partition("\n")[2])
    hpcrun.write("alone.sbatch", WHOLE.replace("srun ", ""))
    for line, says in (
        ("import none.sbatch", "cannot read"),
        ("import .", "is not a regular file"),
        ("submit -P a100 --gpus 3 old.sbatch", "3 GPUs cannot be split over 2 nodes"),
        (
            "submit -P a100 --launcher torchrun --torchrun max-restarts=1 old.sbatch",
            "--launcher and --torchrun have no effect",
        ),
        ("submit -P a100 --srun ntasks=4 old.sbatch", "this is for the launch in old.sbatch"),
        ("submit -P a100 --srun mpi=pmi2 alone.sbatch", "whose launch has no srun"),
        ("submit -P a100 --gpus 8 --nodes 2-4 old.sbatch", "how many GPUs a node has"),
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
        "#SBATCH --job-name=old.sbatch",
        "#SBATCH --open-mode=append",
        "#SBATCH --nodes=4",
        "#SBATCH --ntasks-per-node=4",
        "#SBATCH --gpus-per-node=a100:2",
        "#SBATCH --partition=debug",
        "#SBATCH --time=00:10:00",
        "#SBATCH --comment=x",
    }


def test_export_is_as_the_script_has_it_but_for_the_run_and_its_secrets(hpcrun: Hpcrun) -> None:
    export = "#!/bin/bash\n#SBATCH --export="
    for value, directive, restored in (
        ("ALL,A=1", "ALL,A=1", ""),
        ("NONE", "HPCRUN_RUN_DIR,TOKEN", "NONE"),
        ("B,A=1", "B,A=1,HPCRUN_RUN_DIR,TOKEN", "B,A=1"),
    ):
        hpcrun.write("old.sbatch", WHOLE.replace("#!/bin/bash\n", f"{export}{value}\n", 1))
        options = ("submit", "-P", "a100", "--dry-run", "--secret", "TOKEN", "old.sbatch")
        lines = hpcrun(*options, check=True).stdout.splitlines()
        assert f"#SBATCH --export={directive}" in lines
        assert (f"export SLURM_EXPORT_ENV={restored}" in lines) == bool(restored)
    plain = ("submit", "-P", "a100", "--dry-run", "old.sbatch")
    done = hpcrun(*plain, env={"SBATCH_EXPORT": "NONE"}, check=True)
    assert "#SBATCH --export=HPCRUN_RUN_DIR\n" in done.stdout
    assert "from your shell: SBATCH_EXPORT=NONE" in done.stderr


def test_a_program_in_python_is_a_batch_script_only_by_its_head(hpcrun: Hpcrun) -> None:
    head = '#!/usr/bin/env python3\n# fits\n\n#SBATCH -J fit --time=5\nAPI_KEY="%s"\n'
    hpcrun.write("fit.py", head % SECRET)
    hpcrun.write("doc.py", f'#!/usr/bin/env python3\n"""\n{WHOLE}"""\n')
    options = ("submit", "-P", "a100", "--gpus", "1", "--dry-run")
    done = hpcrun(*options, "fit.py", check=True)
    assert "#SBATCH --job-name=fit\n" in done.stdout
    assert f'|API_KEY="{SECRET}"' in done.stdout  # the secret stays, since this is no shell
    assert "the script holds" in done.stderr
    assert "train.py" not in hpcrun(*options, "doc.py", check=True).stdout


def test_only_a_restart_lets_a_failed_task_end_the_others(hpcrun: Hpcrun) -> None:
    hpcrun.write("old.sbatch", WHOLE)
    note = "srun gets --kill-on-bad-exit=1: a failed task ends the others"
    options = ("submit", "-P", "a100", "--dry-run")
    assert note not in hpcrun(*options, "--requeue", "1", "old.sbatch", check=True).stderr
    assert note in hpcrun(*options, "--restarts", "1", "old.sbatch", check=True).stderr
