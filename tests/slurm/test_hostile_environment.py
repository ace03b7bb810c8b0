"""A person whose folders and variables would mislead Slurm's programs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcrun.job.batch.sbatch_input import DIRECTIVES
from hpcrun.job.launch_options import OWNED
from tests.harness import REPO, Hpcrun
from tests.slurm.lab import SMALL, Lab, begun

pytestmark = pytest.mark.slurm

VALUES = {
    **dict.fromkeys(("SQUEUE_STATES", "SCANCEL_STATE"), "PENDING"),
    **dict.fromkeys(("SQUEUE_FORMAT", "SQUEUE_FORMAT2", "SINFO_FORMAT", "SPRIO_FORMAT"), "hostile"),
    **dict.fromkeys(("SQUEUE_SORT", "SINFO_SORT"), "-i"),
    "SLURM_TIME_FORMAT": "%s",
    "SLURM_BITSTR_LEN": "1",
    "SLURM_CLUSTERS": "other",
    "SBATCH_CLUSTERS": "other",
    "SLURM_EXPORT_ENV": "NONE",
    "SLURM_WORKING_DIR": "/nowhere",
}
"""The values that would do harm, where it is not that of a number."""
IGNORED = {
    name
    for name, directive in DIRECTIVES.items()
    if directive in OWNED and name != "SBATCH_JOB_NAME"
}
"""The variables of sbatch that hpcrun does not follow; the others are options of a submission."""
_LINES = (REPO / "tests/data/22.05/client-variables.txt").read_text().splitlines()
_NAMES = " ".join(line for line in _LINES if not line.startswith("#")).split()
HOSTILE = {name: VALUES.get(name, "47") for name in _NAMES}
BESIDE_OPTIONS = {
    name: value
    for name, value in HOSTILE.items()
    if name in IGNORED or not name.startswith(("SBATCH_", "SLURM_HINT"))
}
"""Without those that a submission takes for options."""
PLANS = ("where", "doctor")  # they judge what a submission would be
READING = (
    "status victim",
    "status victim --json",
    "status victim -v",
    "status",
    "logs victim",
    "explain victim",
    "history",
    "metrics victim",
    "where -P a100 --gpus 0",
    "doctor",
    "profile list",
    "profile show a100",
    "status --gpus victim",
)


@pytest.mark.parametrize(
    ("name", "options"),
    [("%a %A %j %%u", []), ("DOMAIN\\%a", []), ("DOMAIN\\user", ["--sweep", "A=1"])],
)
def test_the_folder_of_runs_may_have_any_name(
    as_researcher: Hpcrun, name: str, options: list[str]
) -> None:
    runs = as_researcher.folder / name
    env = {"HPCRUN_RUNS": str(runs)}
    command = ("submit", *SMALL, *options, "--wait", "--", "sh", "-c", "echo arrived")
    as_researcher(*command, env=env, check=True)
    assert as_researcher("logs", "last", env=env, check=True).stdout.endswith("arrived\n")
    log = "batch/0.log" if options else "batch.log"
    (folder,) = runs.glob("2*")
    assert (folder / log).exists()


def _seen(person: Hpcrun, words: str, env: dict[str, str]) -> tuple[int, str]:
    """Return the status and the output of a command, without numbers, widths, and what notes say
    of variables that are ignored.
    """
    done = person(*words.split(), env=env)
    lines = (done.stdout + done.stderr).splitlines()
    text = " ".join(line for line in lines if "of your shell is ignored" not in line)
    return done.returncode, re.sub(r"[\s\d.\u2500-\u257f]+", " ", text)


@pytest.fixture(scope="module")
def victim(lab: Lab) -> Path:
    """Return the folder of a run that goes on."""
    program = ("sh", "-c", "echo loss 1; sleep 600")
    folder = lab.submit("victim", *SMALL, "--", *program, requeue=0)
    begun(folder)
    return folder


@pytest.mark.usefixtures("victim")
@pytest.mark.parametrize("words", READING)
def test_slurm_s_variables_change_nothing_that_is_shown(lab: Lab, words: str) -> None:
    env = BESIDE_OPTIONS if words.startswith(PLANS) else HOSTILE
    assert _seen(lab.person, words, env) == _seen(lab.person, words, {})


def test_no_variable_of_slurm_s_programs_reaches_a_job(lab: Lab) -> None:
    done = lab.person("submit", *SMALL, "--wait", "--", "env", env=BESIDE_OPTIONS, check=True)
    assert "SBATCH_OUTPUT=47 of your shell is ignored: use --output-dir" in done.stdout
    log = lab.person("logs", "last", check=True).stdout
    assert "SLURM_JOB_ID=" in log
    assert not re.findall(r"^S[A-Z]+_\w+=(?:47|hostile|other)$", log, re.MULTILINE)
    assert not re.findall(r"^(?:SQUEUE|SCANCEL|SCONTROL|SINFO|SACCT|SBATCH)_.*", log, re.MULTILINE)


def test_cancel_is_refused_as_a_whole_and_then_cancels_whatever_scancel_is_told(
    lab: Lab, victim: Path
) -> None:
    refused = lab.person("cancel", "victim", "missing", env=HOSTILE)
    assert (refused.returncode, refused.stdout) == (6, "")
    assert lab.status(victim)["state"] == "RUNNING"
    shown = lab.person("status", "victim", "missing", env=HOSTILE)
    assert (shown.returncode, "RUNNING" in shown.stdout) == (6, True)
    assert "there is no run 'missing'" in shown.stderr
    lab.person("cancel", "victim", env=HOSTILE, check=True)
    assert lab.ended(victim).state == "CANCELLED"
