"""A script that starts jobs with sbatch, often in a loop: what takes the place of its calls. Pure.

Words are shown as they are written in the script, so that its shell expands them as before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from hpcrun.errors import UsageError
from hpcrun.job.batch.sbatch_input import LEFT_OUT, gpus_in
from hpcrun.job.launch_options import NAMES, OWNED, takes_value
from hpcrun.job.request.job_request import JOB_FIELDS
from hpcrun.job.request.parameters import parse_assignments
from hpcrun.job.text.quoting import bash_line
from hpcrun.job.text.shell_text import (
    UNKNOWN,
    Source,
    Word,
    misread_line,
    node_text,
    nodes_of,
    parents_of,
    parse_shell,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_LONG_NAMES = frozenset(option.name.removeprefix("--") for option in JOB_FIELDS.values())
_SAME_NAME = _LONG_NAMES & NAMES - {"container", "requeue"}
"""Options of sbatch that hpcrun has with the same meaning."""
_OTHER_NAME = {
    **{name: name for name in ("array", "parsable", "wait", "wrap")},
    "chdir": "workdir",
    "job-name": "name",
    "test-only": "dry-run",
}
_CONDITIONS = {"ok": "", "any": ":any", "notok": ":fail"}
_AFTER = re.compile(r"after(ok|any|notok)((?::[^:,?\s\"'`()]+)+)")
_RANGE = re.compile(r"\{(\d{1,4})\.\.(\d{1,4})\}|\$\(seq (\d{1,4}) (\d{1,4})\)")
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")
_IF_SET = re.compile(r"(\$\{\w+:?\+)([^}].*)\}")
_NO_VALUE = re.compile(rf"[{UNKNOWN}*?\[~{{,\s]|^$")
_AROUND_SWEEP = frozenset({"for_statement", "do_group", "program"})
_NO_CALLS = frozenset({"echo", "printf", "command", "type", "which", "grep", "man"})
_IN_SWEEP = frozenset({"sbatch", "echo", "printf", "sleep", "seq"})


@dataclass(frozen=True, slots=True)
class SbatchCall:
    """A call of sbatch, and the command of hpcrun that takes its place."""

    line: int
    command: str
    sweep: str | None  # the command that takes the place of the loops around the call
    remarks: tuple[str, ...]
    problems: tuple[str, ...]  # what the command lacks


@dataclass(frozen=True, slots=True)
class _Option:
    """An option of sbatch as hpcrun has it."""

    name: str
    words: tuple[str, ...] = ()
    remark: str = ""
    problem: str = ""


def read_launcher(text: str) -> list[SbatchCall]:
    """Return the calls of sbatch in a shell script; none if the script itself is for sbatch.

    Raises:
        UsageError: the script cannot be read.
    """
    head = re.match(r"(?:[ \t]*(?:#.*)?\n)*", text)
    is_for_sbatch = head is not None and re.search(r"^#SBATCH\s", head[0], re.MULTILINE)
    if is_for_sbatch or "sbatch" not in text or "\r" in text:
        return []
    source = Source(parse_shell(text))
    misread = misread_line(source.root)
    if misread is not None:
        raise UsageError(f"line {misread} is not understood")
    calls = []
    for node in nodes_of(source.root, "command"):
        words = source.words(node)
        if words and PurePath(words[0].text).name == "sbatch":
            calls.append(_read_call(source, node, words[1:]))
        elif _calls_otherwise(words):
            problem = "hpcrun does not read this way to call sbatch"
            calls.append(SbatchCall(_line(node), node_text(node), None, (), (problem,)))
    return calls


def _calls_otherwise(words: Sequence[Word]) -> bool:
    """Return whether another program, or a variable, calls sbatch."""
    texts: list[str] = []
    for argument in words:
        texts += argument.choices[-1] if argument.choices else (argument.text,)
    return "sbatch" in texts and texts[0] not in _NO_CALLS


def _line(node: Node) -> int:
    return int(node.start_point[0]) + 1


def _read_call(source: Source, node: Node, words: Sequence[Word]) -> SbatchCall:
    options, arguments = _split(words, source)
    parents = list(parents_of(node))
    remarks = [option.remark for option in options if option.remark]
    typed: list[str] = []
    for option in options:
        typed += option.words
    captured = any(parent.type == "command_substitution" for parent in parents)
    if captured and "--parsable" not in typed:
        typed.insert(0, "--parsable")
        remark = "--parsable prints the id of the job alone, not `Submitted batch job ID`"
        # --parsable prints the plan on stderr: 2>&1 would add it to the id
        around = parents[1] if parents[0].type == "redirected_statement" else parents[0]
        if around.type == "pipeline":
            behind = node_text(around).partition(node_text(node))[2].strip()
            remark += f": leave out {behind}"
        remarks.append(remark)
    script = _script_words(arguments, typed, parents[0])
    variables = [node_text(child) for child in node.children if child.type == "variable_assignment"]
    return SbatchCall(
        line=_line(node),
        command=" ".join((*variables, "hpcrun submit", *typed, *script)),
        sweep=None if captured else _sweep(source, parents, options, arguments),
        remarks=tuple(remarks),
        problems=tuple(option.problem for option in options if option.problem),
    )


def _script_words(arguments: Sequence[Word], typed: Sequence[str], parent: Node) -> list[str]:
    """Return the script of a call and its arguments, ``-`` for a script on standard input.

    Args:
        arguments: the script and its arguments, as sbatch has them.
        typed: the options of the command of hpcrun.
        parent: the statement around the call, with the here-document if there is one.
    """
    script = [argument.text for argument in arguments]
    if not script and "--wrap" not in typed:
        script = ["-"]
    if parent.type == "redirected_statement":
        script += re.findall(r"<<-?\s*\S+", node_text(parent).partition("\n")[0])
    return script


# --- options -------------------------------------------------------------------------------------


def _split(words: Sequence[Word], source: Source) -> tuple[list[_Option], list[Word]]:
    """Return the options of a call, and its script with the script's arguments."""
    options: list[_Option] = []
    rest = list(words)
    while rest:
        text, quote = _unquoted(rest[0].text)
        may_be_options = not quote or "@" in text
        if text.startswith(("$", "`")) and may_be_options and rest[0].known is None:
            held = _held_options(rest[0], source)
            if held is None:
                unread, rest = _split_unread(rest, text, source)
                return [*options, *unread], rest
            options.append(held)
            del rest[0]
            continue
        if not text.startswith("-"):
            break
        del rest[0]
        key, equals, value = text.partition("=")
        if not text.startswith("--"):
            key = text[:2]
            value = text[2:].removeprefix("=")
            equals = value
        known = takes_value("sbatch", key)
        if known is None:
            problem = f"{key}: hpcrun does not know this option of sbatch"
            options.append(_Option(key, problem=problem))
            continue
        name, needs_value = known
        if equals:
            value = f"{quote}{value}{quote}"
        elif needs_value and rest:
            value = rest.pop(0).text
        options.append(_read_option(name, value))
    return options, rest


