"""The line that starts the ranks: srun, torchrun, accelerate, python. Words of a command → what it starts. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath

from hpcrun.errors import UsageError
from hpcrun.job.importing.directives import SHORT
from hpcrun.job.importing.words import Known, Unknown, Word, known, secret_of, shell_text
from hpcrun.job.launch_options import check_option
from hpcrun.job.launchers import LAUNCHERS, Launcher
from hpcrun.job.wrappers import WRAPPERS, unwrap

_BY_NAME = {name: one for one in LAUNCHERS for name in (one.name, *one.aliases)}
_BY_MODULE = {module: one for one in LAUNCHERS for module in one.modules}
_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_CONTAINERS = frozenset({"apptainer", "singularity", "shifter", "podman", "docker", "enroot", "podman-hpc"})
_TRANSPARENT = frozenset({"time", "exec", "nohup", "stdbuf", "unbuffer", "command", "env"})
_PROGRAMS = frozenset({"torchrun", "accelerate", "deepspeed"})
_NO_TRAINING = frozenset({"pip", "venv", "ipykernel", "virtualenv", "compileall", "json.tool", "site", "ensurepip"})
_SRUN_OPTIONS = {"container-image": "--container", "container-mounts": "--mount", "chdir": "--workdir"}
_STARTERS = frozenset({*WRAPPERS, *_CONTAINERS})
_OF_RANKS = frozenset("RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT NODE_RANK GROUP_RANK".split())
_SRUN_SIZES = {"N": "nodes", "n": "ntasks", "c": "cpus-per-task"}
_SRUN_OWN = {"l": "label", "u": "unbuffered", "K": "kill-on-bad-exit", "X": "disable-status", "E": "preserve-env"}
_SRUN_BY_HPCRUN = frozenset("unbuffered label output error export exclusive exact overlap gpus gpus-per-node gres "
                            "gpus-per-task cpus-per-gpu partition account time job-name qos verbose quiet nodelist "
                            "constraint open-mode input jobid mem mem-per-cpu mem-per-gpu gpu-bind "
                            "ntasks-per-gpu reservation preserve-env disable-status".split())  # fmt: skip
_TORCHRUN_OURS = re.compile(
    r"--(rdzv-(backend|endpoint|id|conf)|master-addr|master-port|node-rank|local-addr|standalone|use-env|log-dir|"
    r"redirects|tee|role|start-method|monitor-interval|no-python|module|nnodes|nproc-per-node|"
    r"local-ranks-filter)|-[rtm]"
)
# accelerate/commands/launch.py (1.14): all other options change more than the number of ranks and their meeting
_ACCELERATE_SIZES = frozenset("--num-processes --num-machines --machine-rank --main-process-ip --main-process-port "
                              "--multi-gpu --rdzv-backend --same-network --gpu-ids --tee".split())  # fmt: skip
_ACCELERATE_FLAGS = frozenset("--multi-gpu --same-network --use-fsdp --use-deepspeed --cpu --tpu --module -m --quiet "
                              "-q --no-python --debug --use-megatron-lm".split())  # fmt: skip


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """What a line starts.

    Attributes:
        program: the program of a rank with its arguments: a script, ``-m`` and a module, or a command.
        launcher: ``torchrun``, ``command`` (it starts its own ranks), ``program`` (it starts none).
        per_node: the ranks on each node that torchrun starts; 0 for one per GPU.
        steps: the options of srun about sizes; None without srun.
        python: the Python as the line names it, None if it names none.
        options: options of hpcrun that the line's own options become.
        notes: what hpcrun does in another way.
        problems: what is not converted, and why.
    """

    program: tuple[Word, ...] = ()
    launcher: str = "program"
    per_node: int | None = None
    nodes: int | None = None
    steps: dict[str, Word] | None = None
    python: str | None = None
    options: tuple[tuple[str, Word | None], ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    before: tuple[Word, ...] = ()
    strong: bool = True


Reread = Callable[[str], list[list[Word]]]
"""Returns the words of each command of a shell text."""


def read_launch(words: list[Word], reread: Reread, line: LaunchLine | None = None, depth: int = 6) -> LaunchLine | None:
    """Return what a command starts; None if it starts no training.

    Args:
        reread: for the text of ``bash -c``.
    """
    line = line or LaunchLine()
    head = known(words[0]) if words else None
    start = words[0][0] if words and words[0] else None
    if isinstance(start, Known) and (match := re.match(r"([A-Za-z_]\w*)=", start.text)):
        return read_launch(words[1:], reread, _assigned(line, match[1], words[0]), depth)
    if head is None or depth == 0:
        problem = "the program is not known before the job runs"
        return _unknown_program(words, replace(line, problems=(*line.problems, problem))) if words else None
    name = PurePath(head).name or head
    if name in _BY_NAME and name != "srun" and _starts(_BY_NAME[name], words):
        launcher = _BY_NAME[name]
        return _launcher(launcher, words[len(launcher.subcommands[:1]) + 1 :], words, line)
    for names, reader in _READERS:
        if names.fullmatch(name):
            return reader(words, reread, line, depth)
    return _wrapped(name, words, reread, line, depth) if name in _STARTERS else _unknown_program(words, line)


def _assigned(line: LaunchLine, name: str, word: Word) -> LaunchLine:
    """Return the launch with a variable that stands before its command."""
    if known(word) is not None or secret_of(word):
        return _with(line, ("--env", word))
    if name in _OF_RANKS:
        return line
    return replace(line, before=(*line.before, *(() if line.before else ((Known("env"),),)), word))


def _starts(launcher: Launcher, words: list[Word]) -> bool:
    return not launcher.subcommands or (len(words) > 1 and known(words[1]) in launcher.subcommands)


def _with(line: LaunchLine, *options: tuple[str, Word | None]) -> LaunchLine:
    return replace(line, options=(*line.options, *options))


def _unknown_program(words: list[Word], line: LaunchLine) -> LaunchLine | None:
    head = known(words[0]) if words else None
    script = head is not None and bool(re.search(r"/|\.(sh|bash)$", head))
    strong = line.steps is not None or script
    return replace(line, program=(*line.before, *words), strong=strong) if words else None


def _srun(words: list[Word], reread: Reread, line: LaunchLine, depth: int) -> LaunchLine | None:
    steps: dict[str, Word] = {}
    options: list[tuple[str, Word | None]] = []
    notes: list[str] = []
    problems: list[str] = []
    words = words[1:]
    for name, value, rest in _options_of(words, _BY_NAME["srun"]):
        words = rest
        key = name.lstrip("-")
        if not name.startswith("--"):
            key = {**SHORT, **_SRUN_SIZES, **_SRUN_OWN}.get(key, key)
        key = {"tasks-per-node": "ntasks-per-node"}.get(key.replace("_", "-"), key.replace("_", "-"))
        if key in ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task"):
            steps[key] = value or ()
        elif key in _SRUN_OPTIONS and value:
            options += [
                (_SRUN_OPTIONS[key], one) for one in (_divided(value) if key == "container-mounts" else (value,))
            ]
        elif key in _SRUN_BY_HPCRUN:
            _replaced(key, (known(value) if value else None) or "", notes, problems)
        else:
            _passed("srun", key, value, options, problems)
    found = read_launch(words, reread, replace(line, steps={**(line.steps or {}), **steps}), depth - 1)
    return found and replace(found, options=(*found.options, *options), notes=(*notes, *found.notes),
                             problems=(*problems, *found.problems))  # fmt: skip


def _replaced(key: str, text: str, notes: list[str], problems: list[str]) -> None:
    """Note where an option of srun that hpcrun does not need makes a difference."""
    if key in ("gpus-per-task", "gpu-bind") and "none" not in text:
        notes.append("each rank sees all GPUs of its node: it uses the one with the number LOCAL_RANK")
    if key == "export" and text.upper() not in ("ALL", ""):
        problems.append(f"srun --export={text}: hpcrun exports the whole environment of the job")


def _eval(words: list[Word], reread: Reread, line: LaunchLine, depth: int) -> LaunchLine | None:
    text = known(words[1]) if len(words) == 2 else None
    inner = reread(text) if text else []
    return read_launch(inner[0], reread, line, depth - 1) if len(inner) == 1 else None


def _passed(program: str, key: str, value: Word | None, options: list[tuple[str, Word | None]],
            problems: list[str]) -> None:  # fmt: skip
    """Pass an option on to srun or torchrun, or say why hpcrun does not take it."""
    text = None if value is None else known(value) or "x"
    try:
        name = check_option(program, key, text, key)  # type: ignore[arg-type]
    except UsageError as error:
        problems.append(f"{program} --{key}: {error.hint or error.message}")
        return
    options.append((f"--{program}", (Known(name),) if value is None else (Known(f"{name}="), *value)))


def _divided(value: Word) -> Iterator[Word]:
    """Yield the parts of a list with commas."""
    here: list[Known | Unknown] = []
    for part in value:
        if isinstance(part, Unknown):
            here.append(part)
            continue
        first, *others = part.text.split(",")
        here.append(Known(first))
        for other in others:
            yield tuple(here)
            here = [Known(other)]
    yield tuple(here)


def _options_of(words: list[Word], launcher: Launcher) -> Iterator[tuple[str, Word | None, list[Word]]]:
    """Yield a launcher's options, each with its value and the words behind it; at the end the program alone."""
    rest = list(words)
    while rest:
        head = rest[0][0].text if rest[0] and isinstance(rest[0][0], Known) else ""
        if not head.startswith("-") or head == "-":
            return
        word, rest = rest[0], rest[1:]
        if head == "--":
            yield "--quiet", None, rest
            return
        name, equals, first = head.partition("=")
        number = launcher.values.get(_full(name, launcher), launcher.other_values)
        if equals:
            yield name, (*([Known(first)] if first else []), *word[1:]), rest
        elif (
            not name.startswith("--")
            and len(name) > 2
            and launcher.values.get(name[:2], 1)
            and name not in launcher.values
        ):
            yield name[:2], (Known(name[2:]), *word[1:]), rest
        elif number and rest:
            value, rest = rest[0], rest[number:]
            yield name, value, rest
        else:
            yield name, None, rest


