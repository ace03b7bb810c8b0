"""The #SBATCH lines of a script: hpcrun keeps them as they are, but for what it sets itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpcrun.errors import UsageError
from hpcrun.job.directives import FLAGS, PYXIS, directive_line, normalise_key
from hpcrun.job.launch_options import takes_value
from hpcrun.job.quoting import check_env_name, job_name_from

_LINE = re.compile(r"#SBATCH(?=\s)(.*)", re.DOTALL)
_LOGS = "each rank has its own log, and the script another: hpcrun logs"
_LEFT_OUT = {
    "output": _LOGS,
    "error": _LOGS,
    **dict.fromkeys(("parsable", "quiet"), "use hpcrun submit --json"),
    "verbose": "hpcrun prints the messages of sbatch",
    "wait": "use hpcrun submit --wait",
    "ignore-pbs": "it has no effect on #SBATCH lines",
}
"""Options of sbatch that hpcrun leaves out, and what it does instead."""
_REFUSED = {
    **dict.fromkeys(("hetjob", "packjob"), "a heterogeneous job: hpcrun would join its components"),
    **dict.fromkeys(("export-file", "input"), "hpcrun has nothing for it"),
    "wrap": "the script would not be run",
    "test-only": "use hpcrun submit --dry-run",
    **dict.fromkeys(PYXIS, "the script itself would run in a container, without hpcrun"),
}
MOST_TASK_IDS = 100_000
"""The most task ids that --array may name; Slurm's own limit, MaxArraySize, is 1001 unless a site changes it."""


@dataclass(frozen=True, slots=True)
class ScriptOption:
    """One option of sbatch, as a script gives it."""

    line: int
    name: str  # its long name; the word as written if sbatch has no such option
    value: str | None  # None for a flag
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """What the #SBATCH lines of a script become."""

    directives: tuple[tuple[str, str | None], ...]  # those that hpcrun gives to sbatch as they are
    name: str | None  # the job's name, None if the script has none
    workdir: str | None  # the folder where it starts
    array: tuple[tuple[int, ...], int | None] | None  # task ids and how many run at once
    env: tuple[tuple[str, str], ...]  # variables of ``--export``
    remarks: tuple[str, ...]  # what hpcrun does in another way
    problems: tuple[str, ...]  # why the job cannot be submitted


def read_batch_options(lines: list[str]) -> BatchOptions:
    """Return what the #SBATCH lines of a script become."""
    options, late = _read_lines(lines)
    kept: dict[str, str | None] = {}
    set_by_hpcrun: dict[str, str] = {}
    remarks = [f"line {number}: sbatch does not read #SBATCH behind the first command" for number in late]
    problems: list[str] = []
    for option in options:
        name, value = option.name, option.value
        if reason := _why_not(option):
            problems.append(f"line {option.line}: --{name.lstrip('-')}: {reason}")
        elif name in _LEFT_OUT:
            remarks.append(f"line {option.line}: --{name} is left out: {_LEFT_OUT[name]}")
        elif name in ("job-name", "chdir", "array", "export"):
            set_by_hpcrun[name] = value or ""
        elif name == "mail-type" and name in kept:  # sbatch adds them up
            kept[name] = f"{kept[name]},{value}"
        else:
            kept[name] = value
    array = _array(set_by_hpcrun["array"]) if "array" in set_by_hpcrun else None
    if "array" in set_by_hpcrun and array is None:
        problems.append(f"--array={set_by_hpcrun['array']} is no list of task ids")
    if "job-name" in set_by_hpcrun and set_by_hpcrun["job-name"] != job_name_from(set_by_hpcrun["job-name"]):
        remarks.append(f"the job's name is {job_name_from(set_by_hpcrun['job-name'])}: it becomes a part of file names")
    env = [item.partition("=")[::2] for item in set_by_hpcrun.get("export", "").split(",") if "=" in item]
    return BatchOptions(
        tuple(kept.items()),
        job_name_from(set_by_hpcrun["job-name"]) if "job-name" in set_by_hpcrun else None,
        set_by_hpcrun.get("chdir"),
        array,
        tuple(env),
        tuple(dict.fromkeys(remarks)),
        tuple(problems),
    )


def _why_not(option: ScriptOption) -> str | None:
    """Return why hpcrun cannot give an option to sbatch, None if it can."""
    name, value = option.name, option.value
    if name in _REFUSED:
        return _REFUSED[name]
    if not option.is_known and value is None:
        return "hpcrun does not know this option of sbatch"
    if not value and (name not in FLAGS or value is not None):
        return "it has no value"
    if name == "export":
        plain = [item for item in (value or "").split(",") if "=" not in item]
        if plain and plain != ["ALL"]:
            return f"{value}: hpcrun passes your whole environment to the job"
        try:
            for item in (value or "").split(","):
                check_env_name(item.partition("=")[0])
        except ValueError as error:
            return str(error)
    try:
        directive_line(name, value)
    except UsageError as error:
        return error.message
    return None


