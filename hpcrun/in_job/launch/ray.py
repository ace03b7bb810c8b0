"""Run one node of a Ray cluster, as long as the program runs on the head node.

The command is ``launch ray -- PROGRAM ...``.

A node is a rank: Ray runs beside its program. That is ``launch ray --join -- PROGRAM ...``. On the
head node it becomes the program once all nodes have joined; on the other nodes it waits for the end
of the head.

``ray symmetric-run`` would refuse a node on which the user has another Ray, and end that one, too,
with ``ray stop``.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time

from . import rank_environment, records
from .head_address import find_head, first_resolved
from .node_folder import PREFIX, NodeFolder, enter
from .processes import HEARD, become, has_ended, launch_program, send, sweep, try_start
from .rank import Rank
from .rendezvous import (
    ANOTHER_USER,
    CHANCE,
    free_port,
    problem_of_listeners,
)

LISTENS = "ray-listens"
"""The record that the head's Ray, and no other program, has its port."""
JOIN_S = 180
STOP_S = 3.0
"""The time that all nodes have to join; and that Ray has to end its actors before they are killed.
"""
STORE = 0.3
LEAST_STORE = 80 << 20
"""The object store's part of the memory, as Ray has it, and Ray's minimum in bytes."""
TAIL = 4000
"""Characters of Ray's output in the log of a rank whose Ray has ended."""
_COLORS = re.compile(r"\x1b\[[\d;]*m")
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "AUTOSCALER_METRIC_PORT": "0",  # any free port, instead of one for all jobs of a node
    "DASHBOARD_METRIC_PORT": "0",
    # Python may start slowly from a network file system: 120 s instead of 30 s, and of 20 tries of
    # 2 s
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_NUM_REDIS_GET_RETRIES": "60",
}
_ANY_PORT = ("min-worker-port", "max-worker-port", "dashboard-agent-listen-port")
"""Options of ``ray start`` that are not any free port by default, but the same for all jobs of a
node.
"""
_IMPORT = """
import importlib.util, sys, time
sys.path[:] = filter(None, sys.path)  # not from the current folder: it may have a ray.py
try:
    import ray
except ImportError as error:
    sys.exit(
            f"hpcrun: {sys.executable} cannot import ray ({error}); "
            "install it there: pip install ray"
        )
"""
# Ray starts its client server wherever grpc is installed, and takes its port only there
_START = """
from ray.scripts.scripts import main
port = sys.argv.pop(1)
if "--head" in sys.argv and importlib.util.find_spec("grpc"):
    sys.argv.append("--ray-client-server-port=" + port)
main()
"""
_WAIT = """
limit_s, nodes = float(sys.argv[1]), sys.argv[2:]
until = time.monotonic() + limit_s
while True:
    try:
        if not ray.is_initialized():
            ray.init(log_to_driver=False, logging_level="ERROR")
        joined = {node["NodeName"] for node in ray.nodes() if node["Alive"]}
        missing = [node for node in nodes if node not in joined]
        count = f"{len(missing)} of {len(nodes)} nodes"
        problem = f"{count} did not join Ray within {limit_s:g} s: {', '.join(missing)}"
    except Exception as error:  # it is still starting
        missing, problem = nodes, f"Ray did not respond on {nodes[0]} within {limit_s:g} s: {error}"
    if not missing:
        break
    if time.monotonic() > until:
        sys.exit(f"hpcrun: {problem}; see the logs of their ranks, and hpcrun preflight")
    time.sleep(0.2)
"""


def main(arguments: list[str]) -> int:
    """Run one node; return the exit status of the program, 0 on a node that waits for the head."""
    if arguments[0] == "--join":
        return _join(arguments[2:])
    if not find_head():
        return 1
    # the same name on all nodes, which nobody foresees; and short: a Unix socket has at most 107
    # bytes, of which Ray takes 64
    name = f"{PREFIX}{os.environ['HPCRUN_JOB_ID']}.{os.environ[CHANCE]}"
    try:
        files = enter(name)
    except OSError as error:
        records.say(f"{os.environ['HPCRUN_NODE']} has no place for Ray's files: {error}")
        return 1
    return RayRank(files).run(arguments[1:])


