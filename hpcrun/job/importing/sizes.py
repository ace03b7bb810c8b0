"""The nodes, GPUs, CPUs and ranks that a script asks for, and hpcrun's options for the same. Pure arithmetic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hpcrun.job.importing.directives import GpuRequest, ScriptOption, gpu_request, is_size
from hpcrun.job.importing.launch import LaunchLine
from hpcrun.job.importing.words import Word, known

Option = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the directives ask for.

    Attributes:
        tasks: Slurm tasks of each node.
        gpus: of each node.
        cpus: of each task; None if the directives do not say.
        cpus_per_gpu: None if the directives do not say.
        form: the directive of the GPUs, as a profile's gpu.directive names it; None without GPUs.
        problems: by line, what is not understood.
    """

    nodes: int = 1
    tasks: int = 1
    gpus: int = 0
    gpu_type: str | None = None
    cpus: int | None = None
    cpus_per_gpu: int | None = None
    form: str | None = None
    said: tuple[str, ...] = ()
    problems: tuple[tuple[int, str], ...] = ()

    def facts(self) -> dict[str, str]:
        """Return the values of Slurm's variables in the job."""
        numbers = {
            "SLURM_NNODES": self.nodes,
            "SLURM_JOB_NUM_NODES": self.nodes,
            "SLURM_NTASKS": self.nodes * self.tasks,
            "SLURM_NPROCS": self.nodes * self.tasks,
            "SLURM_NTASKS_PER_NODE": self.tasks,
            "SLURM_TASKS_PER_NODE": self.tasks if self.nodes == 1 else None,
            "SLURM_CPUS_PER_TASK": self.cpus,
            "SLURM_GPUS_ON_NODE": self.gpus or None,
            "SLURM_GPUS_PER_NODE": self.gpus if self.form == "gpus-per-node" else None,
            "SLURM_GPUS": self.gpus * self.nodes if self.form == "gpus" else None,
        }
        return {name: str(number) for name, number in numbers.items() if number is not None}


def read_sizes(options: list[ScriptOption]) -> Sizes:
    """Return the sizes of the directives; of an option that is given twice, sbatch takes the last."""
    texts: dict[str, tuple[int, str]] = {}
    problems: list[tuple[int, str]] = []
    requests: list[GpuRequest] = []
    numbers: dict[str, int] = {}
    for option in options:
        if is_size(option.name) and option.is_known:
            texts[option.name] = (option.line, option.value or "")
    for name, (line, text) in texts.items():
        if name in ("gres", "gpus", "gpus-per-node", "gpus-per-task"):
            if (request := gpu_request(name, text)) is None:
                problems.append((line, f"--{name}={text}: hpcrun asks for GPUs alone"))
            elif request.count:
                requests.append(request)
        elif (number := _number(name, text)) is None:
            problems.append((line, f"--{name}={text} is no single number"))
        else:
            numbers[name] = number
    nodes, tasks = _tasks(numbers, texts, problems)
    gpus, type_, form = _gpus(requests, nodes, tasks, texts, problems)
    if "ntasks-per-gpu" in numbers and "ntasks-per-node" not in numbers and "ntasks" not in numbers:
        tasks = max(1, numbers["ntasks-per-gpu"] * gpus)
    return Sizes(nodes, tasks, gpus, type_, numbers.get("cpus-per-task"), numbers.get("cpus-per-gpu"), form,
                 tuple(texts), tuple(problems))  # fmt: skip


def _number(name: str, text: str) -> int | None:
    match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", text)
    if match is None or (match[2] and (name != "nodes" or match[2] != match[1])):
        return None
    return int(match[1]) or None


