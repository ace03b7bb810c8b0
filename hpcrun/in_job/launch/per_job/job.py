"""The job itself: this program runs in the place of the batch script.

The command is ``launch job [OPTIONS] -- [CHECK ... && JUDGE ... &&] STEP ...``.

It chooses the rendezvous, starts the step (srun, or the "nodes" of this machine), and receives
Slurm's warnings. When the ranks have ended, it records how and why, and decides whether the job is
restarted in this allocation, requeued, or ended. Each start of the step is an attempt with its own
folder.

* job_arguments.py: the options
* job_nodes.py: the nodes of the step
* step_monitor.py: the step, while it runs
* postmortem.py, why_ended.py: why it ended, and what follows
* repeated_failure.py: whether the next attempt would fail in the same way
* exit_record.py: what is recorded of its end
"""

from __future__ import annotations

import os
import resource
import signal
import time
from typing import TYPE_CHECKING

from .. import rank_environment, records, rendezvous, slurm_requests
from ..records import OVER, REQUEUE, RESTART
from . import chain, dead_nodes, run_preflight
from .exit_record import write_exit
from .guard import Guard
from .job_arguments import parse_options
from .job_nodes import JobNodes, ask_nodes
from .message_events import Messages
from .postmortem import Postmortem
from .repeated_failure import why_not_retried
from .step_monitor import StepMonitor
from .why_ended import FAILURE, IDLE, OWN_END, Ended, final_status, what_next, why_not_continued

if TYPE_CHECKING:
    from .job_arguments import JobOptions
    from .stage import StagedData
    from .warm_start import WarmStart

MESSAGE_S = 15.0
"""A message and the removal of data delay a requeue only if the time limit is further away."""
REMOVE_S = 60.0
"""The time for the removal of data at the end of the job."""
TOO_FEW_NODES = "too few nodes are left to restart on"


def main(arguments: list[str]) -> int:
    """Run the job; return its exit status."""
    end = arguments.index("--")
    # a folder was given to a script that was run by hand
    os.environ.setdefault("HPCRUN_JOB_ID", f"L{os.getpid()}")
    job = Job(parse_options(arguments[:end]))
    try:
        status = job.run(arguments[end + 1 :])
    except OSError as error:  # the quota is used up
        status = job.refuse(f"it cannot use its run's folder: {error}")
    job.tidy()
    job.end_as_script()
    return status