def _full(name: str, launcher: Launcher) -> str:
    plain = name.replace("_", "-") if name.startswith("--") else name
    longer = [one for one in launcher.values if one.startswith(plain)] if name.startswith("--") else []
    return plain if plain in launcher.values or len(longer) != 1 else longer[0]


def _shell(words: list[Word], reread: Reread, line: LaunchLine, depth: int) -> LaunchLine | None:
    flags = 1
    while flags < len(words) and (known(words[flags]) or "").startswith("-") and "c" not in (known(words[flags]) or ""):
        flags += 1
    is_text = flags < len(words) and (known(words[flags]) or "").startswith("-")
    if is_text and flags + 1 < len(words) and (text := known(words[flags + 1])) is not None:
        commands = reread(text)
        if len(commands) == 1 and commands[0] and not re.search(r"[|;&<>]", text):
            return read_launch(commands[0], reread, line, depth - 1)
        inner = [read_launch(command, reread, LaunchLine(), depth - 1) for command in commands if command]
        if any(one and one.launcher == "torchrun" for one in inner):
            return replace(line, program=tuple(words), launcher="command")
        return replace(line, program=(*line.before, *words)) if any(one and one.strong for one in inner) else None
    return replace(line, program=(*line.before, *words)) if len(words) > 1 else None