def _split_unread(
    words: Sequence[Word], text: str, source: Source
) -> tuple[list[_Option], list[Word]]:
    """Return what ``_split`` returns of words of which the first is not known.

    It holds options if an option of sbatch and a script follow it, and may be the script if not.
    """
    problem = f"{text} may hold options of sbatch, or the script"
    options, arguments = _split(words[1:], source)
    is_of_sbatch = bool(options) and options[0].name in NAMES
    if arguments and is_of_sbatch:
        return [_Option("", (words[0].text,), problem=problem), *options], arguments
    return [_Option("", problem=problem)], list(words)


def _held_options(variable: Word, source: Source) -> _Option | None:
    """Return the options in a variable, as hpcrun has them, None if that is not known."""
    text = variable.text
    if_set = _IF_SET.fullmatch(text)
    if if_set is not None:
        alternative = _options_in(if_set[2], source)
        return _Option("", (f"{if_set[1]}{alternative}}}",)) if alternative else None
    match = _VARIABLE.fullmatch(text)
    if match is None or variable.choices is None:
        return None
    changes = []
    for node in source.assignments(match[1] or match[2]):
        assignment = node_text(node)
        name, equals, value = assignment.partition("=")
        inner, quote = _unquoted(value)
        options = _options_in(inner, source)
        if options is None:
            return None
        if options.split() != inner.split():
            changes.append(f"{name}{equals}{quote}{options}{quote} on line {_line(node)}")
    problem = ""
    if changes:
        problem = f"{text} holds options of sbatch that hpcrun does not know: "
        problem += f"write {', '.join(changes)}"
    return _Option("", (text,), problem=problem)


def _options_in(text: str, source: Source) -> str | None:
    """Return the options in a text of a script, as hpcrun has them, None if that is not known."""
    if re.search(r"""["'`\\(]""", text):
        return None
    words = [Word(piece, None, None) for piece in text.split()]
    options, arguments = _split(words, source)
    if arguments or any(option.problem for option in options):
        return None
    typed: list[str] = []
    for option in options:
        typed += option.words
    return " ".join(typed)


def _unquoted(text: str) -> tuple[str, str]:
    """Return a word without the quotes around all of it, and the quotes."""
    for quote in "\"'":
        if len(text) > 1 and text[0] == text[-1] == quote and text.count(quote) == 2:
            return text[1:-1], quote
    return text, ""


def _read_option(name: str, value: str) -> _Option:
    """Return an option of sbatch, with its value as it is written, as hpcrun has it."""
    values = (value,) if value else ()
    text, quote = _unquoted(value)
    if name in _SAME_NAME:
        return _Option(name, (f"--{name}", *values))
    if name in _OTHER_NAME:
        return _Option(name, (f"--{_OTHER_NAME[name]}", *values))
    if name in LEFT_OUT:
        return _Option(name, remark=f"--{name} is left out: {LEFT_OUT[name]}")
    if name == "export":
        return _export(text, quote)
    if name == "dependency" and _AFTER.fullmatch(text):
        return _Option(name, tuple(_after(text, quote)))
    if name == "gres":
        gpus = gpus_in(name, text)
        if gpus is not None:
            number, kind = gpus
            return _Option(name, ("--gpus-per-node", f"{kind}:{number}" if kind else str(number)))
    if name in OWNED:
        return _Option(name, problem=f"--{name}: {OWNED[name]}")
    return _Option(name, ("--sbatch", f"{name}={value}" if value else name))


