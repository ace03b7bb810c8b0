"""Steps of srun: a shell and measurements beside the ranks of a running job.

The measurements are of the use of GPUs and network.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpcrun.machine.clean_environment import clean_env
from hpcrun.machine.on_terminal import run_on_terminal
from hpcrun.machine.process import Completed, run_command

# The shell's exit status is this command's, and no error of srun. Ctrl-C is for the shell. Over ssh
# bash reads .bashrc before a command, and prints what it prints: bash(1).
_WITHOUT_STATUS = (
    """exec "$@" 2> >(trap '' INT; exec sed -u '/^srun: error: .*: Exited with exit code/d' >&2)"""
)
ANSWER_WITHIN_S = 20  # srun would wait without limit for a node that does not respond


@dataclass(frozen=True, slots=True)
class Allocation:
    """The nodes of a running Slurm job."""

    job_id: str
    nodes: int  # their number
    # CPUs of the job, None if unknown: a step without a number of CPUs gets one
    cpus_per_node: int | None
    env: Mapping[str, str]

    def on_every_node(self, command: Sequence[str], within_s: int = ANSWER_WITHIN_S) -> Completed:
        """Run a command once on each node, and end it after some seconds."""
        step = step_command(self.job_id, nodes=self.nodes, cpus=None)
        # timeout sends SIGTERM, so that srun ends the step; after SIGKILL the step would stay
        argv = ["timeout", "--kill-after=2", str(within_s), *step, *command]
        return run_command(argv, timeout_s=within_s + 5, env=clean_env(self.env))

    def shell(
        self, shell: Sequence[str], *, node: str | None, workdir: str | None, is_terminal: bool
    ) -> int:
        """Open a shell on a node, by default the first; return the shell's exit status.

        Raises:
            FileNotFoundError: there is no srun on PATH. It is an OSError.
        """
        step = shell_command(
            self.job_id,
            node=node,
            cpus=self.cpus_per_node,
            workdir=workdir,
            is_terminal=is_terminal,
        )
        env = clean_env(self.env)
        if shutil.which("srun", path=env.get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, "srun is not on PATH")
        argv = ["bash", "--norc", "-c", _WITHOUT_STATUS, "bash", *step, *shell]
        return run_on_terminal(argv, env)


def plain_job_id(job_id: str, env: Mapping[str, str]) -> str:
    """Return srun's id of a job.

    An element of an array, 123_4, also has a plain number (squeue(1), %A). If squeue does not show
    the job, the id is returned unchanged.
    """
    if "_" not in job_id:
        return job_id
    argv = ["squeue", "--noheader", f"--jobs={job_id}", "--format=%A"]
    answer = run_command(argv, timeout_s=ANSWER_WITHIN_S, env=clean_env(env))
    shown = answer.stdout.strip()
    return shown if answer.ok and shown.isdigit() else job_id


def step_command(job_id: str, *, nodes: int, cpus: int | None) -> list[str]:
    """Return the srun that starts one task per node beside the job's own step.

    ``--overlap``: share CPUs, memory and GPUs with the job's own step (without it, since Slurm
    20.11, the new step would wait for the end of the job's own step). No ``--gres``: then a step
    sees all GPUs of the job. ``--mem=0``: all its memory.
    """
    argv = [
        "srun",
        f"--jobid={job_id}",
        "--overlap",
        "--mem=0",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
    ]
    if cpus:
        argv.append(f"--cpus-per-task={cpus}")
    return [*argv, "--quiet", "--kill-on-bad-exit=0"]


def shell_command(
    job_id: str, *, node: str | None, cpus: int | None, workdir: str | None, is_terminal: bool
) -> list[str]:
    """Return the srun of an interactive shell, without the shell."""
    argv = step_command(job_id, nodes=1, cpus=cpus)
    if node:
        argv.append(f"--nodelist={node}")
    if workdir:
        argv.append(f"--chdir={workdir}")
    if is_terminal:
        argv.append("--pty")
    return argv


FIELDS = (
    "index",
    "uuid",
    "name",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "power.draw",
    "power.limit",
    "temperature.gpu",
)
# Each line begins with the node: srun's own --label numbers the tasks. On a site that does not
# confine devices, nvidia-smi shows the GPUs of all jobs: CUDA_VISIBLE_DEVICES lists this job's. -i
# does not accept parts (MIG-...).
PROGRAM = r"""
say() {
  while IFS= read -r line; do
    printf '%s\t%s\t%s\n' "${SLURMD_NODENAME:-$HOSTNAME}" "$1" "$line"
  done
}
read_ports | say port
begun=$EPOCHREALTIME
(
command -v nvidia-smi >/dev/null || { echo 'no nvidia-smi there' | say none; exit 0; }
case ${CUDA_VISIBLE_DEVICES-} in
  '' | *MIG* | NoDevFiles) mine=() ;;
  *) mine=(-i "$CUDA_VISIBLE_DEVICES") ;;
esac
said=$(timeout 10 nvidia-smi "${mine[@]}" --query-gpu=FIELDS --format=csv,noheader,nounits 2>&1)
case $? in
  0) kind=gpu ;;
  124) kind=error said='nvidia-smi does not respond' ;;
  *) kind=error ;;
