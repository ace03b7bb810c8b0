"""What tests start from: requests as typed, profiles as written, plans, templates, runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from rich.console import Console, RenderableType

from hpcrun.actions.ports import Ports, Surroundings
from hpcrun.job.plan.job_plan import Plan, PythonEnvironment, build_plan
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.request.read_request import read_request
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.run_paths import run_name
from hpcrun.job.script import Template, render_script
from hpcrun.profiles.config import Config
from hpcrun.profiles.folders import load_templates, shipped_folder
from hpcrun.profiles.yaml_file import YamlFile, parse_yaml, read_own_text
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import Scheduler, Submission, SubmittedJob

PYTHON = PythonEnvironment("/opt/venv/bin/python", "virtual environment", "/opt/venv")


def drawn(renderable: RenderableType, width: int) -> list[str]:
    """The lines of a table or a text on a terminal of this width."""
    console = Console(width=width, height=25, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(renderable)
    return [line.rstrip() for line in capture.get().splitlines()]


def request(script: str = "train.py", **asked: Any) -> JobRequest:
    """A request, with values as they are typed."""
    return read_request({"script": script, **asked})


def slurm_profile(**said: Any) -> Profile:
    """A Slurm cluster of nodes with four A100s, unless it says otherwise."""
    return Profile(**{"name": "big", "gpu": {"type": "a100", "per_node": 4}, **said})


def cpu_cluster(**said: Any) -> Profile:
    """A Slurm cluster without GPUs."""
    return Profile(**{"name": "thin", "gpu": {"per_node": 0}, **said})


def laptop(**said: Any) -> Profile:
    """This machine, without Slurm."""
    return Profile(**{"name": "local", "scheduler": "local", **said})


def plan(
    profile: Profile | None = None,
    *,
    script: str = "train.py",
    python: PythonEnvironment = PYTHON,
    machine: Machine | None = None,
    **asked: Any,
) -> Plan:
    """The plan of a request on a profile."""
    return build_plan(
        request(script, **asked),
        profile or slurm_profile(),
        python=python,
        machine=machine or Machine(cpus=8),
    )


def templates() -> dict[str, Template]:
    """The shipped templates."""
    return load_templates([shipped_folder("templates")])


def script(plan: Plan) -> str:
    """The script of a plan, by the shipped templates."""
    return render_script(plan, templates())


def surroundings(
    folder: Path,
    env: Mapping[str, str] | None = None,
    *,
    own: tuple[Path, ...] = (),
    config: Config | None = None,
    own_python: str | None = None,
) -> Surroundings:
    """A caller in ``folder`` whose own configuration folders are ``own``, most important first."""
    return Surroundings(
        env=env if env is not None else {"PATH": "/usr/bin:/bin"},
        cwd=folder,
        config=config or Config(),
        profile_folders=(*(path / "profiles" for path in own), shipped_folder("cluster_profiles")),
        template_folders=(*(path / "templates" for path in own), shipped_folder("templates")),
        own_python=own_python,
    )


class Takes:
    """A scheduler that takes every job, but for those of some names: for each the error that is
    raised.
    """

    def __init__(self, **ends: BaseException) -> None:
        self.ends, self.taken = ends, list[Submission]()

    def unavailable(self) -> None:
        """It is here."""

    def cluster(self) -> str:
        """It has a name."""
        return "alpha"

    def submit(self, submission: Submission) -> SubmittedJob:
        """Take a job, under the next number."""
        if error := self.ends.get(run_name(submission.folder.name).replace("-", "_")):
            raise error
        self.taken.append(submission)
        return SubmittedJob(str(len(self.taken)))


def ports(store: RunStore, scheduler: object, now_s: float, host: str = "here") -> Ports:
    """One scheduler for all runs, and a clock that stands still."""
    return Ports(
        store,
        lambda _: cast("Scheduler", scheduler),
        lambda _: cast("Scheduler", scheduler),
        host,
        lambda: now_s,
    )


def run(run_id: str = "20260102-030405-train-0a1b", **said: Any) -> Run:
    """A run as it was submitted to a Slurm cluster called ``alpha``."""
    values: dict[str, Any] = {
        "name": run_id[16:-5] or run_id,
        "scheduler": "slurm",
        "cluster": "alpha",
        "host": "login1",
        "created_s": 1000.0,
        "job_id": "4711",
        "profile": "big",
        "nodes": 2,
        "gpus_per_node": 2,
        "world_size": 4,
        "walltime_s": 3600,
    }
    return Run(run_id=run_id, **{**values, **said})


def write(path: Path, text: str) -> Path:
    """A file with this text, its folders made; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def read_yaml(path: Path) -> YamlFile:
    """A YAML file, read as profiles are."""
    return parse_yaml(read_own_text(path), path)
