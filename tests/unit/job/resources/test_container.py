"""The container of a job: from the request and the profile to the plan."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.plan.job_plan import build_plan
from hpcrun.job.profile_model import Profile
from hpcrun.job.resources.container import Container, is_image_file
from hpcrun.job.resources.cpus_memory_time import Machine
from tests.unit.builders import PYTHON, laptop, plan, request, slurm_profile

SIF = "/images/torch.sif"


def container(**said: Any) -> Profile:
    return slurm_profile(container=said)


def test_a_request_names_an_image_and_the_profile_the_rest() -> None:
    decided = plan(
        container(runtime="podman", mounts=["/data"]), gpus="4", container=SIF, mounts=["/x:/y:ro"]
    )
    made = Container(
        "podman", SIF, ("/data:/data", "/x:/y:ro"), gpus=True, host_python=PYTHON.executable
    )
    assert decided.container == made


def test_in_an_image_the_job_runs_the_image_python_and_the_host_has_its_own() -> None:
    decided = plan(container(image=SIF), gpus="4", script="train.py")
    assert decided.command == ("python3", "-u", "train.py")
    assert decided.python.executable == "python3"
    assert decided.python.prefix is None
    assert decided.container is not None
    assert decided.container.host_python == PYTHON.executable
    assert plan(container(image=SIF, python="/opt/py"), gpus="4").python.executable == "/opt/py"
    asked = request(gpus="4", python="python3.12")
    named = build_plan(asked, container(image=SIF), python=PYTHON, machine=Machine(cpus=8))
    assert named.python.executable == "python3.12"


def test_gpus_are_seen_where_there_are_some(subtests: pytest.Subtests) -> None:
    for nv, gpus, sees in ((True, "4", True), (True, "0", False), (False, "4", False)):
        with subtests.test(nv=nv):
            decided = plan(container(image=SIF, nv=nv), gpus=gpus).container
            assert decided is not None
            assert decided.gpus is sees


def test_none_undoes_the_container_of_a_profile() -> None:
    for decided in (plan(slurm_profile()), plan(container(image=SIF), gpus="4", container="none")):
        assert decided.container is None
        assert decided.python == PYTHON


def test_mounts_without_a_container_and_pyxis_without_slurm_are_refused() -> None:
    with pytest.raises(UsageError, match="--mount has no effect"):
        plan(slurm_profile(), gpus="4", mounts=["/data"])
    with pytest.raises(PlanError, match="pyxis, which needs Slurm"):
        plan(laptop(container={"runtime": "pyxis", "image": SIF}), gpus="0")


def test_a_mount_is_of_absolute_folders() -> None:
    for mount in ("data", "/a,b", "/a:b", "/a:/b:x", "", "/a\n"):
        with pytest.raises(UsageError, match=r"--mount: .*write /data"):
            request(mounts=[mount])


def test_an_image_is_a_file_or_a_reference() -> None:
    assert is_image_file("apptainer", "torch.sif")
    assert is_image_file("pyxis", "./torch.sqsh")
    assert not is_image_file("singularity", "docker://pytorch/pytorch")
    assert not is_image_file("pyxis", "nvcr.io#nvidia/pytorch:26.01-py3")
