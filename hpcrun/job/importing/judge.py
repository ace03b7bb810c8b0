"""What becomes of each statement of a script: an option of hpcrun, hpcrun's own work, or not understood. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hpcrun.job.importing.program import Program
from hpcrun.job.importing.sizes import RankLayout, Sizes
from hpcrun.job.importing.source import names_in
from hpcrun.job.importing.steps import (
    RANK_NAMES,
    Assignment,
    ScriptStep,
    folder_of,
    function_names,
    is_of_rendezvous,
    starts_training,
    stays,
)
from hpcrun.job.importing.words import (
    OF_PERSON,
    Known,
    Scope,
    Unknown,
    Word,
    in_job,
    is_secret_value,
    known,
    shell_text,
)
from hpcrun.job.secrets import secret_in_command

_TASK = re.compile(r"\$\{?SLURM_ARRAY_TASK_ID\}?")
_ARGUMENT = re.compile(r"\$\{?[1-9@*#]|\$\{?0\b|BASH_SOURCE")
_MUST_WORK = (
    "source ",
    ". ",
    "module ",
    "ml ",
    "conda ",
    "mamba ",
    "micromamba ",
    "spack ",
    "export ",
    "unset ",
    "ulimit ",
)
"""Set-up commands without which the job should not start; others may fail, as in the script."""
_PATHS = frozenset("PATH LD_LIBRARY_PATH PYTHONPATH LIBRARY_PATH CPATH MANPATH".split())
_PURE_LOAD = re.compile(r"(module|ml)\s+(load|add)\s+[\w./+:@-]+(\s+[\w./+:@-]+)*")


@dataclass(frozen=True, slots=True)
class JudgedLines:
    """What becomes of some lines of a script.

    Attributes:
        verdict: ``converted``, ``hpcrun`` (hpcrun does it itself) or ``unknown`` (not understood).
        words: what it becomes, or why.
    """

    first: int
    last: int
    text: str
    verdict: str
    words: str


@dataclass(slots=True)
class Judgement:
    """The verdicts on all statements, and the options of hpcrun that they become."""

    lines: list[JudgedLines] = field(default_factory=list)
    options: list[tuple[str, Word | None]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Judge:
    steps: Sequence[ScriptStep]
    main: int | None
    scope: Scope
    program: Program
    ids: Sequence[int] | None
    sizes: Sizes
    ranks: RankLayout
    result: Judgement = field(default_factory=Judgement)
    needed: set[str] = field(default_factory=set)
    in_setup: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    loads_in_order: bool = False
    changes_path: bool = False

    def add(self, step: ScriptStep, verdict: str, words: str) -> None:
        """Note what becomes of a step."""
        one = step.statement
        self.result.lines.append(JudgedLines(one.first, one.last, one.text, verdict, words))

    def renumbered(self, text: str) -> str | None:
        """Return a text with the task ids of the script, where hpcrun counts from 0; None if that cannot be."""
        ids = list(self.ids or ())
        if ids == list(range(len(ids))):
            return text
        if ids != list(range(ids[0], ids[0] + len(ids))) or "SLURM_ARRAY_TASK_ID" in _TASK.sub("", text):
            return None
        return _TASK.sub(f"$((SLURM_ARRAY_TASK_ID + {ids[0]}))", text)

    def setup(self, step: ScriptStep, text: str | None = None) -> None:
        """Let a step run in the job's shell before the ranks start."""
        text = step.statement.text if text is None else text
        if step.statement.background:
            self.add(step, "unknown", "it runs beside the training, in the background")
            return
        if found := secret_in_command(text):
            self.add(step, "unknown", f"it holds {found}: set it where you submit, and add --secret NAME")
            return
        if step.role != "function" and (match := _arguments_in(text)):
            self.add(step, "unknown", f"it uses {match[0]}: a set-up command has no arguments and no file of its own")
            return
        if self.ids is not None and "SLURM_ARRAY_TASK_ID" in text:
            if (moved := self.renumbered(text)) is None:
                self.add(step, "unknown", "hpcrun numbers the elements of an array from 0")
                return
            text = moved
        if (
            step.role in ("setup", "compound", "function", "launch")
            and not text.startswith(_MUST_WORK)
            and "||" not in text
        ):
            text = f"{text} || :" if step.role != "function" and not text.endswith("&") and "<<" not in text else text
        self.result.options.append(("--setup", (Known(text),)))
        shown = text if len(text) < 60 and "\n" not in text else "this command"
        self.add(step, "converted", f"--setup '{shown}'" if shown == text else "--setup with this command")


