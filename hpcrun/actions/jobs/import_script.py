"""import: an existing sbatch script → the command of hpcrun, the script that it renders, and a profile of the site."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path
from typing import Any

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.actions.jobs.choices import settle
from hpcrun.errors import HpcrunError, SchedulerError, UsageError
from hpcrun.job.directives import directive_line, set_directive
from hpcrun.job.importing.convert import ImportedScript, convert_script
from hpcrun.job.importing.source import without_secrets
from hpcrun.job.importing.words import Known, Unknown, Word, shell_text
from hpcrun.job.plan import Plan, PythonEnvironment, build_plan
from hpcrun.job.quoting import quote_bash
from hpcrun.job.request import JobRequest, check_secrets, option_of, read_request
from hpcrun.job.resources import Machine
from hpcrun.job.script import render_script
from hpcrun.job.units import parse_memory, parse_time
from hpcrun.profiles.edit import flow
from hpcrun.profiles.load import LoadedProfile, load_profile, load_text
from hpcrun.profiles.save import replace_text
from hpcrun.profiles.templates import load_templates
from hpcrun.reading import read_named_text

MOST_BYTES = 200_000
LineOption = tuple[str, Word | None]
_BASE = "base/slurm"
_OF_SITE = {"--partition": "partition", "--account": "account", "--qos": "qos", "--constraint": "constraint"}
_BY_PROFILE = ("time", "mem", "partition", "account", "qos", "constraint")
"""Directives that a profile adds to a job that does not ask for them."""
_NO_PART_OF_REQUEST = frozenset({"--wait", "--sweep-file"})
_FIELDS = {option_of(field): field for field in JobRequest.model_fields}


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an sbatch script becomes.

    Attributes:
        name: the script's file name.
        options: the options of the line; with a profile of its own, those that it does not hold.
        refusal: why hpcrun would refuse the job.
        plan: None if it is refused.
        rendered: the script that hpcrun would submit; empty if it is refused.
        diff: the lines of the two scripts that differ.
        directives: the #SBATCH options of the two scripts that differ.
        profile_text: the profile that holds what is the same for all jobs of the site.
        profile_path: where it was written; None if it was not.
    """

    name: str
    script: ImportedScript
    options: tuple[LineOption, ...]
    profile: str | None
    refusal: HpcrunError | None
    plan: Plan | None
    rendered: str
    diff: tuple[str, ...]
    directives: tuple[str, ...]
    profile_text: str
    profile_path: Path | None = None

    @property
    def verdict(self) -> str:
        """``whole``, ``part`` or ``none``."""
        return "part" if self.refusal and self.script.verdict == "whole" else self.script.verdict

    def groups(self) -> list[list[str]]:
        """Return the command line, each word quoted for a shell, and an option together with its value."""
        groups = [["hpcrun", "submit"], *([["-P", shell_text((Known(self.profile),))]] if self.profile else [])]
        groups += [[name] if value is None else [name, shell_text(value)] for name, value in self.options]
        program = [shell_text(word) for word in self.script.program]
        groups += [["--"]] if program and program[0].startswith("-") else []
        for index, word in enumerate(program):
            is_value = index > 0 and program[index - 1].startswith("-") and not word.startswith("-")
            if is_value or (index == 1 and word == "-c"):  # bash -c
                groups[-1].append(word)
            else:
                groups.append([word])
        return groups

    def words(self) -> list[str]:
        """Return the command line, each word quoted for a shell."""
        return [word for group in self.groups() for word in group]


