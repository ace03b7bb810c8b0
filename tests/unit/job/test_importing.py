"""An sbatch script becomes a command of hpcrun: what each form of a directive, a word and a launch line becomes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcrun.errors import UsageError
from hpcrun.job.importing.convert import ImportedScript, convert_script
from hpcrun.job.importing.directives import parse_array, read_directives
from hpcrun.job.importing.words import shell_text

HEAD = "#!/bin/bash\n#SBATCH --gpus-per-node=4 --cpus-per-task=8\n"


def line(text: str, *arguments: str, head: str = HEAD) -> str:
    """The command of a script."""
    return command(convert_script(head + text, arguments, "job.sbatch"))


def command(script: ImportedScript) -> str:
    """The options and the program, quoted as they are shown."""
    words = [
        word for name, value in script.options for word in ([name] if value is None else [name, shell_text(value)])
    ]
    return " ".join([*words, *(shell_text(word) for word in script.program)])


def why(text: str, *arguments: str, head: str = HEAD) -> list[str]:
    """What is not understood of a script."""
    script = convert_script(head + text, arguments, "job.sbatch")
    return [each.words for each in script.lines if each.verdict == "unknown"]


@pytest.mark.parametrize(
    ("directives", "options"),
    [
        ("#SBATCH -N2 -t 90 -pgpu", "--partition gpu"),
        ("#SBATCH -N 2\t--time=1-00:00:00   # a day", "--time 1-00:00:00"),
        ('#SBATCH --job-name="two words"', "--name two-words"),
        ("#SBATCH --job-name='a' --comment='x y'", "--name a --sbatch 'comment=x y'"),
        ("#SBATCH --partit=gpu", "--partition gpu"),
        ("#SBATCH --mem-per-cpu=4G --hint=nomultithread", "--sbatch mem-per-cpu=4G --sbatch hint=nomultithread"),
        ("#SBATCH --exclusive\n#SBATCH --exclusive=user", "--sbatch exclusive=user"),
        ("#SBATCH --time=UNLIMITED", "--sbatch time=UNLIMITED"),
        ("#SBATCH --signal=SIGUSR1@90", "--warn 90s"),
        ("#SBATCH --requeue", "--requeue 3"),
        ("#SBATCH --export=ALL,A=1,B=2", "--env A=1 --env B=2"),
        ("#SBATCH --mail-type=END\n#SBATCH --mail-type FAIL", "--mail-type END,FAIL"),
        ("#SBATCH -D /data -x node1,node2", "--workdir /data --exclude node1,node2"),
        ("#SBATCH --image=nersc/pytorch:24.08", "--sbatch image=nersc/pytorch:24.08"),
    ],
)
def test_a_directive_becomes_an_option(directives: str, options: str) -> None:
    assert options in line(f"{directives}\npython train.py\n")


@pytest.mark.parametrize(
    ("directives", "sizes"),
    [
        ("-N 2 --ntasks-per-node=4 --gres=gpu:4 -c 8", "--gpus 8 --nodes 2 --launcher srun --cpus-per-task 8"),
        ("-n 4 --gpus-per-task=1", "--gpus 4 --launcher srun --no-sbatch cpus-per-task"),
        ("--gpus=a100:2 --ntasks=2 -c 4", "--gpus a100:2 --launcher srun --cpus-per-task 4"),
        ("--gres=gpu:a100:4(S:0-1) -n 2", "--gpus a100:4 --launcher srun --nproc-per-node 2 --no-sbatch cpus-per-task"),
        ("--gres=gpu -c 6", "--gpus 1 --launcher srun --cpus-per-task 6"),
        ("--gpus-per-node=4 -c 6", "--gpus 4 --launcher python --cpus-per-task 6"),
        ("-n 8", "--gpus 0 --launcher srun --nproc-per-node 8 --no-sbatch cpus-per-task"),
        ("--gpus=4 --cpus-per-gpu=8 -n 4", "--gpus 4 --launcher srun --cpus-per-gpu 8"),
    ],
)
def test_sizes(directives: str, sizes: str) -> None:
    assert line("srun python train.py\n", head=f"#SBATCH {directives}\n") == f"{sizes} train.py"


@pytest.mark.parametrize(
    ("directives", "launch", "options", "problem"),
    [
        # five tasks at four of each node need a second node
        ("-n 5 --ntasks-per-node=4 -c 2", "srun", "--nodes 2", "5 tasks do not divide by 2 nodes"),
        ("-n 5 --ntasks-per-node=4 -c 2", "srun", "--nproc-per-node 2", "5 tasks do not divide by 2 nodes"),
        ("-n 2 -c 4 --gpus=4", "srun -n 4", "--gpus 4 --launcher srun --cpus 8", None),
        ("-n 2 -c 3 --gpus=4", "srun -n 4", "--gpus 4 --launcher srun", "6 CPUs of each node do not divide by 4 ranks"),
    ],
)
def test_tasks_and_cpus_that_do_not_divide(directives: str, launch: str, options: str, problem: str | None) -> None:
    head, text = f"#SBATCH {directives}\n", f"{launch} python train.py\n"
    assert options in line(text, head=head)
    problems = why(text, head=head)
    assert any(problem in words for words in problems) if problem else problems == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python -u train.py --lr 1", "--launcher python --cpus-per-task 8 train.py --lr 1"),
        ("python -m pkg.train", "--launcher python --cpus-per-task 8 --module pkg.train"),
        ("torchrun --nproc_per_node=4 train.py", "--cpus-per-task 8 train.py"),
        ("torchrun --standalone --nproc-per-node gpu -m pkg.train x", "--cpus-per-task 8 --module pkg.train x"),
        (
            "srun python -m torch.distributed.run --nproc_per_node 2 train.py",
            "--nproc-per-node 2 --cpus-per-task 8 train.py",
        ),
        ("torchrun --nproc-per-node 4 --max_restarts=2 t.py", "--cpus-per-task 8 --torchrun max-restarts=2 t.py"),
        ("srun --cpu-bind=cores -l torchrun --nproc-per-node 4 t.py", "--cpus-per-task 8 --srun cpu-bind=cores t.py"),
        ("srun bash -c 'torchrun --nproc_per_node 4 --node_rank $SLURM_PROCID t.py'", "--cpus-per-task 8 t.py"),
        ("accelerate launch --num_processes 4 --multi_gpu t.py", "--cpus-per-task 8 t.py"),
        (
            "accelerate launch --num_processes 4 --mixed_precision bf16 t.py",
            "--launcher command --cpus-per-task 8 --name job accelerate "
            "launch --num_processes 4 --mixed_precision bf16 t.py",
        ),
        ("time python t.py > log.txt 2>&1", "--launcher python --cpus-per-task 8 t.py"),
        ("python t.py 2>&1 | tee log.txt", "--launcher python --cpus-per-task 8 t.py"),
        ("A=1 B='x y' python t.py", "--launcher python --cpus-per-task 8 --env A=1 --env 'B=x y' t.py"),
        ("/opt/env/bin/python t.py", "--launcher python --cpus-per-task 8 --python /opt/env/bin/python t.py"),
        ("CMD='torchrun --nproc-per-node 4 t.py'\n$CMD --x 1", "--cpus-per-task 8 t.py --x 1"),
        ("python $(which torchrun) --nproc-per-node 4 t.py", "--cpus-per-task 8 t.py"),
        ("uv run python t.py", "--launcher python --cpus-per-task 8 --name job uv run python t.py"),
        ("bash run.sh a", "--launcher command --cpus-per-task 8 --name job bash run.sh a"),
    ],
)
def test_a_launch_line(text: str, expected: str) -> None:
    assert line(text) == f"--gpus 4 {expected}"
    assert why(text) == []


def test_torch_s_old_launcher_gives_the_script_its_local_rank() -> None:
    text = "python -m torch.distributed.launch --nproc_per_node 4 t.py -x"
    assert line(text).endswith("""bash -c 'exec python -u t.py "--local-rank=$LOCAL_RANK" -x'""")


def test_several_nodes_of_accelerate_meet_as_hpcrun_s_do() -> None:
    head = "#SBATCH -N 2 --ntasks-per-node=1 --gpus-per-node=4\n"
    text = "srun accelerate launch --num_machines 2 --num_processes 8 --machine_rank $SLURM_NODEID --use_fsdp t.py"
    assert "--num_machines $NNODES --machine_rank $NODE_RANK".replace("$NNODES", '"$NNODES"').replace(
        "$NODE_RANK", '"$NODE_RANK"'
    ) in line(text, head=head)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("module load cuda/12 python\npython t.py", "--load cuda/12 --load python --python python t.py"),
        (
            "module purge\nmodule load a\npython t.py",
            "--setup 'module purge' --setup 'module load a' --python python t.py",
        ),
        ("source venv/bin/activate\npython3 t.py", "--setup 'source venv/bin/activate' --python python3 t.py"),
        ("mkdir -p out\npython t.py", "--setup 'mkdir -p out || :' t.py"),
        ("export A=1\npython t.py", "--env A=1 t.py"),
        ("export D=$HOME/x\npython t.py --d $D", '--env "D=${HOME}/x" t.py --d "${HOME}/x"'),
        ("export P=$(pwd):$P\npython t.py", "--setup 'export P=$(pwd):$P' t.py"),
        ("LR=1e-3\npython t.py --lr=$LR", "t.py --lr=1e-3"),
        ("A=(--x 1 '2 3')\npython t.py \"${A[@]}\"", "t.py --x 1 '2 3'"),
        ("N=$((SLURM_NNODES * 4))\npython t.py $N", "t.py 4"),
        ("cd sub\npython t.py", "--workdir sub t.py"),
        ("cd $SLURM_SUBMIT_DIR\npython t.py", "t.py"),
        ("export MASTER_PORT=$((10000 + RANDOM % 100))\npython t.py", "t.py"),
        ("set -ex\necho hi\nnvidia-smi\npython t.py\nwait\nexit 0", "t.py"),
        ("export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzabcdefgh\npython t.py", "--secret HF_TOKEN t.py"),
        ("if [ -f x ]; then source x; fi\npython t.py", "--setup 'if [ -f x ]; then source x; fi || :' t.py"),
    ],
)
def test_a_line_before_the_launch(text: str, options: str) -> None:
    assert line(text) == f"--gpus 4 --launcher python --cpus-per-task 8 {options}"
    assert why(text) == []


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("python t.py --out out/$SLURM_JOB_ID", """bash -c 'exec python -u t.py --out "out/"${SLURM_JOB_ID}'"""),
        ('python t.py --out "out/$SLURM_JOB_ID"', """bash -c 'exec python -u t.py --out "out/${SLURM_JOB_ID}"'"""),
        (
            "R=$(date +%s)\npython t.py $R",
            "--setup 'export R=$(date +%s)' --name job bash -c 'exec python -u t.py ${R}'",
        ),
        (
            "cd a\ncp x y\ncd b\npython t.py",
            "--setup 'cd a' --setup 'cp x y || :' --setup 'cd b' --name job bash -c 'exec python -u t.py'",
        ),
    ],
)
def test_what_only_the_job_knows_is_left_to_a_shell_in_the_job(text: str, program: str) -> None:
    assert line(text).endswith(program)
    assert why(text) == []


@pytest.mark.parametrize(
    ("text", "sweep"),
    [
        ("python t.py --seed $SLURM_ARRAY_TASK_ID", "--sweep seed=1,2,3,4 t.py --seed '{seed}'"),
        (
            "L=(0.1 0.2)\nS=(a b)\nI=$((SLURM_ARRAY_TASK_ID - 1))\n"
            "python t.py --lr=${L[$((I / 2))]} --set ${S[$((I % 2))]}",
            "--sweep lr=0.1,0.2 --sweep set=a,b t.py '--lr={lr}' --set '{set}'",
        ),
        ("python t.py", "--sweep task=1,2,3,4 --name job env 'SLURM_ARRAY_TASK_ID={task}' python -u t.py"),
        (
            "export SEED=$SLURM_ARRAY_TASK_ID\npython t.py",
            "--sweep seed=1,2,3,4 --name job env 'SEED={seed}' python -u t.py",
        ),
        ("python t.py '{x}' $SLURM_ARRAY_TASK_ID", "--sweep value=1,2,3,4 t.py '{{x}}' '{value}'"),
        (
            "mkdir -p out/$SLURM_ARRAY_TASK_ID\npython t.py $SLURM_ARRAY_TASK_ID",
            "--setup 'mkdir -p out/$((SLURM_ARRAY_TASK_ID + 1)) || :' --sweep value=1,2,3,4 t.py '{value}'",
        ),
    ],
)
def test_an_array_becomes_a_sweep(text: str, sweep: str) -> None:
    head = f"{HEAD}#SBATCH --array=1-4\n"
    assert line(text, head=head) == f"--gpus 4 --launcher python --cpus-per-task 8 {sweep}"


def test_parameters_that_are_no_product_become_a_file() -> None:
    text = (
        f"{HEAD}#SBATCH -a 0-1%1\nA=(1 2)\nB=(x y)\n"
        f"python t.py ${{A[$SLURM_ARRAY_TASK_ID]}} ${{B[$SLURM_ARRAY_TASK_ID]}}"
    )
    script = convert_script(text)
    assert script.sweep_file == "value,value_2\n1,x\n2,y\n"
    assert "--sweep-file sweep.csv --max-parallel 1 t.py" in command(script)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("python a.py\npython b.py", "a second program"),
        ("for i in 1 2; do python t.py $i; done", "starts a training"),
        ("python t.py $1", "$1 is not given"),
        ("python t.py\npython -m pkg.evaluate &\n./report", "runs after the ranks"),
        ("python t.py | grep loss", "through a pipe"),
        ("trap 'kill 1' USR1\npython t.py", "--warn"),
        ("main() { python t.py; }\nmain", "starts a training"),
        ("ls | (", "cannot be read as bash"),
        ("python t.py <<EOF\nx\nEOF", "its input comes from this file"),
        ("if true; then A=(1 2); fi\npython t.py ${A[@]}", "A is an array"),
        ("srun --gres=gpu:1 --multi-prog conf", "srun"),
        ("torchrun --nproc-per-node 8 t.py", "8 ranks of a node share 4 GPUs"),
    ],
)
def test_what_is_not_converted_is_said(text: str, reason: str) -> None:
    assert any(reason in words for words in why(text)), why(text)


@pytest.mark.parametrize(
    ("directive", "reason"),
    [
        ("--gres=gpu:1,nvme:100", "GPUs alone"),
        ("--export=NONE", "whole environment"),
        ("--nodes=2-4", "no single number"),
        ("--cpu-per-task=4", "cpus-per-task"),
        ("--no-kill", "--restarts"),
        ("--array=x", "cannot be read"),
        ("--time=", "no value"),
    ],
)
def test_a_directive_that_is_not_converted_is_said(directive: str, reason: str) -> None:
    assert any(reason in words for words in why("python t.py", head=f"#SBATCH {directive}\n"))


def test_arguments_of_the_script_are_used() -> None:
    assert (
        line('python $1 "${@:2}" ${2:-x}', "t.py", "a b").endswith(""""${@:2}"' a b""")
        or why("python $1", "t.py") == []
    )
    assert line("python $1 --c $2", "t.py", "a b").endswith("t.py --c a b")
    assert line("python t.py ${1:-conf.yaml}").endswith("t.py conf.yaml")


