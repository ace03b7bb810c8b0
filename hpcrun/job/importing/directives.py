"""The #SBATCH lines of a script: which options they give to sbatch, and what hpcrun has for each. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from hpcrun.job.directives import KNOWN, OPTIONS, OWNED, PYXIS, normalise_key
from hpcrun.job.quoting import check_job_name, job_name_from
from hpcrun.job.units import parse_memory, parse_walltime

_LINE = re.compile(r"#SBATCH(?=\s)(.*)", re.DOTALL)
# sbatch(1) of 22.05 to 26.05; the letters of its options, in the order of the manual page
SHORT: dict[str, str] = dict(pair.split("=") for pair in (
    "A=account a=array B=extra-node-info b=begin C=constraint c=cpus-per-task D=chdir d=dependency e=error "
    "F=nodefile G=gpus H=hold I=immediate i=input J=job-name k=no-kill L=licenses M=clusters m=distribution N=nodes "
    "n=ntasks O=overcommit o=output p=partition Q=quiet q=qos S=core-spec s=oversubscribe t=time v=verbose W=wait "
    "w=nodelist x=exclude").split())  # fmt: skip
_FLAGS = frozenset(
    "contiguous exclusive get-user-env hold ignore-pbs kill-on-bad-exit nice no-kill no-requeue overcommit "
    "oversubscribe parsable propagate quiet reboot requeue spread-job test-only use-min-nodes verbose wait "
    "consolidate-segments spread-segments immediate container-mount-home container-remap-root container-writable "
    "no-container-mount-home".split()
)
"""Options whose value, if there is one, follows ``=``."""
_ALIASES = {"tasks-per-node": "ntasks-per-node", "cpus": "cpus-per-task", "workdir": "chdir", "uid": "uid"}
_LONG = sorted({*KNOWN, *PYXIS, *OPTIONS, *OWNED, *SHORT.values(), *_ALIASES})
_SIZES = frozenset("nodes ntasks ntasks-per-node ntasks-per-gpu cpus-per-task cpus-per-gpu gpus gpus-per-node "
                   "gpus-per-task gres".split())  # fmt: skip
_SAME = {"partition": "--partition", "account": "--account", "qos": "--qos", "constraint": "--constraint",
         "reservation": "--reservation", "mail-user": "--mail-user", "mail-type": "--mail-type",
         "nodelist": "--nodelist", "exclude": "--exclude", "segment": "--segment"}  # fmt: skip
_BY_HPCRUN = {
    "output": "each rank has its own log in the run's folder: hpcrun logs",
    "error": "each rank has its own log in the run's folder: hpcrun logs",
    "open-mode": "hpcrun's logs append",
    "no-requeue": "a job without --requeue is not requeued",
    "export": "the job gets your environment",
    "parsable": "use hpcrun submit --json",
    "quiet": "use hpcrun submit --json",
    "verbose": "hpcrun prints the messages of sbatch",
    "gpu-bind": "each rank sees all GPUs of its node, and uses the one with the number LOCAL_RANK",
    "ignore-pbs": "the script has no #PBS lines",
}
_REQUEUES = 3
_LIKE = 0.85
"""A name as similar as this to one of sbatch's is misspelt; others may be those of a site's own plugin."""


MOST_TASK_IDS = 100_000
"""The most task ids that --array may name; Slurm's own limit, MaxArraySize, is 1001 unless a site changes it."""


@dataclass(frozen=True, slots=True)
class ScriptOption:
    """One option of sbatch, as a script gives it.

    Attributes:
        name: its long name; the word as written if sbatch has no such option.
        value: None for a flag.
    """

    line: int
    name: str
    value: str | None
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a line of the script becomes.

    Attributes:
        options: options of hpcrun with their values, None for a flag.
        verdict: ``converted``, ``hpcrun`` (hpcrun does it itself) or ``unknown`` (not understood).
        words: what it becomes, or why it is not understood.
    """

    verdict: str
    words: str
    options: tuple[tuple[str, str | None], ...] = ()


def read_directives(lines: list[str]) -> tuple[list[ScriptOption], list[int]]:
    """Return the options of the #SBATCH lines, and the numbers of lines that sbatch does not read.

    sbatch reads them up to the first line that is neither empty nor a comment.
    """
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
        words.append(re.sub(r"""\\(.)|["']""", lambda found: found[1] or "", match[1]))
    return words


def _options(line: int, words: list[str]) -> Iterator[ScriptOption]:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            key, equals, text = word[2:].partition("=")
            name, is_known = _long_name(key)
            value: str | None = text if equals else None
        elif word.startswith("-") and len(word) > 1 and word[1] in SHORT:
            name, is_known = SHORT[word[1]], True
            value = word[2:].removeprefix("=") or None
        else:
            yield ScriptOption(line, word, None, is_known=False)
            continue
        if value is None and name not in _FLAGS and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        yield ScriptOption(line, name, value, is_known)


def _long_name(key: str) -> tuple[str, bool]:
    """Return the whole name of a long option, of which sbatch takes any unique beginning."""
    plain = normalise_key(key)
    if plain in _LONG:
        return _ALIASES.get(plain, plain), True
    longer = [name for name in _LONG if name.startswith(plain)]
    if len({_ALIASES.get(name, name) for name in longer}) == 1:
        return _ALIASES.get(longer[0], longer[0]), True
    return plain, bool(re.fullmatch(r"[a-z][a-z0-9-]*", plain))