def _tasks(numbers: Mapping[str, int], texts: Mapping[str, tuple[int, str]],
           problems: list[tuple[int, str]]) -> tuple[int, int]:  # fmt: skip
    nodes, total, each = numbers.get("nodes"), numbers.get("ntasks"), numbers.get("ntasks-per-node")
    if nodes is None:
        nodes = -(-total // each) if total and each else 1
    if each is None or (total is not None and total != nodes * each):
        if total is not None and total % nodes:
            problems.append((texts["ntasks"][0], f"{total} tasks do not divide by {nodes} nodes"))
        each = max(1, total // nodes) if total is not None else each or 1
    return nodes, each


def _gpus(requests: list[GpuRequest], nodes: int, tasks: int, texts: Mapping[str, tuple[int, str]],
          problems: list[tuple[int, str]]) -> tuple[int, str | None, str | None]:  # fmt: skip
    if not requests:
        return 0, None, None
    each = {
        request.count // nodes if request.per == "job" else request.count * (tasks if request.per == "task" else 1)
        for request in requests
    }
    type_ = next((request.type for request in requests if request.type), None)
    line = next(texts[name][0] for name in texts if name.startswith(("gpus", "gres")))
    if len(each) > 1:
        problems.append((line, f"the directives ask for {' and '.join(map(str, sorted(each)))} GPUs of each node"))
    if any(request.per == "job" and request.count % nodes for request in requests):
        problems.append((line, f"the GPUs do not divide by {nodes} nodes"))
    form = next((request.form for request in requests if request.form == "gres"), requests[0].form)
    return max(each), type_, form


@dataclass(frozen=True, slots=True)
class RankLayout:
    """How the ranks start, in hpcrun's words.

    Attributes:
        options: hpcrun's options for nodes, GPUs, CPUs and the launcher.
        launcher: hpcrun's name of it.
        tasks: the Slurm tasks of each node that hpcrun requests.
        ranks: the ranks of each node.
        problems: what cannot be the same, and is not converted.
        notes: what is different, and is converted.
    """

    options: tuple[Option, ...]
    launcher: str
    tasks: int
    ranks: int
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def decide_ranks(sizes: Sizes, line: LaunchLine) -> RankLayout:
    """Return hpcrun's options for the sizes of a script and of its launch line."""
    problems: list[str] = []
    launcher, ranks = _launcher(sizes, line, problems)
    options: list[Option] = []
    kind = f"{sizes.gpu_type}:" if sizes.gpu_type else ""
    options.append(("--gpus", f"{kind}{sizes.gpus * sizes.nodes}"))
    if sizes.nodes > 1:
        options.append(("--nodes", str(sizes.nodes)))
    if launcher != ("torchrun" if sizes.gpus else "python"):
        options.append(("--launcher", launcher))
    if launcher in ("torchrun", "srun"):
        if sizes.gpus and ranks > sizes.gpus:
            problems.append(f"{ranks} ranks of a node share {sizes.gpus} GPUs: hpcrun starts at most one for each")
        if ranks != (sizes.gpus or (1 if launcher == "srun" else 0)):
            options.append(("--nproc-per-node", str(ranks)))
    elif launcher == "command" and line.per_node and line.per_node != max(1, sizes.gpus):
        options.append(("--nproc-per-node", str(line.per_node)))
    tasks = ranks if launcher == "srun" else 1
    options += _cpus(sizes, tasks, line, problems)
    notes = []
    if tasks > sizes.tasks and sizes.cpus is None and "ntasks" not in sizes.said:
        notes.append(f"the script asks for {sizes.tasks} task on each node and starts {tasks}; hpcrun asks for {tasks}")
    return RankLayout(tuple(options), launcher, tasks, ranks, tuple(problems), tuple(notes))


def _launcher(sizes: Sizes, line: LaunchLine, problems: list[str]) -> tuple[str, int]:
    """Return hpcrun's launcher and the ranks of each node."""
    if line.nodes and line.nodes != sizes.nodes and line.launcher == "torchrun":
        problems.append(f"{line.nodes} nodes take part, and the directives ask for {sizes.nodes}")
    if line.launcher == "torchrun":
        return "torchrun", (line.per_node or max(1, sizes.gpus)) if line.per_node is not None else 1
    if line.launcher == "command":
        if sizes.nodes > 1 and line.steps is None:
            problems.append(f"it starts on the first of {sizes.nodes} nodes, hpcrun starts it on each")
        return "command", line.per_node or max(1, sizes.gpus)
    if line.launcher != "program":
        return _own_ranks(sizes, line, problems)
    if line.steps is None:
        if sizes.nodes > 1:
            problems.append(f"it runs on the first of {sizes.nodes} nodes only; hpcrun starts it on each")
        return ("python" if _is_python(line) else "command"), 1
    tasks = _step_tasks(sizes, line.steps, problems)
    if tasks == 1 and sizes.gpus != 1:
        return ("python" if _is_python(line) else "command"), 1
    return "srun", tasks


def _own_ranks(sizes: Sizes, line: LaunchLine, problems: list[str]) -> tuple[str, int]:
    """Return the launcher for mpirun and other programs that start the ranks of all nodes."""
    if sizes.nodes > 1 and line.launcher in ("mpirun", "horovodrun"):
        problems.append(
            f"{line.launcher} over {sizes.nodes} nodes: --launcher srun starts one MPI rank for each GPU, if the MPI "
            "library knows Slurm's PMI (--srun mpi=pmix)"
        )
    elif sizes.nodes > 1:
        problems.append(
            f"{line.launcher} reaches the other nodes by itself; most of its scripts run as they are with "
            "hpcrun submit SCRIPT"
        )
    return "command", max(1, sizes.gpus)


def _is_python(line: LaunchLine) -> bool:
    head = known(line.program[0]) if line.program else None
    return bool(head and (head.endswith(".py") or head == "-m" or line.python))


def _step_tasks(sizes: Sizes, steps: Mapping[str, Word], problems: list[str]) -> int:
    """Return the tasks of each node that srun starts."""
    numbers: dict[str, int] = {}
    for name, word in steps.items():
        text = known(word)
        if text is None or not re.fullmatch(r"\d{1,6}", text):
            problems.append(f"srun --{name} is not known before the job runs")
        else:
            numbers[name] = int(text)
    nodes = numbers.get("nodes", sizes.nodes)
    each = numbers.get("ntasks-per-node")
    total = numbers.get("ntasks")
    if nodes != sizes.nodes and not (total == 1 and sizes.nodes == 1):
        problems.append(f"srun uses {nodes} of {sizes.nodes} nodes: hpcrun uses all")
    if total is not None and total % sizes.nodes == 0:
        return max(1, total // sizes.nodes)
    if total is not None:
        problems.append(f"srun starts {total} tasks on {sizes.nodes} nodes")
    return each or sizes.tasks


def _cpus(sizes: Sizes, tasks: int, line: LaunchLine, problems: list[str]) -> list[Option]:
    """Return the option for the CPUs, so that each node gets as many as the script asks for."""
    of_step = known((line.steps or {}).get("cpus-per-task", ())) or ""
    if sizes.cpus_per_gpu is not None:
        return [("--cpus-per-gpu", str(sizes.cpus_per_gpu))]
    if sizes.cpus is None and of_step.isdigit() and tasks != sizes.tasks:
        return [("--cpus-per-task", of_step)]  # nodes that Slurm gives as a whole
    if sizes.cpus is None and (tasks == sizes.tasks or not {"ntasks", "ntasks-per-node"} & set(sizes.said)):
        return [("--no-sbatch", "cpus-per-task")]  # the site decides, as it does for the script
    total = (sizes.cpus or 1) * sizes.tasks
    if total % tasks:
        problems.append(f"{total} CPUs of each node do not divide by {tasks} ranks")
        return []
    return (
        [("--cpus-per-task", str(total // tasks))] if sizes.cpus and tasks == sizes.tasks else [("--cpus", str(total))]
    )
