"""What a submission that failed tells: whether sbatch was called at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.errors import SchedulerError, SubmissionUncertainError
from hpcrun.job.run_paths import RunFolder
from hpcrun.schedulers.protocol import Submission, SubmittedJob
from hpcrun.schedulers.sbatch import submit_with_submitit
from tests.unit.builders import write


@pytest.mark.parametrize(
    ("workdir", "claim", "message"),
    [
        ("gone", "submit.ready", "sbatch was not called:\n.*gone"),
        (
            ".",
            "submit.revoked",
            "sbatch was not called:\n.*this run was abandoned before submission",
        ),
        (".", "submit.ready", r"sbatch refused the job \(exit status 1\):\nInvalid account"),
    ],
)
def test_only_a_called_sbatch_refuses_a_job(
    workdir: str, claim: str, message: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    write(run / claim, "")
    sbatch = write(tmp_path / "bin" / "sbatch", "#!/bin/sh\necho Invalid account >&2\nexit 1\n")
    sbatch.chmod(0o755)
    env = {"PATH": f"{sbatch.parent}:/usr/bin:/bin"}
    with pytest.raises(SchedulerError, match=f"(?s){message}"):
        submit_with_submitit(Submission(run, "#!/bin/sh\n", tmp_path / workdir, env, None), env)
    assert RunFolder(run).submit_claim("called").exists() == ("refused" in message)


@pytest.mark.parametrize(
    ("name", "elements", "output", "redirection"),
    [
        ("run", (), "{run}/batch.log", ""),
        ("%a %A %j", (), "{run}/batch.log", ""),
        ("%a", (0, 1), "{run}/batch/%a.log", ""),
        ("DOMAIN\\user %a", (), "/dev/null", 'exec >>"$HPCRUN_RUN_DIR/batch.log" 2>&1\n'),
        (
            "DOMAIN\\user",
            (0, 1),
            "/dev/null",
            'exec >>"$HPCRUN_RUN_DIR/batch/$SLURM_ARRAY_TASK_ID.log" 2>&1\n',
        ),
    ],
)
def test_a_folder_s_name_is_no_pattern_of_sbatch_or_submitit(
    name: str, elements: tuple[int, ...], output: str, redirection: str, tmp_path: Path
) -> None:
    run = tmp_path / name
    write(run / "submit.ready", "")
    program = f'#!/bin/sh\nfor last; do :; done\ncp "$last" {tmp_path}/script\n'
    program += f'printf %s "$1" >{tmp_path}/output\necho Submitted batch job 7\n'
    sbatch = write(tmp_path / "bin" / "sbatch", program)
    sbatch.chmod(0o755)
    env = {"PATH": f"{sbatch.parent}:/usr/bin:/bin"}
    head = "#!/bin/bash\n#SBATCH --nodes=1\n"
    submission = Submission(run, f"{head}\ntrue\n", tmp_path, env, None, elements=elements)
    assert submit_with_submitit(submission, env).job_id == "7"
    escaped = str(run).replace("%", "%%")
    assert (tmp_path / "output").read_text() == f"--output={output.format(run=escaped)}"
    assert (tmp_path / "script").read_text() == f"{head}{redirection}\ntrue\n"
    assert not list(run.glob(".submission_file_*"))


def test_the_environment_reaches_sbatch_as_it_is(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write(run / "submit.ready", "")
    program = "#!/usr/bin/env -S python3 -IS\nimport os, shutil\n"
    program += f"shutil.copy('/proc/self/environ', {str(tmp_path / 'environ')!r})\n"
    program += "print('Submitted batch job 7')\n"
    sbatch = write(tmp_path / "bin" / "sbatch", program)
    sbatch.chmod(0o755)
    env = {
        "PATH": f"{sbatch.parent}:/usr/bin:/bin",
        "LC_ALL": "C",  # in which Python adds LC_CTYPE
        "BASH_FUNC_module%%": "() {  echo\n}",
        "a.b": "1",
    }
    submission = Submission(run, "#!/bin/sh\n", tmp_path, env, None, called_in=tmp_path)
    assert submit_with_submitit(submission, env).job_id == "7"
    variables = (tmp_path / "environ").read_bytes().rstrip(b"\0").split(b"\0")
    assert sorted(variables) == sorted(f"{name}={text}".encode() for name, text in env.items())


def submitted(folder: Path, program: str, **said: Any) -> SubmittedJob:
    """The job that such an sbatch submits."""
    write(folder / "run/submit.ready", "")
    sbatch = write(folder / "bin/sbatch", f"#!/bin/sh\n{program}\n")
    sbatch.chmod(0o755)
    env = {"PATH": f"{sbatch.parent}:/usr/bin:/bin"}
    submission = Submission(folder / "run", "#!/bin/sh\n", folder, env, None, **said)
    return submit_with_submitit(submission, env)


def test_the_remarks_of_sbatch_are_kept(tmp_path: Path) -> None:
    job = submitted(tmp_path, "echo welcome >&2; echo Submitted batch job 7")
    assert job == SubmittedJob("7", "welcome")


def test_without_remarks_their_file_is_removed(tmp_path: Path) -> None:
    assert submitted(tmp_path, "echo Submitted batch job 7").remarks == ""
    assert not RunFolder(tmp_path / "run").sbatch_stderr.exists()


def test_dependency_and_comment_are_options_of_sbatch(tmp_path: Path) -> None:
    program = f'printf "%s\\n" "$@" >{tmp_path}/args; echo Submitted batch job 7'
    submitted(tmp_path, program, dependency="afterok:5", comment="two words")
    args = (tmp_path / "args").read_text().splitlines()
    assert args[2:5] == [
        "--dependency=afterok:5",
        "--kill-on-invalid-dep=yes",
        "--comment=two words",
    ]
    submitted(tmp_path, program)
    assert len((tmp_path / "args").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("echo Socket timed out >&2; exit 1", "sbatch got no response; the job may have been"),
        ("echo hello", "sbatch answered 'hello"),
    ],
    ids=["no response", "no id"],
)
def test_a_submission_without_an_answer_is_uncertain(
    tmp_path: Path, program: str, message: str
) -> None:
    with pytest.raises(SubmissionUncertainError, match=message):
        submitted(tmp_path, program)


def test_a_script_that_cannot_be_written_is_not_submitted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    submission = Submission(tmp_path / "file", "#!/bin/sh\n", tmp_path, {}, None)
    with pytest.raises(SchedulerError, match="cannot write the script to submit"):
        submit_with_submitit(submission, {})