def import_script(
    path: Path,
    arguments: Sequence[str],
    surroundings: Surroundings,
    *,
    profile: str | None,
    extend: str | None = None,
    write: str | None = None,
) -> ImportResult:
    """Read a script and return what it becomes; the script is never run.

    Args:
        arguments: those that the script gets.
        profile: the profile that ``hpcrun submit`` would use; None for one that adds nothing.
        extend: the profile that the person named, for the command and for a new profile.
        write: the name of a profile to be written for what is the same for all jobs.

    Raises:
        UsageError: it cannot be read.
        ProfileError: the profile cannot be loaded.
    """
    try:
        text = read_named_text(path, MOST_BYTES)
    except ValueError as error:
        raise UsageError(str(error), hint="give a batch script: a text that sbatch takes") from None
    _refuse_python(path, text)
    imported = convert_script(text, arguments, path.name)
    profile_text = _profile_text(imported, extend, path.name)
    loaded = _load(None if write else profile, profile_text if write else _neutral_text(imported), surroundings)
    options = imported.options
    if write:
        options = tuple(option for option in options if not (option[0] in _OF_SITE or option[0] == "--load"))
    refusal, plan, rendered = None, None, ""
    try:
        if imported.program:
            options = (*options, *_without_defaults(options, loaded, imported, surroundings))
            plan = _plan(options, loaded, imported, surroundings)
            rendered = render_script(plan, load_templates(surroundings.template_folders)).text
    except HpcrunError as error:
        refusal = error
    ours = rendered.splitlines()
    diff = (
        unified_diff(without_secrets(text).splitlines(), ours, path.name, "hpcrun render", lineterm="") if ours else ()
    )
    return ImportResult(path.name, imported, options, write or extend, refusal, plan, rendered, tuple(diff),
                        tuple(_directive_diff(imported, plan)), profile_text)  # fmt: skip


def _refuse_python(path: Path, text: str) -> None:
    """Refuse a Python program without #SBATCH lines, which would be read as the shell's.

    Raises:
        UsageError: it is one.
    """
    first = text.partition("\n")[0]
    is_python = path.suffix == ".py" or (first.startswith("#!") and "python" in first)
    if is_python and re.search(r"^#SBATCH\s", text, re.MULTILINE) is None:
        raise UsageError(
            f"{path.name} is a Python program without #SBATCH lines, not a batch script",
            hint=f"hpcrun submit {quote_bash(os.path.relpath(path))}",
        )


def _load(name: str | None, text: str, surroundings: Surroundings) -> LoadedProfile:
    """Return the profile of the line; a text is that of a profile that is not written yet."""
    if name is not None:
        with suppress(SchedulerError):  # Slurm does not respond: nothing is known of this cluster
            loaded = load_profile(name, surroundings.profile_folders)
            if loaded.profile.scheduler == "slurm":
                return loaded
    return load_text(text, Path("imported.yaml"), surroundings.profile_folders)


def _plan(
    options: Sequence[LineOption], loaded: LoadedProfile, imported: ImportedScript, surroundings: Surroundings
) -> Plan:
    """Return the plan of the job; nobody is asked about what the profile leaves open.

    Raises:
        UsageError, PlanError: hpcrun submit would refuse it.
    """
    request = read_request(_asked(options, imported, surroundings.cwd))
    check_secrets(request)
    settled = settle(request, loaded, replace(surroundings, choose=None))
    python = PythonEnvironment(request.python or "python3", "of the job")
    return build_plan(settled.request, settled.loaded.profile, python=python, machine=Machine(cpus=1))


def _plain(word: Word, folder: str = "$PWD") -> str:
    """Return a word as text; what a shell will replace stands there as it is written, but for the current folder."""
    texts = (re.sub(r"\$\{(\w+)\}", r"$\1", part.text) if isinstance(part, Unknown) else part.text for part in word)
    return "".join(folder if text == "$PWD" else text for text in texts)


def _asked(options: Sequence[LineOption], imported: ImportedScript, folder: Path) -> dict[str, Any]:
    """Return the fields of the request."""
    words = [_plain(word, str(folder)) for word in imported.program]
    asked: dict[str, Any] = {"script": words[0], "args": tuple(words[1:])}
    for name, value in options:
        if name in _NO_PART_OF_REQUEST:
            continue
        field = _FIELDS[name]
        if value is None:
            asked[field] = True
        elif str(JobRequest.model_fields[field].annotation).startswith("tuple") or field == "sweep":
            asked[field] = (*asked.get(field, ()), _plain(value, str(folder)))
        else:
            text = _plain(value, str(folder))
            is_number = JobRequest.model_fields[field].annotation == (int | None) and text.isdecimal()
            asked[field] = int(text) if is_number and field not in ("walltime_s", "memory_mb", "warn_s") else text
    if imported.sweep_file:
        rows = list(csv.DictReader(io.StringIO(imported.sweep_file)))
        asked["sweep"] = tuple(tuple(row.items()) for row in rows)
    return asked


