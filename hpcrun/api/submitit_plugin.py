"""``submitit.AutoExecutor(cluster="hpcrun")``: hpcrun.Executor as a plug-in of submitit.

submitit loads this module in every program that makes an AutoExecutor or a JobEnvironment, in jobs
too. So it imports the rest of hpcrun only when a program chooses hpcrun.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from submitit.core import core
from submitit.core.job_environment import JobEnvironment
from submitit.core.utils import DelayedSubmission, JobPaths

if TYPE_CHECKING:
    from hpcrun.api.executor import Executor
    from hpcrun.api.function_job import FunctionJob

_FILES = ("stdout", "stderr", "result_pickle", "submitted_pickle")


class HpcrunExecutor(core.Executor):
    """What AutoExecutor uses for ``cluster="hpcrun"``.

    Args:
        folder: gets links to the logs, pickles and scripts of the jobs, under submitit's names; the
            files themselves are in the run's folder, with all other runs of hpcrun.
        **values: the parameters of ``hpcrun.Executor``; those that AutoExecutor takes have the
            prefix ``hpcrun_``.

    Raises:
        UsageError: a parameter is misspelt, or its value cannot be read.
    """

    def __init__(self, folder: Path | str, **values: Any) -> None:
        from hpcrun.api.executor import ExecutorOfSubmitit

        self._executor: Executor = ExecutorOfSubmitit(**values)
        super().__init__(folder, self._executor.parameters)

    @classmethod
    def name(cls) -> str:
        """Return the name of the cluster in AutoExecutor."""
        return "hpcrun"

    @classmethod
    def affinity(cls) -> int:
        """Return 0: AutoExecutor takes hpcrun only if the program names it."""
        return 0

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        # submitit only iterates and looks names up
        return _ParameterNames()  # type: ignore[return-value]

    def _internal_update_parameters(self, **values: Any) -> None:
        self._executor.update_parameters(**values)

    def _internal_process_submissions(
        self, delayed_submissions: Sequence[DelayedSubmission]
    ) -> list[core.Job[Any]]:
        # before there is a job: a folder that cannot be written is an error, as in submitit
        JobPaths.get_first_id_independent_folder(self.folder).mkdir(parents=True, exist_ok=True)
        jobs = self._executor._internal_process_submissions(delayed_submissions)
        try:
            for job in jobs:
                _link_files(self.folder, cast("FunctionJob[Any]", job))
        except OSError as error:
            logging.getLogger("hpcrun").warning(
                f"{self.folder} has no links to the files of the jobs: {error}; the jobs are "
                "submitted"
            )
        return jobs


class HpcrunJobEnvironment(JobEnvironment):
    """``submitit.JobEnvironment()`` in a program that ``hpcrun submit`` started.

    A submitted function has submitit's own environment of Slurm or of local jobs, for which its
    node needs no hpcrun.
    """

    _env = {  # noqa: RUF012 - as submitit's own
        "job_id": "HPCRUN_JOB_ID",
        "array_job_id": "SLURM_ARRAY_JOB_ID",
        "array_task_id": "SLURM_ARRAY_TASK_ID",
        "node": "HPCRUN_NODE_RANK",
        "local_rank": "LOCAL_RANK",
    }

    @classmethod
    def name(cls) -> str:
        """Return the name of the cluster in AutoExecutor."""
        return "hpcrun"

    def activated(self) -> bool:
        """Return whether hpcrun started this program, and submitit did not."""
        return "HPCRUN_ATTEMPT_DIR" in os.environ and "SUBMITIT_EXECUTOR" not in os.environ

    @property
    def hostnames(self) -> Sequence[str]:
        """The nodes of the job in Slurm's order."""
        from hpcrun.job.run_paths import AttemptFolder

        attempt = AttemptFolder(Path(os.environ["HPCRUN_ATTEMPT_DIR"]))
        return attempt.hosts.read_text("utf-8").split()

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return len(self.hostnames)

    @property
    def num_tasks(self) -> int:
        """The number of ranks; without ranks each node is one."""
        return int(os.environ.get("WORLD_SIZE") or self.num_nodes)

    @property
    def global_rank(self) -> int:
        """This rank; without ranks the number of the node."""
        return int(os.environ.get("RANK") or self.node)

    def _requeue(self, countdown: int) -> None:
        """Do nothing: hpcrun's script decides at the end of the job whether the job is requeued."""


class _ParameterNames(Set[str]):
    """The names after ``hpcrun_``, loaded when one is looked up.

    AutoExecutor iterates over the names of all executors, so that it can rename the arguments of
    old programs: its ``partition`` becomes ``slurm_partition``. Here it gets none, as it would
    rename them to ``hpcrun_partition``.
    """

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, name: object) -> bool:
        """Return True for a parameter; else raise NameError as AutoExecutor does.

        Raises:
            NameError: the name is no parameter; the message has the nearest name.
        """
        from hpcrun.api import executor
        from hpcrun.errors import UsageError

        try:
            executor.check_names({str(name): None})
        except UsageError as error:
            raise NameError(f"hpcrun_{name}: {error.message}; {error.hint}") from None
        return True


def _link_files(folder: Path, job: FunctionJob[Any]) -> None:
    """Link a job's files under the names that submitit gives the files in ``folder``.

    The folder may contain ``%j``.
    """
    for number in range(job.num_tasks):
        task = job.task(number)
        names = JobPaths(folder, job.job_id, task.paths.task_id)
        targets = {getattr(names, file): getattr(task.paths, file) for file in _FILES}
        targets[names.submission_file] = job.run_folder.script
        names.folder.mkdir(parents=True, exist_ok=True)
        for link, target in targets.items():
            if link.is_symlink():
                link.unlink()  # of an older job with this number, or of the task before
            link.symlink_to(target)
