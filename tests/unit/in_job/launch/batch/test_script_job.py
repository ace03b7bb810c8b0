"""A job that runs a person's script: its launch, what follows it, and its exit status."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.unit.in_job import attempts
from tests.unit.in_job.attempts import Attempt


def run(job: Attempt, text: str, *options: str, **env: str) -> tuple[int, str, str]:
    """Run a script; return the job's status, stdout and stderr."""
    script = job.run / "script.sh"
    script.write_text(text)
    words = ["job", "--nodes", "1", "--script", *options, "--", "bash", str(script)]
    done = job.launch(*words, **env)
    return done.returncode, done.stdout, done.stderr


def end(job: Attempt) -> tuple[int, str]:
    """Return the status and the message of the record."""
    record = json.loads((job.folder / "exit").read_text())
    return record["status"], record["message"]


LAUNCH = '"$HPCRUN_LAUNCH" :: sh -c'


def test_a_script_goes_on_with_the_status_of_its_launch(job: Attempt) -> None:
    text = f"A=1 {LAUNCH} 'echo $A; exit 7'\necho then $?\n"
    assert run(job, text) == (0, "then 7\n", "")
    assert end(job) == (0, "script.sh ended with status 0, its launch with 7")
    assert job.text("rank-0.out") == "1\n"


FAILS = 'set -E; trap \'echo "$? $LINENO $BASH_COMMAND" >>"$HPCRUN_SCRIPT_ERRORS"\' ERR\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            f"{FAILS}(exit 5) || false\nexit 1\n{LAUNCH} true\n",
            "script.sh ended with status 1 before its launch: line 2: false",
            id="before",
        ),
        pytest.param(
            f"{LAUNCH} true\nexit 5\n",
            "script.sh ended with status 5 after its launch",
            id="after",
        ),
    ],
)
def test_the_message_says_where_a_script_has_failed(job: Attempt, text: str, message: str) -> None:
    _, _, log = run(job, text)
    assert log == f"hpcrun: {message}\n"
    assert end(job)[1] == message


def test_the_output_of_a_launch_goes_to_its_reader(job: Attempt) -> None:
    text = f"{LAUNCH} 'echo a; echo b >&2' | sed s/^/read:/\n"
    assert run(job, text) == (0, "read:a\n", "")
    assert (job.text("rank-0.out"), job.text("rank-0.err")) == ("a\n", "b\n")


def test_the_ranks_get_what_the_script_has_set(job: Attempt, tmp_path: Path) -> None:
    text = f"cd {tmp_path}; umask 027; ulimit -n 99; export A=own B=own\n"
    text += f"{LAUNCH} 'pwd; umask; ulimit -n; echo $A $B $C'\n"
    run(job, text, "--add", "A=hpcrun", "--add", "C=hpcrun")
    assert job.text("rank-0.out").split() == [
        str(tmp_path),
        "0027",
        "99",
        *"own own hpcrun".split(),
    ]


def test_the_script_does_not_get_the_variables_of_hpcrun(job: Attempt) -> None:
    text = "echo ${HPCRUN_MANAGED-none} ${C-none}\n"
    assert run(job, text, "--add", "C=x", C="own")[1] == "none own\n"


def test_a_script_that_is_killed_ends_the_job(job: Attempt) -> None:
    assert run(job, "kill -9 $$\n")[0] == 137
    assert end(job) == (137, "script.sh ended with status 137")


def test_a_trace_shows_the_launch_as_it_is_written(job: Attempt) -> None:
    script = job.run / "script.sh"
    script.write_text(f"set -x\n{LAUNCH} true\n")
    log = job.run / "slurm.out"
    words = ["job", "--nodes", "1", "--script", "--", "bash", str(script)]
    with log.open("a") as file:
        subprocess.run(
            [*attempts.LAUNCH, *words], env=job.env, stdout=file, stderr=file, check=True
        )
    assert log.read_text().rstrip(" \n") == "+ sh -c true"


STOPPED = f"""cd $HPCRUN_RUN_DIR
{LAUNCH} 'trap "sleep 1.2; echo saved; exit 9" TERM; touch up; sleep 60 & wait' &
until [ -e up ]; do sleep 0.05; done
"""


def test_a_script_that_ends_before_its_launch_ends_the_step(job: Attempt) -> None:
    assert run(job, f"{STOPPED}exit 3\n")[0] == 3
    assert job.text("rank-0.out") == "saved\n"
    assert job.record("rank-0.exit")["status"] == 9


def test_a_signal_to_the_launch_reaches_the_step(job: Attempt) -> None:
    assert run(job, f"{STOPPED}kill $!; wait $!; echo $?\n")[:2] == (0, "9\n")
    assert job.text("rank-0.out") == "saved\n"
