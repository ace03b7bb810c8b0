"""How doctor judges the job's Python, its torch, and whether the two fit the cards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hpcrun.features.doctor.check import Check
from hpcrun.features.doctor.check_python import (
    Wanted,
    comes_with_the_job,
    judge_compiled_files,
    judge_driver,
    judge_prefix,
    judge_python,
    judge_torch,
    runs_on,
    wanted_by,
)
from hpcrun.job.plan.job_plan import PythonEnvironment
from hpcrun.job.profile_model import Profile
from hpcrun.machine.host import DriverFacts, PythonFacts
from hpcrun.runs.folder_checks import Mount
from tests.unit.builders import PYTHON, cpu_cluster, laptop, slurm_profile

CU128 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")  # the list of torch 2.9.1+cu128
GPUS = Wanted(gpus=True, torch=True)


def facts(**said: Any) -> PythonFacts:
    return PythonFacts(**{"version": (3, 11, 2), "torch": "2.9.1", "cuda": "12.8", **said})


def levels(checks: list[Check]) -> list[tuple[str, str]]:
    return [(check.name, check.level) for check in checks]


def test_python(subtests: pytest.Subtests) -> None:
    for found, level, says in (
        (facts(), "green", "/opt/venv/bin/python, 3.11.2 (virtual environment)"),
        (facts(requires_python=">=3.10"), "green", "3.11.2"),
        (facts(requires_python=">=3.12"), "red", "its torch wants >=3.12"),
        (facts(torch=None), "green", "3.11.2"),
        (facts(torch=None, version=(3, 6, 8)), "yellow", "today's torch wants 3.10"),
        (PythonFacts(problem="No such file or directory"), "red", "No such file or directory"),
    ):
        with subtests.test(found=found):
            check = judge_python(PYTHON, found)
            assert check.level == level
            assert says in check.seen
            assert (check.fix is None) == (level == "green")


def test_torch(subtests: pytest.Subtests) -> None:
    brought, broken = (
        Wanted(gpus=True, torch=True, brought=True),
        facts(problem="ImportError: libcudnn.so.9"),
    )
    cpu, none = facts(cuda=None), facts(torch=None, cuda=None)
    for found, wanted, expected in (
        (facts(), GPUS, "green"),
        (cpu, GPUS, "red"),
        (cpu, Wanted(torch=True), "green"),
        (facts(cuda=None, hip="6.3"), GPUS, "green"),
        (none, GPUS, "red"),
        (none, Wanted(), "yellow"),
        (none, brought, "yellow"),
        (broken, GPUS, "red"),
        (broken, brought, "yellow"),
    ):
        with subtests.test(found=found):
            (check,) = judge_torch(PYTHON, found, wanted)
            assert check.name == "torch"
            assert check.level == expected
            assert (check.fix is None) == (expected == "green")
    for path, word in (("/opt/venv/bin/python", "/opt/venv/bin/python"), ("/a b/py", "'/a b/py'")):
        (check,) = judge_torch(replace(PYTHON, executable=path), none, GPUS)
        assert (check.fix or "").startswith(f"{word} -m pip install torch")


def test_kernels_for_the_card(subtests: pytest.Subtests) -> None:
    none: tuple[str, ...] = ()
    for kernels, cuda, capability, level in (
        (CU128, "12.8", "8.0", "green"),
        (CU128, "12.8", "7.0", "red"),
        (none, "13.2", "7.0", "red"),
        (none, "12.8", "7.0", "yellow"),
    ):
        with subtests.test(kernels=kernels):
            wanted = Wanted(gpus=True, torch=True, capability=capability, card="NVIDIA V100 SXM2")
            torch, check = judge_torch(PYTHON, facts(kernels=kernels, cuda=cuda), wanted)
            assert torch.level == "green"
            assert check.level == level
            assert "NVIDIA V100 SXM2" in check.seen
            assert level != "red" or "sm_70" in (check.fix or "")


def test_what_code_runs_on_which_card(subtests: pytest.Subtests) -> None:
    for kernels, capability, runs in (
        (CU128, "8.9", True),  # an L40S runs code for sm_86
        (CU128, "9.0", True),
        (CU128, "7.0", False),
        (CU128, "11.0", False),
        ((*CU128, "compute_120"), "12.1", True),
        (("sm_80", "compute_80"), "9.0", True),  # compiled from PTX on the card
        (("compute_90",), "8.0", False),
        (("sm_90a",), "9.0", True),
        (("sm_100a",), "10.3", False),
        (("nonsense",), "8.0", False),
    ):
        with subtests.test(kernels=kernels):
            assert runs_on(kernels, capability) == runs


def test_the_driver(subtests: pytest.Subtests) -> None:
    for driver, wanted, level, says in (
        (DriverFacts(), GPUS, "green", "no GPU here; hpcrun preflight checks the nodes"),
        (DriverFacts("535.1", (12, 2)), GPUS, "green", "535.1 here, for CUDA up to 12.2"),
        (DriverFacts("470.1", (11, 4)), GPUS, "yellow", "torch is built with 12.8"),
        (
            DriverFacts("470.1", (11, 4)),
            Wanted(gpus=True, on_slurm=False),
            "red",
            "torch is built with 12.8",
        ),
        (DriverFacts("470.1"), GPUS, "green", "for CUDA up to ?"),
    ):
        with subtests.test(driver=driver):
            check = judge_driver(driver, facts(), wanted)
            assert check.level == level
            assert says in check.seen


def test_an_environment_that_compute_nodes_may_not_see() -> None:
    (check,) = judge_prefix(PYTHON, Mount("tmpfs", "/opt", "tmpfs"))
    assert check.level == "yellow"
    assert check.seen == "/opt/venv is on tmpfs at /opt: possibly local to this machine"
    assert judge_prefix(PYTHON, Mount("nas:/opt", "/opt", "nfs4")) == []
    assert (
        judge_prefix(
            PythonEnvironment("/usr/bin/python3", "--python"), Mount("/dev/sda", "/", "ext4")
        )
        == []
    )
    assert judge_prefix(PYTHON, None) == []


def test_what_a_profile_wants_of_torch_and_a_python_that_its_modules_bring() -> None:
    card = {"model": "NVIDIA A100", "compute_capability": "8.0"}
    wanted = wanted_by(slurm_profile(card=card), DriverFacts())
    assert wanted == Wanted(gpus=True, torch=True, capability="8.0", card="NVIDIA A100")
    assert wanted_by(cpu_cluster(), DriverFacts()) == Wanted(capability=None)
    assert wanted_by(cpu_cluster(launcher="torchrun"), DriverFacts()).torch
    assert wanted_by(slurm_profile(setup=["conda activate x"]), DriverFacts()).brought
    here = wanted_by(laptop(), DriverFacts("580", (13, 0), ("9.0", "8.6")))
    assert here.gpus is True
    assert here.capability == "8.6"
    assert here.on_slurm is False
    assert not wanted_by(laptop(), DriverFacts()).gpus
    assert wanted_by(None, DriverFacts()) == Wanted()
    first_on_path = PythonEnvironment("python3", "the first on the job's PATH")
    assert comes_with_the_job(first_on_path, slurm_profile(modules=["python/3.12"]))
    assert not comes_with_the_job(first_on_path, slurm_profile())
    assert not comes_with_the_job(PYTHON, slurm_profile(modules=["python/3.12"]))
    assert not comes_with_the_job(first_on_path, None)


NFS = Mount("server:/home", "/home", "nfs4")


def test_nodes_that_share_compiled_files_are_named() -> None:
    [check] = judge_compiled_files(slurm_profile(), NFS, {})
    assert check.level == "yellow"
    assert check.seen.startswith("Triton compiles into ~/.triton, on nfs4 at /home")
    assert "--warm" in str(check.fix)


@pytest.mark.parametrize(
    ("profile", "home", "env"),
    [
        pytest.param(slurm_profile(), Mount("/dev/sda", "/home", "ext4"), {}, id="own disk"),
        pytest.param(slurm_profile(), None, {}, id="unknown disk"),
        pytest.param(slurm_profile(), NFS, {"TRITON_HOME": "/tmp"}, id="variable"),
        pytest.param(slurm_profile(env={"TRITON_CACHE_DIR": "/tmp"}), NFS, {}, id="profile"),
        pytest.param(slurm_profile(launch={"warm": True}), NFS, {}, id="launch.warm"),
        pytest.param(slurm_profile(gpu={"per_node": 4, "nodes": 1}), NFS, {}, id="one node"),
        pytest.param(laptop(), NFS, {}, id="no Slurm"),
    ],
)
def test_nothing_is_said_of_compiled_files(
    profile: Profile, home: Mount | None, env: dict[str, str]
) -> None:
    assert judge_compiled_files(profile, home, env) == []
