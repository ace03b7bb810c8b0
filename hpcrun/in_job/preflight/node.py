"""One node of a preflight: the checks of its machine, its connections and its ranks.

The command is ``node.py RANKS GPUS``, run once on every node of a job at the same time.

It checks its own machine, lets every other node connect to the job's port, connects to the other
nodes, and starts ``rank.py`` for each rank. It writes its results to
``$HPCRUN_ATTEMPT_DIR/preflight/NODE.json`` after each step, so that a killed node leaves a report.
It ends within HPCRUN_PREFLIGHT_S seconds, whatever its peers do.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

LIMIT_S = 24.0
LEAST_S = 16.0
CONNECTED_BEFORE_END_S = 14.0
"""Until then a peer may answer: it may start later, with its Python on a slow file system."""
READY_BEFORE_END_S = 8.0
"""Until then the ranks may be ready for the inter-node all-reduce."""
TRY_S = 3.0
PEERS = 64
"""The number of nodes to which each node connects: the first node, and those after itself in the
job's order.
"""


class NodeReport:
    """The report of this node, which is on disk at every moment."""

    def __init__(self, path: Path, **known: Any) -> None:
        self._path = path
        self._known = known
        self._lock = threading.Lock()

    def put(self, **facts: Any) -> None:
        """Add results. Readers see the old file or the new file, on a network file system, too."""
        with self._lock:
            self._known |= facts
            aside = self._path.with_name(f".{self._path.name}")
            aside.write_text(json.dumps(self._known), "utf-8")
            aside.replace(self._path)


class LocalNode:
    """This node's place among the others, from the batch script.

    Attributes:
        hosts: the nodes of the job in order; ``hosts[rank]`` is this node.
        ends_at: when all checks must have ended, on the monotonic clock.
    """

    def __init__(self, env: dict[str, str]) -> None:
        attempt = Path(env["HPCRUN_ATTEMPT_DIR"])
        self.name = env["HPCRUN_NODE"]
        self.rank = int(env["HPCRUN_NODE_RANK"])
        self.job = env["HPCRUN_JOB_ID"]
        self.hosts = (attempt / "hosts").read_text("ascii").split()
        self.port = int(env["HPCRUN_PORT"])
        self.folder = attempt / "preflight"
        # the nodes of a local job share a machine: each has its own address on the loopback
        # interface
        self.is_local = env["HPCRUN_NODE_ADDR"].startswith("127.")
        self._suffix = env.get("HPCRUN_HOST_SUFFIX", "")
        limit_s = float(env.get("HPCRUN_PREFLIGHT_S") or LIMIT_S)
        self.ends_at = time.monotonic() + max(LEAST_S, limit_s)

    def address(self, rank: int) -> str:
        """Return the address of the node of this rank."""
        if self.is_local:
            return f"127.0.{rank // 250}.{rank % 250 + 1}"
        return self.hosts[rank] + self._suffix

    def peers(self) -> list[int]:
        """Return the ranks of the nodes to which this one connects."""
        count = len(self.hosts)
        near = {(self.rank + step) % count for step in range(1, min(PEERS, count))}
        return sorted((near | {0}) - {self.rank})


class Door:
    """Listens on the job's port, and answers connections.

    An answer has the time, and the port for the ranks of all nodes.
    """

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self.store = free_port("")
        address = (node.address(node.rank) if node.is_local else "", node.port)
        both = not node.is_local and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self._socket = socket.create_server(
            address, family=family, backlog=1024, dualstack_ipv6=both
        )
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(TRY_S)
            try:
                connection.recv(4096)
                answer = {
                    "node": self._node.name,
                    "job": self._node.job,
                    "time": time.time(),
                    "store": self.store,
                }
                connection.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                return  # a port scanner, or a peer that has ended


def free_port(address: str) -> int:
    """Return a port on which no program listens at this moment."""
    with socket.create_server((address, 0)) as probe:
        return int(probe.getsockname()[1])


def ask(node: LocalNode, rank: int) -> dict[str, Any]:
    """Connect to another node; return its delay, its clock's offset, and its port for the ranks.

    Raises:
        OSError: it cannot be reached.
        ValueError: the answer is not from a node of this job.
    """
    with socket.create_connection((node.address(rank), node.port), timeout=TRY_S) as connection:
        asked_s = time.time()
        connection.sendall(b"hello\n")
        with connection.makefile("r", encoding="utf-8") as stream:
            answer = json.loads(stream.readline(4096) or "null")
        answered_s = time.time()
    if not isinstance(answer, dict):
        raise ValueError("another program answers")
    if answer.get("node") != node.hosts[rank] or answer.get("job") != node.job:
        raise ValueError("another program answers")
    offset_s = answer["time"] - (asked_s + answered_s) / 2
    return {"ms": (answered_s - asked_s) * 1000, "clock_s": offset_s, "store": answer["store"]}


def reach(node: LocalNode, rank: int, until: float) -> dict[str, Any]:
    """Connect to another node until it answers or the time is over."""
    error = "no time was left"
    while time.monotonic() < until:
        try:
            return ask(node, rank)
        except (OSError, ValueError) as failure:
            error = words(failure)
            time.sleep(0.3)
    return {"error": error}


def words(failure: Exception) -> str:
    """Return the error in words, without error numbers."""
    reason = getattr(failure, "strerror", None) or str(failure)
    return reason or type(failure).__name__


def resolve(name: str) -> list[str] | str:
    """Return the addresses of a host, or the reason why there is none."""
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as failure:
        return words(failure)
    return sorted({str(address[0]) for _, _, _, _, address in entries})


def resolve_names(names: dict[str, str]) -> dict[str, list[str] | str]:
    """Return host → the addresses of its name in the network, or the reason why there is none."""
    return {host: resolve(name) for host, name in names.items()}


def shared_memory() -> dict[str, int] | None:
    """Return the size and the free space of /dev/shm in MB; None if it does not exist."""
    try:
        disk = os.statvfs("/dev/shm")
    except OSError:
        return None
    return {
        "free_mb": disk.f_bavail * disk.f_frsize >> 20,
        "total_mb": disk.f_blocks * disk.f_frsize >> 20,
    }


def kept_data() -> list[dict[str, Any]] | None:
    """Return what ``hpcrun submit --keep`` has left on this node for this user.

    The folders are those of in_job/launch/per_job/kept_data.py. Each has its source, the bytes of
    its files and the time of its last use; None for a value that is not known, and for all of them
    if the node's disk cannot be read.
    """
    place = Path(os.environ.get("HPCRUN_STAGE_DIR") or "/tmp")
    folders = []
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return None
    for name in names:
        if not re.fullmatch(rf"hpcrun-kept-{os.getuid()}-[0-9a-f]+", name):
            continue
        folder: dict[str, Any] = {"folder": str(place / name), "source": None, "bytes": None}
        try:
            state = (place / name).lstat()
            if state.st_uid != os.getuid() or not stat.S_ISDIR(state.st_mode):
                continue
            folder["used"] = state.st_mtime
            source, *entries = (place / name / "list").read_bytes().split(b"\0")[:-1]
            sizes = [entry.split(b" ", 1)[0] for entry in entries]
            folder["bytes"] = sum(int(size) for size in sizes if size != b"-")
            folder["source"] = source.decode("utf-8", "replace")
        except (OSError, ValueError):
            folder.setdefault("used", None)
        folders.append(folder)
    return folders


def run(*argv: str) -> str | None:
    """Return the output of a command, None if the command fails.

    It fails if it does not exist, is not permitted, takes too long, or ends with another status
    than 0.
    """
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=8,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def counters() -> dict[str, Any]:
    """Return the errors that the driver and the kernel have recorded; None for unknown values."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    command = ["nvidia-smi"]
    if chosen:
        command.append(f"--id={chosen}")
    form = "--format=csv,noheader"
    ecc = run(*command, "--query-gpu=pci.bus_id,ecc.errors.uncorrected.volatile.total", form)
    remapped = "gpu_bus_id,remapped_rows.pending,remapped_rows.failure"
    rows = run(*command, f"--query-remapped-rows={remapped}", form)
    log = run("dmesg") or run("journalctl", "--dmesg", "--boot", "--quiet", "--no-pager")
    return {
        "ecc": None if ecc is None else parse_ecc(ecc),
        "rows": None if rows is None else parse_rows(rows),
        "xids": None if not log else parse_xids(log),
    }