def judge_steps(steps: Sequence[ScriptStep], main: int | None, scope: Scope, program: Program,
                ids: Sequence[int] | None, sizes: Sizes, ranks: RankLayout) -> Judgement:  # fmt: skip
    """Return what becomes of each step of a script."""
    judge = _Judge(steps, main, scope, program, ids, sizes, ranks)
    before = steps if main is None else steps[:main]
    loads = [step for step in before if step.role == "module"]
    judge.loads_in_order = any(not _PURE_LOAD.fullmatch(step.statement.text) for step in loads)
    judge.changes_path = any(step.role in ("load", "module") for step in before)
    _find_needed(judge, before)
    for step in before:
        _BEFORE[step.role](judge, step)
    for text in program.setup:
        judge.result.options.append(("--setup", (Known(text),)))
    if main is not None:
        _judge_launch(judge, steps[main])
        for step in steps[main + 1 :]:
            _judge_after(judge, step)
    return judge.result


def _find_needed(judge: _Judge, before: Sequence[ScriptStep]) -> None:
    """Find the variables that the job's shell needs: those of the set-up commands and of the program."""
    launch = judge.steps[judge.main].launch if judge.main is not None else None
    texts = [*judge.program.texts, *(part.text for _, word in (launch.options if launch else ()) for part in word or ()
                                     if isinstance(part, Unknown))]  # fmt: skip
    judge.needed = {name for text in texts for name in names_in(text)}
    for step in reversed(before):
        text = step.statement.text
        if step.role in ("load", "module", "setup", "compound", "function", "launch") and not _is_launch(judge, step):
            judge.in_setup |= names_in(text)
        elif step.role == "assign" and any(one.name in judge.in_setup for one in step.sets):
            judge.in_setup |= {name for one in step.sets for name in names_in(one.text.partition("=")[2])}
        elif step.role == "assign" and any(one.name in judge.needed or _late(judge, one) for one in step.sets):
            judge.needed |= {name for one in step.sets for name in names_in(one.text.partition("=")[2])}
        elif step.role == "cd" and folder_of(before)[1]:
            judge.in_setup |= names_in(text)
    judge.needed |= judge.in_setup
    if judge.main is not None:
        judge.used = names_in(judge.steps[judge.main].statement.text)
        for step in reversed(before):
            judge.used |= {name for one in step.sets if one.name in judge.used for name in names_in(one.text)}


def _is_launch(judge: _Judge, step: ScriptStep) -> bool:
    return step.role in ("compound", "function") and starts_training(step.statement.node, judge.scope)


def _late(judge: _Judge, one: Assignment) -> bool:
    """Return whether an exported variable gets its value in the job's shell."""
    if not one.exported or one.name in RANK_NAMES or is_of_rendezvous(one.name, one.text.partition("=")[2]):
        return False
    value = one.value
    if value is None or isinstance(value, list) or one.name in judge.program.columns:
        return one.name not in judge.program.columns
    return (
        in_job(value)
        or one.name in _PATHS
        or any(isinstance(part, Unknown) and not names_in(part.text) <= {*OF_PERSON, "PWD"} for part in value)
    )


def _judge_assignment(judge: _Judge, step: ScriptStep) -> None:
    words: list[str] = []
    verdicts: list[str] = []
    for one in step.sets:
        verdict, said = _assigned(judge, one)
        verdicts.append(verdict)
        words.append(said)
    if not step.sets:
        verdicts, words = ["hpcrun"], ["it sets no variable"]
    verdict = next(one for one in ("unknown", "converted", "hpcrun") if one in verdicts)
    judge.add(step, verdict, "; ".join(dict.fromkeys(words)))


