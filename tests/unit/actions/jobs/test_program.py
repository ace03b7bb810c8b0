"""The program of a job: whether it is there, and what it becomes with defaults and launcher."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.check_program import check_program
from hpcrun.actions.jobs.program import JobProgram, find_batch_script, find_program, read_inputs
from hpcrun.actions.ports import Surroundings, Typed
from hpcrun.actions.profiles.detected import DetectedProfile
from hpcrun.errors import UsageError
from hpcrun.job.request.job_request import GpuCount
from hpcrun.profiles.config import Config
from hpcrun.profiles.folders import shipped
from hpcrun.schedulers.cluster_facts import ClusterFacts, NodeKind, Partition
from tests.unit.builders import request, surroundings, write


def check(folder: Path, script: str, *, path_may_change: bool = False, module: bool = False) -> str:
    """The script as the job will call it."""
    asked = request(script, module=module)
    return check_program(asked, surroundings(folder), path_may_change=path_may_change).script


def program(path: Path, text: str, mode: int = 0o755) -> Path:
    write(path, text).chmod(mode)
    return path


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("gone")])
def test_what_is_no_file_is_called_what_it_is(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "f.py")
    with pytest.raises(UsageError) as refused:
        check(tmp_path, "f.py")
    kind = "a link to nothing" if (tmp_path / "f.py").is_symlink() else "a FIFO"
    assert refused.value.message == f"f.py is {kind}, not a script"
    assert "f.py" not in str(refused.value.hint)


def test_a_program_that_is_there_is_called_as_the_job_finds_it(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    program(tmp_path / "run.sh", "#!/bin/sh\n")
    write(tmp_path / "sub/train.py", "")
    for script in ("sub/train.py", str(tmp_path / "sub/train.py"), "./run.sh", "env"):
        with subtests.test(script=script):
            assert check(tmp_path, script) == script
    assert check(tmp_path, "run.sh") == "./run.sh"
    assert check(tmp_path, "pkg.train", module=True) == "pkg.train"  # the job's Python looks for it
    there = request("train.py", workdir=str(tmp_path / "sub"))
    assert check_program(there, surroundings(tmp_path), path_may_change=False).script == "train.py"
    # modules may bring a program, and no script
    assert check(tmp_path, "gmx", path_may_change=True) == "gmx"
    with pytest.raises(UsageError, match="train"):
        check(tmp_path, "train.py", path_may_change=True)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["trian.py"], "there is no script trian.py", "did you mean train.py?"),
        (["./runn.sh"], "there is no script ./runn.sh", "did you mean run.sh?"),
        (["no-such-program"], "no-such-program is neither a file here nor a program on PATH", ""),
        (["9" * 300 + ".py"], f"there is no script {'9' * 300}.py", ""),
        (["sub"], "sub is a folder", "hpcrun submit ... sub/train.py"),
        (["notes.txt"], "notes.txt is not executable", "chmod +x notes.txt"),
        (["it's a.txt"], "it's a.txt is not", "chmod +x 'it'\"'\"'s a.txt', or name its"),
        (
            ["python train.py --lr 1"],
            "python train.py --lr 1 is neither a file",
            "leave out the quotes: hpcrun submit ... python train.py --lr 1",
        ),
        (
            ["python", "train.py", "--lr", "1"],
            "python is neither a file",
            "uses the job's own Python: hpcrun submit ... train.py --lr 1",
        ),
        (
            ["accelerate", "launch", "train.py", "a b"],
            "accelerate is neither a file",
            "starts the ranks itself: hpcrun submit ... train.py 'a b'; or",
        ),
        (
            ["mpirun", "-np", "4", "./solver"],
            "mpirun is neither a file",
            "submit ... train.py; or activate the environment that has mpirun",
        ),
    ],
)
def test_a_program_that_cannot_run_is_refused_with_what_to_do(
    words: list[str], message: str, hint: str, tmp_path: Path
) -> None:
    for name in ("train.py", "sub/train.py", "notes.txt", "it's a.txt"):
        write(tmp_path / name, "")
    program(tmp_path / "run.sh", "#!/bin/sh\n")
    here = replace(surroundings(tmp_path), env={"PATH": str(tmp_path / "bin")})
    with pytest.raises(UsageError) as refused:
        check_program(request(words[0], args=tuple(words[1:])), here, path_may_change=False)
    assert refused.value.message.startswith(message)
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("bash missing.sh", "missing.sh"),
        ("/bin/sh none/missing.bash", "none/missing.bash"),
        ("python3 -u missing.py", "missing.py"),
        ("bash run.sh missing.sh", None),
        ("bash -O extglob missing.sh", "missing.sh"),
        ("bash -c missing.sh", None),
        ("bash {script}.sh", None),
        ("python -m missing.py", None),
        ("bash on-path.sh", None),
    ],
)
def test_a_script_that_an_interpreter_runs_is_looked_for_too(
    line: str, missing: str | None, tmp_path: Path
) -> None:
    write(tmp_path / "run.sh", "")
    program(tmp_path / "bin/on-path.sh", "")
    around = surroundings(tmp_path, {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    script, *args = line.split()
    asked = request(script, args=args)
    if missing is None:
        assert check_program(asked, around, path_may_change=True) == asked
    else:
        with pytest.raises(UsageError, match=f"^there is no script {missing}"):
            check_program(asked, around, path_may_change=True)


def test_a_script_that_only_speaks_of_sbatch_is_taken(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for line in ("##SBATCH --nodes=2", "echo '#SBATCH'", " #SBATCH x"):
        with subtests.test(line=line):
            program(tmp_path / "run.sh", f"#!/bin/sh\n{line}\n")
            assert check(tmp_path, "run.sh") == "./run.sh"


def test_a_batch_script_is_the_one_in_the_folder_of_the_job(tmp_path: Path) -> None:
    program(tmp_path / "there/run.sh", "#!/bin/sh\n#SBATCH --nodes=2\ntrue\n")
    asked = request("run.sh", workdir=str(tmp_path / "there"))
    assert find_batch_script(asked, surroundings(tmp_path)) is not None
    assert find_batch_script(request("run.sh"), surroundings(tmp_path)) is None


def decided(folder: Path, script: str, profile: str = "a100", **asked: Any) -> JobProgram:
    """What a job runs, on a cluster whose shell sets a partition and which has a default time."""
    env = {"PATH": "/usr/bin:/bin", "SBATCH_PARTITION": "debug"}
    caller = surroundings(folder, env, config=Config(walltime_s=600))
    return find_program(read_inputs(request(script, **asked), profile, caller), caller)


def test_one_program_has_all_defaults_and_its_launcher(tmp_path: Path) -> None:
    write(tmp_path / "train.py", "")
    one = decided(tmp_path, "torchrun", args=["--nproc-per-node", "2", "train.py"], gpus="1")
    assert one.request.script == "train.py"
    assert one.request.gpus == GpuCount(count=2)
    assert one.request.partition == "debug"
    assert one.request.walltime_s == 600
    assert one.notes == ("from your shell: SBATCH_PARTITION=debug",)
    (note,) = one.launcher_notes
    assert note.startswith("`torchrun` starts ranks, and hpcrun starts them")


def on_cluster(folder: Path, kinds: list[NodeKind]) -> Surroundings:
    """A caller on a cluster with Slurm, who has typed ``submit --nodes 2``."""
    parts = [
        Partition(name, default=name == "gpu") for name in {kind.partition: None for kind in kinds}
    ]
    facts = ClusterFacts(
        user="me",
        groups=(),
        config={"ClusterName": "dev"},
        partitions=parts,
        kinds=kinds,
        associations=[],
        accounting=False,
    )
    detected = DetectedProfile(folder / "cache", lambda: facts, [shipped("cluster_profiles")])
    caller = surroundings(folder, {"PATH": "/usr/bin:/bin"})
    return replace(
        caller,
        profile_folders=(detected.folder, *caller.profile_folders),
        detected=detected,
        typed=Typed(("submit", "--nodes", "2")),
        choose=lambda choice: choice.options[0].value,
    )


FOUR_A100 = NodeKind("gpu", 4, 64, 512_000, (("a100", 4),))
EIGHT_H100 = NodeKind("big", 4, 64, 512_000, (("h100", 8),))


@pytest.mark.parametrize("profile", ["detected", "a100"])
def test_sizes_typed_for_torchrun_are_read_before_the_cluster_is_asked(
    profile: str, tmp_path: Path
) -> None:
    write(tmp_path / "train.py", "")
    caller = on_cluster(tmp_path, [FOUR_A100])
    typed = request("torchrun", args=["--nproc-per-node", "4", "train.py"], nodes=2)
    job = find_program(read_inputs(typed, profile, caller), caller)
    assert job.request.script == "train.py"
    assert job.request.gpus == GpuCount(count=8)
    assert job.request.nodes == 2
    assert job.launcher_notes == (
        "`torchrun` starts ranks, and hpcrun starts them: "
        "hpcrun submit --nodes 2 --gpus 8 train.py",
    )


def test_nodes_typed_for_torchrun_replace_those_of_the_job(tmp_path: Path) -> None:
    write(tmp_path / "train.py", "")
    caller = on_cluster(tmp_path, [FOUR_A100])
    arguments = ["--nnodes", "3", "--nproc-per-node", "4", "train.py"]
    typed = request("torchrun", args=arguments, nodes=2)
    job = find_program(read_inputs(typed, "detected", caller), caller)
    assert job.request.nodes == 3
    assert job.request.gpus == GpuCount(count=12)
    assert job.launcher_notes[0].endswith(": hpcrun submit --gpus 12 --nodes 3 train.py")


def test_the_gpu_type_chosen_for_the_sizes_of_torchrun_stays(tmp_path: Path) -> None:
    write(tmp_path / "train.py", "")
    caller = on_cluster(tmp_path, [FOUR_A100, EIGHT_H100])
    typed = request("torchrun", args=["--nproc-per-node", "8", "train.py"], nodes=2)
    job = find_program(read_inputs(typed, "detected", caller), caller)
    assert job.request.gpus == GpuCount(count=16, type="h100")


@pytest.mark.parametrize("words", [["torchrun", "train.py"], ["train.py"]])
def test_nodes_without_any_number_of_gpus_are_still_refused(
    words: list[str], tmp_path: Path
) -> None:
    write(tmp_path / "train.py", "")
    caller = on_cluster(tmp_path, [FOUR_A100])
    script, *arguments = words
    inputs = read_inputs(request(script, args=arguments, nodes=2), "detected", caller)
    with pytest.raises(UsageError, match="--nodes 2 does not say how many GPUs"):
        find_program(inputs, caller)


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (["s44.sbatch"], "s44.sbatch is neither a file here nor", "did you mean s4.sbatch?"),
        (["trian.py"], "there is no script trian.py", "did you mean train.py?"),
        (["bash", "trian.sh"], "there is no script trian.sh", None),
    ],
)
def test_a_missing_program_is_said_before_anything_is_asked(
    words: list[str], says: str, hint: str | None, tmp_path: Path
) -> None:
    write(tmp_path / "s4.sbatch", "#!/bin/bash\n#SBATCH -N 2\n")
    write(tmp_path / "train.py", "")
    caller = on_cluster(tmp_path, [FOUR_A100, EIGHT_H100])
    script, *arguments = words
    for size in ({}, {"gpus": "1"}):
        inputs = read_inputs(request(script, args=arguments, **size), "detected", caller)
        with pytest.raises(UsageError, match=says) as refused:
            find_program(inputs, replace(caller, choose=None))
        if hint:
            assert refused.value.hint == hint


def test_the_program_of_an_image_or_of_a_module_is_not_said_to_be_missing(tmp_path: Path) -> None:
    caller = replace(on_cluster(tmp_path, [FOUR_A100, EIGHT_H100]), choose=None)
    for asked in ({"load": ["cuda"]}, {"container": "docker://a"}):
        inputs = read_inputs(request("theirs", gpus="1", **asked), "detected", caller)
        with pytest.raises(UsageError, match="choose a GPU type"):
            find_program(inputs, caller)


def test_each_role_has_its_program_as_the_job_calls_it(tmp_path: Path) -> None:
    program(tmp_path / "serve", "#!/bin/sh\n")
    write(tmp_path / "train.py", "")
    write(tmp_path / "job.sbatch", "#!/bin/bash\n#SBATCH -N 2\n")
    second = ["--role", "trainer:2", "train.py"]
    both = decided(tmp_path, "serve", roles=["server:1"], args=second, gpus_per_node="2")
    assert both.request.roles[0].command == ("./serve",)
    assert both.request.script == "train.py"
    assert both.request.nodes == 3
    assert both.request.partition == "debug"
    assert both.script is None
    with pytest.raises(UsageError, match=r"job\.sbatch is a batch script, which cannot be"):
        decided(tmp_path, "job.sbatch", roles=["server:1"], args=second, gpus_per_node="2")


def test_a_batch_script_decides_instead_of_the_configuration(tmp_path: Path) -> None:
    write(tmp_path / "job.sbatch", "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --chdir=sub\n")
    with pytest.raises(UsageError, match="--chdir=sub: there is no such folder"):
        decided(tmp_path, "job.sbatch")
    (tmp_path / "sub").mkdir()
    batch = decided(tmp_path, "job.sbatch")
    assert batch.script is not None
    assert batch.request.partition == "debug"
    assert batch.request.walltime_s is None
    assert batch.request.workdir == str(tmp_path / "sub")
    assert batch.python.kind == "for hpcrun's programs; the script has its own"
    assert batch.python.prefix is None
