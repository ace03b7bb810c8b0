"""What sbatch reads besides its options: the #SBATCH lines of a script, and variables.

The variables are those of sbatch's environment. Pure: no I/O.

hpcrun keeps the lines as they are, except for what it sets itself. For sbatch the variables
override the lines. hpcrun passes none of them on: a variable for a directive that a user may set
becomes a directive, so that the script shows it; a note names the other variables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpcrun.errors import UsageError
from hpcrun.job.launch_options import (
    EXCLUSIVE,
    FLAGS,
    NAMES,
    OPTIONS,
    OWNED,
    PYXIS,
    directive_line,
    normalise_key,
    takes_value,
)
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.request.node_choice import choice_of, read_nodes
from hpcrun.job.request.options import MOST
from hpcrun.job.request.parameters import parse_array
from hpcrun.job.text.quoting import check_env_name, check_job_name, run_name_note
from hpcrun.job.text.spelling import spell, spell_row
from hpcrun.job.text.units import parse_memory, parse_slurm_time

_LINE = re.compile(r"#SBATCH(.*)", re.DOTALL)
_QUOTES = r"""\\.|"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?"""
_QUOTED = re.compile(_QUOTES)
_WORD = re.compile(rf"""(?:{_QUOTES}|[^\s"'\\#])+|#""")
_LOGS = "hpcrun logs shows the logs of the script and of each rank that hpcrun starts"
LEFT_OUT = {
    "output": _LOGS,
    "error": _LOGS,
    **dict.fromkeys(("parsable", "quiet"), "use hpcrun submit --parsable"),
    "verbose": "hpcrun prints the messages of sbatch",
    "wait": "use hpcrun submit --wait",
    "ignore-pbs": "it has no effect on #SBATCH lines",
}
"""Options of sbatch that hpcrun leaves out, and what it does instead."""
_REFUSED = {
    **dict.fromkeys(("hetjob", "packjob"), "a heterogeneous job: hpcrun would join its components"),
    **dict.fromkeys(("export-file", "input"), "hpcrun has nothing for it"),
    "clusters": OWNED["clusters"],
    "wrap": "the script would not be run",
    "test-only": "use hpcrun submit --dry-run",
    **dict.fromkeys(PYXIS, "the script itself would run in a container, without hpcrun"),
}


@dataclass(frozen=True, slots=True)
class BatchOption:
    """One option in a script."""

    line: int
    name: str  # its long name, or the word if sbatch has no such option
    value: str | None  # None without a value


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """What the #SBATCH lines of a script become."""

    directives: tuple[tuple[str, str | None], ...]  # those that hpcrun gives to sbatch as they are
    name: str | None  # the job's name in Slurm, None if the script has none
    workdir: str | None  # the folder where it starts
    array: str | None  # the task ids, as ``--array`` has them
    env: tuple[tuple[str, str], ...]  # variables of ``--export``
    remarks: tuple[str, ...]  # what hpcrun does in another way
    problems: tuple[str, ...]  # why the job cannot be submitted


def read_batch_options(lines: list[str]) -> BatchOptions:
    """Return what the #SBATCH lines of a script become."""
    options, late = _read_lines(lines)
    kept: dict[str, str | None] = {}
    workdir = None
    remarks = [
        f"line {number}: sbatch does not read #SBATCH behind the first command" for number in late
    ]
    problems: list[str] = []
    for option in options:
        line = option.line
        name = option.name
        value = option.value
        reason = _why_not(name, value)
        if reason:
            problems.append(f"line {line}: --{name.lstrip('-')}: {reason}")
        elif name in LEFT_OUT:
            remarks.append(f"line {line}: --{name} is left out: {LEFT_OUT[name]}")
        elif name == "chdir":
            workdir = value
        elif name == "mail-type" and name in kept:  # sbatch adds them up
            kept[name] = f"{kept[name]},{value}"
        else:
            kept[name] = value
    job_name = kept.get("job-name") or None
    name_note = run_name_note(job_name) if job_name else None
    if name_note:
        remarks.append(name_note)
    array = kept.get("array")
    if array is not None:
        try:
            parse_array(array)
        except ValueError as error:
            problems.append(f"--array: {error}")
    return BatchOptions(
        directives=tuple(kept.items()),
        name=job_name,
        workdir=workdir,
        array=array,
        env=tuple(_exported(kept.get("export") or "")),
        remarks=tuple(dict.fromkeys(remarks)),
        problems=tuple(problems),
    )


