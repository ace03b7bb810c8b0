"""``launch job [OPTIONS] -- [CHECK ... && JUDGE ... &&] STEP ...``: the job, in the batch script's place.

It chooses the rendezvous, starts the step (srun, or the "nodes" of this machine), hears Slurm's warnings, and when
the ranks have ended writes down how and why, and decides whether the job is started again.

--nodes N        no Slurm: the command is started N times on this machine, as N nodes
--gpus A,B;C,D   the GPUs of each of those
--came FD        the environment as the script got it is read there
--warn S         ranks that go on for S seconds after the warning are given up
--requeue N      Slurm may start the job again N times
--retry-on-failure, --exclude-bad-nodes
--preflight      CHECK runs on every node, and JUDGE says whether STEP is worth starting
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from typing import Any

from . import environment, records, slurm
from .decide import FAILURE, NODE_FAILURE, OWN_END, Ended, Rules, final_status, is_passing, why_it_ended
from .processes import hear, reap, send, try_start, wait
from .rendezvous import free_port

HEARTBEAT_S = 30.0
REQUEUE_TRIES = 5
PREFLIGHT_S = 24


def main(arguments: list[str]) -> int:
    """Run the job; returns its exit status."""
    end = arguments.index("--")
    return Job(_options(arguments[:end])).run(arguments[end + 1 :])


def _options(arguments: list[str]) -> Namespace:
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--nodes", "--came", "--warn", "--requeue"):
        parser.add_argument(name, type=int)
    parser.add_argument("--gpus", default="")
    for name in ("--retry-on-failure", "--exclude-bad-nodes", "--preflight"):
        parser.add_argument(name, action="store_true")
    return parser.parse_args(arguments)


def _split(command: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the check, the judge and the step of a command with && between them; the step may be missing."""
    first = command.index("&&")
    rest = command[first + 1 :]
    second = rest.index("&&") if "&&" in rest else len(rest)
    return command[:first], rest[:second], rest[second + 1 :]


