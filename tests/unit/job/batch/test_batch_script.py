"""Batch scripts: their commands, directives and launch lines with variables, and what is not taken
over.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpcrun.errors import UsageError
from hpcrun.job.batch.batch_script import BatchScript, changed_lines, read_batch_script
from hpcrun.job.launch_options import takes_value
from hpcrun.job.text.shell_text import read_commands


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("echo a # srun b", ["echo a"]),
        ("echo a#b srun", ["echo a#b srun"]),
        ("echo 'x\nsrun a' \"srun b $(srun c)\"", ["echo x\nsrun a srun b $"]),
        ("cat <<EOF\nsrun a\nEOF\nsrun b", ["cat", "srun b"]),
        ("cat <<-'EOF' | sh\n\tsrun a\n\tEOF\nb", ["cat", "sh", "b"]),
        ("a && b || c; d | e & f", ["a", "b", "c", "d", "e", "f"]),
        ("torchrun \\\n  --nproc-per-node 2 \\\n  a.py", ["torchrun --nproc-per-node 2 a.py"]),
        ("if a; then b; else c; fi", ["a", "b", "c"]),
        ("for x in srun sbatch; do $x a; done", ["$x a"]),
        ("case $1 in\n srun) a ;;\n sbatch) b ;;\nesac", ["a", "b"]),
        ("srun() { a; }", ["a"]),
        ("A=1 B='x y' srun a", ["srun a"]),
        ("ip=$(srun hostname) && b", ["srun hostname", "b"]),
        ("echo `srun hostname` c", ["echo `srun hostname` c", "srun hostname"]),
        ("(a; b) && c", ["a", "b", "c"]),
        ("L='accelerate launch --x'\n$L a.py", ["accelerate launch --x a.py"]),
        ('L=(torchrun --x\n --y)\n"${L[@]}" a.py', ["torchrun --x --y a.py"]),
        ("echo $((1 + 2)) ${a#srun} b", ["echo $ $ b"]),
        ('echo "an open quote\nsrun a', ["echo"]),
    ],
)
def test_the_commands_of_a_script(text: str, commands: list[str]) -> None:
    assert [" ".join(command.words) for command in read_commands(text)] == commands


def test_each_command_has_its_line() -> None:
    commands = read_commands("#!/bin/bash\n\ncat <<E\nx\nE\na \\\n b\nc; d\n")
    assert [(command.line, command.words[0]) for command in commands] == [
        (3, "cat"),
        (6, "a"),
        (8, "c"),
        (8, "d"),
    ]


@example("a=;$a")
@given(st.text(alphabet="ab '\"\\\n\t;&|()<>`$#{}=!*x", max_size=80))
def test_any_text_has_commands_of_words(text: str) -> None:
    assert all(
        command.words and command.line <= text.count("\n") + 1 for command in read_commands(text)
    )


@pytest.mark.parametrize("piece", ["'", '"', "$(", "`", "(", "<<a\n", "\\", "#", "${", "'\"", "a "])
def test_a_long_script_takes_no_time(piece: str) -> None:
    """A regular expression that tries again at each character would need a minute for 32 KiB."""
    start = time.process_time()
    read_commands(piece * (32768 // len(piece)))
    assert time.process_time() - start < 10


HEAD = "#!/bin/bash\n#SBATCH -N 2 --gres=gpu:a100:4\n"


def read(body: str, *arguments: str, head: str = HEAD) -> BatchScript:
    return read_batch_script("x.sbatch", f"{head}{body}\n", arguments)


def test_a_script_that_reads_the_log_of_sbatch_is_told_that_there_is_none() -> None:
    for name in ("slurm-$SLURM_JOB_ID.out", "slurm-${SLURM_ARRAY_JOB_ID}_1.out"):
        (remark,) = [
            each for each in read(f"python3 t.py\ncp {name} kept/").remarks if "out" in each
        ]
        assert remark.startswith("line 4: there is no slurm-%j.out: hpcrun logs --batch prints")
    assert not any("slurm-" in each for each in read("# slurm-$SLURM_JOB_ID.out").remarks)


def launches(body: str, *arguments: str) -> list[str]:
    """The changed lines, without the name of hpcrun_launch."""
    script = read(body, *arguments)
    assert script.is_complete, (script.missing, script.options.problems)
    return [line.replace('"$HPCRUN_LAUNCH"', "L") for _, line in changed_lines(script)]


@pytest.mark.parametrize(
    ("body", "marked"),
    [
        (
            "srun -N2 -n 8 --mpi=pmix python train.py",
            "L srun -N2 -n 8 --mpi=pmix :: python train.py",
        ),
        ("srun -lu -K1 ./a.out x", "L srun -lu -K1 :: ./a.out x"),
        (
            "torchrun --nproc_per_node=4 -m a.b --x",
            "L ::: torchrun --nproc_per_node=4 -m :: a.b --x",
        ),
        (
            "python -m torch.distributed.run --nnodes 2 t.py",
            "L ::: python -m torch.distributed.run --nnodes 2 :: t.py",
        ),
        (
            "A=1 timeout 1h srun --x11 torchrun t.py -m 3",
            "A=1 timeout 1h L srun --x11 ::: torchrun :: t.py -m 3",
        ),
        ("exec python -u train.py", "exec L :: python -u train.py"),
        ("uv run python train.py", "uv run L :: python train.py"),
        ("A=1 uv run --with x train.py", "A=1 L :: uv run --with x train.py"),
        ("numactl -N 0 torchrun t.py", "L :: numactl -N 0 torchrun t.py"),
        (
            "srun singularity exec --nv i.sif python t.py",
            "L srun :: singularity exec --nv i.sif python t.py",
        ),
        (
            "srun --new-option=3 torchrun --new=x t.py",
            "L srun --new-option=3 ::: torchrun --new=x :: t.py",
        ),
        ('A="--nnodes 2 --nproc-per-node"\ntorchrun $A 4 "$1"', 'L ::: torchrun $A 4 :: "$1"'),
        ("A=(--tee 3); A+=(--role x)\ntorchrun ${A[@]} t.py", "L ::: torchrun ${A[@]} :: t.py"),
        ('if x; then O=-l; else O="-u -v"; fi\nsrun $O python t.py', "L srun $O :: python t.py"),
        ('C="python t.py"; C="$C --lr 1"\nsrun bash -c "$C"', 'L srun :: bash -c "$C"'),
        ("L=torchrun\nsrun $L --nnodes 2 t.py", "L srun ::: $L --nnodes 2 :: t.py"),
        ('L="torchrun --nnodes 2 t.py"\nsrun $L --x', "L srun :: $L --x"),
        (
            "python prepare_data.py\nsrun python train.py\npython eval.py",
            "L srun :: python train.py",
        ),
        ("srun hostname\nsrun bash -c 'nvidia-smi; pwd'\ntorchrun t.py", "L ::: torchrun :: t.py"),
        (
            "x=$(srun -n1 hostname)\n(cd a && accelerate launch t.py)",
            "(cd a && L :: accelerate launch t.py)",
        ),
    ],
)
def test_marks_stand_between_srun_torchrun_and_the_program(body: str, marked: str) -> None:
    assert launches(body, "t.py") == [marked]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("for i in 1 2; do srun python t.py $i; done", "line 3: it is in a loop"),
        ("torchrun a.py\ntorchrun b.py", "lines 3 and 4 both start a training"),
        ("f() { torchrun a.py; }\nf; f", "the function f, which is called 2 times"),
        ("srun --no-such 3 python t.py", "srun has no option --no-such that hpcrun knows"),
        ("torchrun --no-such 3 t.py", "torchrun has no option --no-such that hpcrun knows"),
        ("srun $OPTIONS python t.py", "$OPTIONS may hold options or the program"),
        ('A="--nnodes 2"; x && A="t.py"\ntorchrun $A t.py', "$A has several values"),
        ('A="--nnodes 2 t.py"\ntorchrun $A --lr 1', "$A holds options and the program"),
        ("srun --multi-prog x.conf", "srun --multi-prog: hpcrun cannot start such a step"),
        ("srun --pty python t.py", "srun --pty: hpcrun cannot"),
        ("srun --export=A python t.py", "the ranks do not get the variables of the job"),
        ("srun python t.py &", "it runs in the background, and nothing waits for it"),
        ("$CMD", "no line is known to start a training"),
        ("if [", "is not understood"),
        ("echo $'\\\\' 'b'\npython t.py", "is not understood"),
    ],
)
def test_what_is_not_taken_over_is_said_and_nothing_is_changed(body: str, reason: str) -> None:
    script = read(body)
    assert not script.is_complete
    assert reason in " ".join(script.missing)
    assert not script.remarks
    assert not script.changed
    assert body in script.text


def test_only_the_launch_and_the_first_line_change() -> None:
    body = "set -e\ncd 'a  b' # é\nsrun \\\n  python t.py \\\n  --x <<E\ntorchrun t.py\nE\n# end"
    script = read(body)
    before, after = f"{HEAD}{body}\n".splitlines(), script.text.splitlines()
    assert len(before) == len(after)
    assert [
        number
        for number, pair in enumerate(zip(before, after, strict=True), 1)
        if pair[0] != pair[1]
    ] == [1, 5, 6]
    assert after[4:6] == ['"$HPCRUN_LAUNCH" srun \\', "  :: python t.py \\"]


def test_branches_that_exclude_each_other_are_one_launch() -> None:
    assert (
        len(
            launches(
                "if a; then\ntorchrun a.py\nelif b; then\nsrun python b.py\nelse\ntorchrun c.py\nfi"
            )
        )
        == 3
    )


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        ("-N 2 --ntasks-per-node=4 --gres=gpu:a100:4", (2, 4, 4, "a100")),
        ("--nodes=2 --ntasks 8 -G 8", (2, 4, 4, None)),
        ("--nodes=2 --ntasks 2 --ntasks-per-node=4", (2, 1, 0, None)),
        ("--nodes=2-4 --tasks-per-node 2 --gpus-per-node=2", (4, 2, 2, None)),
        ("--ntasks=8 --tasks-per-node=4 --gpus-per-task=1", (2, 4, 4, None)),
        ("--gres=gpu:h100:2,tmp:10 # -N 7", (1, 1, 2, "h100")),
        ("--gpus-per-nod v100:2", (1, 1, 2, "v100")),
    ],
)
def test_sizes_of_directives(words: str, sizes: tuple[int, int, int, str | None]) -> None:
    found = read("srun python t.py", head=f"#!/bin/bash\n#SBATCH {words}\n").sizes
    assert (found.nodes, found.tasks, found.gpus, found.gpu_type) == sizes
    assert found.node_choice == ("2-4" if "2-4" in words else "")


def test_directives_stay_but_for_what_hpcrun_sets() -> None:
    head = "#!/bin/bash\n#SBATCH -J 'my job' -o %x.log -D sub --mail-type=END -a 1-5:2%2\n"
    head += "#SBATCH --mail-type FAIL --export=ALL,A=1 -x n1\n"
    options = read("srun python t.py\n#SBATCH -N 9", head=head).options
    assert options.directives == (
        ("job-name", "my job"),
        ("mail-type", "END,FAIL"),
        ("array", "1-5:2%2"),
        ("export", "ALL,A=1"),
        ("exclude", "n1"),
    )
    assert options.name == "my job"
    assert options.workdir == "sub"
    assert options.array == "1-5:2%2"
    assert options.env == (("A", "1"),)
    assert not options.problems
    assert [remark.split(":")[0] for remark in options.remarks] == [
        "line 5",
        "line 2",
        "the run's name is my-job, which can be a part of file names; Slurm's is my job",
    ]


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (r"""--comment="say \"hi\" # it's" # no""", """say "hi" # it's"""),
        (r"--comment='a\'b\\c'", r"a'b\c"),
        ("--comment=a#b", "a"),
        ('--comment "a b"c', "a bc"),
    ],
)
def test_words_of_a_line_are_those_of_sbatch(words: str, value: str) -> None:
    for space in (" ", ""):
        options = read("srun python t.py", head=f"#!/bin/bash\n#SBATCH{space}{words}\n").options
        assert options.directives == (("comment", value),)