def _assigned(judge: _Judge, one: Assignment) -> tuple[str, str]:
    """Return what becomes of one variable."""
    is_ours = one.name in RANK_NAMES or is_of_rendezvous(one.name, one.text.partition("=")[2])
    if is_ours and one.name not in judge.in_setup:
        return (
            "hpcrun",
            f"hpcrun sets {one.name}" if one.name in RANK_NAMES else "hpcrun finds the head node and a port",
        )
    if one.name in judge.program.columns:
        return "converted", f"a parameter of the sweep sets {one.name}"
    text = known(one.value) if isinstance(one.value, tuple) else None
    if is_secret_value(one.name, one.value) and (one.exported or (text is None and one.name in judge.needed)):
        judge.result.options.append(("--secret", (Known(one.name),)))
        return "converted", f"--secret {one.name}"
    if one.exported and not _late(judge, one) and isinstance(one.value, tuple):
        if _is_default(judge, one.name, text):
            return "hpcrun", f"it is so in hpcrun's jobs: {one.name}={text}"
        judge.result.options.append(("--env", (Known(f"{one.name}="), *one.value)))
        return "converted", f"--env {one.name}=..."
    if one.exported or one.name in judge.needed:
        return _assigned_in_job(judge, one, text)
    if one.name in judge.used:
        return "converted", "its value stands in the command"
    return "hpcrun", "only lines that hpcrun replaces use it"


def _assigned_in_job(judge: _Judge, one: Assignment, text: str | None) -> tuple[str, str]:
    """Let the job's shell set a variable.

    Args:
        text: its value, if it is known.
    """
    if isinstance(one.value, list) or re.match(r"\w+\[", one.text):
        judge.result.options.append(("--setup", (Known(one.text),)))
        return "converted", "--setup with this command"
    line = one.text
    if match := _arguments_in(line):
        if text is None:
            return "unknown", f"{match[0]} is not given: hpcrun import SCRIPT -- ARGUMENTS"
        line = f"{one.name}={shell_text((Known(text),))}"
    if "SLURM_ARRAY_TASK_ID" in line and judge.ids is not None:
        if (moved := judge.renumbered(line)) is None:
            return "unknown", "hpcrun numbers the elements of an array from 0"
        line = moved
    if found := secret_in_command(line):
        return "unknown", f"it holds {found}: set it where you submit, and add --secret {one.name}"
    judge.result.options.append(("--setup", (Known(f"export {line}"),)))
    return "converted", f"--setup 'export {one.name}=...'"