def _join(program: list[str]) -> int:
    """Become the program when all nodes have joined.

    On the other nodes, wait for the end of the head.
    """
    if _is_head():
        if not _head_is_own():
            return 1
        if not records.write_patiently(LISTENS, {}):
            return 1  # the other nodes would wait for it
        return subprocess.call(
            [sys.executable, "-c", _IMPORT + _WAIT, str(JOIN_S), *_hosts()]
        ) or become(program)
    for number in HEARD:  # the head's program may use this node to save a checkpoint
        signal.signal(number, signal.SIG_IGN)
    return _wait_for_end_of_head()


def _is_head() -> bool:
    return os.environ["HPCRUN_NODE"] == os.environ["HPCRUN_HEAD"]


def _head_is_own() -> bool:
    """Wait for the head's Ray; return False if another user's program has the port of Ray.

    That program would get the job's token.
    """
    port = int(os.environ["HPCRUN_PORT"])
    until = time.monotonic() + JOIN_S
    problem = problem_of_listeners(port, _address())
    while problem is None and time.monotonic() < until:
        time.sleep(0.1)
        problem = problem_of_listeners(port, _address())
    if problem == ANOTHER_USER:
        records.say(
            f"another user's program listens on port {port} of {os.environ['HPCRUN_NODE']}, which "
            "Ray needs"
        )
    return problem != ANOTHER_USER


def _hosts() -> list[str]:
    return records.read_text("hosts").split()


def _connect() -> socket.socket:
    return socket.create_connection(
        (os.environ["HPCRUN_HEAD_ADDR"], int(os.environ["HPCRUN_PORT"])), timeout=5
    )


def _wait_for_end_of_head() -> int:
    """Wait until the head's Ray accepts no connections.

    Ray closes an idle connection after some time.
    """
    while True:
        try:
            with _connect() as head:
                head.settimeout(None)
                while head.recv(4096):
                    pass
        except ConnectionRefusedError:
            return 0
        except OSError:
            time.sleep(1)


def _address() -> str:
    """Return the address of this node in the network that the nodes share.

    The route to another node shows the address.
    """
    others = [host for host in _hosts() if host != os.environ["HPCRUN_NODE"]]
    if not others or os.environ["HPCRUN_NODE_ADDR"] == "127.0.0.1":
        return "127.0.0.1"
    other = first_resolved(rank_environment.address_of(others[0]), others[0]).address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other or others[0], 1))  # it sends nothing
        return str(probe.getsockname()[0])