class Job:
    """One attempt of the job."""

    def __init__(self, options: Namespace) -> None:
        self._options = options
        self._rules = Rules(options.requeue or 0, options.retry_on_failure)
        self._managed = options.warn is not None
        self._local = options.nodes is not None
        self._restarts = int(os.environ.get("HPCRUN_ATTEMPT" if self._local else "SLURM_RESTART_COUNT") or 0)
        self._hosts: list[str] = []
        self._children: list[int] = []
        self._signalled = self._given_up = self._wrote_why = False
        self._give_up_at: float | None = None
        self._beat_at = time.monotonic() + HEARTBEAT_S

    # --- before the ranks start -----------------------------------------------------------------------------------

    def run(self, command: list[str]) -> int:
        """Run the step, and end as it did."""
        hear()
        if self._managed and self._restarts > self._rules.times:
            return self._refuse(f"started once more than --requeue {self._rules.times} allows")
        if self._rules.times and self._restarts == self._rules.times and not self._local:
            slurm.requeue_no_more()  # Slurm's own requeues count as well
        environment.prepare(self._options.came)
        if self._managed:
            os.environ[environment.MANAGED] = "1"
        self._meet()
        if not self._local:
            slurm.skip_steps(2 * records.attempts_cut_off())  # the preflight is a step too
        if self._options.preflight:
            command, message = self._preflight(command)
            if message:
                return self._refuse(message)
            if not command or self._signalled:
                return self._end(records.TERM_STATUS if self._signalled else 0)
        return self._end(self._wait(self._start(command)))

    def _preflight(self, command: list[str]) -> tuple[list[str], str]:
        """Check the nodes; returns the step that was behind that, and what is wrong."""
        check, judge, step = _split(command)
        folder = os.path.join(records.attempt_dir(), "preflight")
        os.makedirs(folder, exist_ok=True)
        if not os.access(os.path.join(os.environ["HPCRUN_RUN_DIR"], "preflight", "node.py"), os.R_OK):
            return (
                step,
                "the programs of the preflight are put beside the script by hpcrun submit: submit it so, or render it "
                "without --preflight",
            )
        log = os.path.join(folder, "nodes.log" if self._local else "srun.log")
        limit_s = int(os.environ.get("HPCRUN_PREFLIGHT_S") or PREFLIGHT_S) + 1
        self._wait(self._start(check, log), limit_s)
        if self._signalled:
            return step, ""
        done = subprocess.run(judge, stdout=subprocess.PIPE, check=False)
        said = done.stdout.decode("utf-8", "replace").strip()
        if done.returncode != 0:
            return step, said or "the preflight was not judged: the Python of the job does not run here"
        sys.stdout.write(f"hpcrun: {said}\n")
        sys.stdout.flush()
        return step, ""

    def _refuse(self, message: str) -> int:
        records.say(message)
        self._write_exit(1, message=message)
        return 1

    def _meet(self) -> None:
        """Choose where the ranks meet: on the first node, where this runs. Every node resolves its name for itself."""
        env = os.environ
        if self._local:
            self._hosts = [f"local-{number}" for number in range(self._options.nodes)]
            env["HPCRUN_HEAD_ADDR"] = env["HPCRUN_NODE_ADDR"] = "127.0.0.1"
        else:
            self._hosts = slurm.expand(env["SLURM_JOB_NODELIST"])
            env["HPCRUN_HEAD_ADDR"] = self._hosts[0]
        env["HPCRUN_HEAD"] = self._hosts[0]
        env["HPCRUN_PORT"] = str(free_port(os.getpid() if self._local else int(env["SLURM_JOB_ID"])))
        with open(os.path.join(records.attempt_dir(), "hosts"), "w", encoding="utf-8") as file:
            file.write("\n".join(self._hosts) + "\n")
        if not self._local:
            place = f"{env['HPCRUN_HEAD']}:{env['HPCRUN_PORT']}"
            sys.stdout.write(f"hpcrun: job {env['SLURM_JOB_ID']} on {env['SLURM_JOB_NODELIST']}, rendezvous {place}\n")
            sys.stdout.flush()

    # --- while they run -------------------------------------------------------------------------------------------

    def _start(self, command: list[str], log: str | None = None) -> int:
        """Start srun, or the nodes of this machine; returns 0, or the status of one that could not be started."""
        status = 0
        gpus = self._options.gpus.split(";") if self._options.gpus else []
        for number in range(self._options.nodes or 1):
            env = dict(os.environ)
            if self._local:
                env.update(HPCRUN_NODE=self._hosts[number], HPCRUN_NODE_RANK=str(number))
                env.update({"CUDA_VISIBLE_DEVICES": gpus[number]} if gpus else {})
            pid, failed = try_start(command, env, out=log, err=log)
            self._children += [pid] if pid else []
            status = status or failed
        return status

    def _wait(self, status: int, limit_s: float = float("inf")) -> int:
        """Wait for what was started; returns its status, 143 where it is waited for no longer.

        Args:
            limit_s: it is killed so many seconds later: srun waits without end for a node that does not answer.
        """
        kill_at = time.monotonic() + limit_s

        def tick() -> bool:
            if time.monotonic() > kill_at:
                self._tell(signal.SIGTERM if time.monotonic() < kill_at + 2 else signal.SIGKILL, to_srun=True)
            return self._tick()

        while self._children:
            found = wait(self._children, self._on_signal, tick)
            if found is None:
                return records.TERM_STATUS
            pid, ended = found
            reap(pid)
            self._children.remove(pid)
            if ended and not status:
                status = ended
                if limit_s == float("inf"):  # the first failure ends the other nodes, as srun --kill-on-bad-exit does
                    self._tell(signal.SIGTERM)
        return status

    def _on_signal(self, info: Any) -> None:
        if info.si_signo == signal.SIGUSR1:
            if self._managed and self._give_up_at is None:
                records.ask_to_stop(records.TIME_LIMIT)  # the nodes look for it
                self._give_up_at = time.monotonic() + self._options.warn
        elif info.si_signo in (signal.SIGTERM, signal.SIGINT) and not self._signalled:
            self._signalled = True
            self._write_exit(records.TERM_STATUS)  # SIGKILL may come before more is known
            self._tell(signal.SIGTERM)

    def _tell(self, number: int, *, to_srun: bool = False) -> None:
        """Pass a signal to the nodes of this machine; on a cluster Slurm does that."""
        for pid in self._children if self._local or to_srun else ():
            send(pid, number)

    def _tick(self) -> bool:
        """Give a sign of life, for hpcrun status where nobody else knows of this job; True ends the waiting."""
        now = time.monotonic()
        if now >= self._beat_at:
            self._beat_at = now + HEARTBEAT_S
            records.write("heartbeat", int(time.time()))
        self._given_up = self._give_up_at is not None and now > self._give_up_at
        if self._given_up:
            self._tell(signal.SIGTERM)
        if not self._signalled or self._local or self._managed:
            # Slurm is about to end this process: what is to be asked and done has to be done now
            return self._given_up or (self._signalled and not self._local)
        if not self._wrote_why:
            self._wrote_why = True
            self._write_exit(records.TERM_STATUS, why=self._why(self._ended(records.TERM_STATUS)))
        return False

    # --- when they have ended -------------------------------------------------------------------------------------

    def _end(self, status: int) -> int:
        ended = self._ended(status)
        why = self._why(ended)
        status = final_status(ended, why, self._rules)
        message = ""
        if self._managed and is_passing(why, self._rules) and self._rules.times:
            message = f"not started again: --requeue {self._rules.times} is used up"
            if self._restarts < self._rules.times:
                records.say(f"attempt {os.environ['HPCRUN_ATTEMPT']} ended by {why}; it is started again")
                # noted first: Slurm forgets why, and is about to end this process
                self._write_exit(status, why=why, again=True)
                if self._start_again(why, ended):
                    return status
                message = "scontrol requeue failed; hpcrun resubmit starts it again"
        self._write_exit(status, why=why, message=message)
        if self._rules.times and self._restarts and why in (OWN_END, FAILURE) and not self._local:
            slurm.requeue_no_more()
        return status

    def _ended(self, status: int) -> Ended:
        run_dir, element = os.environ["HPCRUN_RUN_DIR"], os.environ["HPCRUN_ELEMENT"]
        marks = (os.path.join(run_dir, "cancelled"), os.path.join(run_dir, "elements", element, "cancelled"))
        return Ended(
            status,
            tuple(records.rank_exits()),
            signalled=self._signalled,
            stop=frozenset(records.stop_reasons()),
            cancelled=any(map(os.path.exists, marks)),
            was_preempted=os.path.exists(os.path.join(records.attempt_dir(), "preempted")),
            given_up=self._given_up,
            restarts=self._restarts,
        )

    def _why(self, ended: Ended) -> str:
        """Return why it ended, where somebody needs to know."""
        told = ended.signalled or records.TERMINATED in ended.stop
        if not self._managed and (self._local or not told):
            return OWN_END
        if self._local:
            return why_it_ended(ended, lambda: slurm.JobSays("COMPLETING"), list)
        return why_it_ended(ended, slurm.job, self._dead)

    def _dead(self) -> list[str]:
        return slurm.dead_nodes(self._hosts)

    def _start_again(self, why: str, ended: Ended) -> bool:
        """Have Slurm start the job again; returns whether it will."""
        if self._local:
            return True  # its supervisor reads the exit record
        if slurm.job().restarts not in (None, self._restarts):
            return True  # Slurm has done it by itself
        for pause_s in range(1, REQUEUE_TRIES + 1):
            said = slurm.requeue(self._bad_nodes(why, ended))
            if not said:
                return True
            records.say(said)
            time.sleep(pause_s)
        return False

    def _bad_nodes(self, why: str, ended: Ended) -> list[str]:
        if not self._options.exclude_bad_nodes:
            return []
        first = records.first_failed(ended.exits)
        if why == FAILURE and first:
            return [str(first["node"])]
        return self._dead() if why == NODE_FAILURE else []

    def _write_exit(self, status: int, *, why: str = "", message: str = "", again: bool = False) -> None:
        told, now = "TERM" if self._signalled else "", time.time()
        fields = {
            "status": status,
            "signal": told,
            "ended": now,
            "message": message,
            "reason": why,
            "again": again,
        }
        records.write("exit", fields)
