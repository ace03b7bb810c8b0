"""The program of a rank, with its arguments: plain, of an array's tasks, or as text for a shell in the job. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from hpcrun.job.importing.launch import LaunchLine
from hpcrun.job.importing.words import Known, Unknown, Value, Word, in_job, known, shell_text

_OUTPUT = re.compile(r"\$\((?!\()|`")
_SAFE = re.compile(r"[\w.,:/@%+=-]+", re.ASCII)
_OWN_PLACE = re.compile(r"(?<!\{)\{([A-Za-z_][\w.-]*)\}(?!\})")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a rank.

    Attributes:
        words: empty if it could not be converted.
        options: ``--module``, ``--sweep`` and the like.
        setup: commands that must run once before the ranks start, for values that the arguments need.
        texts: the shell texts in it, for the variables that they use.
        columns: the names of the variables of the job's environment that differ between the tasks of an array.
        sweep_file: the text of a file of parameters.
    """

    words: tuple[Word, ...] = ()
    options: tuple[tuple[str, Word | None], ...] = ()
    setup: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    sweep_file: str | None = None
    problems: tuple[str, ...] = ()


def plain_program(line: LaunchLine, *, in_shell: bool) -> Program:
    """Return the program of a job that is no array.

    Args:
        in_shell: a shell of the job must start it, since the set-up commands change the folder.
    """
    return _finished(line.program, line, (), is_sweep=False, in_shell=in_shell)


def _finished(
    words: Sequence[Word],
    line: LaunchLine,
    options: tuple[tuple[str, Word | None], ...],
    *,
    is_sweep: bool,
    in_shell: bool = False,
    columns: tuple[str, ...] = (),
    sweep_file: str | None = None,
) -> Program:
    """Return a program whose words a shell of the submission, or of the job, replaces."""
    is_module = bool(words) and known(words[0]) == "-m"
    bare = words[1:] if is_module else words
    if not words or not (in_shell or any(in_job(word) for word in words)):
        more = (("--module", None),) if is_module else ()
        return Program(tuple(bare), (*options, *more), (), _texts(words), columns, sweep_file)
    setup: list[str] = []
    once = [tuple(_once(part, setup) for part in word) for word in words]
    head = known(words[0]) or ""
    python = [(Known(line.python or "python"),), (Known("-u"),)] if is_module or head.endswith(".py") else []
    text = " ".join(["exec", *(shell_text(word, escape=is_sweep) for word in (*python, *once))])
    if is_sweep:
        text = re.sub(r"\{\{(hpcrun_[\w.-]+)\}\}", lambda match: "{" + match[1].removeprefix("hpcrun_") + "}", text)
    program: tuple[Word, ...] = ((Known("bash"),), (Known("-c"),), (Known(text),))
    return Program(program, options, tuple(setup), (*_texts(once), *setup), columns, sweep_file)


def _texts(words: Sequence[Word]) -> tuple[str, ...]:
    return tuple(part.text for word in words for part in word if isinstance(part, Unknown))


def _once(part: Known | Unknown, setup: list[str]) -> Known | Unknown:
    """Return a piece of a word; the output of a command must be the same for all ranks, so it is made a variable."""
    if isinstance(part, Known) or not _OUTPUT.match(part.text):
        return part
    setup.append(f"export VALUE_{len(setup) + 1}={part.text}")
    return Unknown(f"$VALUE_{len(setup)}", part.when, part.quoted)


def array_program(
    ids: Sequence[int],
    most: int | None,
    tasks: Sequence[tuple[LaunchLine | None, Mapping[str, Value | None]]],
    *,
    in_shell: bool,
) -> Program:
    """Return the program of a sweep with one element for each task of an array.

    Args:
        ids: the task ids.
        most: how many may run at once.
        tasks: of each task, its launch and the variables that it exports.
        in_shell: as of ``plain_program``.
    """
    first = tasks[0][0]
    rows = [line.program if line else () for line, _ in tasks]
    if first is None or not rows[0]:
        return Program()
    if len({len(row) for row in rows}) > 1:
        return Program(problems=("the tasks of the array have different numbers of arguments",))
    columns: dict[str, list[str]] = {}
    try:
        words = _with_places(rows, columns)
        env = [name for name in tasks[0][1] if len({_frozen(values.get(name)) for _, values in tasks}) > 1]
        before = [_of_environment(name, [values.get(name) for _, values in tasks], columns) for name in env]
    except ValueError as error:
        return Program(problems=(str(error),))
    if not columns:
        name = _free("task", columns)
        columns[name] = [str(number) for number in ids]
        before.append((Known(f"SLURM_ARRAY_TASK_ID={{{name}}}"),))
    options, sweep_file = _sweep_options(columns, most)
    if in_shell or any(in_job(word) for word in words):
        if not all(_SAFE.fullmatch(text) for values in columns.values() for text in values):
            return Program(problems=("the values of the tasks cannot stand in a shell's text",))
        before, words = [_marked(word, columns) for word in before], [_marked(word, columns) for word in words]
    if before:
        words = [(Known("env"),), *before, *_with_python(words, first)]
    return _finished(words, first, options, is_sweep=True, in_shell=in_shell, columns=tuple(env), sweep_file=sweep_file)


