"""The job itself: this program runs in the place of the batch script.

The command is ``launch job [OPTIONS] -- [CHECK ... && JUDGE ... &&] STEP ...``.

It chooses the rendezvous, starts the step (srun, or the "nodes" of this machine), and receives
Slurm's warnings. When the ranks have ended, it records how and why, and decides whether the job is
restarted in this allocation, requeued, or ended. Each start of the step is an attempt with its own
folder. job_arguments.py has its options.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from argparse import Namespace
from functools import partial
from typing import Any

from .. import environment, records, rendezvous
from .. import slurm_requests as slurm
from ..records import OVER, REQUEUE, RESTART
from . import guard
from .dead_nodes import Heartbeats, next_nodes
from .idle_watch import IdleWatch
from .job_arguments import parse_options, step_of
from .messages import Messages
from .why_ended import (
    FAILURE,
    IDLE,
    OWN_END,
    Ended,
    Rules,
    final_status,
    used_up,
    what_next,
    why_it_ended,
)

HEARTBEAT_S = 30.0
PREFLIGHT_S = 24
"""The time of the checks of a preflight, and then of its judge."""
IDLE_S = 30.0
"""The time of the ranks after SIGTERM, if the GPUs were idle: Slurm's own default (KillWait)."""
KILL_S = 2.0
"""How long srun has to end a step with a node that does not respond.

By then the other nodes have ended.
"""
MESSAGE_S = 15.0
REMOVE_S = 60.0
"""A message and the removal of data delay a requeue only if the time limit is further away; the
removal, any end.
"""


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
    environment.tidy()
    return status


