"""Where jobs run, on which GPUs and with which environment: what the record and the plan say is what Slurm did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Cluster, Hpcrun, wait_for

pytestmark = pytest.mark.slurm

SMALL = ("-P", "a100", "--gpus", "0", "-p", "cpu", "--cpus", "1", "--mem", "100M", "--time", "5")
# ASCII() shows bytes that are no text as well
GO = "import os\nprint(ascii([{word!r}, os.getcwd(), os.environ['SLURM_SUBMIT_DIR']]))\n"
EXECUTOR = """
import os
import hpcrun
def go():
    print(ascii(["right", os.getcwd(), os.environ["SLURM_SUBMIT_DIR"]]))
hpcrun.Executor("cpu", cpus=1, mem="100M", time=5).submit(go)
"""


def runs(person: Hpcrun) -> list[dict[str, Any]]:
    return list(json.loads(person("status", "--all", "--json", check=True).stdout)["runs"])


def all_over(person: Hpcrun, timeout: float = 120) -> list[dict[str, Any]]:
    """The runs when every one of them has ended."""

    def over() -> list[dict[str, Any]] | None:
        found = runs(person)
        return found if all(run["final"] for run in found) else None

    return wait_for(over, timeout, "all runs to be over")


def make_folder(person: Hpcrun, name: str, word: str) -> Path:
    folder = person.folder / name
    person.run("mkdir", "-p", str(folder))
    person.run("sh", "-c", 'printf %s "$1" >"$2/go.py"', "sh", GO.format(word=word), str(folder))
    return folder


def test_a_job_whose_folder_is_gone_says_so_and_a_script_by_hand_uses_the_caller_s(
    as_researcher: Hpcrun, cluster: Cluster
) -> None:
    gone = make_folder(as_researcher, "gone", "wrong")
    here = make_folder(as_researcher, "here", "right")
    as_researcher("submit", *SMALL, "--sbatch", "hold", "go.py", cwd=gone, check=True)
    as_researcher("render", *SMALL, "-o", "../job.sh", "go.py", cwd=gone, check=True)
    as_researcher.run("rm", "-r", str(gone))
    (waiting,) = runs(as_researcher)
    cluster.slurm("scontrol", "release", waiting["job_id"])
    as_researcher.run("sbatch", "--wait", "../job.sh", cwd=here)
    (by_hand,) = here.glob("hpcrun-*/elements/0/attempts/0/rank-0.out")
    assert by_hand.read_text() == ascii(["right", str(here), str(here)]) + "\n"
    (run,) = all_over(as_researcher)
    assert run["state"] == "FAILED"
    assert f"there is no folder {gone} on cpu-1" in as_researcher("explain", run["run_id"]).stdout


def test_every_job_runs_in_the_folder_that_its_record_names(as_researcher: Hpcrun) -> None:
    project = make_folder(as_researcher, "my 100%a $HOME \udcff", "right")
    elsewhere = make_folder(as_researcher, "elsewhere", "wrong")
    no_sbatch = as_researcher.folder / "bin"
    as_researcher.run("sh", "-c", 'mkdir "$1" && printf "#!/bin/sh\\nexit 1" >"$1/sbatch"; chmod +x "$1/sbatch"', "sh",
                      str(no_sbatch))  # fmt: skip

    def project_runs(*args: str) -> None:
        as_researcher(*args, cwd=project, check=True)

    def elsewhere_runs(*args: str) -> None:
        as_researcher(*args, cwd=elsewhere, check=True)

    project_runs("submit", *SMALL, "-J", "plain", "go.py")
    elsewhere_runs("resubmit", "plain", "--force", "-J", "again")
    elsewhere_runs("resubmit", "plain", "--force", "-J", "link", "--chain", "2:any")
    elsewhere_runs("submit", *SMALL, "-J", "workdir", "--workdir", "../" + project.name, "go.py")
    elsewhere_runs("resubmit", "workdir", "--force", "-J", "workdir-again")
    project_runs("submit", *SMALL, "-J", "copied", "--snapshot", "go.py")
    elsewhere_runs("resubmit", "copied", "--force", "-J", "copied-again")
    project_runs("submit", *SMALL, "-J", "sweep", "--sweep", "n=1,2", "go.py")
    elsewhere_runs("resubmit", "sweep", "--force", "-J", "sweep-again")
    path = f"{no_sbatch}:{as_researcher.environ['PATH']}"
    study = ("scale", "-P", "cpu", "--cpus", "1", "--time", "5", "--ranks", "1", "-J", "study", "--launcher", "srun")
    assert as_researcher(*study, "go.py", cwd=project, env={"PATH": path}).returncode == 5
    elsewhere_runs("scale", "--resume", "study")
    as_researcher.run(f"{as_researcher.venv}/bin/python", "-c", EXECUTOR, cwd=project)
    project_runs("preflight", *SMALL, "--setup", "printf 'in %s\\n' \"$PWD\"", "-J", "nodes")

    found = all_over(as_researcher)
    assert len(found) == 13
    for run in found:
        folder = Path(run["folder"])
        record = json.loads((folder / "run.json").read_text())
        if record["request"].get("preflight") == "only":
            assert f"in {project}\n" in (folder / "batch.log").read_text(errors="surrogateescape")
            continue
        copy = folder / "code" if record["plan"]["snapshot"] else None
        where = Path(copy or record["plan"]["workdir"] or record["cwd"]).resolve()
        assert where == (copy or project).resolve(), run["name"]
        for log in folder.glob("elements/*/attempts/0/rank-0.out"):
            assert ascii(["right", str(where), str(project)]) in log.read_text().splitlines(), run["name"]
        assert (run["state"], run["name"]) == ("COMPLETED", run["name"])