esac
printf '%s\n' "$said" | say "$kind"
)
while ((${EPOCHREALTIME/[.,]/} - ${begun/[.,]/} < 1000000)); do sleep 0.2; done
read_ports | say port
"""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The state of one GPU.

    A value that its driver does not report (``[N/A]``, ``[Not Supported]``) is ``None``.
    """

    index: int  # in nvidia-smi's order, which is that of the PCI bus
    uuid: str
    name: str
    busy_percent: float | None  # share of about the last second in which anything ran on it
    memory_used_mb: float | None
    memory_total_mb: float | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: float | None


@dataclass(frozen=True, slots=True)
class NodeReading:
    """The GPUs of one node, or the reason why there are none, and the traffic of its network."""

    node: str
    gpus: tuple[GpuReading, ...]
    words: str = ""
    ports: tuple[PortReading, ...] = ()


def query_command() -> list[str]:
    """Return the command that every node runs."""
    return ["bash", "-c", READ_PORTS + PROGRAM.replace("FIELDS", ",".join(FIELDS))]


def parse_readings(text: str) -> dict[str, NodeReading]:
    """Read the answers of all nodes, by node."""
    answers: dict[str, dict[str, list[str]]] = {}
    for line in text.splitlines():
        node, _, rest = line.partition("\t")
        kind, _, answer = rest.partition("\t")
        answers.setdefault(node, {}).setdefault(kind, []).append(answer)
    readings = {}
    for node in sorted(answers):
        reading = _reading(node, answers[node])
        if reading is not None:
            readings[node] = reading
    return readings


def _reading(node: str, answers: Mapping[str, Sequence[str]]) -> NodeReading | None:
    lines: list[str] = []
    for kind in ("gpu", "none", "error"):
        lines += answers.get(kind, ())
    if not lines:  # a site's login message
        return None
    gpus = []
    messages: list[str] = []
    for line in lines:
        message = line.strip()
        gpu = parse_gpu(line)
        if gpu is not None:
            gpus.append(gpu)
        elif message and message not in messages:
            messages.append(message)
    ports = parse_ports(answers.get("port", ()))
    return NodeReading(node, tuple(gpus), "; ".join(messages), ports)


def parse_gpu(line: str) -> GpuReading | None:
    """Read one line of ``nvidia-smi --query-gpu``; None for any other line."""
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != len(FIELDS) or not parts[0].isdigit():
        return None
    return GpuReading(int(parts[0]), parts[1], parts[2], *map(_number, parts[3:]))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A], [Not Supported], [Unknown Error], [GPU requires reset]
        return None


# A function for the program that every node runs. port_rcv_data and port_xmit_data count 4 bytes
# each (Linux: Documentation/ABI/stable/sysfs-class-infiniband). The interfaces of /proc/net/dev
# count only traffic through the kernel, without RDMA: they are read if a node has no RDMA ports.
READ_PORTS = r"""
read_ports() {
  local port now rest rdma=
  now=$(date +%s.%N)
  for port in /sys/class/infiniband/*/ports/*; do
    [ -r "$port/counters/port_rcv_data" ] || continue
    rest=${port#/sys/class/infiniband/}
    printf '%s\t%s\t%s\t%s\t%s\n' "$now" "${rest%%/*}/${port##*/}" "$(<"$port/rate")" \
      "$(($(<"$port/counters/port_rcv_data") * 4))" "$(($(<"$port/counters/port_xmit_data") * 4))"
    rdma=1
  done
  [ -n "$rdma" ] || tr : ' ' </proc/net/dev | while read -r port received _ _ _ _ _ _ _ sent _; do
    case $received in *[!0-9]*) continue ;; esac # the headings
    printf '%s\t%s\t\t%s\t%s\n' "$now" "$port" "$received" "$sent"
  done
}
"""


@dataclass(frozen=True, slots=True)
class PortReading:
    """The traffic of one port of a node, in bytes per second."""

    port: str  # ``mlx5_0/1``, or an interface such as ``eth0``
    link: str  # the speed of the link as reported, "" if it is not
    in_per_s: float
    out_per_s: float


@dataclass(frozen=True, slots=True)
class _NetworkCounters:
    """The bytes that a port has received and sent since it was started."""

    at_s: float  # when they were read, in seconds since the epoch
    received: int
    sent: int


def parse_ports(lines: Iterable[str]) -> tuple[PortReading, ...]:
    """Return the rates from the first and the last reading of each port.

    Interfaces without traffic are left out.
    """
    first: dict[str, _NetworkCounters] = {}
    rates: dict[str, PortReading] = {}
    for line in lines:
        parts = line.split("\t")
        try:
            port = parts[1]
            link = parts[2]
            last = _NetworkCounters(
                at_s=float(parts[0]), received=int(parts[3]), sent=int(parts[4])
            )
        except (ValueError, IndexError):
            continue
        before = first.setdefault(port, last)
        span_s = last.at_s - before.at_s
        if span_s > 0:
            # if a counter was reset, the traffic is unknown
            into = max(0, last.received - before.received) / span_s
            out = max(0, last.sent - before.sent) / span_s
            rates[port] = PortReading(port, link, into, out)
    ports = []
    for port, rate in sorted(rates.items()):
        has_traffic = rate.in_per_s > 0 or rate.out_per_s > 0
        if rate.link or (has_traffic and port != "lo"):
            ports.append(rate)
    return tuple(ports)