def resources() -> list[str]:
    """Return the options of ``ray start`` for this node's share of the allocation.

    Without these options, Ray would take the whole node.
    """
    env = os.environ
    free = len(os.sched_getaffinity(0))
    cpus = int(
        env.get("SLURM_CPUS_PER_TASK")
        or env.get("SLURM_CPUS_ON_NODE")
        or max(1, free // len(_hosts()))
    )
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        gpus = int(env.get("SLURM_GPUS_ON_NODE") or 0)
    else:
        gpus = len([gpu for gpu in visible.split(",") if gpu])
    options = [f"--num-cpus={min(cpus, free)}", f"--num-gpus={gpus}"]
    megabytes = (
        int(env.get("SLURM_MEM_PER_NODE") or 0) or int(env.get("SLURM_MEM_PER_CPU") or 0) * cpus
    )
    if megabytes:
        disk = os.statvfs("/dev/shm")
        room = int(0.9 * disk.f_bavail * disk.f_frsize)
        store = max(min(int(STORE * (megabytes << 20)), room), LEAST_STORE)
        options += [f"--memory={(megabytes << 20) - store}", f"--object-store-memory={store}"]
    return options


class RayRank(Rank):
    """The wrapper of a node's program, with Ray beside it in a folder of its own."""

    def __init__(self, files: NodeFolder) -> None:
        env = os.environ
        self._files = files
        self._ray = 0
        self._has_lost_ray = False
        # the port is Ray's; another Ray is not the job's
        for name in ("MASTER_ADDR", "MASTER_PORT", "RAY_ADDRESS"):
            env.pop(name, None)
        env.update({**_SETTINGS, **env})
        super().__init__(
            int(env["HPCRUN_NODE_RANK"]), is_task=False, contained=rank_environment.CONTAINER in env
        )
        # the program's log has no lines of Ray's start
        if _is_head():
            self._ray_log = f"{files.path}/start"
        else:
            self._ray_log = f"{records.attempt_dir()}/rank-{self._rank}"

    def run(self, program: list[str]) -> int:
        """Start Ray, then the program, wait for it, and end Ray."""
        self._start_ray()
        os.environ["RAY_ADDRESS"] = f"{_address()}:{os.environ['HPCRUN_PORT']}"
        status = super().run([*launch_program(), "ray", "--join", "--", *program])
        self._end_ray()
        return 1 if self._has_lost_ray else status

    def _start_ray(self) -> None:
        env = os.environ
        port = int(os.environ["HPCRUN_PORT"])
        while not (
            _is_head()
            or HEARD & signal.sigpending()
            or LISTENS in records.names_in(records.attempt_dir())
        ):
            time.sleep(0.5)
        # the port of the client server is half of the range away from those of this job and of the
        # next ones
        client_port = str(free_port(port + 1))
        words = [sys.executable, "-c", _IMPORT + _START, client_port, "start", "--block"]
        if _is_head():
            words += ["--head", f"--port={port}"]
            words += ["--include-dashboard=false", "--dashboard-host=127.0.0.1"]
        else:
            words.append(f"--address={env['HPCRUN_HEAD_ADDR']}:{port}")
        words += [f"--node-ip-address={_address()}", f"--node-name={env['HPCRUN_NODE']}"]
        # below the folder, which only its user may enter: Ray opens its own to everybody (0777)
        words.append(f"--temp-dir={self._files.path}/r")
        words += [f"--{name}=0" for name in _ANY_PORT]
        words += resources()
        self._ray, _ = try_start(
            words, env, out=f"{self._ray_log}.out", err=f"{self._ray_log}.err", own_group=True
        )

    def _tick(self) -> bool:
        super()._tick()
        if not (self._has_lost_ray or self._signalled or _runs(self._ray)):
            self._has_lost_ray = True
            self._log("err", self._last_words_of_ray())
            send(self._pid, signal.SIGKILL, group=True)
        return False

    def _last_words_of_ray(self) -> str:
        """Return the end of Ray's log where the rank's log does not have it, and how Ray ended."""
        output = records.read_text(f"{self._ray_log}.out")
        text = ""
        if _is_head():
            text = records.read_text(f"{self._ray_log}.err")[-TAIL:] + output[-TAIL:]
        text += f"hpcrun: Ray has ended on {os.environ['HPCRUN_NODE']}"
        process = re.search(r"(\w+)\S* \[exit code=(-?)(\d+)\]", _COLORS.sub("", output))
        if process:
            by = "signal" if process[2] else "exit status"
            text += f": {process[1]} ended by {by} {process[3]}"
        return f"{text}\n"

    def _write_exit(self, status: int, heard: bool) -> None:
        super()._write_exit(1 if self._has_lost_ray else status, heard)

    def _after_kill(self, pid: int) -> None:
        super()._after_kill(pid)
        self._clear()

    def _end_ray(self) -> None:
        """End what is left of Ray.

        After the end of the program, Ray has some time to end the actors of all nodes.
        """
        until = time.monotonic() + STOP_S * (_is_head() and not self._signalled)
        if _runs(self._ray):
            send(self._ray, signal.SIGTERM)
        while _runs(self._ray) and time.monotonic() < until:
            time.sleep(0.05)
        self._clear()

    def _sweep(self) -> None:
        """Leave Ray running: it ends the actors of all nodes after the end of the program."""

    def _clear(self) -> None:
        """Kill what Ray and its programs have started on this node.

        The workers of Ray leave its process group and session.
        """
        sweep(self._tree)
        self._files.leave()


def _runs(pid: int) -> bool:
    """Whether a child has not ended."""
    return bool(pid) and not has_ended(pid)
