"""What takes the place of the calls of sbatch in a script that starts jobs."""

from __future__ import annotations

import pytest

from hpcrun.errors import UsageError
from hpcrun.job.batch.launcher_script import read_launcher


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("sbatch job.sh a 'b c'", "hpcrun submit job.sh a 'b c'"),
        ('sbatch -N 1 "$script" $n', 'hpcrun submit --nodes 1 "$script" $n'),
        ("/opt/slurm/bin/sbatch job.sh", "hpcrun submit job.sh"),
        ("LR=3 sbatch job.sh", "LR=3 hpcrun submit job.sh"),
        (
            "sbatch -p gpu -t30 --mem=4G job.sh",
            "hpcrun submit --partition gpu --time 30 --mem 4G job.sh",
        ),
        ('sbatch -J "x $i" -o log job.sh', 'hpcrun submit --name "x $i" job.sh'),
        ("sbatch --gres=gpu:a100:2 job.sh", "hpcrun submit --gpus-per-node a100:2 job.sh"),
        ("sbatch --nice=5 -H job.sh", "hpcrun submit --sbatch nice=5 --sbatch hold job.sh"),
        (
            'sbatch --export=ALL,A=$i,B="x,y" job.sh',
            'hpcrun submit --env A=$i --env B="x,y" job.sh',
        ),
        ('sbatch "--export=ALL,A=$i" job.sh', 'hpcrun submit --env "A=$i" job.sh'),
        ("sbatch -d afterok:$a:${b} job.sh", "hpcrun submit --after $a --after ${b} job.sh"),
        ("sbatch --dependency afterany:$a job.sh", "hpcrun submit --after $a:any job.sh"),
        ("sbatch -d singleton job.sh", "hpcrun submit --sbatch dependency=singleton job.sh"),
        ("sbatch -a 0-9%2 job.sh", "hpcrun submit --array 0-9%2 job.sh"),
        ('sbatch --wrap="python t.py"', 'hpcrun submit --wrap "python t.py"'),
        ("sbatch <<EOF\n#SBATCH -N 1\nEOF", "hpcrun submit - <<EOF"),
        ("cat job.sh | sbatch", "hpcrun submit -"),
        ("id=$(sbatch --parsable job.sh)", "hpcrun submit --parsable job.sh"),
    ],
)
def test_a_call(line: str, command: str) -> None:
    (call,) = read_launcher(f"#!/bin/bash\n{line}\n")
    assert call.command == command
    assert call.problems == ()


def test_an_id_that_is_cut_out_of_the_line_of_sbatch_needs_no_cutting() -> None:
    (call,) = read_launcher("id=$(sbatch job.sh | awk '{print $4}')\n")
    assert call.command == "hpcrun submit --parsable job.sh"
    assert "leave out | awk '{print $4}'" in call.remarks[0]


def test_a_redirection_before_the_cut_is_left_out_with_it() -> None:
    (call,) = read_launcher("id=$(sbatch job.sh 2>&1 | awk '{print $4}')\n")
    assert "leave out 2>&1 | awk '{print $4}'" in call.remarks[0]


CHAIN = """dep=""
for seed in 1 2 3; do
  id=$(sbatch --parsable $dep --job-name=seed$seed s4.sbatch --seed $seed)
  dep="--dependency=afterok:$id"
done
"""


def test_a_variable_that_holds_options_is_to_be_set_to_those_of_hpcrun() -> None:
    (call,) = read_launcher(CHAIN)
    assert call.command == ("hpcrun submit --parsable $dep --name seed$seed s4.sbatch --seed $seed")
    assert call.problems == (
        '$dep holds options of sbatch that hpcrun does not know: write dep="--after $id" on line 4',
    )
    (call,) = read_launcher("O='-N 2 -o x.log'\nO+=\" -p $p\"\nsbatch ${O} job.sh\n")
    assert call.command == "hpcrun submit ${O} job.sh"
    assert call.problems == (
        "${O} holds options of sbatch that hpcrun does not know: "
        "write O='--nodes 2' on line 1, O+=\"--partition $p\" on line 2",
    )


