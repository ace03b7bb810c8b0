"""doctor as a whole, with programs that answer as Slurm, modules and Python do."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hpcrun.cli.context import Context
from hpcrun.cli.output import Outcome
from hpcrun.errors import ProfileError
from hpcrun.features.doctor.check import PROFILE, PYTHON, RUNS, SLURM, Check, Checkup, targets_of
from hpcrun.features.doctor.check_site import SlurmAnswers
from hpcrun.features.doctor.check_up import (
    _ask_slurm,
    _check_python,
    _checks_of,
    _form,
    _on_cluster,
    _Part,
    _try,
    check_up,
)
from hpcrun.features.doctor.command import DoctorHooks, doctor
from hpcrun.job.plan.job_plan import PythonEnvironment
from hpcrun.machine.process import SlurmSite
from hpcrun.schedulers.client import COMMANDS
from tests.harness import REPO
from tests.unit.actions.profiles.test_detect import facts
from tests.unit.builders import cpu_cluster, slurm_profile, surroundings, write

RECORDED = REPO / "tests/data/22.05"
CONTROLLER = f"""\
case "$*" in
ping) cat {RECORDED}/scontrol-ping.txt;;
*config*) cat {RECORDED}/scontrol-config.txt;;
*partition*) cat {RECORDED}/scontrol-partition.txt;;
*node*) cat {RECORDED}/scontrol-node.txt;;
esac"""
ACCEPTS = f"cat {RECORDED}/sbatch-test-only-accepted.txt >&2"
REFUSES = "echo 'sbatch: error: invalid account' >&2; exit 1"
REFUSES_FOUR = f'case "$*" in *gpu:a100:1*) {ACCEPTS};; *) {REFUSES};; esac'
WITHOUT_TORCH = """echo '{"version": [3, 11, 2]}'"""


class Site:
    """A machine of a cluster, whose programs answer as they are told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            "PATH": str(folder / "bin"),
            "HOME": str(folder),
            "USER": "me",
            "VIRTUAL_ENV": str(folder / "venv"),
        }
        self.program("venv/bin/python", WITHOUT_TORCH)

    def program(self, name: str, lines: str) -> None:
        """A script of sh, which finds cat."""
        path = write(self.folder / name, f"#!/bin/sh\nPATH=/usr/bin:/bin\n{lines}\n")
        path.chmod(0o755)

    def with_slurm(self, sbatch: str = ACCEPTS, scontrol: str = CONTROLLER) -> Site:
        """The same machine, with the commands of Slurm."""
        for name in COMMANDS:
            self.program(f"bin/{name}", "exit 0")
        self.program("bin/sacctmgr", "exit 0")
        self.program("bin/sinfo", f"cat {RECORDED}/sinfo-version.txt")
        self.program("bin/scontrol", scontrol)
        self.program("bin/sbatch", sbatch)
        return self

    def check_up(self, profile: str) -> Checkup:
        """What doctor finds."""
        around = surroundings(self.folder, self.env, own=(self.folder / "own",))
        return check_up(profile, around, self.folder / "runs")

    def found(self, profile: str = "a100") -> dict[tuple[str, str], Check]:
        """What doctor finds, by group and name."""
        checks = self.check_up(profile).checks
        return {(check.group, check.name): check for check in checks}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_cluster_that_answers_is_checked_from_slurm_to_torch(site: Site) -> None:
    found = site.with_slurm().found()
    assert [check.name for check in found.values() if check.level == "red"] == ["torch"]
    assert found[SLURM, "controller"].seen.startswith("hpc-login answers within ")
    assert found[PROFILE, "sbatch"].seen == "--test-only accepts --gres=gpu:a100:4"
    assert found[PROFILE, "variables"].level == "green"
    assert found[RUNS, "writable"].seen.startswith(f"{site.folder}/runs will be created")
    assert found[PYTHON, "python"].seen.startswith(f"{site.folder}/venv/bin/python, 3.11.2")
    assert (PYTHON, "environment") in found
    assert (PYTHON, "driver") in found


def test_groups_stand_together_with_slurm_first_and_python_last(site: Site) -> None:
    checkup = site.with_slurm().check_up("a100")
    groups = [check.group for check in checkup.checks]
    assert list(dict.fromkeys(groups)) == [SLURM, PROFILE, RUNS, "Development", PYTHON]
    assert checkup.profile == "a100"
    assert not checkup.ok