def _python(words: list[Word], reread: Reread, line: LaunchLine, depth: int) -> LaunchLine | None:
    python, rest = known(words[0]) or "python", words[1:]
    flags: list[Word] = []
    while (
        rest and (flag := known(rest[0])) is not None and flag.startswith("-") and flag not in ("-m", "-c", "-um", "-")
    ):
        takes = 2 if flag in ("-W", "-X") else 1
        flags += [] if flag == "-u" else rest[:takes]
        rest = rest[takes:]
    line = replace(line, python=python)
    if not rest:
        return replace(line, problems=(*line.problems, "python gets no program: hpcrun import SCRIPT -- ARGUMENTS"))
    if known(rest[0]) in ("-c", "-"):
        return None
    if PurePath(known(rest[0]) or "").name in _PROGRAMS:  # python $(which torchrun)
        return read_launch(rest, reread, line, depth - 1)
    if known(rest[0]) in ("-m", "-um"):
        module = known(rest[1]) if len(rest) > 1 else None
        if module in _BY_MODULE and module is not None:
            return _launcher(_BY_MODULE[module], rest[2:], words, line, module=module)
        if module is None or module.split(".")[0] in _NO_TRAINING:
            return None
        rest = [(Known("-m"),), *rest[1:]]
    if flags or line.before:
        return replace(line, program=(*line.before, words[0], *flags, *rest), python=python)
    return replace(line, program=tuple(rest))


