"""The limits of a person and a site on what a command submits."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.harness import Hpcrun, trust
from tests.local.recorded import Recorded, record, replace_fields
from tests.local.test_detect import ANSWERS, Site

DRY = ("submit", "--dry-run", "train.py")
JOB = ("--gpus", "h100:4", "--time", "12h")
"""48 GPU-hours."""


class Limited(Site):
    """A cluster whose sbatch notes each call, and a person with limits."""

    def __init__(self, person: Hpcrun) -> None:
        super().__init__(person)
        self.log = person.folder / "sbatch-calls"
        conf = person.folder / "slurm.conf"
        conf.write_text("ClusterName=dev\n")
        self.env["SLURM_CONF"] = str(conf)
        (person.folder / "train.py").touch()
        for name, line in ANSWERS.items():
            self.say(name, line)
        self.say("sbatch", f"echo x >> {self.log}; echo Submitted batch job $(wc -l < {self.log})")
        self.say("squeue", "true")

    def limit(self, text: str, where: str = "home/.config/hpcrun") -> Path:
        return self.person.write(f"{where}/config.yaml", f"limits: {{{text}}}\n")

    @property
    def submitted(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def limited(hpcrun: Hpcrun) -> Limited:
    return Limited(hpcrun)


COMMANDS = {
    "submit": ("submit", *JOB, "train.py"),
    "parsable": ("submit", "--parsable", *JOB, "train.py"),
    "wait": ("submit", "--wait", *JOB, "train.py"),
    "json": ("submit", "--json", *JOB, "train.py"),
    "chain": ("submit", "--chain", "4", "--gpus", "h100:1", "--time", "12h", "train.py"),
    "sweep": ("submit", "--sweep", "lr=1,2,3,4", "--gpus", "h100:1", "--time", "12h", "train.py"),
    "requeue": ("submit", "--requeue", "3", "--gpus", "h100:1", "--time", "12h", "train.py"),
    "dev": ("dev", *JOB),
    "yes": ("dev", "--ssh", "--yes", *JOB),
    "preflight": ("preflight", *JOB),
    "scale": ("scale", "run", "--gpus", "h100:1,2,4", "--time", "12h", "train.py"),
    "directive": (
        "submit",
        "--sbatch",
        "exclusive",
        "--gpus",
        "h100:1",
        "--time",
        "12h",
        "train.py",
    ),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_every_command_that_submits_is_refused_over_a_limit(
    limited: Limited, words: tuple[str, ...]
) -> None:
    path = limited.limit("gpu_hours_per_job: 40")
    done = limited.person(*words, env=limited.env)
    assert done.returncode == 4, done.stderr
    said = done.stdout + done.stderr
    assert f"the limit is 40 (gpu_hours_per_job in {path})" in said
    assert "a person types this at a terminal: hpcrun " in said
    assert limited.submitted == 0
    assert not [each for each in limited.person.runs.iterdir() if each.name.startswith("2")]


def test_the_refusal_has_the_number_and_the_command(limited: Limited) -> None:
    limited.limit("gpu_hours_per_job: 40")
    done = limited.person("submit", *JOB, "train.py", "a b", env=limited.env)
    assert "hpcrun: at most 48 GPU-hours; the limit is 40" in done.stderr
    assert "hpcrun submit --gpus h100:4 --time 12h train.py 'a b'" in done.stderr


def test_within_the_limits_a_job_is_submitted(limited: Limited) -> None:
    limited.limit("gpu_hours_per_job: 48, gpus_per_job: 4, gpu_hours_per_day: 48")
    limited.person("submit", *JOB, "train.py", env=limited.env, check=True)
    assert limited.submitted == 1


def test_a_limit_of_gpus(limited: Limited) -> None:
    limited.limit("gpus_per_job: 3")
    done = limited.person("submit", *JOB, "train.py", env=limited.env)
    assert done.returncode == 4
    assert "4 GPUs in a job; the limit is 3" in done.stderr


def test_a_resubmission_is_checked(limited: Limited) -> None:
    limited.person("submit", *JOB, "train.py", env=limited.env, check=True)
    limited.limit("gpu_hours_per_job: 40")
    done = limited.person("resubmit", "--force", "last", env=limited.env)
    assert done.returncode == 4, done.stderr
    assert limited.submitted == 1


def test_unlimited_time_is_over_any_limit(limited: Limited) -> None:
    limited.limit("gpu_hours_per_job: 1000000")
    script = "#!/bin/bash\n#SBATCH --gpus=1\ntrue\n"
    limited.person.write("job.sh", script)
    done = limited.person("submit", "job.sh", env=limited.env)
    assert done.returncode == 4
    assert "the GPU-hours are unknown (no time limit is set" in done.stderr


def test_a_job_without_gpus_is_within_every_limit(limited: Limited) -> None:
    limited.limit("gpu_hours_per_job: 0, gpus_per_job: 0, gpu_hours_per_day: 0")
    limited.person("submit", "--gpus", "0", "train.py", env=limited.env, check=True)
    assert limited.submitted == 1


@pytest.mark.parametrize(
    "words",
    [
        ("-P", "cpu", "--partition", "gpu", "--gpus", "0", "--sbatch", "exclusive", "train.py"),
        ("-P", "v100", "--partition", "gpu", "--gpus", "0", "--sbatch", "exclusive", "train.py"),
        ("-P", "v100", "--partition", "x", "--gpus", "1", "--sbatch", "exclusive", "train.py"),
        ("-P", "cpu", "exclusive.sh"),
        ("-P", "cpu", "shard.sh"),
        ("-P", "v100", "requeue.sh"),
    ],
    ids=["other partition", "any node", "other type", "script", "shard", "requeue"],
)
def test_what_a_job_may_get_beyond_its_request_is_unknown(
    limited: Limited, words: tuple[str, ...]
) -> None:
    limited.limit("gpu_hours_per_job: 1000000")
    for name, line in (
        ("exclusive", "--exclusive"),
        ("shard", "--gres=shard:4"),
        ("requeue", "--gpus=1 --requeue"),
    ):
        limited.person.write(f"{name}.sh", f"#!/bin/bash\n#SBATCH {line} --time=10\ntrue\n")
    done = limited.person("submit", "--time", "1h", *words, env=limited.env)
    assert done.returncode == 4, done.stdout
    assert "the GPU-hours are unknown" in done.stderr


def test_a_whole_node_of_a_profile_without_gpus_is_within_every_limit(limited: Limited) -> None:
    limited.limit("gpu_hours_per_job: 0, gpu_hours_per_day: 0")
    words = ("-P", "cpu", "--gpus", "0", "--sbatch", "exclusive", "train.py")
    limited.person("submit", *words, env=limited.env, check=True)


def test_a_limit_of_gpus_alone_needs_no_time_limit(limited: Limited) -> None:
    limited.limit("gpus_per_job: 3")
    for gpus, code in ((3, 0), (4, 4)):
        limited.person.write("job.sh", f"#!/bin/bash\n#SBATCH --gpus={gpus}\ntrue\n")
        done = limited.person("submit", "job.sh", env=limited.env)
        assert done.returncode == code, done.stderr


def test_a_local_job_without_gpus_sees_none(limited: Limited) -> None:
    limited.limit("gpu_hours_per_job: 0")
    shows = "import os; print('sees', os.environ['CUDA_VISIBLE_DEVICES'].split(','))"
    limited.person.write("train.py", shows)
    env = {**limited.env, "CUDA_VISIBLE_DEVICES": "0,1"}
    words = ("submit", "-P", "local", "--gpus", "0", "--follow", "--time", "1h")
    done = limited.person(*words, "train.py", env=env, check=True)
    assert "sees ['']" in done.stdout
    shown = ("--env", "CUDA_VISIBLE_DEVICES=0,1", "train.py")
    done = limited.person(*words, *shown, env=env)
    assert "at most 2 GPU-hours" in done.stderr


def test_the_smaller_limit_of_person_and_site_holds(limited: Limited) -> None:
    limited.limit("gpu_hours_per_job: 100")
    site = limited.limit("gpu_hours_per_job: 40", "site")
    done = limited.person("submit", *JOB, "train.py", env=limited.env)
    assert f"the limit is 40 (gpu_hours_per_job in {site})" in done.stderr
    limited.limit("gpu_hours_per_job: 30")
    done = limited.person("submit", *JOB, "train.py", env=limited.env)
    assert "the limit is 30 " in done.stderr


def test_a_trusted_project_raises_no_limit(limited: Limited) -> None:
    limited.limit("gpu_hours_per_job: 40")
    limited.limit("gpu_hours_per_job: 1000", ".hpcrun")
    trust(limited.person, limited.person.folder)
    assert limited.person("submit", *JOB, "train.py", env=limited.env).returncode == 4


def test_a_template_with_directives_of_its_own_is_counted(limited: Limited) -> None:
    limited.limit("gpu_hours_per_job: 40")
    shipped = (limited.person.checkout / "templates/job.sh.j2").read_text()
    first, rest = shipped.split("\n", 1)
    text = f"{first}\n#SBATCH --array=0-99\n{rest}"
    limited.person.write("home/.config/hpcrun/templates/job.sh.j2", text)
    words = ("submit", "--gpus", "h100:1", "--time", "1h", "train.py")
    done = limited.person(*words, env=limited.env)
    assert "at most 100 GPU-hours" in done.stderr


def test_a_misspelt_limit_is_an_error(limited: Limited) -> None:
    limited.limit("gpus_per_jobb: 3")
    done = limited.person(*DRY, env=limited.env)
    assert done.returncode == 3
    assert "limits.gpus_per_jobb: there is no such limit" in done.stderr


def test_at_a_terminal_there_is_one_question(limited: Limited) -> None:
    limited.limit("gpu_hours_per_job: 40, gpus_per_job: 1")
    for answer, submitted in (("n", 0), ("y", 1)):
        asks = limited.person.terminal("submit", *JOB, "train.py", env=limited.env)
        asks.expect("at most 48 GPU-hours.*Submit all the same")
        asks.sendline(answer)
        asks.wait()
        assert limited.submitted == submitted


def test_what_is_used_and_reserved_in_a_day_counts(limited: Limited) -> None:
    limited.limit("gpu_hours_per_day: 100")
    limited.person("submit", *JOB, "train.py", env=limited.env, check=True)
    limited.person("submit", *JOB, "train.py", env=limited.env, check=True)
    done = limited.person("submit", *JOB, "train.py", env=limited.env)
    assert done.returncode == 4
    assert "besides 96 used or reserved in the last 24 hours; the limit is 100" in done.stderr


def test_another_runs_folder_counts_in_the_same_day(limited: Limited) -> None:
    limited.limit("gpu_hours_per_day: 100")
    for name in ("one", "two"):
        env = {**limited.env, "HPCRUN_RUNS": str(limited.person.folder / name)}
        limited.person("submit", *JOB, "train.py", env=env, check=True)
    done = limited.person("submit", *JOB, "train.py", env=limited.env)
    assert "besides 96 used or reserved" in done.stderr


def test_a_run_of_unknown_hours_fills_the_day(limited: Limited) -> None:
    limited.person.write("job.sh", "#!/bin/bash\n#SBATCH --gpus=1\ntrue\n")
    limited.person("submit", "job.sh", env=limited.env, check=True)
    limited.limit("gpu_hours_per_day: 1000")
    done = limited.person("submit", *JOB, "train.py", env=limited.env)
    assert done.returncode == 4
    assert "-job-" in done.stderr
    assert "which are unknown (until it ends: hpcrun cancel 2" in done.stderr


def run_of(limited: Limited) -> Path:
    """The folder of a new run of 48 GPU-hours."""
    shown = limited.person("submit", "--json", *JOB, "train.py", env=limited.env, check=True)
    return Path(json.loads(shown.stdout)["folder"])


def _record_is_damaged(folder: Path) -> None:
    (folder / "run.json").write_text("{")


def _record_is_gone(folder: Path) -> None:
    (folder / "run.json").unlink()


def _record_has_odd_hours(folder: Path) -> None:
    replace_fields(folder / "run.json", gpu_hours_at_most="48")


def _record_has_no_hours(folder: Path) -> None:
    replace_fields(folder / "run.json", gpu_hours_at_most=None)


def _record_has_fewer_hours(folder: Path) -> None:
    replace_fields(folder / "run.json", gpu_hours_at_most=0)


SPOILED = (
    _record_is_damaged,
    _record_is_gone,
    _record_has_odd_hours,
    _record_has_no_hours,
    _record_has_fewer_hours,
)


@pytest.mark.parametrize("spoil", [*SPOILED, shutil.rmtree])
def test_a_run_without_its_record_counts_by_the_log_of_actions(
    limited: Limited, spoil: Callable[[Path], None]
) -> None:
    limited.limit("gpu_hours_per_day: 80")
    spoil(run_of(limited))
    done = limited.person("submit", *JOB, "train.py", env=limited.env)
    assert "besides 48 used or reserved" in done.stderr


@pytest.mark.parametrize("spoil", SPOILED[:4])
def test_a_run_that_nothing_tells_of_fills_the_day(
    limited: Limited, spoil: Callable[[Path], None]
) -> None:
    limited.limit("gpu_hours_per_day: 1000")
    folder = run_of(limited)
    spoil(folder)
    (limited.person.runs / "actions.jsonl").unlink()
    done = limited.person("submit", *JOB, "train.py", env=limited.env)
    assert done.returncode == 4, done.stdout
    assert f"besides those of run {folder.name}, which are unknown (" in done.stderr


def test_a_run_that_clean_has_removed_counts_what_it_has_used(limited: Limited) -> None:
    limited.limit("gpu_hours_per_day: 80")
    folder = run_of(limited)
    attempt = Recorded(folder).attempt()
    replace_fields(attempt / "start", job_id="1")
    limited.person("clean", "--all", "--yes", env=limited.env, check=True)
    assert not folder.exists()
    done = limited.person("submit", *JOB, "train.py", env=limited.env)
    assert done.returncode == 0, done.stderr


def test_a_log_line_without_a_number_fills_the_day(limited: Limited) -> None:
    limited.limit("gpu_hours_per_day: 1000")
    folder = run_of(limited)
    shutil.rmtree(folder)
    log = limited.person.runs / "actions.jsonl"
    replace_fields(log, gpu_hours_with_requeues="many")
    done = limited.person("submit", *JOB, "train.py", env=limited.env)
    assert f"run {folder.name}, which are unknown" in done.stderr


def test_an_old_log_line_does_not_count(limited: Limited) -> None:
    limited.limit("gpu_hours_per_day: 80")
    shutil.rmtree(run_of(limited))
    replace_fields(limited.person.runs / "actions.jsonl", time_s=time.time() - 2 * 86400)
    run_of(limited)


def test_whole_nodes_that_an_ended_run_had_count(limited: Limited) -> None:
    limited.limit("gpu_hours_per_day: 100")
    run, ended = record(limited.person, "old", scheduler="slurm"), time.time() - 60
    plan = {"scheduler": "slurm", "shape": {"nodes": 2}}
    fields = {"nodes": 2, "gpus_per_node": 1, "gpus_at_most": 60, "cluster": "dev", "plan": plan}
    replace_fields(run.folder / "run.json", **fields)
    run.ended(ended, 0)
    replace_fields(run.attempt(over=False) / "start", job_id="7", started=ended - 3600)
    done = limited.person("submit", *JOB, "train.py", env=limited.env)
    assert "besides 60 used or reserved" in done.stderr


def test_submissions_at_the_same_time_do_not_pass_the_limit_of_a_day(limited: Limited) -> None:
    limited.limit("gpu_hours_per_day: 100")
    with ThreadPoolExecutor(6) as pool:
        submits = []
        for number in range(6):
            runs = str(limited.person.folder / f"runs-{number % 2}")
            env = {**limited.env, "HPCRUN_RUNS": runs}
            call = partial(limited.person, "submit", *JOB, "train.py", env=env)
            submits.append(pool.submit(call))
        codes = sorted(submit.result().returncode for submit in submits)
    assert codes == [0, 0, 4, 4, 4, 4]
    assert limited.submitted == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_run_folder_of_another_user_refuses_no_later_job(limited: Limited) -> None:
    limited.limit("gpu_hours_per_day: 100")
    theirs = limited.person.folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    env = {**limited.env, "HPCRUN_RUNS": str(theirs)}
    done = limited.person("submit", *JOB, "train.py", env=env)
    assert "belongs to another user" in done.stderr
    limited.person("submit", *JOB, "train.py", env=limited.env, check=True)


def test_a_runs_folder_that_cannot_be_read_fills_the_day(limited: Limited) -> None:
    limited.limit("gpu_hours_per_day: 1000")
    other = limited.person.folder / "other"
    env = {**limited.env, "HPCRUN_RUNS": str(other)}
    limited.person("submit", *JOB, "train.py", env=env, check=True)
    other.chmod(0o777)
    done = limited.person("submit", *JOB, "train.py", env=limited.env)
    assert done.returncode == 4
    assert f"besides those of the runs in {other}, which are unknown (" in done.stderr
    assert f"chmod go-w {other}" in done.stderr


def test_requeues_are_reserved(limited: Limited) -> None:
    limited.limit("gpu_hours_per_day: 100")
    words = ("submit", "--gpus", "h100:2", "--time", "12h", "--requeue", "1", "train.py")
    limited.person(*words, env=limited.env, check=True)
    run = json.loads(next(limited.person.runs.glob("2*/run.json")).read_text())
    assert run["gpu_hours_at_most"] == 24
    done = limited.person(
        "submit", "--gpus", "h100:5", "--time", "12h", "train.py", env=limited.env
    )
    assert "besides 48 used or reserved" in done.stderr


def test_an_ended_run_counts_what_it_has_used(limited: Limited) -> None:
    limited.limit("gpu_hours_per_day: 100")
    run, ended = record(limited.person, "old", scheduler="slurm"), time.time() - 60
    replace_fields(run.folder / "run.json", nodes=2, gpus_per_node=30, cluster="dev")
    run.ended(ended, 0)
    start = run.attempt(over=False) / "start"
    replace_fields(start, job_id="7", host="n1", started=ended - 3600)
    done = limited.person("submit", *JOB, "train.py", env=limited.env)
    assert "besides 60 used or reserved" in done.stderr


def test_the_executor_is_refused_too(limited: Limited) -> None:
    limited.limit("gpu_hours_per_job: 40")
    program = (
        "import hpcrun\n"
        "executor = hpcrun.Executor(gpus='h100:1', time='12h')\n"
        "try:\n"
        "    executor.map_array(print, [1, 2, 3, 4])\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    limited.person.write("program.py", program)
    done = limited.person.run("python", "program.py", env=limited.env, check=True)
    assert "LimitError at most 48 GPU-hours" in done.stdout, done.stdout
    assert limited.submitted == 0


def test_a_record_has_the_hours_at_most(limited: Limited) -> None:
    folder = json.loads(
        limited.person("submit", "--json", *JOB, "train.py", env=limited.env, check=True).stdout
    )["folder"]
    assert json.loads(Path(folder, "run.json").read_text())["gpu_hours_at_most"] == 48


@pytest.mark.parametrize("name", ["submit", "chain", "sweep", "requeue"])
def test_a_dry_run_says_that_the_job_is_over_a_limit(limited: Limited, name: str) -> None:
    verb, *words = COMMANDS[name]
    limited.limit("gpu_hours_per_job: 100")
    assert (
        "over a limit"
        not in limited.person(verb, "--dry-run", *words, env=limited.env, check=True).stderr
    )
    limited.limit("gpu_hours_per_job: 40")
    shown = limited.person(verb, "--dry-run", *words, env=limited.env, check=True)
    assert (
        "note: over a limit, so that a submission is refused or a person asked: at most 48"
        in shown.stderr
    )
    assert limited.submitted == 0