def _read_lines(lines: list[str]) -> tuple[list[ScriptOption], list[int]]:
    """Return the options of the #SBATCH lines above the first command, and the numbers of those below it."""
    options: list[ScriptOption] = []
    late: list[int] = []
    begun = False
    for number, line in enumerate(lines, start=1):
        if match := _LINE.match(line):
            if begun:
                late.append(number)
            else:
                options += _options(number, _split(match[1]))
        elif line.strip() and not line.lstrip().startswith("#"):
            begun = True
    return options, late


def _split(text: str) -> list[str]:
    """Return the words of an #SBATCH line as sbatch divides them: a # at the start of a word begins a comment."""
    words: list[str] = []
    for match in re.finditer(r"""((?:"[^"]*"?|'[^']*'?|\\.|[^\s"'\\])+)""", text):
        if match[1].startswith("#"):
            break
        words.append(re.sub(r"""\\(.)|["']""", lambda quoted: quoted[1] or "", match[1]))
    return words


def _options(line: int, words: list[str]) -> Iterator[ScriptOption]:
    rest = list(words)
    while rest:
        option = rest.pop(0)
        is_long = option.startswith("--")
        key, equals, text = option.partition("=") if is_long else (option[:2], option[2:], option[2:].removeprefix("="))
        known = takes_value("sbatch", key)
        if known is None:
            name = normalise_key(key) if is_long else option
            yield ScriptOption(line, name, text if is_long and equals else None, is_known=False)
            continue
        value = text if equals else None
        if known[1] and value is None and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        yield ScriptOption(line, known[0], value)


def _array(text: str) -> tuple[tuple[int, ...], int | None] | None:
    """Return the task ids of ``--array``, and how many may run at once; None if it cannot be read."""
    ids: set[int] = set()
    ranges, _, most = text.partition("%")
    for part in ranges.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?(?::(\d{1,6}))?", part.strip())
        if match is None or (match[3] and int(match[3]) == 0):
            return None
        more = range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))
        if not more or len(ids) + len(more) > MOST_TASK_IDS:
            return None
        ids.update(more)
    if most and not re.fullmatch(r"\d{1,6}", most):
        return None
    return tuple(sorted(ids)), int(most) if most else None


@dataclass(frozen=True, slots=True)
class Sizes:
    """The nodes, tasks and GPUs that directives request, as far as they say it."""

    nodes: int = 1
    tasks: int = 1  # of each node
    gpus: int = 0  # of each node
    gpu_type: str | None = None


def read_sizes(directives: Mapping[str, str | None]) -> Sizes:
    """Return the sizes of a job; Slurm decides what they leave open."""
    total, each = _number(directives.get("ntasks")), _number(directives.get("ntasks-per-node"))
    nodes = _number(directives.get("nodes")) or (-(-total // each) if total and each else 1)
    tasks = each or (max(1, total // nodes) if total else 1)
    gpus, type_ = 0, None
    for name, times in (("gres", 1), ("gpus-per-task", tasks), ("gpus-per-node", 1), ("gpus", None)):
        for item in (directives.get(name) or "").split(","):
            if count := gpus_in(name, item):
                gpus = max(gpus, count[0] * times if times else -(-count[0] // nodes))
                type_ = type_ or count[1]
    if (per_gpu := _number(directives.get("ntasks-per-gpu"))) and not (total or each):
        tasks = max(1, per_gpu * gpus)
    return Sizes(nodes, tasks, gpus, type_)


def _number(text: str | None) -> int | None:
    match = re.match(r"\d{1,6}", text or "")
    return int(match[0]) or None if match else None


def gpus_in(name: str, item: str) -> tuple[int, str | None] | None:
    """Return the number and type of ``gpu:a100:4`` or ``a100:4``, None if it is another resource."""
    if name == "gres":
        if not re.match(r"(gres[:/])?gpu\b", item):
            return None
        item = re.sub(r"^(gres[:/])?gpu[:=]?|\([^)]*\)$", "", item)
    match = re.fullmatch(r"(?:([\w.-]*[A-Za-z][\w.-]*)[:=]?)?(\d{1,6})?", item)
    if match is None or not (item or name == "gres"):
        return None
    return int(match[2] or 1), match[1]