def test_a_directive_that_sbatch_cannot_get_is_a_problem(subtests: pytest.Subtests) -> None:
    for line, reason in (
        ("hetjob", "a heterogeneous job"),
        ("--partition", "it has no value"),
        ("--no-such-option", "hpcrun does not know this option of sbatch"),
        ("--export=NIL", "the job would not get the folder of its run"),
        ("--export=a.b", "cannot be a variable's name"),
        ("--container-image=x", "would run in a container"),
        ("-M other", "hpcrun submits to the cluster of this machine"),
        ("--clusters=other", "hpcrun submits to the cluster of this machine"),
    ):
        with subtests.test(line=line):
            (problem,) = read("srun python t.py", head=f"{HEAD}#SBATCH {line}\n").options.problems
            assert reason in problem


def test_options_have_their_full_names() -> None:
    assert takes_value("torchrun", "--nproc_per_node") == ("nproc-per-node", True)
    assert takes_value("torchrun", "--rdzv_b") == ("rdzv-backend", True)
    assert takes_value("torchrun", "--standalone") == ("standalone", False)
    assert takes_value("srun", "-l") == ("label", False)
    assert takes_value("srun", "--cpu_bind") == ("cpu-bind", True)
    assert takes_value("srun", "--tasks-per-node") == ("ntasks-per-node", True)
    assert takes_value("srun", "--wait-for-children") == ("wait-for-children", False)
    assert takes_value("srun", "--ignore-signals") == ("ignore-signals", True)
    for program in ("sbatch", "srun"):
        for name in ("container-type", "runtime"):
            assert takes_value(program, f"--{name}") == (name, True)
    assert takes_value("srun", "--no-such") is None