def parse_ecc(text: str) -> list[int]:
    """Read ``pci.bus_id, count`` of each GPU; a card without ECC has ``[N/A]``."""
    counts = (line.rpartition(", ")[2] for line in text.splitlines())
    return [int(count) for count in counts if count.isdigit()]


def parse_rows(text: str) -> list[list[str]]:
    """Read ``gpu_bus_id, pending, failure`` of each GPU.

    The values are ``No`` or ``Yes``, in some versions 0 or 1.
    """
    fields = (line.split(", ") for line in text.splitlines())
    return [row[1:] for row in fields if len(row) == 3]


def parse_xids(log: str) -> list[int]:
    """Return the Xids in the kernel's log, each once."""
    return sorted({int(xid) for xid in re.findall(r"NVRM: Xid \([^)]*\): (\d+)", log)})


def has_driver() -> bool:
    """Return whether this machine has a driver for GPUs: NVIDIA's or AMD's."""
    return os.path.exists("/proc/driver/nvidia/version") or os.path.exists("/dev/kfd")


class Ranks:
    """The ranks of this node: processes that print their steps and results, line by line."""

    def __init__(self, node: LocalNode, ranks: int, gpus: int) -> None:
        self._changed = threading.Condition()
        self._found: list[dict[str, Any]] = [{} for _ in range(ranks)]
        self._step_began = [time.monotonic()] * ranks
        self._processes = []
        port = free_port("127.0.0.1")
        for local_rank in range(ranks):
            log = (node.folder / f"{node.name}-rank-{local_rank}.err").open("wb")
            numbers = map(str, (local_rank, ranks, gpus, port))
            process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("rank.py")), *numbers],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            log.close()
            self._processes.append(process)
            threading.Thread(target=self._read, args=(local_rank, process), daemon=True).start()

    def _read(self, local_rank: int, process: subprocess.Popen[str]) -> None:
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                try:
                    record = json.loads(line)
                except ValueError:
                    continue  # NCCL prints its warnings to stdout
                if not isinstance(record, dict):
                    continue
                with self._changed:
                    self._found[local_rank] |= record
                    if "doing" in record:
                        self._step_began[local_rank] = time.monotonic()
                    self._changed.notify_all()
        with self._changed:
            self._found[local_rank].setdefault("status", process.returncode)
            self._changed.notify_all()

    def results(self) -> list[dict[str, Any]]:
        """Return the results of every rank so far, and the seconds since its step began."""
        results = []
        with self._changed:
            now = time.monotonic()
            for rank, began in zip(self._found, self._step_began):
                results.append({**rank, "for_s": round(now - began, 1)})
        return results

    def wait(self, doing: str, until: float) -> bool:
        """Wait until every rank is in the step ``doing`` or has ended.

        The result says whether all ranks are in the step.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: all(rank.get("doing") == doing or "status" in rank for rank in self._found),
                max(0.0, until - time.monotonic()),
            )
            return all(rank.get("doing") == doing for rank in self._found)

    def order(self, node: LocalNode, store: int) -> None:
        """Start the inter-node all-reduce of the ranks.

        The ranks wait for the ranks of other nodes until the time is over.
        """
        count = len(self._processes)
        order = {
            "ranks": len(node.hosts) * count,
            "store": f"{node.address(0)}:{store}",
            "wait_s": max(1, int(node.ends_at - time.monotonic()) - 1),
        }
        for number, process in enumerate(self._processes):
            assert process.stdin is not None
            order["rank"] = node.rank * count + number
            try:
                process.stdin.write(json.dumps(order) + "\n")
                process.stdin.flush()
            except (OSError, ValueError):
                continue  # it has ended, and reported why

    def end(self) -> None:
        """End all ranks."""
        for process in self._processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def in_background(report: NodeReport, key: str, check: Callable[[], Any]) -> threading.Thread:
    """Start a check that may take long, and report its result.

    An example is a question to a name server that does not respond.
    """
    thread = threading.Thread(target=lambda: report.put(**{key: check()}), daemon=True)
    thread.start()
    return thread


def knock_at_all(node: LocalNode) -> dict[str, dict[str, Any]]:
    """Connect to the other nodes, all at once; return node → its answer, or the error."""
    until = node.ends_at - CONNECTED_BEFORE_END_S
    answers = {node.hosts[rank]: {"error": "no response"} for rank in node.peers()}

    def knock(rank: int) -> None:
        answers[node.hosts[rank]] = reach(node, rank, until)

    threads = []
    for rank in node.peers():
        thread = threading.Thread(target=knock, args=(rank,), daemon=True)
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join(max(0.0, until + TRY_S + 1 - time.monotonic()))
    return dict(answers)


def check(node: LocalNode, ranks: int, gpus: int, report: NodeReport) -> None:
    """Do all checks."""
    report.put(shm=shared_memory(), started=time.time())
    door = None
    try:
        door = Door(node)
    except OSError as failure:
        report.put(bind=words(failure))
    # do not start so many programs for GPUs that exist only in Slurm's configuration, as in a
    # cluster for tests
    if gpus and not has_driver():
        ranks = min(ranks, 2)
    workers = Ranks(node, ranks, gpus)
    try:
        checks = [in_background(report, "kept", kept_data)]
        if gpus:
            checks.append(in_background(report, "errors", counters))
        if not node.is_local:
            addresses = {host: node.address(rank) for rank, host in enumerate(node.hosts)}
            resolve_all = partial(resolve_names, addresses)
            checks.append(in_background(report, "names", resolve_all))
        answers = knock_at_all(node)
        report.put(reach=answers)
        ready = workers.wait("waiting", node.ends_at - READY_BEFORE_END_S)
        report.put(ranks=workers.results())
        store = None
        if node.rank:
            store = answers[node.hosts[0]].get("store")
        elif door is not None:
            store = door.store
        # what is only slow may still end, and what hangs has hung long enough to be called so
        if not ready:
            report.put(late=True)
            workers.wait("waiting", node.ends_at - 0.5)
        elif len(node.hosts) > 1 and store:
            workers.order(node, store)
            workers.wait("done", node.ends_at - 0.5)
        for thread in checks:
            thread.join(max(0.0, node.ends_at - time.monotonic()))
    finally:
        report.put(ranks=workers.results(), ended=time.time())
        workers.end()


def main() -> None:
    """Run the node.

    After SIGTERM, for example from srun when another node does not respond, it ends its ranks.
    """
    node = LocalNode(dict(os.environ))
    report = NodeReport(
        node.folder / f"{node.name}.json", node=node.name, rank=node.rank, port=node.port
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        report.put()
    except OSError as failure:
        what = f"{node.name} cannot write in the run's folder {node.folder}: {words(failure)}"
        sys.exit(f"hpcrun: {what}; choose a runs folder that all nodes share")
    check(node, int(sys.argv[1]), int(sys.argv[2]), report)
    os._exit(0)  # do not wait for a check that still hangs


if __name__ == "__main__":
    main()