def test_sbatch_reads_no_directive_behind_a_command() -> None:
    options, late = read_directives(
        ["#!/bin/bash", "", "# x", "#SBATCH -N 2", "set -e", "#SBATCH -N 4", "##SBATCH -N 8"]
    )
    assert [(option.name, option.value, option.line) for option in options] == [("nodes", "2", 4)]
    assert late == [6]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("0-3", [0, 1, 2, 3]),
        ("1,5-7", [1, 5, 6, 7]),
        ("0-8:4%2", [0, 4, 8]),
        ("x", None),
        ("0-9:0", None),
        ("0-9999999", None),
    ],
)
def test_an_array(text: str, ids: list[int] | None) -> None:
    found = parse_array(text)
    assert (found and found[0]) == ids


@pytest.mark.parametrize("text", ["#!/bin/bash\n" + "x" * 300_000, "a\0b", "$(" * 3000 + ")" * 3000])
def test_what_is_no_script_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        convert_script(text)


SHELL = st.lists(
    st.sampled_from(
        [
            "srun ",
            "python t.py ",
            "torchrun ",
            "$(",
            ")",
            "`",
            '"',
            "'",
            "\n",
            "\\\n",
            "${A[",
            "]}",
            "$((",
            "))",
            "&&",
            "||",
            ";",
            "|",
            "if ",
            "fi\n",
            "do ",
            "done\n",
            "for i in 1 2; ",
            "A=",
            "(",
            "export ",
            "#SBATCH -a 1-3\n",
            "#SBATCH -N 2\n",
            "<<E\n",
            "E\n",
            "$1",
            "{a}",
            "[",
            "é",
            "\x1b[2J",
            "--x ",
            "1",
        ]
    ),
    max_size=25,
).map("".join)


@settings(deadline=None, max_examples=150)
@given(SHELL)
def test_any_text_is_read_and_every_line_is_accounted_for(text: str) -> None:
    script = convert_script(text, ("one",))
    covered = {number for each in script.lines for number in range(each.first, each.last + 1)}
    lines = re.split("\n", text)
    assert {
        number for number, one in enumerate(lines, start=1) if one.strip() and not one.lstrip().startswith("#")
    } <= covered