def _wrapped(name: str, words: list[Word], reread: Reread, line: LaunchLine, depth: int) -> LaunchLine | None:
    texts = tuple("$" if (text := known(word)) is None else text for word in words[1:])
    wrapper = WRAPPERS.get(name)
    if name in _CONTAINERS and texts[:1] != ("exec",):
        within = next((index for index, text in enumerate(texts) if _PYTHON.fullmatch(PurePath(text).name)
                       or PurePath(text).name in (*_SHELLS, "torchrun", "accelerate")), None)  # fmt: skip
        rest: tuple[str, ...] = () if within is None else texts[within:]
        module = False
    elif wrapper is None:
        return _unknown_program(words, line)
    else:
        rest, module = unwrap(wrapper, texts)
    if not rest:
        return None if name not in _CONTAINERS else _unknown_program(words, replace(line, steps=line.steps))
    start, inner = words[: len(words) - len(rest)], words[len(words) - len(rest) :]
    if module:
        inner = [(Known("python"),), (Known("-m"),), *inner]
        start = start[:-1]
    if name in _TRANSPARENT:
        env = [("--env", word) for word in start[1:] if "=" in (known(word[:1]) or "")]
        return read_launch(inner, reread, _with(line, *env), depth - 1)
    found = read_launch(inner, reread, replace(line, before=(*line.before, *start)), depth - 1)
    if found is None or found.launcher == "program":
        return found and replace(found, program=(*line.before, *words))
    if name in _CONTAINERS:
        problem = f"{name} with {found.launcher} inside: give the image with --container"
        return replace(found, problems=(*found.problems, problem))
    return found


def _launcher(launcher: Launcher, rest: list[Word], words: list[Word], line: LaunchLine,
              module: str = "") -> LaunchLine | None:  # fmt: skip
    if launcher.name in ("torchrun", "torch.distributed.launch"):
        return _torchrun(launcher, rest, line, adds_rank=module == "torch.distributed.launch")
    if launcher.name in ("accelerate", "accelerate-launch"):
        return _accelerate(launcher, rest, words, line)
    if launcher.role == "submits":
        return replace(line, program=tuple(words), problems=(*line.problems, f"{launcher.name} submits another job"))
    return replace(
        line, program=(*line.before, *words), launcher=launcher.name if launcher.role == "job" else "command"
    )