def test_one_gpu_is_tried_where_all_are_refused(site: Site) -> None:
    check = site.with_slurm(REFUSES_FOUR).found()[PROFILE, "sbatch"]
    assert check.level != "green"
    assert "invalid account" in check.seen
    assert "gpu:a100:1" in check.seen


def test_a_controller_that_is_away_is_asked_for_nothing_more(site: Site) -> None:
    away = "echo 'Slurmctld(primary) at head1 is DOWN'"
    found = site.with_slurm("exit 7", away).found()
    assert found[SLURM, "controller"].seen == "head1 (primary) does not respond"
    assert found[PROFILE, "cluster"].seen.endswith("since Slurm does not respond")
    assert (PROFILE, "sbatch") not in found
    assert (SLURM, "accounting") not in found
    assert found[PROFILE, "variables"].level == "green"


def test_a_machine_without_slurm_names_no_controller(site: Site) -> None:
    found = site.found()
    assert found[SLURM, "commands"].seen == "none of Slurm's commands is on PATH"
    assert (SLURM, "controller") not in found
    assert found[PROFILE, "cluster"].level == "yellow"


def test_a_profile_of_this_machine_asks_no_slurm(site: Site) -> None:
    checkup = site.with_slurm().check_up("local")
    names = {(check.group, check.name) for check in checkup.checks}
    assert SLURM not in {group for group, _ in names}
    assert (PYTHON, "environment") not in names
    assert (RUNS, "file system") in names
    assert checkup.profile == "local"


def test_a_profile_that_does_not_exist_is_an_error(site: Site) -> None:
    with pytest.raises(ProfileError, match="there is no profile 'a1000'"):
        site.check_up("a1000")


def test_without_a_profile_and_slurm_all_else_is_checked(site: Site) -> None:
    away = "echo 'Slurmctld(primary) at head1 is DOWN'; exit 1"
    context = Context(site.with_slurm(scontrol=away).env, site.folder)
    checkup = check_up(None, context.surroundings, site.folder / "runs")
    found = {(check.group, check.name): check for check in checkup.checks}
    assert checkup.profile is None
    assert found[PROFILE, "profile"].seen.startswith("not checked: no profile is set")
    assert found[SLURM, "controller"].level == "red"
    assert (PROFILE, "variables") not in found
    assert found[PYTHON, "python"].level == "green"


def test_the_modules_of_a_profile_are_tried(site: Site) -> None:
    write(site.folder / "own/profiles/mine.yaml", "extends: a100\nmodules: [cuda/99]\n")
    site.with_slurm().program("bin/bash", "echo 'no such module: cuda/99' >&2; exit 1")
    check = site.found("mine")[PROFILE, "modules"]
    assert check.seen == "not checked: no such module: cuda/99"
    assert (PROFILE, "modules") not in site.found("a100")


@pytest.mark.parametrize(
    ("until_s", "seen"), [(1e9, ["made", "also made"]), (0.0, ["made", "late"])]
)
def test_a_check_that_hangs_does_not_stop_the_others(until_s: float, seen: list[str]) -> None:
    """The first part has ended before the second begins, which waits unless it may take long."""
    go_on = threading.Event()
    if until_s:
        go_on.set()

    def check(text: str) -> Check:
        return Check(RUNS, "writable", "green", text)

    def wait() -> list[Check]:
        go_on.wait(60)
        return [check("also made")]

    first = _Part(lambda: [check("made")], [check("made")])
    checks = _checks_of([first, _Part(wait, [check("late")])], until_s)
    go_on.set()
    assert [check.seen for check in checks] == seen


def test_a_cluster_that_lists_no_partitions_is_not_checked() -> None:
    (unseen,) = _on_cluster([], SlurmAnswers(()))
    assert unseen.seen.endswith("since Slurm does not respond")
    (unseen,) = _on_cluster([], SlurmAnswers((), facts=facts(None, [])))
    assert unseen.seen == "not checked: Slurm lists no partitions"


def test_torch_of_an_image_is_not_asked_for(site: Site) -> None:
    profile = slurm_profile(container={"image": "/images/torch.sif"})
    python = PythonEnvironment("/opt/python", "--python")
    (check,) = _check_python(python, profile, site.env, on_slurm=True)
    assert check.level == "green"
    assert check.seen == "/opt/python starts the ranks; torch comes from the image"