def _is_default(judge: _Judge, name: str, text: str | None) -> bool:
    """Return whether hpcrun's jobs have this value anyway."""
    if name == "CUDA_VISIBLE_DEVICES":
        return text == ",".join(str(number) for number in range(judge.sizes.gpus)) != ""
    if name == "OMP_NUM_THREADS" and judge.sizes.cpus:
        return text == str(judge.sizes.cpus * judge.sizes.tasks // max(1, judge.ranks.ranks))
    return False


def _judge_module(judge: _Judge, step: ScriptStep) -> None:
    texts = [known(word) for word in step.words[2:]]
    if judge.loads_in_order or not all(text and not text.startswith("-") for text in texts):
        judge.setup(step)
        return
    judge.result.options += [("--load", word) for word in step.words[2:]]
    judge.add(step, "converted", " ".join(f"--load {text}" for text in texts))


def _arguments_in(text: str) -> re.Match[str] | None:
    """Return where a shell text uses the arguments or the file of its script; awk's ``$1`` stands in single quotes."""
    return _ARGUMENT.search(re.sub(r"'[^']*'", "''", text))


def _judge_cd(judge: _Judge, step: ScriptStep) -> None:
    folder, in_shell = folder_of(judge.steps if judge.main is None else judge.steps[: judge.main])
    if stays(step) and not in_shell:
        judge.add(step, "hpcrun", "the job starts in the folder in which you submit it")
    elif in_shell or folder is None:
        judge.setup(step)
    else:
        judge.result.options.append(("--workdir", folder))
        judge.add(step, "converted", f"--workdir {shell_text(folder)}")


def _judge_print(judge: _Judge, step: ScriptStep) -> None:
    judge.add(step, "hpcrun", "it only prints; hpcrun's logs name the job, its nodes, times and exit statuses")


def _judge_shell(judge: _Judge, step: ScriptStep) -> None:
    judge.add(step, "hpcrun", "hpcrun's own script stops at the first set-up command that fails")


def _judge_setup(judge: _Judge, step: ScriptStep) -> None:
    text = step.statement.text
    if text.startswith("trap"):
        judge.add(step, "unknown", "hpcrun warns the ranks before the time limit (--warn), and requeues (--requeue N)")
    else:
        judge.setup(step)


def _judge_compound(judge: _Judge, step: ScriptStep) -> None:
    if _is_launch(judge, step):
        judge.add(
            step, "unknown", "it starts a training: hpcrun starts one program; a loop over values is --sweep NAME=A,B"
        )
    else:
        judge.setup(step)


def _judge_other_launch(judge: _Judge, step: ScriptStep) -> None:
    line = step.launch
    if line is not None and line.python and line.strong and line.program:
        judge.add(step, "unknown", "a second program: submit it as a job of its own, with --after; "
                                   "or run it once before the ranks, with --setup")  # fmt: skip
    elif (line is not None and line.launcher == "program" and line.steps is None and not step.statement.background) or (
        line is not None and line.launcher == "program" and judge.ranks.tasks == judge.sizes.tasks
    ):
        judge.setup(step)
    else:
        judge.add(
            step, "unknown", "a second program with ranks of its own: submit it as a job of its own, with --after"
        )


def _judge_broken(judge: _Judge, step: ScriptStep) -> None:
    judge.add(step, "unknown", "it cannot be read as bash")


def _judge_launch(judge: _Judge, step: ScriptStep) -> None:
    """Judge the line that starts the ranks."""
    one, line = step.statement, step.launch
    problems = [
        *(line.problems if line else ()),
        *judge.ranks.problems,
        *judge.program.problems,
    ]
    if judge.scope.missing:
        problems.append(f"{', '.join(sorted(judge.scope.missing))} is not given: hpcrun import SCRIPT -- ARGUMENTS")
    names = {name for text in judge.program.texts for name in names_in(text)}
    arrays = {name for name in names if _is_array(judge, name)}
    problems += [f"{name} is an array, which set-up commands cannot hand to the ranks" for name in sorted(arrays)]
    head = known(line.program[0]) if line and line.program else None
    if head in function_names(judge.steps):
        problems.append(f"{head} is a function of the script, and no program")
    pipes = re.split(r"\|&?", one.output)[1:]
    if any(not re.match(r"\s*tee\s", pipe) for pipe in pipes) or "<<" in one.output:
        problems.append("its output goes through a pipe, or its input comes from this file")
    elif ">" in re.sub(r"\d?>&\d", "", one.output) or pipes:
        judge.result.notes.append("the output of the ranks goes to the run's folder: hpcrun logs shows it")
    if one.either and not re.match(r"\s*(exit|echo|true|:|\{[^}]*exit)", one.either):
        problems.append("a second command runs if it fails")
    if judge.changes_path and line is not None:
        judge.result.options.append(("--python", (Known(line.python or "python"),)))
    elif line is not None and line.python and ("/" in line.python):
        judge.result.options.append(("--python", (Known(line.python),)))
    if problems:
        judge.add(step, "unknown", "; ".join(dict.fromkeys(problems)))
    else:
        judge.add(step, "converted", "the program, its arguments and --launcher")


def _is_array(judge: _Judge, name: str) -> bool:
    pattern = re.compile(rf"\b{re.escape(name)}(\+?=\(|\[[^\]\s]*\]=)|\b(readarray|mapfile)\b.*\b{re.escape(name)}\b")
    return isinstance(judge.scope.values.get(name), list) or any(
        pattern.search(step.statement.text) for step in judge.steps
    )


def _judge_after(judge: _Judge, step: ScriptStep) -> None:
    if step.role in ("print", "shell", "assign"):
        judge.add(step, "hpcrun", "hpcrun records the end of the job itself")
    else:
        judge.add(step, "unknown", "it runs after the ranks: submit it as a job of its own, hpcrun submit --after RUN")


_BEFORE: dict[str, Callable[[_Judge, ScriptStep], None]] = {
    "assign": _judge_assignment,
    "cd": _judge_cd,
    "load": _Judge.setup,
    "module": _judge_module,
    "print": _judge_print,
    "shell": _judge_shell,
    "setup": _judge_setup,
    "compound": _judge_compound,
    "function": _judge_compound,
    "launch": _judge_other_launch,
    "broken": _judge_broken,
}