def _torchrun(launcher: Launcher, rest: list[Word], line: LaunchLine, *, adds_rank: bool) -> LaunchLine:
    options: list[tuple[str, Word | None]] = []
    problems: list[str] = []
    sizes: dict[str, int | None] = {}
    is_module = bare = False
    for name, value, behind in _options_of(rest, launcher):
        rest = behind
        full = _full(name, launcher)
        if full in ("--nnodes", "--nproc-per-node"):
            sizes[full] = _size(known(value) if value else None)
            if sizes[full] is None:
                problems.append(f"{full} {shell_text(value) if value else ''} is not known before the job runs")
        elif full in ("--module", "-m"):
            is_module = True
        elif full == "--use-env":
            adds_rank = False
        elif full == "--no-python":
            bare = True
        elif not _TORCHRUN_OURS.fullmatch(full):
            _passed("torchrun", full.lstrip("-"), value, options, problems)
    program = [*([(Known("-m"),)] if is_module else []), *rest]
    notes = list(line.notes)
    if adds_rank:  # torch/distributed/launch.py (2.13)
        notes.append("torch.distributed.launch gives the script --local-rank; torch before 2.0 wrote --local_rank")
        place = 2 if is_module else 1
        program[place:place] = [(Known("--local-rank="), Unknown("$LOCAL_RANK"))]
    if line.before:
        python = [] if bare else [(Known("python"),)]
        program = [*line.before, *python, *program]
    return replace(line, program=tuple(program), launcher="torchrun", per_node=sizes.get("--nproc-per-node", 1),
                   nodes=sizes.get("--nnodes"), options=(*line.options, *options), notes=tuple(notes),
                   problems=(*line.problems, *problems), python=line.python, before=())  # fmt: skip


def _size(text: str | None) -> int | None:
    """Return a number of nodes or ranks, the larger one of ``1:2``; 0 for one rank per GPU."""
    if text in ("gpu", "auto"):
        return 0
    last = (text or "").rpartition(":")[2]
    return int(last) if re.fullmatch(r"\d{1,6}", last) else None


def _accelerate(launcher: Launcher, rest: list[Word], words: list[Word], line: LaunchLine) -> LaunchLine:
    values = dict.fromkeys(_ACCELERATE_FLAGS, 0)
    kept: list[Word] = []
    sizes: dict[str, Word | None] = {}
    for name, value, behind in _options_of(rest, replace(launcher, values=values, other_values=1)):
        rest = behind
        plain = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
        if plain in _ACCELERATE_SIZES:
            sizes[plain] = value
        elif (plain, value and known(value)) not in (("--mixed-precision", "no"), ("--dynamo-backend", "no")):
            kept += [(Known(name),), *([value] if value is not None else [])]
    nodes = _size(known(sizes["--num-machines"] or ()) if sizes.get("--num-machines") else "1")
    total = _size(known(sizes["--num-processes"] or ()) if sizes.get("--num-processes") else None)
    if not kept and total and nodes and total % nodes == 0:
        program = [*line.before, *([(Known("python"),)] if line.before else []), *rest]
        return replace(
            line, program=tuple(program), launcher="torchrun", per_node=total // nodes, nodes=nodes, before=()
        )
    many = sizes.get("--num-machines") is not None and nodes != 1
    if not many:
        return replace(line, program=(*line.before, *words), launcher="command",
                       per_node=total if total else None)  # fmt: skip
    own = tuple(_shell_words(launcher.node_options))
    start = words[: len(words) - len(rest)]
    head = [word for word in start if not (known(word[:1]) or "").startswith("-")][: 1 + len(launcher.subcommands[:1])]
    program = [*line.before, *head, *own, *kept, *rest]
    return replace(line, program=tuple(program), launcher="command", nodes=nodes,
                   per_node=total // nodes if total and nodes else None)  # fmt: skip


def _shell_words(text: str) -> Iterator[Word]:
    """Yield the words of a launcher's own options, whose variables hpcrun sets in the job."""
    for word in re.findall(r"\$\(\([^)]*\)\)|\S+", text):
        yield (Unknown(word),) if word.startswith("$") else (Known(word),)


_READERS: tuple[tuple[re.Pattern[str], Callable[[list[Word], Reread, LaunchLine, int], LaunchLine | None]], ...] = (
    (re.compile("srun"), _srun),
    (re.compile("eval"), _eval),
    (re.compile("|".join(_SHELLS)), _shell),
    (_PYTHON, _python),
)