@pytest.mark.parametrize(
    ("script", "command"),
    [
        (
            "sbatch ${prev:+--dependency=afterok:$prev} -J a job.sh",
            "hpcrun submit ${prev:+--after $prev} --name a job.sh",
        ),
        ("no=\nsbatch $no -J a job.sh", "hpcrun submit $no --name a job.sh"),
        ("t='--time 5'\nsbatch $t -J a job.sh", "hpcrun submit $t --name a job.sh"),
    ],
)
def test_a_variable_with_options_that_hpcrun_takes_stays(script: str, command: str) -> None:
    (call,) = read_launcher(f"{script}\n")
    assert (call.command, call.problems) == (command, ())


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("sbatch $OPTS --job-name=a job.sh --lr 1", "hpcrun submit $OPTS --name a job.sh --lr 1"),
        ('sbatch "$@" -J a --nosuch=1 job.sh', 'hpcrun submit "$@" --name a job.sh'),
        ("sbatch ${p:+-x $(cat a)} -t 5 job.sh", "hpcrun submit ${p:+-x $(cat a)} --time 5 job.sh"),
        ("O=$1\nsbatch $O -t 5 job.sh", "hpcrun submit $O --time 5 job.sh"),
        ("O=a.sh\nO=b.sh\nsbatch $O -t 5", "hpcrun submit $O -t 5"),
        ("sbatch $script --lr 1 x", "hpcrun submit $script --lr 1 x"),
    ],
)
def test_options_behind_a_word_that_cannot_be_read_are_read(script: str, command: str) -> None:
    (call,) = read_launcher(f"{script}\n")
    assert call.command == command
    assert "may hold options of sbatch, or the script" in call.problems[0]


@pytest.mark.parametrize(
    ("script", "sweep"),
    [
        (
            "for lr in 1 2; do sbatch -J r-$lr -t 5 job.sh --lr $lr; done",
            "hpcrun submit --sweep lr=1,2 --time 5 job.sh --lr '{lr}'",
        ),
        (
            'all=(a b)\nfor m in "${all[@]}"; do for s in {0..1}; do\necho $m\n'
            'sbatch job.sh "${m}" out/$s\ndone; done',
            "hpcrun submit --sweep m=a,b --sweep s=0,1 job.sh '{m}' 'out/{s}'",
        ),
        (
            "for s in $(seq 1 3); do sbatch job.sh $s; sleep 1; done",
            "hpcrun submit --sweep s=1,2,3 job.sh '{s}'",
        ),
        ("for f in *.yaml; do sbatch job.sh $f; done", None),
        ("for a in $(cat list); do sbatch job.sh $a; done", None),
        ("for a in 1 2; do sbatch job.sh; done", None),
        ("for a in 1 2; do sbatch job.sh $a; sbatch job.sh $a; done", None),
        ("for a in 1 2; do python prepare.py $a; sbatch job.sh $a; done", None),
        ("for a in 1 2; do b=$((a + 1)); sbatch job.sh $a $b; done", None),
        ("for a in 1 2; do [ -e $a ] || sbatch job.sh $a; done", None),
        ("for a in 1 2; do sbatch --export=ALL,A=$a job.sh; done", None),
        ("for a in 1,5 2; do sbatch job.sh $a; done", None),
        ("for a in 1 2; do sbatch job.sh $a $HOME; done", None),
        ("for a in 1 1; do sbatch job.sh $a; done", None),
        ("for a in 1 2; do id=$(sbatch -d afterok:$id job.sh $a); done", None),
        ("while read a; do sbatch job.sh $a; done <list", None),
    ],
)
def test_a_loop_is_a_sweep_only_if_all_its_values_are_known(script: str, sweep: str | None) -> None:
    assert read_launcher(f"{script}\n")[-1].sweep == sweep


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("sbatch $OPTIONS job.sh", "$OPTIONS may hold options"),
        ("sbatch --nosuch=1 job.sh", "--nosuch: hpcrun does not know"),
        ("sbatch --gres=gpu:$n job.sh", "--gres: use --gpus N"),
        ("sbatch --export=ALL,A=$(date) job.sh", "write --env NAME=VALUE"),
        ("sbatch --requeue job.sh", "--requeue: use --requeue N"),
        ("ssh login sbatch job.sh", "hpcrun does not read this way"),
        ('run="sbatch -N 1"\n$run job.sh', "hpcrun does not read this way"),
    ],
)
def test_what_is_not_taken_over_is_said(line: str, problem: str) -> None:
    (call,) = read_launcher(f"{line}\n")
    assert problem in call.problems[0]


@pytest.mark.parametrize(
    "script", ["#!/bin/sh\n#SBATCH -N 1\nsbatch next.sh\n", "python t.py\n", "command -v sbatch\n"]
)
def test_a_script_for_sbatch_or_without_calls_is_no_launcher(script: str) -> None:
    assert read_launcher(script) == []


def test_a_script_that_is_not_understood_is_refused() -> None:
    with pytest.raises(UsageError, match="line 1 is not understood"):
        read_launcher("for in; sbatch (\n")