def test_a_script_that_takes_long_to_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcrun.job.text.shell_text._MOST_SECONDS", 0.2)
    with pytest.raises(UsageError, match="not understood within 0"):
        read("a=(" * 20_000)
    assert read_commands("a=(" * 20_000) == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("torchrun --nnodes=2 --rdzv-endpoint=$A x.py", "starts on the first of 2 nodes alone"),
        ("srun torchrun --nproc-per-node=4 x.py", "each of the 2 nodes trains alone"),
        ("srun torchrun --standalone --nproc-per-node=4 x.py", "trains alone"),
        ("srun torchrun --nnodes 2 --rdzv_endpoint=localhost:1 x.py", "waits for the others"),
        ("A=127.0.0.1\nsrun torchrun --nnodes 2 --master_addr $A x.py", "waits for the others"),
        ("srun torchrun --nnodes 2 --rdzv-endpoint=$SLURM_NODELIST:1 x.py", "no name of a node"),
        (
            'srun torchrun --nnodes 2 --master-addr "${SLURM_JOB_NODELIST}" x.py',
            "no name of a node",
        ),
        ("srun torchrun --nnodes 2 --rdzv-endpoint=$SLURM_NODELIST:$(port) x.py", "no name of a"),
        ("srun torchrun --nnodes 2 --master-addr=$A --node_rank=$SLURM_NODEID x.py", "is the same"),
        ("srun -n8 torchrun --nnodes 2 --rdzv-endpoint=$A x.py", "torchrun 4 times on a node"),
    ],
)
def test_a_launch_that_nobody_intends_on_several_nodes_is_noted(body: str, says: str) -> None:
    [habit] = read(body).habits
    assert says in habit


@pytest.mark.parametrize(
    "body",
    [
        "srun torchrun --nnodes 2 --rdzv-endpoint=$A:1 x.py",
        "srun torchrun --nnodes 2 --rdzv_endpoint="
        '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):29500 x.py',
        "srun torchrun --nnodes 2 --rdzv-endpoint "
        '"$(scontrol show hostnames $SLURM_NODELIST | head -1):1" x.py',
        "srun torchrun --nnodes 2 --rdzv-endpoint="
        "`scontrol show hostnames $SLURM_JOB_NODELIST | head -1`:1 x.py",
        "srun torchrun --nnodes 2 --master-addr=$(hostlist -e ${SLURM_NODELIST} | head -1) x.py",
        "srun torchrun --nnodes 2 --rdzv-backend=c10d --rdzv-endpoint=$A "
        "--node-rank=$SLURM_NODEID x.py",
        "srun python x.py",
        "if a; then srun torchrun --nnodes 2 --rdzv-endpoint=$A x.py\nelse torchrun x.py; fi",
    ],
)
def test_a_launch_that_may_work_is_not_noted(body: str) -> None:
    assert read(body).habits == ()