def is_size(name: str) -> bool:
    """Return whether an option decides nodes, tasks, CPUs or GPUs: these are converted together."""
    return name in _SIZES


def meaning_of(option: ScriptOption) -> Meaning:
    """Return what hpcrun has for an option of sbatch that is not a size."""
    name, value = option.name, option.value
    close = [] if name in _LONG else get_close_matches(name, _LONG, n=1, cutoff=_LIKE)
    if not option.is_known or close:
        return Meaning("unknown", f"sbatch has no option {name}" + (f": did you mean {close[0]}?" if close else ""))
    if name in _SAME:
        return _converted((_SAME[name], value)) if value else _empty(name)
    if name in _OWN:
        return _OWN[name](value or "") if value or name in ("requeue", "wait") else _empty(name)
    if name in _BY_HPCRUN:
        return Meaning("hpcrun", _BY_HPCRUN[name])
    if name in OWNED:
        return Meaning("unknown", f"hpcrun sets --{name} itself: {OWNED[name]}")
    if name not in _FLAGS and not value:
        return _empty(name)
    return _converted(("--sbatch", name if value is None else f"{name}={value}"))


def _converted(*options: tuple[str, str | None]) -> Meaning:
    return Meaning(
        "converted", " ".join(name if value is None else f"{name} {value}" for name, value in options), options
    )


def _empty(name: str) -> Meaning:
    return Meaning("unknown", f"--{name} has no value")


def _name(value: str) -> Meaning:
    try:
        return _converted(("--name", check_job_name(value)))
    except ValueError:
        return _converted(("--name", job_name_from(value)))


def _time(value: str) -> Meaning:
    try:
        parse_walltime(value)
    except ValueError:
        return _converted(("--sbatch", f"time={value}"))  # UNLIMITED, or a mistake: sbatch will judge
    return _converted(("--time", value))


def _memory(value: str) -> Meaning:
    try:
        parse_memory(value)
    except ValueError:
        return _converted(("--sbatch", f"mem={value}"))
    return _converted(("--mem", value))


def _signal(value: str) -> Meaning:
    match = re.fullmatch(r"(?:[BR]{1,2}:)?(?:SIG)?(\w+?)(?:@(\d{1,5}))?", value)
    if match is None:
        return Meaning("unknown", f"--signal={value} is no signal")
    warn = ("--warn", f"{match[2] or 60}s")
    if match[1] in ("USR1", "10"):
        return _converted(warn)
    return Meaning("converted", f"--warn {warn[1]}: the ranks get SIGUSR1 in place of {match[1]}", (warn,))


def _export(value: str) -> Meaning:
    pairs = [item for item in value.split(",") if "=" in item]
    plain = [item for item in value.split(",") if "=" not in item]
    if plain and plain != ["ALL"]:
        return Meaning("unknown", "hpcrun passes your whole environment to the job; unset variables where you submit")
    if not pairs:
        return Meaning("hpcrun", _BY_HPCRUN["export"])
    return _converted(*(("--env", item) for item in pairs))


def _requeue(_: str) -> Meaning:
    words = f"--requeue {_REQUEUES}: up to {_REQUEUES} times, also after the time limit"
    return Meaning("converted", words, (("--requeue", str(_REQUEUES)),))


def _container(value: str) -> Meaning:
    return _converted(("--container", value))


def _mounts(value: str) -> Meaning:
    return _converted(*(("--mount", item) for item in value.split(",")))


_OWN = {
    "job-name": _name,
    "time": _time,
    "mem": _memory,
    "signal": _signal,
    "export": _export,
    "requeue": _requeue,
    "chdir": lambda value: _converted(("--workdir", value)),
    "wait": lambda _: Meaning("converted", "--wait", (("--wait", None),)),
    "container-image": _container,
    "container-mounts": _mounts,
}


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """The GPUs that the directives request.

    Attributes:
        count: of each node, or of each task, or of the whole job.
        per: what the count is of.
        form: the directive, as a profile's gpu.directive names it.
    """

    count: int
    per: str
    type: str | None
    form: str


def gpu_request(name: str, value: str) -> GpuRequest | None:
    """Return the GPUs of ``gres``, ``gpus`` and the like; None if it asks for other things."""
    text = value
    if name == "gres":
        if "," in value or not re.match(r"(gres[:/])?gpu\b", value):
            return None
        text = re.sub(r"^(gres[:/])?gpu[:=]?|\([^)]*\)$", "", value)
    type_, _, count = text.rpartition(":") if re.search(r"\d+$", text.rpartition(":")[2]) else (text, "", "1")
    if not re.fullmatch(r"\d{1,6}", count) or not re.fullmatch(r"[\w.-]*", type_):
        return None
    per = {"gpus": "job", "gpus-per-task": "task"}.get(name, "node")
    form = name if name in ("gres", "gpus", "gpus-per-node") else "gpus-per-node"
    return GpuRequest(int(count), per, type_ or None, form)


def parse_array(text: str) -> tuple[list[int], int | None] | None:
    """Return the task ids of ``--array``, and how many may run at once; None if it cannot be read."""
    ids: list[int] = []
    ranges, _, most = text.partition("%")
    for part in ranges.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?(?::(\d{1,6}))?", part.strip())
        if match is None or (match[3] and int(match[3]) == 0):
            return None
        more = range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))
        if not more or len(ids) + len(more) > MOST_TASK_IDS:
            return None
        ids += more
    if most and not re.fullmatch(r"\d{1,6}", most):
        return None
    return sorted(set(ids)), int(most) if most else None
