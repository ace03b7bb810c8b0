"""A batch script → the command line of hpcrun, and what becomes of each of its lines. Pure: text in, records out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hpcrun.job.importing.directives import Meaning, ScriptOption, is_size, meaning_of, parse_array, read_directives
from hpcrun.job.importing.judge import JudgedLines, Judgement, judge_steps
from hpcrun.job.importing.launch import LaunchLine
from hpcrun.job.importing.program import Program, array_program, plain_program
from hpcrun.job.importing.sizes import RankLayout, Sizes, decide_ranks, read_sizes
from hpcrun.job.importing.source import read_statements
from hpcrun.job.importing.steps import ScriptStep, folder_of, read_steps
from hpcrun.job.importing.words import Known, Scope, Word, known, secret_of
from hpcrun.job.quoting import job_name_from

MOST_TASKS = 1000
"""The most array tasks whose arguments are compared."""
_MOST_WORK = 50_000
LineOption = tuple[str, Word | None]
Array = tuple[list[int], int | None]
"""The task ids of an array, and how many may run at once."""


@dataclass(frozen=True, slots=True)
class ImportedScript:
    """What a batch script becomes.

    Attributes:
        options: hpcrun's options in their order, each with its value; None for a flag.
        program: the program of a rank and its arguments; empty if the script starts none that was understood.
        lines: every line of the script that is not a comment, and what becomes of it.
        notes: what hpcrun does in another way than the script.
        sweep_file: the parameters of the array's tasks, if no option can hold them.
        sizes: what the directives ask for.
        asked: the directives of the script by name.
    """

    options: tuple[LineOption, ...]
    program: tuple[Word, ...]
    lines: tuple[JudgedLines, ...]
    notes: tuple[str, ...]
    sizes: Sizes
    asked: tuple[ScriptOption, ...]
    sweep_file: str | None = None

    @property
    def verdict(self) -> str:
        """``whole``, ``part``, or ``none`` if it starts no program that was understood."""
        if not self.program:
            return "none"
        return "part" if any(each.verdict == "unknown" for each in self.lines) else "whole"


def convert_script(text: str, arguments: Sequence[str] = (), name: str = "") -> ImportedScript:
    """Return what a batch script becomes.

    Args:
        arguments: those that the script gets: ``$1`` and so on.
        name: the job's name without --job-name.

    Raises:
        UsageError: it is not a text that can be read at all.
    """
    lines = re.split(r"\r?\n", text)
    asked, late = read_directives(lines)
    sizes = read_sizes(asked)
    array = _array(asked)
    statements = read_statements(text)

    def steps_of(task: int | None) -> tuple[list[ScriptStep], Scope]:
        facts = {**sizes.facts(), "SLURM_JOB_NAME": _job_name(asked, name), **_array_facts(array, task)}
        scope = Scope({key: value for key, value in facts.items() if value}, tuple(arguments))
        return read_steps(statements, scope), scope

    steps, scope = steps_of(array[0][0] if array else None)
    main = _main(steps)
    launch = (steps[main].launch if main is not None else None) or LaunchLine()
    ranks = decide_ranks(sizes, launch)
    program = Program() if main is None else _program(steps, main, array, lambda task: steps_of(task)[0])
    judgement = judge_steps(steps, main, scope, program, array[0] if array else None, sizes, ranks)
    judged = [*_judged_directives(lines, asked, late, sizes, ranks, array), *judgement.lines]
    judged += _others(lines, judged)
    options = _options(asked, ranks, program, judgement, launch, name)
    return ImportedScript(
        options,
        program.words,
        tuple(sorted(judged, key=lambda one: one.first)),
        tuple(dict.fromkeys((*launch.notes, *ranks.notes, *judgement.notes, *_secret_notes(options)))),
        sizes,
        tuple(asked),
        program.sweep_file,
    )


def _secret_notes(options: Sequence[LineOption]) -> list[str]:
    names = [known(value) for name, value in options if name == "--secret" and value]
    return [f"export {name} in the shell in which you submit: hpcrun writes no secret to a file" for name in names]


def _others(lines: Sequence[str], judged: Sequence[JudgedLines]) -> list[JudgedLines]:
    """Return each line that belongs to no statement, as not understood: nothing is left out silently."""
    seen = {number for each in judged for number in range(each.first, each.last + 1)}
    return [
        JudgedLines(number, number, text, "unknown", "it cannot be read as bash")
        for number, text in enumerate(lines, start=1)
        if number not in seen and text.strip() and not text.lstrip().startswith("#")
    ]


def _job_name(asked: Sequence[ScriptOption], name: str) -> str:
    return next((option.value for option in reversed(asked) if option.name == "job-name" and option.value), name)


def _array(asked: Sequence[ScriptOption]) -> Array | None:
    text = next((option.value for option in reversed(asked) if option.name == "array"), None)
    return parse_array(text) if text else None


def _array_facts(array: Array | None, task: int | None) -> dict[str, str]:
    if array is None or task is None:
        return {}
    ids = array[0]
    return {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": str(len(ids)),
            "SLURM_ARRAY_TASK_MIN": str(ids[0]), "SLURM_ARRAY_TASK_MAX": str(ids[-1])}  # fmt: skip


def _main(steps: Sequence[ScriptStep]) -> int | None:
    """Return the step that starts the ranks: the last one that starts a program of Python or by a launcher."""
    launches = [(index, step.launch) for index, step in enumerate(steps) if step.launch]
    for wanted in (
        lambda line: line.launcher != "program" or (line.steps is not None and line.python),
        lambda line: line.python is not None,
        lambda line: line.strong,
        lambda _: True,
    ):
        found = [index for index, line in launches if wanted(line)]
        if found:
            return found[-1]
    return None


def _program(
    steps: Sequence[ScriptStep], main: int, array: Array | None, steps_of: Callable[[int], list[ScriptStep]]
) -> Program:
    """Return the program of a rank; for an array, one element of a sweep for each task."""
    line = steps[main].launch or LaunchLine()
    in_shell = folder_of(steps[:main])[1]
    if array is None:
        return plain_program(line, in_shell=in_shell)
    ids, most = array
    if len(ids) > MOST_TASKS or len(ids) * len(steps) > _MOST_WORK:
        return Program(problems=(f"an array of {len(ids)} tasks is too large to compare",))
    tasks = []
    for task in ids:
        again = steps_of(task)
        env = {one.name: one.value for step in again[:main] for one in step.sets if one.exported}
        tasks.append((again[main].launch, env))
    return array_program(ids, most, tasks, in_shell=in_shell)


def _options(asked: Sequence[ScriptOption], ranks: RankLayout, program: Program, judgement: Judgement,
             line: LaunchLine, name: str) -> tuple[LineOption, ...]:  # fmt: skip
    """Return hpcrun's options: resources, then the other directives, then what the job's shell needs."""
    found: list[LineOption] = [(option, _word(value)) for option, value in ranks.options]
    last = {option.name: option for option in asked}
    for option in last.values():
        if option.name == "mail-type":  # sbatch adds them up: arg_set_mail_type in slurm_opt.c
            option = replace(option, value=",".join(one.value or "" for one in asked if one.name == "mail-type"))
        if not is_size(option.name) and option.name != "array":
            found += [(one, _word(value)) for one, value in meaning_of(option).options]
    found += [*judgement.options, *line.options, *program.options]
    head = known(program.words[0]) if program.words else None
    if (
        head
        and not head.endswith(".py")
        and ("--module", None) not in found
        and all(one != "--name" for one, _ in found)
    ):
        found.append(("--name", (Known(job_name_from(name.rpartition(".")[0] or name)),)))
    return tuple(_last_of_each([_without_secret(one, value) for one, value in found]))


def _without_secret(option: str, value: Word | None) -> LineOption:
    """Return an option; a variable with a secret is passed by its name alone."""
    name = secret_of(value or ()) if option == "--env" else None
    return ("--secret", (Known(name),)) if name else (option, value)


_REPEATABLE = frozenset("--env --load --setup --sbatch --no-sbatch --srun --torchrun --mount --sweep --secret".split())


def _last_of_each(options: list[LineOption]) -> list[LineOption]:
    kept = []
    for index, (name, value) in enumerate(options):
        later = [other for other, _ in options[index + 1 :]]
        if name in _REPEATABLE or name not in later:
            kept.append((name, value))
    return kept


def _word(text: str | None) -> Word | None:
    return None if text is None else (Known(text),)


def _judged_directives(lines: Sequence[str], asked: Sequence[ScriptOption], late: Sequence[int], sizes: Sizes,
                       ranks: RankLayout, array: Array | None) -> list[JudgedLines]:  # fmt: skip
    """Return what becomes of each #SBATCH line."""
    why = "sbatch does not read it: it follows the first command"
    found = [JudgedLines(number, number, lines[number - 1], "hpcrun", why) for number in late]
    problems = dict(sizes.problems)
    by_line: dict[int, list[Meaning]] = {}
    for option in asked:
        if is_size(option.name) and option.is_known:
            meaning = Meaning("converted", " ".join(f"{name} {value}" for name, value in ranks.options))
        elif option.name == "array":
            meaning = (
                Meaning("converted", "--sweep")
                if array
                else Meaning("unknown", f"--array={option.value} cannot be read")
            )
        else:
            meaning = meaning_of(option)
        by_line.setdefault(option.line, []).append(meaning)
    for number, meanings in by_line.items():
        if number in problems:
            meanings = [Meaning("unknown", problems[number])]
        verdict = next(one for one in ("unknown", "converted", "hpcrun") if any(m.verdict == one for m in meanings))
        words = "; ".join(dict.fromkeys(meaning.words for meaning in meanings if meaning.verdict == verdict))
        found.append(JudgedLines(number, number, lines[number - 1], verdict, words))
    seen = {each.first for each in found}
    empty = [
        number for number, line in enumerate(lines, start=1) if re.match(r"#SBATCH\s", line) and number not in seen
    ]
    return [
        *found,
        *(JudgedLines(number, number, lines[number - 1], "hpcrun", "it gives no option") for number in empty),
    ]