class Job:
    """The job in this allocation: one attempt or, with restarts, several."""

    def __init__(self, options: Namespace) -> None:
        self._options = options
        self._rules = Rules(options.requeue, options.restarts, options.retry_on_failure)
        self._managed = options.warn is not None
        self._local = options.nodes is not None
        self._in_slurm = not self._local or bool(options.within)
        self._pack = os.getppid() if options.within else 0
        self._spares: int = options.spares
        self._attempt = int(os.environ["HPCRUN_ATTEMPT"])
        self._requeues = int(
            os.environ.get("HPCRUN_REQUEUES" if self._local else "SLURM_RESTART_COUNT") or 0
        )
        self._hosts: list[str] = []  # the nodes of the step
        self._allotted: list[str] = []
        self._left_out: list[str] = []
        self._step = step_of(options, self._on_signal, self._tick)
        self._signalled = self._given_up = self._wrote_why = False
        self._kill_at = self._limit_s = self._give_up_at = float("inf")
        self._beat_at = time.monotonic() + HEARTBEAT_S
        self._heartbeats = Heartbeats([])
        # six samples are written at a time: a short limit needs them sooner
        self._sample_s = min(options.sample, options.cancel_idle / 10 or options.sample)
        self._idle = IdleWatch(0, self._sample_s, [])
        self._messages = Messages()

    # --- before the ranks start ------------------------------------------------------------------

    def run(self, command: list[str]) -> int:
        """Run the step, with restarts if necessary, and return its exit status.

        Signals are blocked (__main__.py).
        """
        if self._managed and self._requeues > self._rules.times:
            return self.refuse(f"started once more than --requeue {self._rules.times} allows")
        if self._rules.times and self._requeues == self._rules.times and not self._local:
            slurm.requeue_no_more()  # Slurm's own requeues count, too
        environment.prepare(self._options.came, managed=self._managed, as_is=self._options.script)
        os.environ[environment.SAMPLE] = f"{self._sample_s:g}"
        self._meet()
        if not self._local:
            # the preflight and the copying of data are steps, too
            steps = 3 if self._options.stage else 2
            slurm.skip_steps(steps * records.attempts_cut_off())
        if self._options.preflight:
            command, message = self._preflight(command)
            if message:
                return self.refuse(message)
            if not command or self._signalled:
                return self._end(records.TERM_STATUS if self._signalled else 0)[0]
        return self._go(command)

    def _go(self, command: list[str]) -> int:
        """Run the step until the job does not continue in this allocation.

        The result is the last status.
        """
        while True:
            self._set_guard()
            message = self._stage()
            self._idle = IdleWatch(self._options.cancel_idle, self._sample_s, self._hosts)
            stops = bool(message) or self._signalled
            if stops:
                status = 1
            else:
                status = self._step.run(self._placed(command), self._hosts)
            status, again = self._end(status, "" if self._signalled else message)
            if not again:
                status = self._step.finish(status)
                self._stage(over_s=REMOVE_S)
                return status
            if not self._begin():
                return self.refuse("its next attempt has been started elsewhere")
            self._meet()

    def _begin(self) -> bool:
        """Begin the next attempt; return whether this job may begin the attempt.

        The attempt gets a folder and a start record.
        """
        environment.tidy()
        self._attempt += 1
        folder = os.path.join(os.path.dirname(records.attempt_dir()), str(self._attempt))
        os.makedirs(folder, exist_ok=True)
        if os.path.exists(os.path.join(folder, "start")):
            return False
        environment.renew(folder)
        os.environ["HPCRUN_ATTEMPT"] = str(self._attempt)
        fields = {
            "job_id": os.environ["HPCRUN_JOB_ID"],
            "host": os.uname().nodename,
            "started": time.time(),
        }
        return records.write("start", fields)

    def _preflight(self, command: list[str]) -> tuple[list[str], str]:
        """Check the nodes; return the step after the check, and the error if there is one."""
        first = command.index("&&")
        second = [*command, "&&"].index("&&", first + 1)
        check = command[:first]
        judge = command[first + 1 : second]
        step = command[second + 1 :]
        folder = os.path.join(records.attempt_dir(), "preflight")
        os.makedirs(folder, exist_ok=True)
        if not os.access(
            os.path.join(os.environ["HPCRUN_RUN_DIR"], "programs", "preflight", "node.py"), os.R_OK
        ):
            return (
                step,
                "the programs of the preflight are put beside the script by hpcrun submit: submit "
                "it so, or render it "
                "without --preflight",
            )
        log = os.path.join(folder, "nodes.log" if self._local else "srun.log")
        self._limit_s = limit_s = float(os.environ.get("HPCRUN_PREFLIGHT_S") or PREFLIGHT_S) + 1
        self._step.run_other(check, self._hosts, log, one_fails_all=False)
        self._limit_s = float("inf")
        if self._signalled:
            return step, ""
        try:
            done = subprocess.run(judge, stdout=subprocess.PIPE, check=False, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return step, "the preflight was not judged: the Python of the job does not respond"
        output = done.stdout.decode("utf-8", "replace").strip()
        if done.returncode != 0:
            return (
                step,
                output or "the preflight was not judged: the Python of the job does not run here",
            )
        records.announce(output)
        return step, ""

    def _stage(self, over_s: float | None = None) -> str:
        """Copy the data of --stage onto the nodes, or remove the data; return the error.

        This happens once. The removal takes at most ``over_s`` seconds.
        """
        sources, self._options.stage = (
            self._options.stage,
            self._options.stage if over_s is None else [],
        )
        if not sources:
            return ""
        from . import stage  # slow to import, and few jobs copy data

        if over_s is None:
            return stage.copy(self._step, self._hosts, sources)
        return stage.remove_from(self._hosts, self._left_out, 0 if self._signalled else over_s)

    def refuse(self, message: str) -> int:
        """Say why the job cannot run, in its log and its record; return its exit status."""
        records.say(message)
        self._write_exit(1, message=message)
        self._messages.tell_end(failed=True)
        return 1

    def _meet(self) -> None:
        """Choose the nodes of the step, and the rendezvous of the ranks."""
        if self._local:
            names = [
                self._options.within or f"local-{number}" for number in range(self._options.nodes)
            ]
            self._hosts = self._allotted = names
        else:
            self._allotted = self._allotted or slurm.expand(os.environ["SLURM_JOB_NODELIST"])
            self._hosts = self._hosts or self._allotted[: len(self._allotted) - self._spares]
            if self._spares:
                # the GPUs of all nodes: srun would request them on fewer nodes
                os.environ.pop("SLURM_GPUS", None)
        rendezvous.choose(self._hosts, local=self._local)
        if (self._rules.times or self._rules.restarts) and not self._local:
            watched = self._hosts
        else:
            watched = []
        self._heartbeats = Heartbeats(watched)
        self._messages.tell_start()

    def _set_guard(self) -> None:
        """Start a guard on another node, which ends or requeues the job if this node fails.

        See guard.py.
        """
        usable = (host for host in (*self._hosts, *self._allotted) if host not in self._left_out)
        on = next((host for host in usable if host != self._allotted[0]), "")
        if self._spares and on:
            how = REQUEUE if self._requeues < self._rules.times else OVER
            guard.start(self._allotted[0], on=on, how=how, exclude=self._options.exclude_bad_nodes)

    def _placed(self, command: list[str]) -> list[str]:
        """Return the command, with the names of its nodes where srun needs the names.

        srun needs them if the allocation has more nodes, or had a step before.
        """
        if (
            self._local
            or self._options.script
            or (self._hosts == self._allotted and not self._restarts)
        ):
            return command
        return [command[0], f"--nodelist={','.join(self._hosts)}", "--overlap", *command[1:]]

    @property
    def _restarts(self) -> int:
        """The number of restarts in an allocation: all other attempts were requeues."""
        return max(0, self._attempt - self._requeues)

    # --- while they run --------------------------------------------------------------------------

    def _on_signal(self, info: Any) -> None:
        if info.si_signo == signal.SIGUSR1:
            if self._managed and self._give_up_at == float("inf"):
                records.ask_to_stop(records.TIME_LIMIT)  # the nodes watch for it
                self._give_up_at = time.monotonic() + self._options.warn
        elif info.si_signo in (signal.SIGTERM, signal.SIGINT) and not self._signalled:
            self._signalled = True
            self._write_exit(records.TERM_STATUS)  # SIGKILL may come before more is known
            self._step.tell(signal.SIGTERM)

    def _tick(self) -> bool:
        """Do what is due now, and return True if the waiting ends.

        One of these tasks is to write the heartbeat, which hpcrun status reads if Slurm does not
        know this job.
        """
        now = time.monotonic()
        if now >= self._beat_at:
            self._beat_at = now + HEARTBEAT_S
            records.write("heartbeat", int(time.time()))
        self._messages.tick()
        kill_at = min(self._kill_at, self._step.started_at + self._limit_s)
        if now > kill_at:  # srun waits without limit for a node that does not respond
            self._step.tell(
                signal.SIGTERM if now < kill_at + KILL_S else signal.SIGKILL, to_srun=True
            )
        elif not self._signalled and self._heartbeats.check():
            records.say(f"no heartbeat from {','.join(self._heartbeats.dead)}: the step is ended")
            self._kill_at = now
        elif not self._signalled and self._idle.check():
            self._end_idle(now, self._idle.message)
        self._given_up = now > self._give_up_at
        is_orphan = self._pack not in (0, os.getppid())  # the pack was killed
        if self._given_up or is_orphan:
            self._step.tell(signal.SIGKILL if is_orphan else signal.SIGTERM)
        if not self._signalled or not self._in_slurm or (self._managed and not self._local):
            # Slurm is about to end this process: so ask and decide now
            return self._given_up or (self._signalled and not self._local)
        if not self._wrote_why:
            self._wrote_why = True
            why = self._why(self._ended(records.TERM_STATUS))
            self._write_exit(
                records.TERM_STATUS, why=why, how=self._how(why, [])[0] if self._managed else OVER
            )
        return self._given_up and self._local

    def _end_idle(self, now: float, message: str) -> None:
        """Ask the ranks to end, since their GPUs are idle.

        As after a warning, the ranks have some time to end.
        """
        records.say(f"{message}; --cancel-idle or the profile's cancel_idle sets the limit")
        self._write_exit(records.TERM_STATUS, why=IDLE, message=message)  # SIGKILL may come first
        if self._local:
            self._step.tell(signal.SIGTERM)
        elif problem := slurm.end_steps():
            records.say(problem)
        self._give_up_at = min(self._give_up_at, now + IDLE_S)

    # --- when they have ended --------------------------------------------------------------------

    def _end(self, status: int, message: str = "") -> tuple[int, bool]:
        """Record how the attempt ended, and return its status, and whether another one begins.

        The next attempt begins in this allocation.

        Args:
            status: the exit status of the step.
            message: why it ended before its ranks started; empty if they did.
        """
        self._kill_at = float("inf")
        if self._signalled or not self._spares:
            record = None
        else:
            record = records.read("exit")
        if record and record.get("reason") != IDLE:
            # this node had no network, and the guard has ended or requeued the job
            return records.TERM_STATUS, False
        ended = self._ended(status)
        why = self._why(ended)
        status = final_status(ended, why, self._rules)
        bad = self._bad_nodes(why, ended)
        self._left_out += [
            node for node in bad if why == records.NODE_FAILURE or self._options.exclude_bad_nodes
        ]
        how, enough = self._how(why, bad) if self._managed else (OVER, True)
        message = message or (
            self._idle.message if why == IDLE else used_up(why, self._rules, enough=enough)
        )
        message = "; ".join(filter(None, (records.role_failure() if status else "", message)))
        if how != OVER:
            if self._in_slurm:
                by = "requeued by Slurm"
            else:
                by = "requeued by its supervisor"
            what = "restarted in this allocation" if how == RESTART else by
            records.say(f"attempt {self._attempt + 1} ended by {why}; the job is {what}")
            # record it first: Slurm forgets the reason, and is about to end this process
            self._write_exit(status, why=why, how=how, nodes=bad)
            if how == REQUEUE and self._has_time():
                self._messages.tell_end(failed=True, over=False)  # Slurm may requeue it hours later
            if how == REQUEUE:
                self._stage(over_s=MESSAGE_S / 2 if self._has_time() else 0)
            if how == RESTART or self._requeue(bad):
                return status, how == RESTART
            message = "scontrol requeue failed; hpcrun resubmit starts it again"
        self._write_exit(
            status, why=why, message=self._end_link(status, ended, why) or message, nodes=bad
        )
        if (
            self._rules.times
            and self._requeues
            and why in (OWN_END, FAILURE, IDLE)
            and not self._local
        ):
            slurm.requeue_no_more()
        self._messages.tell_end(failed=status != 0)
        return status, False

    def _end_link(self, status: int, ended: Ended, why: str) -> str:
        """End the chain if this is a link that got nowhere, and return the reason.

        The result is the empty string if the chain does not end here.
        """
        if not status or not self._in_slurm or not os.path.isdir(records.chain_folder()):
            return ""
        from . import chain  # few jobs are links

        return chain.end_link(status, lambda: why or why_it_ended(ended, slurm.job, self._dead))

    def _has_time(self) -> bool:
        """Whether Slurm is not about to end this process."""
        return not self._signalled and self._give_up_at - time.monotonic() > MESSAGE_S

    def _how(self, why: str, bad: list[str]) -> tuple[str, bool]:
        """Return how the job continues, and whether the job has the nodes for a restart.

        This function chooses these nodes.
        """
        next_ = partial(
            what_next, why, self._rules, requeues=self._requeues, restarts=self._restarts
        )
        if self._local or next_(enough=True) != RESTART:
            return next_(enough=True), True
        nodes = self._nodes_of_job()
        needed = len(self._hosts)
        chosen = next_nodes(nodes, self._hosts, self._left_out)
        # use it again: otherwise there are too few nodes
        if len(chosen) < needed and why == FAILURE:
            self._left_out = [node for node in self._left_out if node not in bad]
            chosen = next_nodes(nodes, self._hosts, self._left_out)
        enough = len(chosen) == needed
        self._hosts = chosen if enough else self._hosts
        return next_(enough=enough), enough or not nodes

    def _nodes_of_job(self) -> list[str]:
        """Return the nodes of this job, none if Slurm has ended or requeued the job.

        Slurm may have requeued the job while this node had no network.
        """
        for pause_s in range(1, slurm.TRIES + 1):
            state = slurm.job()
            if state.state:
                runs = state.state == "RUNNING" and state.restarts in (None, self._requeues)
                return slurm.expand(state.nodes) if runs and state.nodes else []
            time.sleep(pause_s)
        return []

    def _ended(self, status: int) -> Ended:
        run_dir = os.environ["HPCRUN_RUN_DIR"]
        element = os.environ["HPCRUN_ELEMENT"]
        marks = (
            os.path.join(run_dir, "cancelled"),
            os.path.join(run_dir, "elements", element, "cancelled"),
        )
        # the nodes of this machine get their SIGTERM from here, and may have noted it already
        if self._local and self._given_up:
            ignored = {records.TERMINATED}
        else:
            ignored = set()
        return Ended(
            status,
            tuple(records.exits()),
            signalled=self._signalled,
            stop=frozenset(records.stop_reasons()) - ignored,
            cancelled=any(map(os.path.exists, marks)),
            was_preempted=os.path.exists(os.path.join(records.attempt_dir(), "preempted")),
            given_up=self._given_up,
            requeues=self._requeues,
            silent=bool(self._heartbeats.dead),
            idle=bool(self._idle.message),
            with_returned=not {*self._hosts}.isdisjoint(records.lost_nodes()),
            nodes=tuple(records.exits("node")),
        )

    def _why(self, ended: Ended) -> str:
        """Return why it ended, if the reason is needed."""
        signalled = ended.signalled or records.TERMINATED in ended.stop
        if not self._managed and not (self._in_slurm and signalled) and not ended.idle:
            return OWN_END
        if self._in_slurm:
            ask = slurm.job
        else:
            ask = partial(slurm.JobSays, "COMPLETING")
        return why_it_ended(ended, ask, self._dead)

    def _dead(self) -> list[str]:
        if self._local:
            return []
        return self._heartbeats.look_closer(self._hosts)

    def _requeue(self, bad: list[str]) -> bool:
        """Requeue the job; return whether Slurm accepts."""
        if self._local:
            return True  # its supervisor reads the exit record
        if slurm.job().restarts not in (None, self._requeues):
            return True  # Slurm has already requeued it
        return slurm.requeue_patiently(
            sorted({*self._left_out, *bad}) if self._options.exclude_bad_nodes else []
        )

    def _bad_nodes(self, why: str, ended: Ended) -> list[str]:
        """Return the nodes on which an attempt has failed."""
        if why == FAILURE and ended.first_failed:
            return [str(ended.first_failed["node"])]
        return self._dead() if why == records.NODE_FAILURE else []

    def _write_exit(
        self,
        status: int,
        *,
        why: str = "",
        message: str = "",
        how: str = OVER,
        nodes: list[str] | None = None,
    ) -> None:
        signalled = "TERM" if self._signalled else ""
        fields = {"status": status, "signal": signalled, "ended": time.time(), "message": message}
        records.write(
            "exit",
            {**fields, "reason": why, "again": how != OVER, "how": how, "nodes": nodes or []},
        )
