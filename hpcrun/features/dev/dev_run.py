"""A run that people work in, on the side of the cluster.

It has a listener and keys, and a way to be reached.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcrun.actions.runs.allocation import allocation_of, check_running, job_environment
from hpcrun.actions.status.run_status import RunStatus, one_element
from hpcrun.actions.status.status_query import one_status
from hpcrun.cli.context import Context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.errors import HpcrunError, InterruptedByUser, JobFailedError, PlanError, SchedulerError
from hpcrun.features.dev import PROGRAM
from hpcrun.files.writing import flocked, replace_file
from hpcrun.job.run_paths import RunFolder
from hpcrun.machine.clean_environment import clean_env
from hpcrun.machine.process import leave_running, run_command, user_name
from hpcrun.runs.attempt import last_attempt
from hpcrun.schedulers.job_steps import step_command

_LOOK_S = 0.1
_STEP_S = 60.0
"""How long a listener beside the ranks of a job may take to start."""
_MOST_KEYS = 20


@dataclass(frozen=True, slots=True)
class DevRun:
    """A run, or an element of a sweep."""

    context: Context
    run_id: str
    element: int

    @property
    def run_folder(self) -> Path:
        """The run's folder."""
        return self.context.store.folder(self.run_id)

    @property
    def folder(self) -> Path:
        """The folder of the listener's files, which only this user can enter."""
        return RunFolder(self.run_folder).element(self.element).path / "dev"

    def status(self) -> RunStatus:
        """Return its status, as the scheduler reports it now."""
        item = one_status(self.run_id, self.context.ports).runs[0]
        if item.elements:
            return one_element(item, self.element)[0]
        return item

    def door(self) -> dict[str, Any]:
        """Return what the listener of the newest attempt has written.

        The result is empty as long as there is no listener.
        """
        return self._of_newest_attempt("door")

    def _of_newest_attempt(self, name: str) -> dict[str, Any]:
        """Return what a file of the listener has; empty if an earlier attempt has written it."""
        attempt = last_attempt(self.run_folder, self.element)
        content = _read(self.folder / name)
        if attempt and Path(str(content.get("attempt", ""))).name == str(attempt.number):
            return content
        return {}

    def wait_until_ready(self) -> None:
        """Wait until the job runs and its listener listens, with the reason why it does not start.

        Raises:
            JobFailedError: it has ended, or never starts.
            PlanError: the node has no sshd, which the job needs; the job ends.
        """
        waiter = self.context.waiter(self.run_id)
        job_id = waiter.current().run.job_id
        stopped = InterruptedByUser(
            f"stopped waiting; job {job_id} is not affected",
            hint=f"hpcrun dev {job_id}, or hpcrun cancel {job_id}",
        )
        is_over = waiter.over()
        with interrupted_as(stopped):
            while not self.door():
                refusal = self._of_newest_attempt("refused").get("message")
                if refusal:
                    raise PlanError(
                        f"{refusal}, and job {job_id} ends", hint="a shell without it: hpcrun dev"
                    )
                if is_over():
                    raise JobFailedError(
                        f"job {job_id} does not run", hint=f"hpcrun explain {job_id}"
                    )
                time.sleep(_LOOK_S)

    def change_idle(self, idle_s: int) -> None:
        """Change the limit of idleness while the job runs."""
        _write(self.folder / "idle-limit", json.dumps({"seconds": idle_s}))

    def open(self, item: RunStatus, key: str) -> dict[str, Any]:
        """Let a key in; return how the run is reached, as a document.

        Raises:
            PlanError: the node has no sshd.
        """
        check_running(item, "hpcrun dev")
        self.folder.mkdir(mode=0o700, exist_ok=True)
        host_key = self._host_key()
        with flocked(self.folder / "keys.lock", 10.0):
            path = self.folder / "authorized_keys"
            keys = path.read_text("ascii").splitlines() if path.exists() else []
            keys.append(key)
            _write(path, "\n".join([*keys[-_MOST_KEYS:], ""]))
        door = self._door_of(item)
        if not door.get("sshd"):
            raise PlanError(
                f"there is no sshd on {door.get('node')}",
                hint=f"a shell without it: hpcrun dev {item.run.job_id}",
            )
        started_s = time.time() - (item.status.elapsed_s or 0)
        return {
            "kind": "dev",
            "run": self.run_id,
            "job": str(item.run.job_id),
            "user": user_name(),
            "host_key": host_key,
            "folder": str(self.folder),
            "program": [door["python"], "-ESB", str(self._program())],
            "relay": self._relay(item, str(door["python"]), "relay"),
            "ends_s": started_s + (item.run.walltime_s or 7 * 86400),
            **{name: door.get(name) for name in ("node", "local", "cwd")},
        }

    def _door_of(self, item: RunStatus) -> dict[str, Any]:
        """Return where the listener is.

        In a job with another program, start a listener if none responds.

        Raises:
            PlanError: if the run was submitted by an older hpcrun.
            SchedulerError: if no listener starts in time.
        """
        door = self.door()
        if item.run.request.get("script") == PROGRAM or (door and self._responds(item, door)):
            return door
        (self.folder / "door").unlink(missing_ok=True)
        attempt = last_attempt(self.run_folder, self.element)
        if not self._program().exists() or attempt is None:
            raise PlanError(
                f"{self.run_id} was submitted by an older hpcrun",
                hint=f"hpcrun shell {item.run.job_id}",
            )
        python = (item.run.plan.get("python") or {}).get("executable") or "python3"
        serve = 'exec env HPCRUN_ATTEMPT_DIR="$2" "$3" -B "$4" serve'
        words = [
            "bash",
            "-l",
            "-c",
            f'eval "$1"; {serve}',
            "bash",
            job_environment(item.run.plan),
            str(attempt.folder.path),
            str(python),
            str(self._program()),
        ]
        cwd = Path(str(item.run.plan.get("workdir") or item.run.cwd))
        place = cwd if cwd.is_dir() else Path.home()
        step = self._step(item, cpus=allocation_of(item, self.context.env).cpus_per_node)
        log = self.folder / "step.log"
        leave_running([*step, *words], cwd=place, log=log, env=clean_env(self.context.env))
        until = time.monotonic() + _STEP_S
        while not self.door():
            if time.monotonic() > until:
                raise SchedulerError(
                    f"no listener has started in job {item.run.job_id}", hint=f"its log: {log}"
                )
            time.sleep(_LOOK_S)
        return self.door()

    def _responds(self, item: RunStatus, door: Mapping[str, Any]) -> bool:
        argv = self._relay(item, str(door["python"]), "check")
        return run_command(argv, timeout_s=20, env=clean_env(self.context.env)).ok

    def _program(self) -> Path:
        return RunFolder(self.run_folder).programs("runtime") / f"{PROGRAM}.py"

    def _relay(self, item: RunStatus, python: str, command: str) -> list[str]:
        return [
            *self._step(item, cpus=1),
            python,
            "-ESB",
            str(self._program()),
            command,
            str(self.folder),
        ]

    def _step(self, item: RunStatus, cpus: int | None) -> list[str]:
        """Return the srun of a step on the first node.

        The step is unbuffered, since srun otherwise passes only whole lines: srun(1).
        """
        if item.run.scheduler == "local":
            return []
        job_id = allocation_of(item, self.context.env).job_id
        return [*step_command(job_id, nodes=1, cpus=cpus), "--unbuffered"]

    def _host_key(self) -> str:
        """Return the public host key of this run, which the first to ask makes."""
        path = self.folder / "host_key"
        with flocked(self.folder / "keys.lock", 10.0):
            if not path.exists():
                argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
                run_command(argv, timeout_s=20).checked("no host key", "install OpenSSH's client")
        return " ".join(path.with_suffix(".pub").read_text("ascii").split()[:2])


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, text, durable=False)
    except OSError as error:
        raise HpcrunError(f"{path} cannot be written: {error.strerror}") from None