def _export(text: str, quote: str) -> _Option:
    """Return what ``--export`` becomes: a variable of each of its assignments."""
    if re.search(r"\$\(|`|\$\{\w+\W", text):
        return _Option(
            "export", problem=f"--export={text}: write --env NAME=VALUE for each variable"
        )
    items = re.findall(r"""(?:"[^"]*"|'[^']*'|[^,"'])+""", text)
    words: list[str] = []
    for item in items:
        if "=" in item:
            words += ("--env", f"{quote}{item}{quote}")
    remark = ""
    if "ALL" not in items:
        remark = f"--export={text}: hpcrun passes your whole environment to the job"
    return _Option("export", tuple(words), remark)


def _after(text: str, quote: str) -> Iterator[str]:
    """Yield what ``--dependency`` becomes: the jobs that this one waits for."""
    match = _AFTER.fullmatch(text)
    assert match is not None  # the caller has tested it
    for job in match[2].split(":")[1:]:
        yield from ("--after", f"{quote}{job}{_CONDITIONS[match[1]]}{quote}")


# --- loops ---------------------------------------------------------------------------------------


def _sweep(
    source: Source, parents: Sequence[Node], options: Sequence[_Option], arguments: Sequence[Word]
) -> str | None:
    """Return the sweep that takes the place of the loops around a call.

    The result is None if there is no loop, or if the loops do more than start one job for each
    combination of values that are all known.
    """
    loops = [parent for parent in reversed(parents) if parent.type == "for_statement"]
    if not loops or not all(parent.type in _AROUND_SWEEP for parent in parents):
        return None
    names = []
    sweeps = []
    for loop in loops:
        name = node_text(loop.named_children[0])
        values = _loop_values(source, loop)
        if values is None:
            return None
        names.append(name)
        sweeps.append(f"{name}={','.join(values)}")
    if not _only_submits(loops[0]):
        return None
    typed = _options_of_sweep(options)
    if typed is None:
        return None
    script = _script_of_sweep(arguments, names)
    if script is None:
        return None
    try:
        parse_assignments(sweeps)
    except ValueError:
        return None
    swept = [bash_line(("--sweep", sweep)) for sweep in sweeps]
    return " ".join(("hpcrun submit", *swept, *typed, script))


def _options_of_sweep(options: Sequence[_Option]) -> list[str] | None:
    """Return the options of a sweep; None if one has a problem, or may differ between elements.

    A name that may differ is left out: all elements of a sweep have one name.
    """
    common = []
    for option in options:
        text = " ".join(option.words)
        is_open = re.search(r"[$`]", text) is not None
        if option.problem or (is_open and option.name != "job-name"):
            return None
        if text and not is_open:
            common.append(text)
    return common


def _script_of_sweep(arguments: Sequence[Word], names: Sequence[str]) -> str | None:
    """Return the script and its arguments with ``{NAME}`` for each variable of the loops.

    The result is None if another value is open, or if a variable is not used.
    """
    words = []
    for argument in arguments:
        text = _with_parameters(argument, names)
        if not text:
            return None
        words.append(text)
    line = bash_line(words)
    return line if all(f"{{{name}}}" in line for name in names) else None


def _loop_values(source: Source, loop: Node) -> list[str] | None:
    """Return the values of a loop's variable, None if only a running shell knows them."""
    values: list[str] = []
    for node in loop.named_children[1:]:
        if node.type in ("do_group", "comment"):
            continue
        text = node_text(node)
        numbers = _RANGE.fullmatch(text)
        if numbers is not None:
            first, last = (int(number) for number in numbers.groups() if number)
            values += map(str, range(first, last + 1))
            continue
        words = source.words_of(node)
        if words is None or any(map(_NO_VALUE.search, words)):
            return None
        values += words
    return values or None


def _only_submits(loop: Node) -> bool:
    """Return whether a loop does nothing but start one job each time, and print."""
    if any(nodes_of(loop, "variable_assignment", "if_statement", "case_statement", "list")):
        return False
    names = [node_text(node.named_children[0]) for node in nodes_of(loop, "command")]
    return names.count("sbatch") == 1 and _IN_SWEEP.issuperset(names)


def _with_parameters(argument: Word, names: Sequence[str]) -> str:
    """Return an argument with ``{NAME}`` for each variable of a loop, "" if more is open."""
    text, quote = _unquoted(argument.text)
    variable = rf"\$(?:({'|'.join(names)})\b|\{{({'|'.join(names)})\}})"
    if quote == "'" or not re.search(variable, text):
        text = argument.known or ""
        return "" if "{" in text else text
    if re.search(r"[$`\\\"'{]", re.sub(variable, "", text)):
        return ""
    return re.sub(variable, lambda match: f"{{{match[1] or match[2]}}}", text)