def _without_defaults(
    options: Sequence[LineOption], loaded: LoadedProfile, imported: ImportedScript, surroundings: Surroundings
) -> tuple[LineOption, ...]:
    """Return --no-sbatch for what the profile would add to the job, and the script does not ask for."""
    plan = _plan(options, loaded, imported, surroundings)
    said = {option.name for option in imported.asked}
    said |= {"mem" for name in said if name.startswith("mem-")}
    sbatch = loaded.profile.sbatch
    added = [key for key, _ in plan.directives if key not in said and (key in _BY_PROFILE or key in sbatch)]
    return tuple(("--no-sbatch", (Known(key),)) for key in added)


def _neutral_text(imported: ImportedScript) -> str:
    """Return a profile that adds nothing of its own, but nodes with as many GPUs as the script asks for."""
    sizes = imported.sizes
    lines = [
        f"extends: {_BASE}",
        *([f"gpu: {{per_node: {sizes.gpus}, directive: {sizes.form or 'gres'}}}"] if sizes.gpus else []),
    ]
    return "\n".join([*lines, *_runtime(imported), ""])


def _runtime(imported: ImportedScript) -> list[str]:
    in_pyxis = any(option == "--container" for option, _ in imported.options)
    return ["container: {runtime: pyxis}"] if in_pyxis else []


def _profile_text(imported: ImportedScript, base: str | None, name: str) -> str:
    """Return a profile with what is the same for all jobs of the site."""
    lines = [f"# Written by hpcrun import from {flow(name)}.", f"extends: {base or _BASE}"]
    options: Mapping[str, str] = {option: _plain(value) for option, value in imported.options if value}
    lines += [f"{key}: {flow(options[option])}" for option, key in _OF_SITE.items() if option in options]
    sizes = imported.sizes
    if sizes.gpus and base is None:
        lines += ["gpu:", f"  per_node: {sizes.gpus} # as many as the script uses; a node may have more",
                  f"  directive: {sizes.form or 'gres'}"]  # fmt: skip
    modules = [_plain(value) for option, value in imported.options if option == "--load" and value]
    if modules:
        lines.append(f"modules: {flow(modules)}")
    return "\n".join([*lines, *_runtime(imported), ""])


def _directive_diff(imported: ImportedScript, plan: Plan | None) -> list[str]:
    """Return the #SBATCH options in which the two scripts differ, those of the script with a minus."""
    if plan is None:
        return []
    theirs: dict[str, str | None] = {}
    for option in imported.asked:
        set_directive(theirs, option.name, option.value)
    ours = dict(plan.directives)
    both = [name for name in dict.fromkeys((*theirs, *ours)) if _same(name, theirs) != _same(name, ours)]
    lines = []
    for name in both:
        for sign, values in (("-", theirs), ("+", ours)):
            if name in values:
                lines.append(f"{sign}#SBATCH {_line(name, values[name])}")
    return lines


def _same(name: str, values: Mapping[str, str | None]) -> object:
    """Return the value of a directive as Slurm reads it: 90 and 1:30:00 are the same time."""
    value = values.get(name, "")
    read = {"time": parse_time, "mem": parse_memory}.get(name)
    try:
        return read(value) if read and value else value
    except ValueError:
        return value


def _line(name: str, value: str | None) -> str:
    try:
        return directive_line(name, value)
    except HpcrunError:
        return f"--{name}={value}"


def write_profile(result: ImportResult, path: Path) -> ImportResult:
    """Write the profile of the site, and return the result with its file.

    Raises:
        ProfileError: it could not be written.
    """
    replace_text(path, result.profile_text)
    return replace(result, profile_path=path)
