"""Asks nvidia-smi and the network's counters on every node of a job, and reads the answers."""

from __future__ import annotations

from dataclasses import dataclass

from hpcrun.schedulers.fabric import READ_PORTS, PortReading, parse_ports

FIELDS = ("index", "uuid", "name", "utilization.gpu", "memory.used", "memory.total", "power.draw", "power.limit",
          "temperature.gpu")  # fmt: skip
# Each line begins with the node: srun's own --label numbers the tasks. On a site that does not confine devices,
# nvidia-smi shows the GPUs of all jobs: CUDA_VISIBLE_DEVICES lists this job's. -i does not accept parts (MIG-...).
PROGRAM = r"""
say() { while IFS= read -r line; do printf '%s\t%s\t%s\n' "${SLURMD_NODENAME:-$HOSTNAME}" "$1" "$line"; done; }
read_ports | say port
begun=$EPOCHREALTIME
(
command -v nvidia-smi >/dev/null || { echo 'no nvidia-smi there' | say none; exit 0; }
case ${CUDA_VISIBLE_DEVICES-} in '' | *MIG* | NoDevFiles) mine=() ;; *) mine=(-i "$CUDA_VISIBLE_DEVICES") ;; esac
said=$(timeout 10 nvidia-smi "${mine[@]}" --query-gpu=FIELDS --format=csv,noheader,nounits 2>&1)
case $? in 0) kind=gpu ;; 124) kind=error said='nvidia-smi does not respond' ;; *) kind=error ;; esac
printf '%s\n' "$said" | say "$kind"
)
while ((${EPOCHREALTIME/[.,]/} - ${begun/[.,]/} < 1000000)); do sleep 0.2; done
read_ports | say port
"""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The state of one GPU; ``None`` for values that its driver does not report: ``[N/A]``, ``[Not Supported]``.

    Attributes:
        index: in nvidia-smi's order, which is that of the PCI bus.
        busy_percent: share of about the last second in which anything ran on it.
    """

    index: int
    uuid: str
    name: str
    busy_percent: float | None
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
    gpus: dict[str, list[GpuReading]] = {}
    words: dict[str, list[str]] = {}
    ports: dict[str, list[str]] = {}
    for line in text.splitlines():
        node, _, rest = line.partition("\t")
        kind, _, said = rest.partition("\t")
        if kind == "port":
            ports.setdefault(node, []).append(said)
        if kind not in ("gpu", "none", "error"):
            continue  # a site's login message
        gpu = parse_gpu(said) if kind == "gpu" else None
        if gpu:
            gpus.setdefault(node, []).append(gpu)
        elif said.strip():
            words.setdefault(node, []).append(said.strip())
    return {
        node: NodeReading(
            node,
            tuple(gpus.get(node, ())),
            "; ".join(dict.fromkeys(words.get(node, ()))),
            parse_ports(ports.get(node, ())),
        )
        for node in sorted({*gpus, *words})
    }


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