class Job:
    """The job in this allocation: one attempt or, with restarts, several."""

    def __init__(self, options: JobOptions) -> None:
        requeues = "HPCRUN_REQUEUES" if options.is_local else "SLURM_RESTART_COUNT"
        self._options = options
        self._attempt = int(os.environ["HPCRUN_ATTEMPT"])
        self._requeues = int(os.environ.get(requeues) or 0)
        self._messages = Messages()
        self._nodes = JobNodes(options)
        self._monitor = StepMonitor(options, self._messages, self._record_reason)
        self._postmortem = Postmortem(options, self._nodes, self._monitor, self._requeues)
        self._data = _data_to_stage(options)
        self._warm = _warm_start(options)

    @property
    def _restarts(self) -> int:
        """The number of restarts in an allocation: all other attempts were requeues."""
        return max(0, self._attempt - self._requeues)

    # --- the attempts ----------------------------------------------------------------------------

    def run(self, command: list[str]) -> int:
        """Run the step, with restarts if necessary, and return the exit status of the job.

        Signals are blocked (__main__.py).
        """
        options = self._options
        if options.in_slurm:
            dead_nodes.note_dead_before()
        if options.is_managed and self._requeues > options.requeue:
            return self.refuse(f"started once more than --requeue {options.requeue} allows")
        if options.requeue and self._requeues == options.requeue and not options.is_local:
            slurm_requests.requeue_no_more()  # Slurm's own requeues count, too
        self._monitor.step.prepare(options.came, managed=options.is_managed)
        os.environ[rank_environment.SAMPLE] = f"{options.sample_s:g}"
        self._choose_rendezvous()
        if not options.is_local:
            # the preflight and the copying of data are steps, too
            steps = 2 + bool(options.stage) + bool(options.warm)
            slurm_requests.skip_steps(steps * records.attempts_cut_off())
        if not options.preflight:
            return self._run_attempts(command)
        commands = run_preflight.split_commands(command)
        problem = run_preflight.check_nodes(
            commands, self._monitor, self._nodes.hosts, is_local=options.is_local
        )
        if problem:
            return self.refuse(problem)
        if self._monitor.signalled:
            return self._end_attempt(records.TERM_STATUS)[0]
        if not commands.step:
            return self._end_attempt(0)[0]
        return self._run_attempts(commands.step)

    def tidy(self) -> None:
        """End the guard and the canary, and tidy the folder of the attempt.

        The folder stays as it is while this process has other children, which still write.
        """
        self._monitor.end_helpers()
        rank_environment.tidy()

    def end_as_script(self) -> None:
        """End by the signal that has ended a person's script, which Slurm then shows, too."""
        number = self._monitor.step.killed_by
        if not number or self._options.is_local:
            return
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)

    def refuse(self, message: str) -> int:
        """Say why the job cannot run, in its log and its record; return its exit status."""
        records.say(message)
        write_exit(1, signalled=self._monitor.signalled, message=message)
        self._messages.tell_end(failed=True)
        return 1

    def _run_attempts(self, command: list[str]) -> int:
        """Run the step until no attempt follows in this allocation; return the last status."""
        status, has_next = self._run_attempt(command)
        while has_next and self._begin_attempt():
            self._choose_rendezvous()
            status, has_next = self._run_attempt(command)
        if has_next:
            status = self.refuse("its next attempt has been started elsewhere")
        self._monitor.watch_attempt([])  # a script may continue without its nodes and GPUs
        status = self._monitor.step.finish(status, elsewhere=has_next)
        self._remove_data(REMOVE_S)
        return status

    def _run_attempt(self, command: list[str]) -> tuple[int, bool]:
        """Run the step once.

        Returns:
            The exit status, and whether another attempt begins in this allocation.
        """
        self._start_guard()
        problem = ""
        if self._data:
            problem = self._data.copy(self._monitor.step, self._nodes.hosts)
        if self._warm and not problem and not self._monitor.signalled:
            self._warm.prepare(self._monitor.step, self._nodes.hosts)
        self._monitor.watch_gpus(self._nodes.hosts)
        if self._monitor.signalled:
            return self._end_attempt(1)
        if problem:
            return self._end_attempt(1, problem)
        step = self._nodes.place(command, is_restart=self._restarts > 0)
        status = self._monitor.step.run(step, self._nodes.hosts)
        return self._end_attempt(status)

    def _begin_attempt(self) -> bool:
        """Begin the next attempt, with a folder and a start record.

        Returns:
            Whether this job may run the attempt: no other job has begun it.

        Raises:
            OSError: the disk is full.
        """
        self.tidy()
        self._monitor.renew_canary()
        self._attempt += 1
        folder = os.path.join(os.path.dirname(records.attempt_dir()), str(self._attempt))
        records.retry_if_full(lambda: os.makedirs(folder, exist_ok=True))
        if os.path.exists(os.path.join(folder, "start")):
            return False
        records.retry_if_full(lambda: rank_environment.renew(folder))
        os.environ["HPCRUN_ATTEMPT"] = str(self._attempt)
        start = {
            "job_id": os.environ["HPCRUN_JOB_ID"],
            "host": os.uname().nodename,
            "started": time.time(),
        }
        if not records.write_patiently("start", start):
            raise OSError(f"attempt {self._attempt + 1} has no start record")
        return True

    def _choose_rendezvous(self) -> None:
        """Choose the nodes of the step, and the rendezvous of the ranks."""
        options = self._options
        self._nodes.set_hosts()
        rendezvous.choose(self._nodes.hosts, local=options.is_local)
        can_continue = options.requeue or options.restarts
        if can_continue and not options.is_local:
            self._monitor.watch_attempt(self._nodes.hosts)
        else:
            self._monitor.watch_attempt([])
        self._messages.tell_start()

    def _start_guard(self) -> None:
        """Start a guard on another node, which ends or requeues the job if this node fails.

        See guard.py.
        """
        if not self._options.spares:
            return
        self._monitor.guard = Guard(
            self._nodes.script_host,
            hosts=self._nodes.guard_hosts(),
            how=REQUEUE if self._requeues < self._options.requeue else OVER,
            exclude=self._options.exclude_bad_nodes,
        )
        self._monitor.guard.renew(time.monotonic())

    def _remove_data(self, most_s: float) -> None:
        """Remove the data of --stage from the nodes, once, in at most so many seconds."""
        if self._data is None:
            return
        if self._monitor.signalled:
            most_s = 0  # the nodes got SIGTERM, too, and remove the data themselves
        self._data.remove(self._nodes.hosts, self._nodes.left_out, most_s)
        self._data = None

    # --- the end of an attempt -------------------------------------------------------------------

    def _end_attempt(self, status: int, problem: str = "") -> tuple[int, bool]:
        """Record how the attempt ended; restart, requeue or end the job.

        Args:
            status: the exit status of the step.
            problem: why the attempt ended before its ranks started; empty if they did.

        Returns:
            The exit status, and whether another attempt begins in this allocation.
        """
        self._monitor.forget_dead_nodes()
        if self._was_ended_by_guard():
            self._monitor.sweep_node()
            return records.TERM_STATUS, False
        ended = self._postmortem.facts(status)
        why = self._postmortem.why_if_needed(ended)
        status = final_status(ended, why, self._options.rules)
        failed_nodes = self._postmortem.failed_nodes(why, ended)
        if why == records.NODE_FAILURE or self._options.exclude_bad_nodes:
            self._nodes.left_out += failed_nodes
        how, obstacle = self._choose_continuation(why, failed_nodes)
        if why == FAILURE and how != OVER and not problem:
            problem = why_not_retried(ended.first_failed)
            if problem:
                records.say(problem)
                how = OVER
        signalled = self._monitor.signalled
        if how == RESTART:
            self._report_end(why, "restarted in this allocation")
            write_exit(status, signalled=signalled, why=why, how=how, nodes=failed_nodes)
            return status, True
        if how == REQUEUE:
            if self._requeue(status, why, failed_nodes):
                return status, False
            message = "scontrol requeue failed; hpcrun resubmit starts it again"
        else:
            message = problem or self._message(why, obstacle)
        if status:
            message = _with_role_failure(message)
        message = self._end_chain(status, ended, why) or message
        write_exit(status, signalled=signalled, why=why, message=message, nodes=failed_nodes)
        self._end_job(why, failed=status != 0)
        return status, False

    def _was_ended_by_guard(self) -> bool:
        """Return whether this node had no network, and the guard has ended or requeued the job."""
        if not self._options.spares or self._monitor.signalled:
            return False
        record = records.read("exit")
        if not record:
            return False
        return record.get("reason") != IDLE

    def _choose_continuation(self, why: str, failed_nodes: list[str]) -> tuple[str, str]:
        """Choose how the job continues; for a restart, set the nodes of the next attempt.

        Returns:
            ``RESTART``, ``REQUEUE`` or ``OVER``, and why a restart that --restarts allows is not
            possible; empty if it is, or --restarts allows none.
        """
        if not self._options.is_managed:
            return OVER, ""
        how = self._what_next(why, enough=True)
        if how != RESTART or self._options.is_local:
            return how, ""
        nodes, obstacle = ask_nodes(self._requeues)
        # rather than too few nodes
        last_resort = failed_nodes if why == FAILURE else []
        if self._nodes.set_restart_hosts(nodes, last_resort):
            return RESTART, ""
        return self._what_next(why, enough=False), obstacle or TOO_FEW_NODES

    def _what_next(self, why: str, *, enough: bool) -> str:
        """Return how the job continues: ``RESTART``, ``REQUEUE``, or ``OVER``."""
        return what_next(
            why,
            self._options.rules,
            requeues=self._requeues,
            restarts=self._restarts,
            enough=enough,
        )

    def _requeue(self, status: int, why: str, failed_nodes: list[str]) -> bool:
        """Record the end of the attempt, and requeue the job; return whether Slurm accepts."""
        by = "Slurm" if self._options.in_slurm else "its supervisor"
        self._report_end(why, f"requeued by {by}")
        # record it first: Slurm forgets the reason, and is about to end this process
        signalled = self._monitor.signalled
        write_exit(
            status,
            signalled=signalled,
            why=why,
            how=REQUEUE,
            nodes=failed_nodes,
            within_s=min(records.WRITE_S, max(0.0, self._monitor.left_s() - MESSAGE_S)),
        )
        if self._has_time():
            self._messages.tell_end(failed=True, over=False)  # Slurm may requeue it hours later
        # the message has taken some of the time
        self._remove_data(MESSAGE_S / 2 if self._has_time() else 0)
        if self._options.is_local:
            return True  # its supervisor reads the exit record
        if slurm_requests.job().was_requeued_after(self._requeues):
            return True
        excluded: list[str] = []
        if self._options.exclude_bad_nodes:
            excluded = sorted({*self._nodes.left_out, *failed_nodes})
        return slurm_requests.requeue_patiently(excluded)

    def _report_end(self, why: str, what: str) -> None:
        """Say in the log that the attempt has ended, and what becomes of the job."""
        records.say(f"attempt {self._attempt + 1} ended by {why}; the job is {what}")

    def _has_time(self) -> bool:
        """Return whether Slurm is not about to end this process."""
        return self._monitor.left_s() > MESSAGE_S

    def _message(self, why: str, obstacle: str) -> str:
        """Return why the job does not continue, for people; empty if the status says it."""
        if why == IDLE:
            return self._monitor.idle_message
        return why_not_continued(why, self._options.rules, obstacle=obstacle)

    def _end_chain(self, status: int, ended: Ended, why: str) -> str:
        """End the chain if this is a link that got nowhere, and return the reason.

        The result is the empty string if the chain does not end here.
        """
        if status == 0 or not self._options.in_slurm:
            return ""
        if not os.path.isdir(records.chain_folder()):
            return ""
        return chain.end_link(status, lambda: why or self._postmortem.why(ended))

    def _end_job(self, why: str, *, failed: bool) -> None:
        """Let no requeue follow, and send the last message."""
        was_requeued = self._options.requeue and self._requeues
        if was_requeued and why in (OWN_END, FAILURE, IDLE) and not self._options.is_local:
            slurm_requests.requeue_no_more()
        self._messages.tell_end(failed=failed)

    def _record_reason(self) -> None:
        """Record why the job ends, and how it continues, while its ranks are waited for."""
        ended = self._postmortem.facts(records.TERM_STATUS)
        why = self._postmortem.why_if_needed(ended)
        how, _ = self._choose_continuation(why, [])
        signalled = self._monitor.signalled
        write_exit(records.TERM_STATUS, signalled=signalled, why=why, how=how, within_s=0)


def _with_role_failure(message: str) -> str:
    """Return a message that begins with that of the role that failed first, if one failed."""
    return "; ".join(text for text in (records.role_failure(), message) if text)


def _data_to_stage(options: JobOptions) -> StagedData | None:
    """Return the data of --stage; None if there are none."""
    if not options.stage:
        return None
    from .stage import StagedData  # slow to import, and few jobs copy data

    return StagedData(options.stage, options.keep)


def _warm_start(options: JobOptions) -> WarmStart | None:
    """Return the compiled files of the job; None if none are kept."""
    os.environ.pop(rank_environment.COMPILED, None)  # of a job in which this one was started
    if not options.warm:
        return None
    from .warm_start import WarmStart  # slow to import, and few jobs keep compiled files

    return WarmStart(options.warm, options.warm_variable, is_local=options.is_local)