def _exported(value: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each variable that ``--export`` sets."""
    for item in value.split(","):
        name, equals, text = item.partition("=")
        if equals:
            yield name, text


def directives_in(script: str) -> dict[str, str | None]:
    """Return the options that sbatch reads in a script: long name → value, or None for a flag.

    Of an option that stands twice, the last value counts.
    """
    options, _ = _read_lines(script.split("\n"))
    return {option.name: option.value for option in options}


def _why_not(name: str, value: str | None) -> str | None:
    """Return why hpcrun cannot give an option to sbatch, None if it can."""
    if name in _REFUSED:
        return _REFUSED[name]
    if name not in NAMES and value is None:
        return "hpcrun does not know this option of sbatch"
    if value is None and name not in FLAGS:
        return "it has no value"
    if name == "export":
        problem = problem_of_export(value or "")
        if problem:
            return problem
    try:
        directive_line(name, value)
    except UsageError as error:
        return error.message
    return None


def problem_of_export(value: str) -> str | None:
    """Return why hpcrun cannot do what ``--export`` says, None if it can."""
    if value == "NIL":
        return "NIL: the job would not get the folder of its run"
    try:
        for item in value.split(","):
            check_env_name(item.partition("=")[0])
    except ValueError as error:
        return str(error)
    return None


def _read_lines(lines: list[str]) -> tuple[list[BatchOption], list[int]]:
    """Return the options of the #SBATCH lines above the first command, and later lines' numbers.

    The later lines are the #SBATCH lines below the first command.
    """
    options: list[BatchOption] = []
    late: list[int] = []
    begun = False
    for number, line in enumerate(lines, start=1):
        match = _LINE.match(line)
        if match:
            if begun:
                late.append(number)
            else:
                options += _options(number, _split(match[1]))
        elif line.strip() and not line.lstrip().startswith("#"):
            begun = True
    return options, late


def _split(text: str) -> list[str]:
    """Return the words of an #SBATCH line as sbatch divides the line.

    A backslash stands before a plain character, in quotes of both kinds as well. A # outside quotes
    begins a comment, also inside a word.
    """
    words: list[str] = []
    for match in _WORD.finditer(text):
        if match[0] == "#":
            break
        words.append(_QUOTED.sub(_unquoted, match[0]))
    return words


def _unquoted(match: re.Match[str]) -> str:
    text = match[0]
    if text[0] in "\"'":
        text = text[1:].removesuffix(text[0])
    return re.sub(r"\\(.)", r"\1", text)


def _options(line: int, words: list[str]) -> Iterator[BatchOption]:
    rest = list(words)
    while rest:
        option = rest.pop(0)
        if option.startswith("--"):
            key, equals, text = option.partition("=")
            unknown_name = normalise_key(key)
            value = text if equals else None
        else:
            key = option[:2]
            unknown_name = option
            value = option[2:].removeprefix("=") if option[2:] else None
        known = takes_value("sbatch", key)
        if known is None:
            yield BatchOption(line, unknown_name, value if option.startswith("--") else None)
            continue
        name, needs_value = known
        if needs_value and value is None and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        yield BatchOption(line, name, value)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The nodes, tasks and GPUs that directives request, as far as they say it."""

    nodes: int = 1
    tasks: int = 1  # of each node
    gpus: int = 0  # of each node; 0 if no directive says it
    gpu_type: str | None = None
    # the numbers of nodes from which Slurm chooses; ``nodes`` is the largest
    node_choice: str = ""
    nodes_open: bool = False  # Slurm takes as many nodes as the tasks or the GPUs need
    tasks_given: bool = False


def read_sizes(directives: Mapping[str, str | None]) -> Sizes:
    """Return the sizes of a job; Slurm decides what they leave open."""
    total = _number(directives.get("ntasks"))
    each = _number(directives.get("ntasks-per-node"))
    nodes = _nodes(directives.get("nodes"))
    choice = choice_of(nodes)
    if not nodes:
        nodes = -(-total // each) if total and each else 1
    tasks = each or 1
    if total:  # then --ntasks-per-node is only a maximum
        tasks = max(1, total // nodes)
    tasks_given = bool(total or each)
    gpus, type_ = _gpus_of_node(directives, tasks, nodes)
    per_gpu = _number(directives.get("ntasks-per-gpu"))
    if per_gpu and not tasks_given:
        tasks = max(1, per_gpu * gpus)
        tasks_given = True
    is_open = "nodes" not in directives and not (total and each)
    nodes_open = is_open and (bool(total and total > 1) or "gpus" in directives)
    return Sizes(int(nodes), tasks, gpus, type_, choice, nodes_open, tasks_given)


def _nodes(text: str | None) -> int | None:
    """Return the nodes of ``--nodes``, None for a text that sbatch will refuse."""
    try:
        return read_nodes(text)
    except ValueError:
        return None


def _gpus_of_node(
    directives: Mapping[str, str | None], tasks: int, nodes: int
) -> tuple[int, str | None]:
    """Return the number of GPUs of each node, and their type if a directive names one."""
    gpus = 0
    type_ = None
    for name in ("gres", "gpus-per-task", "gpus-per-node", "gpus"):
        for item in (directives.get(name) or "").split(","):
            resource = gpus_in(name, item)
            if resource is None:
                continue
            number, its_type = resource
            type_ = type_ or its_type
            if name == "gpus-per-task":
                number *= tasks
            elif name == "gpus":
                number = -(-number // nodes)
            gpus = max(gpus, number)
    return gpus, type_


def _number(text: str | None) -> int | None:
    match = re.match(r"\d{1,6}", text or "")
    if match is None:
        return None
    return int(match[0]) or None


def gpus_in(name: str, item: str) -> tuple[int, str | None] | None:
    """Return the number and type of ``gpu:a100:4`` or ``a100:4``, None for another resource."""
    if name == "gres":
        if not re.match(r"(gres[:/])?gpu\b", item):
            return None
        item = re.sub(r"^(gres[:/])?gpu[:=]?|\([^)]*\)$", "", item)
    match = re.fullmatch(r"(?:([\w.-]*[A-Za-z][\w.-]*)[:=]?)?(\d{1,6})?", item)
    if match is None or not (item or name == "gres"):
        return None
    return int(match[2] or 1), match[1]


# "INPUT ENVIRONMENT VARIABLES" of sbatch(1), and other variables that 22.05, 24.11 and 26.05 know.
# If no directive is given, the variable has the directive's name: SBATCH_GPU_BIND is gpu-bind.
_OTHER_NAMES = dict(
    pair.split("=")
    for pair in (
        "SBATCH_ARRAY_INX=array SBATCH_BURST_BUFFER=bb SBATCH_CPU_FREQ_REQ=cpu-freq "
        "SBATCH_DEBUG=verbose "
        "SBATCH_MEM_PER_NODE=mem SBATCH_SEGMENT_SIZE=segment SBATCH_TIMELIMIT=time "
        "SLURM_CLUSTERS=clusters "
        "SLURM_HINT=hint"
    ).split()
)
_SAME_NAMES = """
    SBATCH_ACCOUNT SBATCH_ACCTG_FREQ SBATCH_BATCH SBATCH_CLUSTERS SBATCH_CLUSTER_CONSTRAINT
    SBATCH_CONSOLIDATE_SEGMENTS SBATCH_CONSTRAINT SBATCH_CONTAINER SBATCH_CONTAINER_ID
    SBATCH_CONTAINER_TYPE SBATCH_CORE_SPEC SBATCH_CPUS_PER_GPU SBATCH_DELAY_BOOT SBATCH_DISTRIBUTION
    SBATCH_ERROR SBATCH_EXCLUSIVE SBATCH_EXPORT SBATCH_GET_USER_ENV SBATCH_GPUS SBATCH_GPUS_PER_NODE
    SBATCH_GPUS_PER_SOCKET SBATCH_GPUS_PER_TASK SBATCH_GPU_BIND SBATCH_GPU_FREQ SBATCH_GRES
    SBATCH_GRES_FLAGS SBATCH_HINT SBATCH_IGNORE_PBS SBATCH_INPUT SBATCH_JOB_NAME SBATCH_MEM_BIND
    SBATCH_MEM_PER_CPU SBATCH_MEM_PER_GPU SBATCH_NETWORK SBATCH_NO_KILL SBATCH_NO_REQUEUE
    SBATCH_OPEN_MODE SBATCH_OUTPUT SBATCH_OVERCOMMIT SBATCH_PARTITION SBATCH_POWER SBATCH_PROFILE
    SBATCH_QOS SBATCH_REQUEUE SBATCH_RESERVATION SBATCH_RUNTIME SBATCH_SIGNAL SBATCH_SPREAD_JOB
    SBATCH_SPREAD_SEGMENTS SBATCH_THREADS_PER_CORE SBATCH_THREAD_SPEC SBATCH_TRES_BIND
    SBATCH_TRES_PER_TASK SBATCH_USE_MIN_NODES SBATCH_WAIT SBATCH_WAIT_ALL_NODES SBATCH_WCKEY
"""
DIRECTIVES: dict[str, str] = {
    **{name: normalise_key(name.removeprefix("SBATCH_").lower()) for name in _SAME_NAMES.split()},
    **_OTHER_NAMES,
}
"""The directive of each variable; SBATCH_REQ_SWITCH and SBATCH_WAIT4SWITCH together are
``switches``.
"""

READ_BY_SBATCH = frozenset({*DIRECTIVES, "SBATCH_REQ_SWITCH", "SBATCH_WAIT4SWITCH", "SLURM_UMASK"})
"""All variables that sbatch takes for options."""
_IGNORED = {
    **OWNED,
    "clusters": "hpcrun submits to this cluster alone",
    "ignore-pbs": "the script has no #PBS lines",
    "verbose": "hpcrun prints the messages of sbatch",
}
"""The directives whose variables are ignored, and why."""
# srun(1): these would change the step inside the job.
_OF_SRUN = {
    **{
        f"SLURM_{name.upper().replace('-', '_')}": name
        for name in "cpu-bind distribution gpu-bind mem-bind network threads-per-core wait".split()
    },
    "SLURM_KILL_BAD_EXIT": "kill-on-bad-exit",
    "SLURM_MPI_TYPE": "mpi",
    "SLURM_EXPORT_ENV": None,
    "SLURM_OVERCOMMIT": None,
}


_FIELDS = {**OPTIONS, "job-name": "name"}
"""Directive → the field of a request that sets it."""
_FLAGS_ALONE = FLAGS - {"exclusive", "get-user-env", "no-kill"}
"""Directives without a value, whatever the variable has."""


def apply_sbatch_env(
    request: JobRequest, env: Mapping[str, str], *, of_script: bool = False
) -> tuple[JobRequest, tuple[str, ...]]:
    """Add the values of sbatch's variables to a request.

    The variables override the profile, and typed options override the variables. The notes name the
    variables that are used, and those that are ignored. A person's batch script gets those of srun.
    """
    if "SLURM_JOB_ID" in env:  # inside a job these variables describe the enclosing job
        return request, ()
    fields: dict[str, Any] = {}
    directives: list[str] = []
    notes: list[str] = []
    used: list[str] = []
    typed = {normalise_key(item.partition("=")[0]) for item in request.sbatch}
    for name, value in _directive_variables(env):
        directive = DIRECTIVES[name]
        field = _FIELDS.get(directive)
        if of_script and directive == "export":  # plan_script reads it
            used.append(_with_value(name, value))
        elif field is None and directive in _IGNORED:
            notes.append(_note(name, value, _IGNORED[directive]))
        elif not _is_typed(directive, field, request, typed):
            if field is not None:
                fields[field] = _read(name, field, value)
            else:
                directives.append(_directive(directive, value))
            used.append(_with_value(name, value))
    switches = env.get("SBATCH_REQ_SWITCH")
    if switches and "switches" not in typed:
        directives.append(_switches(switches, env.get("SBATCH_WAIT4SWITCH")))
        used.append(f"SBATCH_REQ_SWITCH={switches}")
    umask = env.get("SLURM_UMASK")
    if umask is not None:
        notes.append(_note("SLURM_UMASK", umask, "hpcrun uses the umask of your shell"))
    if not of_script:
        notes += _notes_on_srun(env)
    changed = {**fields, "sbatch": (*dict.fromkeys(directives), *request.sbatch)}
    if used:
        notes.insert(0, f"from your shell: {' '.join(used)}")
    return replace(request, **changed), tuple(notes)


def _directive_variables(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of each variable that sets a directive; only flags have empty ones."""
    for name, directive in DIRECTIVES.items():
        value = env.get(name)
        if value or (value is not None and directive in FLAGS):
            yield name, value


def _directive(name: str, value: str) -> str:
    """Return a directive with the value of its variable, as far as the directive takes one."""
    if name in _FLAGS_ALONE:
        return name
    return _with_value(name, value)


def _with_value(name: str, value: str) -> str:
    """Return ``NAME=VALUE``, or the name alone if the value is empty."""
    return f"{name}={value}" if value else name


def _switches(most: str, wait: str | None) -> str:
    """Return the directive for at most this many switches, and how long to wait for them."""
    return f"switches={most}@{wait}" if wait else f"switches={most}"


def _notes_on_srun(env: Mapping[str, str]) -> Iterator[str]:
    """Yield notes on variables that sbatch passes to the steps of the job."""
    for name in sorted(env):
        if name in _OF_SRUN or name.startswith("SRUN_"):
            yield _note(name, env[name], _instead_of(name, env[name]))


def _is_typed(
    directive: str, field: str | None, request: JobRequest, typed: Collection[str]
) -> bool:
    """Return whether options decide what a variable of sbatch would.

    Args:
        directive: the directive of the variable.
        field: the field of a request that sets the directive, if there is one.
        request: the request with the options.
        typed: the directives of ``--sbatch``.
    """
    has_memory = not EXCLUSIVE.isdisjoint(typed)
    if field is not None:
        return getattr(request, field) is not None or (directive == "mem" and has_memory)
    if directive.startswith("mem-per") and (request.memory_mb or has_memory):
        return True
    return directive in typed


def _instead_of(name: str, value: str) -> str:
    option = _OF_SRUN.get(name)
    if option and value:
        return f"{spell('srun', f'{option}={value}')} does the same"
    return f"{spell('env', f'{name}=...')} sets it in the job"


def _note(name: str, value: str, why: str) -> str:
    if value:
        return f"{name}={value} of your shell is ignored: {spell_row(why)}"
    return f"{name} is ignored: {spell_row(why)}"


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MOST):
        raise ValueError(f"{text!r} is not a number of nodes")
    return int(text)


def _read(name: str, field: str, value: str) -> Any:
    readers = {
        "walltime_s": parse_slurm_time,
        "memory_mb": parse_memory,
        "name": check_job_name,
        "segment": _count,
    }
    try:
        return readers.get(field, str)(value)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