@pytest.mark.parametrize(
    ("python", "why"),
    [
        (
            PythonEnvironment("/work/.venv/bin/python", "project", of_project=True),
            "only jobs run /work/.venv/bin/python (project); activate it",
        ),
        (
            PythonEnvironment("python3", "the first on the job's PATH"),
            "python3 comes from the profile's modules or set-up commands",
        ),
    ],
    ids=["of a project", "of modules"],
)
def test_a_python_that_only_the_job_has_is_not_run(
    site: Site, python: PythonEnvironment, why: str
) -> None:
    profile = slurm_profile(modules=["python/3.12"])
    unseen, driver = _check_python(python, profile, site.env, on_slurm=True)
    assert unseen.level == "yellow"
    assert why in unseen.seen
    assert driver.name == "driver"


def test_a_python_that_does_not_start_has_no_torch(site: Site) -> None:
    python = PythonEnvironment(str(site.folder / "none"), "--python")
    found = _check_python(python, slurm_profile(), site.env, on_slurm=True)
    assert [check.name for check in found] == ["python", "driver"]
    assert found[0].level == "red"


def test_without_sbatch_no_job_is_tried(site: Site) -> None:
    site.with_slurm()
    targets, wrong = targets_of("big", slurm_profile(), surroundings(site.folder, site.env))
    assert wrong == []
    answers = _ask_slurm(SlurmSite(site.env), ("sbatch",), targets)
    assert answers.trials == ()
    assert answers.facts is not None
    assert answers.version == "22.05.8"
    assert len(_ask_slurm(SlurmSite(site.env), (), targets).trials) == 1


@pytest.mark.parametrize(
    ("sbatch", "accepted"),
    [
        (ACCEPTS, [True]),
        (REFUSES, [False, False]),
        (REFUSES_FOUR, [False, True]),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", [False]),
    ],
    ids=["accepted", "refused", "the largest refused", "silent"],
)
def test_sbatch_judges_the_largest_job_and_perhaps_the_smallest(
    site: Site, sbatch: str, accepted: list[bool]
) -> None:
    site.with_slurm(sbatch)
    profile = slurm_profile()
    (target,), _ = targets_of("big", profile, surroundings(site.folder, site.env))
    trials = _try(SlurmSite(site.env), target)
    assert [trial.accepted for trial in trials] == accepted
    assert trials[0].form == "--gres=gpu:a100:4"


def test_a_job_without_gpus_is_called_so(site: Site) -> None:
    (target,), _ = targets_of("thin", cpu_cluster(), surroundings(site.folder, site.env))
    assert _form(target.plan) == "a job without GPUs"
    site.with_slurm(REFUSES)
    assert len(_try(SlurmSite(site.env), target)) == 1


def outcome_of(site: Site, profile: str, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """What ``hpcrun doctor`` ends with for a person of this machine."""
    for name, value in site.env.items():
        monkeypatch.setenv(name, value)
    for kind in ("CONFIG", "STATE", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(site.folder / kind))
    monkeypatch.setenv("HPCRUN_RUNS", str(site.folder / "runs"))
    monkeypatch.chdir(site.folder)
    return doctor(profile, _json=False)


THIN = "partition: gpu\ngpu: {per_node: 0}\nlauncher: python\n"


@pytest.mark.parametrize(("sbatch", "status"), [(ACCEPTS, 0), (REFUSES, 4)])
def test_an_error_is_the_exit_status_of_doctor(
    site: Site, monkeypatch: pytest.MonkeyPatch, sbatch: str, status: int
) -> None:
    site.with_slurm(sbatch)
    profile = write(site.folder / "thin.yaml", THIN)
    outcome = outcome_of(site, str(profile), monkeypatch)
    assert outcome.status == status
    assert outcome.document
    assert outcome.document()["ok"] == (status == 0)


@pytest.mark.parametrize(("sbatch", "failed"), [(ACCEPTS, False), (REFUSES, True)])
def test_an_error_of_python_prevents_no_test_job(site: Site, sbatch: str, failed: bool) -> None:
    site.with_slurm(sbatch)
    around = surroundings(site.folder, site.env)
    checks = DoctorHooks().check_setup("a100", around, site.folder / "runs")
    assert checks.failed is failed
    assert checks.document["ok"] is False