def _with_places(rows: Sequence[Sequence[Word]], columns: dict[str, list[str]]) -> list[Word]:
    """Return the arguments with places for those that differ between tasks, and note their values.

    Raises:
        ValueError: one depends on values of the job, too.
    """
    words = [_kept(word) for word in rows[0]]
    for place in range(len(words)):
        if len({row[place] for row in rows}) > 1:
            before = known(rows[0][place - 1]) or "" if place else ""
            hint = before.lstrip("-") if before.startswith("-") else ""
            words[place] = _with_place([row[place] for row in rows], hint, f"argument {place + 1}", columns)
    return words


def _of_environment(name: str, values: Sequence[Value | None], columns: dict[str, list[str]]) -> Word:
    """Return the word that sets a variable which differs between tasks, and note its values.

    Raises:
        ValueError: it depends on values of the job, too.
    """
    words = [value for value in values if isinstance(value, tuple)]
    if len(words) < len(values):
        raise ValueError(f"{name} depends on the task and on values of the job")
    return (Known(f"{name}="), *_with_place(words, name.lower(), name, columns))


def _with_place(words: Sequence[Word], name: str, what: str, columns: dict[str, list[str]]) -> Word:
    """Return a word of all tasks with a place for the part in which they differ, and note its values.

    Args:
        name: a name for the parameter, if the word itself has none.
        what: the word in words, for the message.

    Raises:
        ValueError: they differ in more than one part, or in one that only a shell knows.
    """
    places = [place for place in range(len(words[0])) if len({word[place : place + 1] for word in words}) > 1]
    parts = [word[places[0]] for word in words if len(word) == len(words[0]) and len(places) == 1]
    texts = [part.text for part in parts if isinstance(part, Known)]
    if len(texts) < len(words):
        raise ValueError(f"{what} depends on the task and on values of the job")
    common = _common(texts)
    begin = common[: common.rindex("=") + 1] if "=" in common else ""  # --lr=..., or Hydra's optim.lr=...
    own = begin[:-1].lstrip("-+") or name
    name = _free(own if _PARAMETER.fullmatch(own) else "value", columns)
    columns[name] = [text[len(begin) :] for text in texts]
    place = Known(_PLACE.sub(r"{{\1}}", begin) + f"{{{name}}}")
    return (*_kept(words[0][: places[0]]), place, *_kept(words[0][places[0] + 1 :]))


def _sweep_options(
    columns: Mapping[str, list[str]], most: int | None
) -> tuple[tuple[tuple[str, Word | None], ...], str | None]:
    """Return the options of the sweep, and the text of its file if they need one."""
    at_once: tuple[tuple[str, Word | None], ...] = (("--max-parallel", (Known(str(most)),)),) if most else ()
    order = _order(columns)
    if order is None:
        return (("--sweep-file", (Known("sweep.csv"),)), *at_once), _csv(columns)
    texts = (f"{name}={','.join(dict.fromkeys(columns[name]))}" for name in order)
    return (*(("--sweep", (Known(text),)) for text in texts), *at_once), None


def _frozen(value: Value | None) -> object:
    return tuple(value) if isinstance(value, list) else value


def _with_python(words: Sequence[Word], line: LaunchLine) -> list[Word]:
    head = known(words[0]) or ""
    python = head == "-m" or head.endswith(".py")
    return [*([(Known(line.python or "python"),), (Known("-u"),)] if python else []), *words]


def _kept(word: Word) -> Word:
    """Return a word in which ``{name}`` is not taken for a parameter."""
    return tuple(Known(_PLACE.sub(r"{{\1}}", part.text)) if isinstance(part, Known) else part for part in word)


def _marked(word: Word, columns: Mapping[str, Sequence[str]]) -> Word:
    """Return a word whose places for parameters survive in a shell's text, and whose other braces were kept apart."""
    parts = []
    for part in word:
        if isinstance(part, Known):
            text = re.sub(r"\{\{([A-Za-z_][A-Za-z0-9_.-]*)\}\}", r"{\1}", part.text)
            text = _OWN_PLACE.sub(lambda found: f"{{hpcrun_{found[1]}}}" if found[1] in columns else found[0], text)
            parts.append(Known(text))
        else:
            parts.append(part)  # type: ignore[arg-type]
    return tuple(parts)


def _common(texts: Sequence[str]) -> str:
    low, high = min(texts), max(texts)
    length = next(
        (index for index, (one, other) in enumerate(zip(low, high, strict=False)) if one != other),
        min(len(low), len(high)),
    )
    return low[:length]


def _free(name: str, columns: Mapping[str, object]) -> str:
    name = "value" if name == "element" else name
    while name in columns:
        name += "_2"
    return name


def _order(columns: Mapping[str, list[str]]) -> tuple[str, ...] | None:
    """Return the order of parameters whose product is the tasks of the array; None if there is none."""
    if any("," in text or not text for values in columns.values() for text in values):
        return None
    rows = list(zip(*columns.values(), strict=True))
    names = list(columns)
    if len(names) == 1:
        return tuple(names) if len(set(columns[names[0]])) == len(rows) else None
    for order in permutations(names) if len(names) <= 4 else ():
        distinct = [list(dict.fromkeys(columns[name])) for name in order]
        places = [names.index(name) for name in order]
        if [tuple(row[place] for place in places) for row in rows] == list(product(*distinct)):
            return order
    return None


def _csv(columns: Mapping[str, list[str]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()
