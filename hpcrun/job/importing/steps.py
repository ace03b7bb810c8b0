"""The statements of a script one after the other, with the values of their words: which kind of step each is. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from tree_sitter import Node

from hpcrun.errors import UsageError
from hpcrun.job.importing.launch import LaunchLine, read_launch
from hpcrun.job.importing.source import Statement, commands_in, node_text, parse_shell, words_of
from hpcrun.job.importing.words import (
    Known,
    Scope,
    Unknown,
    Value,
    Word,
    in_job,
    is_secret_value,
    known,
    secret_of,
)

_PRINTS = frozenset(
    "echo printf date hostname nvidia-smi rocm-smi pwd printenv which whoami uname lscpu free ls df du nproc uptime "
    "type cat head tail tree sinfo squeue scontrol sacct lsb_release id nvcc gcc cut grep awk wc sort tr true : env "
    "ldd seff jobstats clear".split()
)
_LOADS = frozenset("source . conda mamba micromamba spack pyenv module ml eval use micromamba_hook guix".split())
_INDIRECT = frozenset("simple_expansion expansion command_substitution string concatenation ansi_c_string".split())
_SHELL_OWN = frozenset("set shopt exit wait return".split())
_PORT = re.compile(r"port", re.IGNORECASE)
_NODES = re.compile(
    r"scontrol\s+show\s+host|SLURM_(JOB_|STEP_)?NODELIST|SLURM_LAUNCH_NODE_IPADDR|hostname\b|getent\s+hosts"
)
# What hpcrun sets for each rank or decides itself.
RANK_NAMES = frozenset(
    "MASTER_ADDR MASTER_PORT WORLD_SIZE RANK LOCAL_RANK NODE_RANK NNODES NPROC_PER_NODE LOCAL_WORLD_SIZE GROUP_RANK "
    "SRUN_CPUS_PER_TASK SLURM_CPUS_PER_TASK PYTHONUNBUFFERED".split()
)


@dataclass(slots=True)
class Assignment:
    """A variable that a statement sets; ``value`` is None if only a running shell knows it."""

    name: str
    value: Value | None
    exported: bool
    text: str


@dataclass(slots=True)
class ScriptStep:
    """A statement with the values of its words.

    Attributes:
        role: ``assign``, ``cd``, ``load``, ``module``, ``print``, ``shell`` (set, exit), ``setup``, ``launch``,
            ``compound``, ``broken``.
        sets: the variables it sets.
        launch: what it starts.
    """

    statement: Statement
    role: str
    words: list[Word] = field(default_factory=list)
    sets: list[Assignment] = field(default_factory=list)
    launch: LaunchLine | None = None


def read_steps(statements: Sequence[Statement], scope: Scope) -> list[ScriptStep]:
    """Return the steps of a script; the scope has the values of its variables afterwards."""
    steps = []
    for statement in statements:
        step = _step(statement, scope)
        steps.append(step)
        for assignment in step.sets:
            value = assignment.value
            scope.values[assignment.name] = (Unknown(f"${{{assignment.name}}}"),) if value is None else value
            if isinstance(value, tuple) and is_secret_value(assignment.name, value):
                scope.values[assignment.name] = (Unknown(f"${{{assignment.name}}}", "submit"),)
        scope.loaded = scope.loaded or step.role in ("load", "module", "compound")
        if step.role == "cd":
            _change_folder(step.words[1:], scope)
    return steps


def function_names(steps: Sequence[ScriptStep]) -> set[str]:
    """Return the names of the functions that a script defines."""
    nodes = (step.statement.node.child_by_field_name("name") for step in steps if step.role == "function")
    return {node_text(node) for node in nodes if node is not None}


def _change_folder(words: Sequence[Word], scope: Scope) -> None:
    """Note the folder of the steps behind ``cd``."""
    target = words[0] if len(words) == 1 else ()
    text = known(target)
    if text and not text.startswith(("/", "-")):
        here = scope.variable("PWD", "$PWD")
        target = (*(here if isinstance(here, tuple) else ()), Known(f"/{text}"))
    scope.values["PWD"] = target if target and text != "-" else (Unknown("$PWD"),)


def _step(statement: Statement, scope: Scope) -> ScriptStep:
    node = statement.node
    if node.type == "declaration_command" and any(child.type in _INDIRECT for child in node.named_children):
        return ScriptStep(statement, "setup")  # export ${NAME}: only a running shell knows which variable it is
    if statement.kind == "assignment":
        return ScriptStep(statement, "assign", sets=_assignments(node, scope))
    if statement.kind in ("broken", "function"):
        return ScriptStep(statement, statement.kind)
    if statement.kind == "compound":
        names = {name for inner in _assigned_in(node) for name in inner}
        return ScriptStep(statement, "compound", sets=[Assignment(name, None, False, "") for name in sorted(names)])
    if node.type != "command":
        return ScriptStep(statement, "setup")
    before, nodes = words_of(node)
    sets = [_assignment(one, scope, exported=False) for one in before]
    words = [word for one in nodes for word in scope.fields(one)]
    if not words:
        return ScriptStep(statement, "assign", sets=sets) if sets else ScriptStep(statement, "setup")
    head = known(words[0])
    name = PurePath(head).name if head else ""
    role = _role(name, words, statement)
    if name in ("read", "readarray", "mapfile", "getopts"):
        set_here = {text for word in words[1:] if (text := known(word)) and text.isidentifier()}
        return ScriptStep(statement, "setup", words, [Assignment(one, None, False, "") for one in sorted(set_here)])
    if role == "" or name == "eval":
        launch = read_launch(words, lambda text: _reread(text, scope))
        if launch is not None and (launch.strong or name != "eval"):
            env = tuple(("--env", _assigned_word(node, scope)) for node, one in zip(before, sets, strict=True)
                        if not is_of_rendezvous(one.name, one.text.partition("=")[2]))  # fmt: skip
            launch = replace(launch, options=(*launch.options, *env))
            return ScriptStep(statement, "launch", words, launch=_with_safe_options(launch))
        role = "load" if name == "eval" else "setup"
    return ScriptStep(statement, role, words)


def _assigned_word(node: Node, scope: Scope) -> Word:
    """Return ``NAME=value`` before a command as one word."""
    one, value = _assignment(node, scope, exported=False), node.child_by_field_name("value")
    if isinstance(one.value, tuple):
        return (Known(f"{one.name}="), *one.value)
    if value is None or value.type == "array" or "[" in one.text.partition("=")[0]:
        return (Known(f"{one.name}="), Unknown(one.text.partition("=")[2], quoted=False))
    return (Known(f"{one.name}="), *scope.word(value))


def _with_safe_options(line: LaunchLine) -> LaunchLine:
    """Return a launch whose options a person can paste: the shell that submits runs nothing, and knows each value."""
    options, problems = [], list(line.problems)
    for name, word in line.options:
        if word is None or not in_job(word) or (name == "--env" and secret_of(word)):
            options.append((name, word))
        else:
            what = word[0].text.partition("=")[0] if isinstance(word[0], Known) else name.lstrip("-")
            problems.append(f"only the job's shell can find the value of {what}")
    return replace(line, options=tuple(options), problems=tuple(problems))


def _role(name: str, words: list[Word], statement: Statement) -> str:
    texts = [known(word) or "" for word in words]
    writes = ">" in statement.output and "/dev/null" not in statement.output and name not in ("echo", "date")
    if ">" in re.sub(r"\d?>&\d|/dev/(null|stderr|stdout)", "", statement.output) and name in ("echo", "printf", "cat"):
        writes = True
    if name == "srun" and len(words) > 1:
        inner = next((text for text in texts[1:] if text and not text.startswith("-") and not text.isdigit()), "")
        return (
            "print"
            if PurePath(inner).name in ("hostname", "nvidia-smi", "rocm-smi", "date", "env", "echo", "lscpu")
            else ""
        )
    if name in ("module", "ml"):
        return "print" if texts[1:2] in (["list"], ["avail"], ["show"]) else "module"
    if name in ("conda", "mamba", "pip", "pip3") and texts[1:2] in (["list"], ["info"], ["freeze"], ["show"]):
        return "print"
    if re.fullmatch(r"python[\d.]*", name) and texts[1:2] in (["--version"], ["-V"]):
        return "print"
    if name in _LOADS and name != "eval":
        return "load"
    if name == "cd":
        return "cd"
    if name in _SHELL_OWN:
        return "shell"
    if name == "trap":
        return "setup"
    return "setup" if name in _PRINTS and writes else "print" if name in _PRINTS and name != "env" else ""


def _reread(text: str, scope: Scope) -> list[list[Word]]:
    """Return the words of the commands in the text of ``bash -c``; variables of the script keep their values there."""
    try:
        root = parse_shell(text)
    except UsageError:
        return []
    found = []
    for node in commands_in(root):
        before, nodes = words_of(node)
        assigned = [_assigned_word(one, scope) for one in before]
        words = [word for one in nodes for word in scope.fields(one)]
        found.append([*assigned, *words] if words else [])
    return found


def _assignments(node: Node, scope: Scope) -> list[Assignment]:
    nodes = [node] if node.type == "variable_assignment" else node.named_children
    declares = node_text(node).split(None, 1)[0] if node.type == "declaration_command" else ""
    flags = [node_text(child) for child in node.named_children if child.type == "word"]
    exported = declares == "export" or any("x" in flag for flag in flags if flag.startswith("-"))
    found = []
    for child in nodes:
        if child.type == "variable_assignment":
            one = _assignment(child, scope, exported=exported)
            found.append(one)
            scope.values[one.name] = (Unknown(f"${{{one.name}}}"),) if one.value is None else one.value
        elif child.type == "variable_name" and exported:
            name = node_text(child)
            value = scope.values.get(name)
            found.append(
                Assignment(name, value if value is not None else (Unknown(f"${{{name}}}", "submit"),), True, name)
            )
    return found


def _assignment(node: Node, scope: Scope, *, exported: bool) -> Assignment:
    target, value_node = node.child_by_field_name("name"), node.child_by_field_name("value")
    text = node_text(node)
    match = re.match(r"(\w+)(\[[^\]]*\])?(\+?=)", text)
    name = match[1] if match else text.partition("=")[0]
    if target is None or match is None:
        return Assignment(name, None, exported, text)
    right = text[match.end() :]
    if match[2]:
        return Assignment(name, _with_item(name, match[2][1:-1], value_node, scope), exported, text)
    value = _value(name, right, value_node, scope)
    if match[3] == "+=" and value is not None:
        old = scope.values.get(name, ())
        if isinstance(old, list) != isinstance(value, list):
            return Assignment(name, None, exported, text)
        value = old + value  # type: ignore[operator]
    return Assignment(name, value, exported, text)


def _with_item(name: str, index: str, node: Node | None, scope: Scope) -> Value | None:
    """Return an array behind ``NAME[3]=x``, None where the places before are not known."""
    old = scope.values.get(name, [])
    if node is None or not isinstance(old, list) or scope.arithmetic(index) != len(old):
        return None
    return [*old, scope.word(node)]


def _value(name: str, text: str, node: Node | None, scope: Scope) -> Value | None:
    """Return the value of a variable; of the head node and its port, what hpcrun has instead."""
    if is_of_rendezvous(name, text):
        port = _PORT.search(name) is not None
        word: Word = (Unknown("$MASTER_PORT" if port else "$MASTER_ADDR"),)
        return [word] if node is not None and node.type == "array" else word
    if node is None:
        return ()
    if node.type == "array":
        return scope.items(node)
    value = scope.word(node)
    if any(isinstance(part, Unknown) and re.match(r"\$\((?!\()|`", part.text) for part in value):
        return None  # the output of a command: known once, in the job
    return value


def is_of_rendezvous(name: str, text: str) -> bool:
    """Return whether a variable holds the head node, the list of nodes or the port, which hpcrun finds itself."""
    if name in ("MASTER_ADDR", "MASTER_PORT"):
        return True
    if re.search(r"SLURM_(JOB_|ARRAY_)?(JOB_?)?ID|shuf|expr|RANDOM|getsockname|\d{4,5}", text) and _PORT.search(name):
        return True
    if _NODES.search(text):
        return not re.search(r"\d\$|log|out", name, re.IGNORECASE)
    return bool(
        re.search(r"(master|head|main).*(addr|ip|node|host)", name, re.IGNORECASE) and re.search(r"srun|\[0\]", text)
    )


def _assigned_in(node: Node) -> list[list[str]]:
    """Return the variables that the statements within a compound set."""
    found = []
    todo = [node]
    while todo:
        here = todo.pop()
        if here.type in ("variable_assignment", "for_statement"):
            target = here.child_by_field_name("name") or here.child_by_field_name("variable")
            if target is not None:
                found.append([node_text(target).partition("[")[0]])
        if here.type == "command":
            words = [node_text(child) for child in here.named_children]
            if words[:1] == ["read"]:
                found.append([word for word in words[1:] if word.isidentifier()])
        todo += here.named_children
    return found


def starts_training(node: Node, scope: Scope) -> bool:
    """Return whether a compound statement starts ranks anywhere within."""
    for command in commands_in(node):
        _, nodes = words_of(command)
        words = [word for one in nodes for word in scope.fields(one)]
        head = known(words[0]) if words else None
        if head and PurePath(head).name in (
            "srun",
            "torchrun",
            "accelerate",
            "deepspeed",
            "mpirun",
            "horovodrun",
            "mpiexec",
        ):
            return True
        launch = read_launch(words, lambda text: _reread(text, scope)) if head else None
        if launch and launch.strong and launch.python is not None:
            return True
    return False


def folder_of(before: Sequence[ScriptStep]) -> tuple[Word | None, bool]:
    """Return the folder of the job, None for that of the submission, and whether set-up commands must change to it."""
    moves = [(index, step) for index, step in enumerate(before) if step.role == "cd" and not stays(step)]
    others = [step for step in before if re.match(r"(pushd|popd)\b", step.statement.text)]
    if not moves:
        return None, bool(others)
    index, step = moves[0]
    target = step.words[1] if len(step.words) == 2 else ()
    relative = [other for other in before[:index] if other.role in ("setup", "compound", "load", "launch")
                and re.search(r"(^|\s)(?![-/$~\"'])[\w.-]+(/|\.\w+)", other.statement.text)]  # fmt: skip
    if len(moves) > 1 or others or relative or not target or in_job(target) or known(target) == "-":
        return None, True
    return target, False


def stays(step: ScriptStep) -> bool:
    """Return whether it changes to the folder of the submission."""
    target = step.words[1] if len(step.words) == 2 else ()
    return (
        len(target) == 1 and isinstance(target[0], Unknown) and (target[0].text, target[0].when) == ("$PWD", "submit")
    )
