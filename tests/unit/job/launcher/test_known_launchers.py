"""Launchers as the program of a job: which are found, what becomes of them, and the line to type
instead.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

import pytest

from hpcrun.errors import UsageError
from hpcrun.job.launch_options import takes_value
from hpcrun.job.launcher.choose_launcher import choose_launcher
from hpcrun.job.launcher.known_launchers import LAUNCHERS, find_calls
from hpcrun.job.launcher.program_notes import Here
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.request.read_request import read_request
from tests.unit.builders import cpu_cluster, laptop, plan, script, slurm_profile
from tests.unit.cli.test_options import parse


def chosen(
    line: str,
    typed: str = "--gpus 2",
    *,
    scripts: Mapping[str, str] | None = None,
    profile: Profile | None = None,
    texts: Mapping[str, str] | None = None,
    mpi_types: Callable[[], tuple[str, ...]] = tuple,
    of_role: bool = False,
    **asked: object,
) -> tuple[JobRequest, tuple[str, ...]]:
    """What becomes of a program that was typed behind ``hpcrun submit`` and its options."""
    fields = parse(*shlex.split(typed), *shlex.split(line))
    words = tuple(shlex.split(line.removeprefix("-m ")))
    calls = find_calls(words, (scripts or {}).get)
    read = (texts or {}).get
    asked_for = read_request({**fields, **asked})
    typed_words = ("submit", *shlex.split(typed))
    here = Here(typed_words, lambda name: read(name, ""), mpi_types)
    return choose_launcher(asked_for, profile or slurm_profile(), calls, here, of_role=of_role)


def refusal(line: str, typed: str = "--gpus 2", **said: object) -> UsageError:
    with pytest.raises(UsageError) as caught:
        chosen(line, typed, **said)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize(
    ("line", "typed", "instead"),
    [
        ("torchrun --nproc-per-node 2 train.py --lr 1", "--gpus 2", "--gpus 2 train.py --lr 1"),
        ("torchrun --nproc_per_node=2 train.py", "--gpus 2", "--gpus 2 train.py"),
        ("torchrun --nproc_per 4 train.py 'a b'", "--gpus 2", "--gpus 4 train.py 'a b'"),
        ("torchrun --nproc-per-node gpu train.py", "--gpus 2", "--gpus 2 train.py"),
        (
            "torchrun --nnodes=2 --nproc-per-node=4 train.py",
            "--gpus a100:2",
            "--gpus a100:8 --nodes 2 train.py",
        ),
        (
            "torchrun --nnodes=1:2 --nproc-per-node=4 train.py",
            "--name x",
            "--name x --gpus 8 --nodes 2 train.py",
        ),
        ("torchrun --nnodes 2 train.py", "--gpus 4", "--gpus 4 --nodes 2 train.py"),
        (
            "torchrun --nnodes 1:2 --nproc-per-node 4 train.py",
            "--nodes 1-2",
            "--nodes 1-2 --gpus-per-node 4 train.py",
        ),
        (
            "srun -N 1-2 --ntasks-per-node 2 python train.py",
            "--gpus-per-node 4",
            "--gpus-per-node 4 --nodes 1-2 --nproc-per-node 2 --launcher srun train.py",
        ),
        (
            "torchrun --nproc-per-node 1 train.py",
            "--gpus 2",
            "--gpus 2 --nproc-per-node 1 train.py",
        ),
        ("torchrun --standalone -m pkg.train x", "--gpus 2", "--gpus 2 -m pkg.train x"),
        ("torchrun --no-python ./a.out", "--gpus 2", "--gpus 2 ./a.out"),
        ("/opt/bin/torchrun train.py", "--gpus 2", "--gpus 2 train.py"),
        ("python -m torch.distributed.run train.py", "--gpus 2", "--gpus 2 train.py"),
        (
            "python3.11 -u -m torch.distributed.launch --use_env train.py",
            "--gpus 2",
            "--gpus 2 train.py",
        ),
        ("env A=1 torchrun train.py", "--gpus 2", "--gpus 2 env A=1 python train.py"),
        (
            "uv run --with x torchrun train.py",
            "--gpus 2",
            "--gpus 2 uv run --with x python train.py",
        ),
        ("uv run -m torch.distributed.run train.py", "--gpus 2", "--gpus 2 train.py"),
        ("conda run -n e torchrun -m p.t", "--gpus 2", "--gpus 2 conda run -n e python -m p.t"),
        ("srun python train.py", "--gpus 2", "--gpus 2 --launcher srun train.py"),
        ("srun -n4 -N2 ./a.out", "--gpus 4", "--gpus 4 --nodes 2 --launcher srun ./a.out"),
        (
            "srun -p gpu -t 5 python -u train.py",
            "--gpus 2",
            "--gpus 2 --time 00:05:00 --partition gpu --launcher srun train.py",
        ),
        (
            "srun --gpus 2 torchrun --nproc-per-node 2 train.py",
            "--name x",
            "--name x --gpus 2 train.py",
        ),
        (
            "torchrun --max-restarts=3 --numa_binding node train.py",
            "--gpus 2",
            "--gpus 2 --torchrun max-restarts=3 --torchrun numa-binding=node train.py",
        ),
        (
            "srun --mpi=pmix --overlap --cpu-bind cores ./a.out",
            "--gpus 2",
            "--gpus 2 --launcher srun --srun mpi=pmix --srun overlap --srun cpu-bind=cores ./a.out",
        ),
        (
            "torchrun --nproc-per-node 4 train.py",
            "--gpus 0",
            "--gpus 0 --nproc-per-node 4 --launcher torchrun train.py",
        ),
        ("srun -n 4 python train.py", "--gpus-per-node 2", "--gpus 4 --launcher srun train.py"),
        (
            "torchrun --nnodes=2 --nproc-per-node=4 train.py",
            "--gpus-per-node a100:2 --name x",
            "--name x --gpus a100:8 --nodes 2 train.py",
        ),
    ],
)
def test_what_hpcrun_does_itself_is_run_as_the_line_that_it_names(
    line: str, typed: str, instead: str
) -> None:
    started, notes = chosen(line, typed)
    assert notes[0].endswith(f" starts ranks, and hpcrun starts them: hpcrun submit {instead}")
    assert started == asked_for(instead)


def asked_for(line: str) -> JobRequest:
    """The request of a line behind ``hpcrun submit``."""
    return read_request(parse(*shlex.split(line)))


def test_options_of_torchrun_that_hpcrun_sets_itself_are_named() -> None:
    _, notes = chosen(
        "torchrun --signals-to-handle=SIGTERM --rdzv_backend c10d --tee 3 --standalone train.py"
    )
    without = "without --signals-to-handle SIGTERM --rdzv-backend c10d --tee 3"
    assert notes == (
        f"`torchrun` starts ranks, and hpcrun starts them, {without}: hpcrun submit --gpus 2 "
        "train.py",
    )


def test_an_option_that_has_no_meaning_here_or_is_unknown_is_refused(
    subtests: pytest.Subtests,
) -> None:
    for line, message in (
        ("torchrun --shutdown-timeout 3 train.py", "hpcrun gives a rank 25 s to end"),
        ("srun --output=log --mpi=pmix ./a.out", "hpcrun sets srun's --output itself"),
        ("torchrun --no-such 3 train.py", "that hpcrun knows"),
        ("srun --no-such ./a.out", "that hpcrun knows"),
        ("srun torchrun --new t.py", "that hpcrun knows"),
    ):
        with subtests.test(line=line):
            assert message in refusal(line).message
    # options newer than torch's and Slurm's of today
    assert (
        chosen("torchrun --log-line-prefix-template '[${rank}]' train.py")[0].script == "train.py"
    )
    assert chosen("srun --async ./a.out")[0].srun == ("async",)


OLD = 'parser.add_argument("--local_rank", type=int, default=-1)'


@pytest.mark.parametrize(
    ("line", "typed", "launcher"),
    [
        ("old.py", "--gpus 2", "torchrun"),
        ("old.py", "--gpus 2 --launcher srun", "srun"),
        ("old.py", "--gpus 1", None),
        ("old.py", "--gpus 2 --launcher python", None),
        ("old.py --local_rank=0", "--gpus 2", None),
        ("python -m torch.distributed.launch old.py", "--gpus 2", "torchrun"),
        ("new.py", "--gpus 2", None),
    ],
)
def test_a_script_that_waits_for_local_rank_in_an_option_is_noted(
    line: str, typed: str, launcher: str | None
) -> None:
    _, notes = chosen(line, typed, texts={"old.py": OLD, "new.py": ""})
    note = (
        f"old.py has an option --local_rank, which {launcher} does not give it: read "
        'int(os.environ["LOCAL_RANK"])'
    )
    assert notes[-1:] == ((f"{note} instead",) if launcher else ())


@pytest.mark.parametrize(
    "line", ["sbatch job.sbatch 'a b'", "salloc -N1", "hpcrun submit --gpus 1 x.py"]
)
def test_what_submits_jobs_is_to_be_typed_without_hpcrun(line: str) -> None:
    error = refusal(line)
    assert error.hint == line
    assert "submit a job each time" in error.message


@pytest.mark.parametrize(
    "line",
    [
        "accelerate launch --num_processes 2 train.py",
        "env A=1 accelerate launch train.py",
        "nohup accelerate launch train.py",
        "time -p accelerate launch train.py",
        "stdbuf -oL -eL accelerate launch train.py",
        "timeout -k 5 3h accelerate launch train.py",
        "numactl --cpunodebind=0 accelerate launch train.py",
        "poetry run accelerate launch train.py",
        "apptainer exec --nv -B /data image.sif accelerate launch train.py",
        "python -m accelerate.commands.launch train.py",
        "bash -c 'accelerate launch train.py'",
        "bash -lc 'cd x && exec accelerate launch train.py'",
        "sh -c 'eval \"accelerate launch train.py\"'",
        "deepspeed --num_gpus 2 train.py",
        "mpirun -np 2 python train.py",
        "ray job submit -- python train.py",
        "fabric run train.py",
    ],
)
def test_what_starts_its_own_ranks_runs_once_per_node(line: str) -> None:
    made, notes = chosen(line)
    assert made.launcher == "command"
    assert notes[0].startswith("launcher: command, because `")
    assert "once per node" in notes[0]


def test_other_programs_are_left_alone(subtests: pytest.Subtests) -> None:
    for line in (
        "train.py torchrun",
        "python train.py --backend ray",
        "python -c 'torchrun'",
        "accelerate config",
        "torchrun --help",
        "env A=1 python train.py",
        "bash -c 'echo torchrun'",
        "bash -c 'command -v torchrun'",
        "uv sync",
    ):
        with subtests.test(line=line):
            made, notes = chosen(line)
            assert (made.launcher, notes) == (None, ()), line


def test_where_torchrun_would_do_the_line_is_said() -> None:
    _, notes = chosen("accelerate launch --num_processes 2 train.py --lr 1")
    would = (
        "hpcrun can start these ranks, without --num_processes 2: hpcrun submit --gpus 2 "
        "train.py --lr 1"
    )
    assert notes[1] == would


TWO = "--gpus 4 --nodes 2"


def test_accelerate_on_two_nodes_gets_the_options_that_join_them() -> None:
    error = refusal(
        "accelerate launch --machine_rank 0 --mixed_precision bf16 train.py --machine_rank 7", TWO
    )
    assert (
        error.message
        == "`accelerate launch` does not use the other nodes: each of the 2 would train on its own"
    )
    words = shlex.split(str(error.hint))
    assert words[:-1] == ["hpcrun", "submit", *TWO.split(), "bash", "-c"]
    assert words[-1] == (
        "accelerate launch --num_machines $NNODES --machine_rank $NODE_RANK --main_process_ip "
        "$MASTER_ADDR "
        "--main_process_port $MASTER_PORT --num_processes $((NNODES * NPROC_PER_NODE)) "
        "--mixed_precision bf16 "
        "train.py --machine_rank 7"
    )
    assert chosen(shlex.join(words[-3:]), TWO)[0].launcher == "command"


def test_a_role_on_two_nodes_is_one_training() -> None:
    error = refusal("accelerate launch train.py", TWO, launcher="command", of_role=True)
    assert (
        error.message
        == "`accelerate launch` does not use the other nodes of its role: each would train on its "
        "own"
    )
    assert "--machine_rank $NODE_RANK" in str(error.hint)
    joined = chosen(
        "bash -c 'accelerate launch --machine_rank $NODE_RANK train.py'", TWO, of_role=True
    )
    assert joined[0].launcher == "command"


def test_what_cannot_be_one_of_several_nodes_is_refused_there(subtests: pytest.Subtests) -> None:
    for line, instead in (
        ("deepspeed --num_gpus 2 train.py --deepspeed ds.json", "train.py --deepspeed ds.json"),
        ("mpirun -np 4 --mca btl tcp python train.py", "--launcher srun --srun mpi=pmix train.py"),
        ("horovodrun -np 4 python train.py", "--launcher srun --srun mpi=pmix train.py"),
    ):
        with subtests.test(line=line):
            assert (
                refusal(line, TWO, mpi_types=lambda: ("pmix", "pmi2")).hint
                == f"hpcrun submit {TWO} {instead}"
            )


def test_the_line_instead_of_mpirun_has_no_option_that_the_new_sizes_replace() -> None:
    error = refusal("mpirun -np 6 x", "--gpus-per-node 1 --nodes 3")
    assert error.hint == "hpcrun submit --nodes 3 --gpus 6 --launcher srun x"


@pytest.mark.parametrize("ranks", [3, 12])
def test_the_line_instead_of_mpirun_keeps_the_sizes_where_the_ranks_do_not_fit(ranks: int) -> None:
    error = refusal(f"mpirun -np {ranks} x", TWO)
    assert error.hint == f"hpcrun submit {TWO} --launcher srun x"


def test_on_a_machine_without_srun_no_line_with_srun_stands_for_mpirun() -> None:
    error = refusal("mpirun -np 4 x", TWO, profile=laptop())
    assert error.hint == "--launcher command runs it as it is"


def test_mpirun_on_several_nodes_names_the_mpi_types_of_the_cluster() -> None:
    line = "mpirun -np 4 python mpi.py"
    both = refusal(line, TWO, mpi_types=lambda: ("pmix", "pmi2"))
    types = (
        "; the ranks need one of: --srun mpi=pmix (Open MPI) or --srun mpi=pmi2 (MPICH, Intel MPI)"
    )
    assert both.message.endswith(types)
    one = refusal(line, TWO, mpi_types=lambda: ("pmi2",))
    assert "the ranks need" not in one.message
    assert one.hint == f"hpcrun submit {TWO} --launcher srun --srun mpi=pmi2 mpi.py"
    own = refusal(
        line, TWO, profile=slurm_profile(srun={"mpi": "pmi2"}), mpi_types=lambda: ("pmix",)
    )
    assert own.hint == f"hpcrun submit {TWO} --launcher srun mpi.py"


MPI, JAX = "from mpi4py import MPI\n", "import os, jax.numpy as jnp\n"
PMIX = "add --srun mpi=pmix (Open MPI) or --srun mpi=pmi2 (MPICH, Intel MPI)"


@pytest.mark.parametrize(
    ("line", "typed", "text", "note"),
    [
        (
            "a.py",
            "--gpus 4 --launcher srun",
            MPI,
            "of the 4 ranks would be an MPI job of its own: " + PMIX,
        ),
        (
            "python -u a.py",
            "--gpus 4",
            MPI,
            "an MPI job of its own: " + "add --launcher srun " + PMIX[4:],
        ),
        (
            "a.py",
            "--gpus 4 --launcher srun --srun mpi=pmi2",
            MPI,
            "the job hangs; -m mpi4py a.py ends all ranks",
        ),
        (
            "a.py",
            "--gpus 4 --launcher srun --srun mpi=pmi2",
            MPI + "sys.excepthook = abort\n",
            None,
        ),
        ("a.py", "--gpus 1 --launcher srun", MPI, None),
        ("a.py", "--gpus 4 --launcher python", MPI, None),
        ("a.py", "--gpus 4 --launcher srun", "# import mpi4py\nimport mpi4pyx, jax\n", None),
        (
            "a.py",
            "--gpus 4",
            JAX,
            "a.py imports jax, which cannot join the ranks of torchrun: add --launcher srun",
        ),
        (
            "a.py",
            "--gpus 1",
            "from flax import nnx\n",
            "a.py imports flax, which cannot join the ranks of torchrun",
        ),
        ("a.py", "--gpus 4", JAX + "import torch.distributed as dist\n", None),
        ("a.py", "--gpus 4 --launcher srun", JAX, None),
        ("a.py", "--gpus 4", "import " + "a as b,  " * 5000 + "jax2\n", None),
        ("-m a", "--gpus 4", JAX, None),
    ],
)
def test_a_script_that_its_launcher_does_not_suit_is_noted(
    line: str, typed: str, text: str, note: str | None
) -> None:
    _, notes = chosen(line, typed, texts={"a.py": text}, mpi_types=lambda: ("pmix", "pmi2"))
    assert len(notes) == (note is not None)
    assert note is None or note in notes[0]


def test_without_slurm_mpi_and_jax_have_another_way() -> None:
    _, (note,) = chosen("a.py", "--gpus 2", texts={"a.py": MPI}, profile=laptop())
    assert note.endswith("an MPI job of its own: the program to give is mpirun -np 2 python a.py")
    _, (note,) = chosen("a.py", "--gpus 2", texts={"a.py": JAX}, profile=laptop())
    assert note.endswith("cannot join the ranks of torchrun: add --launcher python")


def test_uv_run_names_the_option_that_installs_once_on_each_node(subtests: pytest.Subtests) -> None:
    for line, end in (
        ("uv run train.py --lr 1", ": hpcrun submit --gpus 2 --uv train.py --lr 1"),
        ("uv run python -u train.py", ": hpcrun submit --gpus 2 --uv train.py"),
        ("uv run -m pkg.fit", ": hpcrun submit --gpus 2 --uv -m pkg.fit"),
        ("uv run --with x train.py", ", but without --with: hpcrun submit --gpus 2 --uv train.py"),
    ):
        with subtests.test(line=line):
            note = (
                "`uv run` syncs the environment in every rank; --uv installs uv.lock once on each "
                f"node{end}"
            )
            assert chosen(line)[1] == (note,)


@pytest.mark.parametrize(
    "line", ["ray start --head", "ray symmetric-run --address x:1 -- python train.py"]
)
def test_ray_on_several_nodes_is_not_started_once_on_each(line: str) -> None:
    error = refusal(line, TWO)
    assert error.message.endswith(
        " does not use the other nodes: each of the 2 would train on its own"
    )
    program = line.partition(" -- ")[2] or "train.py"
    assert error.hint == f"hpcrun submit {TWO} --launcher ray {program}"
    _, (_, note) = chosen(line)
    assert note.endswith(f": hpcrun submit --gpus 2 --launcher ray {program}")
    inside = refusal(line, f"{TWO} --launcher ray")
    assert inside.message == f"`{' '.join(line.split()[:2])}` would start Ray in the job's Ray"
    assert inside.hint == error.hint


def test_another_launcher_runs_on_the_head_of_a_ray_cluster() -> None:
    _, (note,) = chosen("torchrun --nproc-per-node 2 train.py", f"{TWO} --launcher ray")
    assert note == "`torchrun` starts ranks itself; --launcher ray runs it once, on the head node"


SCRIPT = "#!/bin/bash\n# srun\ntorchrun --nproc-per-node 2 train.py\n"


@pytest.mark.parametrize(
    "line", ["./multi.sh", "bash multi.sh", "env A=1 bash ./multi.sh", "bash -c './multi.sh x'"]
)
def test_a_script_with_a_launcher_runs_once_per_node(line: str) -> None:
    found, notes = chosen(line, scripts={"./multi.sh": SCRIPT, "multi.sh": SCRIPT})
    assert found.launcher == "command"
    assert "`torchrun` in " in notes[0]
    assert "multi.sh, line 3, starts its own ranks" in notes[0]


def test_a_script_is_followed_into_others_and_round_in_no_circle() -> None:
    scripts = {"./a.sh": "bash ./b.sh\n", "./b.sh": ". ./c.sh\n", "./c.sh": "srun x\n./a.sh\n"}
    error = refusal("./a.sh", scripts=scripts)
    assert "`srun` in ./c.sh, line 1," in error.message
    assert "hangs" in error.message
    overlaps = {"./a.sh": "srun --overlap hostname\n"}
    assert chosen("./a.sh", scripts=overlaps)[0].launcher == "command"


def test_on_several_nodes_a_script_must_tell_them_apart() -> None:
    error = refusal("./multi.sh", TWO, scripts={"./multi.sh": SCRIPT})
    assert "each of the 2 would train on its own" in error.message
    assert "--node-rank $NODE_RANK" in str(error.hint)
    told = SCRIPT.replace("torchrun", "torchrun --nnodes=$SLURM_NNODES --node-rank $SLURM_NODEID")
    assert chosen("./multi.sh", TWO, scripts={"./multi.sh": told})[0].launcher == "command"
    # it reads node rank and address
    assert chosen("llamafactory-cli train x.yaml", TWO)[0].launcher == "command"


def test_a_script_that_submits_jobs_runs_once_and_on_one_node() -> None:
    scripts = {"./all.sh": "for lr in 1 2; do sbatch x.sbatch $lr; done\n"}
    _, notes = chosen("./all.sh", scripts=scripts)
    assert "`sbatch` in ./all.sh, line 1, submits a job" in notes[0]
    assert "on each of the 2 nodes" in refusal("./all.sh", TWO, scripts=scripts).message


def test_a_launcher_that_was_asked_for_stays_with_a_note(subtests: pytest.Subtests) -> None:
    for launcher, typed, words in (
        ("torchrun", "--gpus 2", "starts it once per rank"),
        ("command", "--gpus 2", "once per node"),
        ("command", TWO, "each node starts its own ranks 0, 1"),
    ):
        with subtests.test(launcher=launcher):
            made, (note,) = chosen("torchrun --nproc-per-node 2 train.py", typed, launcher=launcher)
            assert made.launcher == launcher
            assert words in note
    assert (
        chosen("accelerate launch x.py", profile=slurm_profile(launcher="torchrun"))[0].launcher
        == "command"
    )


def test_a_launcher_among_the_arguments_of_an_unknown_program_is_remarked_on() -> None:
    _, (note,) = chosen("./with-modules torchrun --nproc-per-node 2 train.py")
    assert "`torchrun` among its arguments" in note
    assert "--launcher command" in note
    assert chosen("./with-modules torchrun x.py", launcher="command")[1] == ()


def test_nodes_without_gpus_get_ranks_on_cpus() -> None:
    line = "torchrun --nproc-per-node 4 train.py"
    asked = "--name x --gpus 0 --nproc-per-node 4 --launcher torchrun train.py"
    assert chosen(line, "--name x", profile=cpu_cluster())[0] == asked_for(asked)
    assert chosen(line, "--name x", profile=laptop())[0] == asked_for("--name x --gpus 4 train.py")


def test_whether_unknown_nodes_have_gpus_is_left_open() -> None:
    unknown = Profile(name="detected")
    line = "torchrun --nproc-per-node 4 train.py"
    asked = "--name x --nproc-per-node 4 --launcher torchrun train.py"
    assert chosen(line, "--name x", profile=unknown)[0] == asked_for(asked)


def test_torchrun_s_options_are_torch_s() -> None:
    """Which of them a value follows decides where the script begins."""
    # torch takes a second and a half, in each worker that collects
    from torch.distributed.run import get_args_parser

    actions = [action for action in get_args_parser()._actions if action.option_strings]
    for action in actions:
        for name in action.option_strings:
            known = takes_value("torchrun", name)
            assert known is not None, name
            assert known[1] is (action.nargs != 0), name


def test_every_launcher_is_found_by_its_names() -> None:
    for launcher in LAUNCHERS:
        names = [(name,) for name in (launcher.name, *launcher.aliases)]
        for words in (*names, *(("python", "-m", module) for module in launcher.modules)):
            (call,) = find_calls((*words, *launcher.subcommands[:1], "x"), lambda _: None)
            assert call.launcher is launcher


def test_a_command_has_the_numbers_that_its_ranks_need() -> None:
    decided = plan(
        slurm_profile(cpu={"per_gpu": 8}),
        script="accelerate",
        gpus="4",
        nodes=2,
        launcher="command",
    )
    assert decided.shape.world_size == 2
    assert decided.shape.workers_per_node == 2
    assert decided.cpus_per_rank == 8
    text = script(decided)
    assert "export NNODES=2 NPROC_PER_NODE=2\n" in text
    on_cpus = plan(
        slurm_profile(), script="accelerate", gpus="0", nproc_per_node=4, launcher="command"
    )
    assert on_cpus.shape.workers_per_node == 4
    assert on_cpus.cpus_per_node == 4
    assert on_cpus.cpus_per_rank == 1


@pytest.mark.parametrize("line", ["bash plain.sh", "./plain.sh --x", "sh plain.sh"])
def test_a_shell_script_that_runs_on_every_rank_is_said(line: str) -> None:
    _, notes = chosen(line)
    assert (
        "runs 2 times, once per rank (RANK tells them apart); --launcher command runs it once per "
        "node" in notes[0]
    )
    assert chosen(line, "--gpus 1")[1] == ()
