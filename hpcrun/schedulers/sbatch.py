"""Calls sbatch through submitit: its executor submits our script, byte for byte.

Besides the API this is the only module that imports submitit; it is imported only for a submission.
"""

from __future__ import annotations

import io
import os
import sys
import uuid
from collections.abc import Mapping
from contextlib import redirect_stderr, suppress
from pathlib import Path

import submitit
from submitit.core.utils import CommandFunction, FailedJobError, FailedSubmissionError

from hpcrun.errors import SchedulerError, SubmissionUncertainError
from hpcrun.files.reading import read_text
from hpcrun.job.run_paths import SUBMISSION_FILE, RunFolder
from hpcrun.machine.command_log import timed
from hpcrun.machine.process import command_text
from hpcrun.schedulers.protocol import Submission, SubmittedJob
from hpcrun.schedulers.slurm_text import parse_submitted, refusal_hint, submission_is_uncertain

_CALL = str(Path(__file__).with_name("call_sbatch.py"))


class ScriptExecutor(submitit.SlurmExecutor):
    """A SlurmExecutor that submits a finished script instead of making one around a pickle."""

    def __init__(self, submission: Submission, env: Mapping[str, str]) -> None:
        super().__init__(folder=submission.folder)
        self._submission = submission
        self._env = dict(env)
        self.sbatch_called = False

    @classmethod
    def affinity(cls) -> int:
        """Return submitit's value for a machine that can submit, without its search for srun.

        The caller has checked that sbatch is there, and only the nodes need srun.
        """
        return 2

    def submit_script(self) -> str:
        """Submit the script, and return the id of its job.

        submitit's own ``_submit_command`` would replace ``%a``, ``%A``, ``%j`` and ``%t`` in the
        name of the folder.
        """
        script = self._submission.folder / f"{SUBMISSION_FILE}{uuid.uuid4().hex}.sh"
        script.write_text(_script(self._submission), "utf-8")
        command = self._make_submission_command(script)
        answer = CommandFunction(command, verbose=False, env=self._env)()
        return self._get_job_id_from_submission_command(answer)

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        folder = RunFolder(self._submission.folder)
        self.sbatch_called = True
        return [
            sys.executable,
            "-ISB",
            _CALL,
            str(folder.sbatch_stderr),
            # for SLURM_SUBMIT_DIR: the caller of resubmit may be in another folder
            str(self._submission.called_in or self._submission.workdir),
            str(folder.submit_claim()),
            str(folder.submit_claim("called")),
            *_sbatch(self._submission),
            # the path that squeue shows as the job's command, which identifies a lost job
            str(submission_file_path),
        ]

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        if isinstance(string, str):
            output = string
        else:
            output = string.decode(errors="replace")
        job_id = parse_submitted(output)
        if job_id:
            return job_id
        raise FailedSubmissionError(f"sbatch answered {output!r}")


def submit_with_submitit(submission: Submission, env: Mapping[str, str]) -> SubmittedJob:
    """Submit a script that is ready in its folder.

    Raises:
        SubmissionUncertainError: sbatch got no answer, so the job may exist, or the job was
            submitted but its record could not be completed.
        SchedulerError: sbatch refused the script, or the script cannot be written.
    """  # noqa: DOC501
    folder = RunFolder(submission.folder)
    executor = ScriptExecutor(submission, env)
    try:
        with (
            timed(command_text(_sbatch(submission))) as how,
            redirect_stderr(io.StringIO()),
        ):
            job_id = executor.submit_script()
            how.append(f"job {job_id}")
    except FailedJobError as error:
        raise _refusal(folder, error) from None
    except FailedSubmissionError as error:
        raise SubmissionUncertainError(str(error), hint="hpcrun status looks for the job") from None
    except OSError as error:  # the file to submit or sbatch's pipes, before sbatch or after it
        if executor.sbatch_called:
            raise SubmissionUncertainError(
                f"the job was submitted, but its record could not be completed: {error}",
                hint="hpcrun status finds it",
            ) from None
        raise SchedulerError(f"cannot write the script to submit: {error}") from None
    remarks = _read(folder.sbatch_stderr)
    with suppress(OSError):  # the job is submitted, whatever its file system says now
        # not needed beside the run's own script
        for copy in submission.folder.glob(f"{SUBMISSION_FILE}*.sh"):
            copy.unlink(missing_ok=True)
        if not remarks:
            folder.sbatch_stderr.unlink(missing_ok=True)
    return SubmittedJob(job_id, remarks)


def _refusal(folder: RunFolder, error: FailedJobError) -> SchedulerError:
    """Return the error for a failed sbatch: refused, no answer, or never called."""
    stderr = _read(folder.sbatch_stderr) or str(error)
    if submission_is_uncertain(stderr):
        return SubmissionUncertainError(
            f"sbatch got no response; the job may have been submitted:\n{stderr}",
            hint="check with hpcrun status when the controller is back",
        )
    if any(map(os.path.exists, (folder.submit_claim(), folder.submit_claim("revoked")))):
        return SchedulerError(f"sbatch was not called:\n{stderr}")
    status = getattr(error.__cause__, "returncode", None)
    return SchedulerError(
        f"sbatch refused the job (exit status {status}):\n{stderr}", hint=refusal_hint(stderr)
    )


def _opens_its_log(submission: Submission) -> bool:
    """Return whether the script itself must open its log.

    sbatch(1), filename pattern: with a backslash in the path, Slurm replaces nothing, and each
    version leaves out other backslashes.
    """
    return "\\" in str(submission.folder)


def _script(submission: Submission) -> str:
    """Return the script to submit."""
    if not _opens_its_log(submission):
        return submission.script
    lines = submission.script.splitlines(keepends=True)
    first = 0  # the line of the first command, below the #SBATCH lines
    while first < len(lines) and lines[first].startswith("#"):
        first += 1
    log = RunFolder(Path("$HPCRUN_RUN_DIR"))
    path = log.task_log("$SLURM_ARRAY_TASK_ID") if submission.elements else log.batch_log
    lines.insert(first, f'exec >>"{path}" 2>&1\n')
    return "".join(lines)


def _sbatch(submission: Submission) -> list[str]:
    """Return the command, without the path of the script."""
    # sbatch(1), filename pattern: %% is a plain %, and %a the number of the array's task
    folder = RunFolder(Path(str(submission.folder).replace("%", "%%")))
    if _opens_its_log(submission):
        log = Path(os.devnull)
    elif submission.elements:
        log = folder.task_log("%a")
    else:
        log = folder.batch_log
    # without the second, a job with an impossible dependency stays pending forever
    # (DependencyNeverSatisfied)
    if submission.dependency:
        wait = [f"--dependency={submission.dependency}", "--kill-on-invalid-dep=yes"]
    else:
        wait = []
    comment = [f"--comment={submission.comment}"] if submission.comment else []
    return ["sbatch", f"--output={log}", f"--chdir={submission.workdir}", *wait, *comment]


def _read(path: Path) -> str:
    try:
        return read_text(path).strip()
    except OSError:
        return ""
