"""The facts of a run by section: with what it ran, and where. They come from its records.

``compare`` shows them side by side, and ``explain`` names those that are new. The metrics of a run,
and the files of its snapshot, are not among them: :mod:`hpcrun.actions.runs.code_changes` compares
those of two runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcrun.actions.runs.code_changes import snapshot_folder
from hpcrun.errors import HpcrunError
from hpcrun.job.request.request_line import option_groups
from hpcrun.job.run_paths import RunFolder
from hpcrun.job.text.arguments import ON, arguments_of, program_of
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.recognise_secrets import MASK, is_secret
from hpcrun.runs.attempt import newest_number
from hpcrun.runs.elements import request_of
from hpcrun.runs.job_versions import versions_of
from hpcrun.runs.record import Run, pairs_of
from hpcrun.runs.store import RunStore

Facts = dict[str, str]
"""Name of a fact → its value, as text. Secrets are masked."""
ARGUMENTS = "arguments"
OPTIONS = "options"
ENVIRONMENT = "environment"
NODES = "nodes"
VERSIONS = "versions"
CODE = "code"
SECTIONS = (ARGUMENTS, OPTIONS, ENVIRONMENT, NODES, VERSIONS, CODE)
RECORDED = (NODES, VERSIONS, CODE)
"""The sections in which a fact that a run lacks is unknown.

In the others, such a fact was not given, which is a fact too.
"""
_NOT_OPTIONS = ("--name", "--env", "--wrap")
"""Options that are facts of other sections, or that every run has for itself."""
_OF_SWEEPS = ("--sweep", "--sweep-file", "--array", "--elements", "--max-parallel")
"""Options of a sweep that are no facts of one of its elements."""
_COMMIT_DIGITS = 12
UNCHANGED = "none"
"""The fact ``changes`` of a run whose files were those of its commit."""
NOT_COMPARED = "not compared"
"""A part of the fact ``changes`` of a run of whose changed files not all are known."""


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A fact in which two runs differ; None where a run was not given it."""

    section: str
    name: str
    before: str | None
    after: str | None


def facts_of(
    run: Run, store: RunStore, element: int | None = None, hosts: str | None = None
) -> dict[str, Facts]:
    """Return the facts of a run, or of one element of it, by section.

    Args:
        run: the record of the run.
        store: the runs, of which another may have the snapshot of this run.
        element: the element of a sweep; None for a run that is not a sweep.
        hosts: the nodes, as the run's status has them; None if they are unknown.
    """
    request = request_of(run, element)
    facts = {
        ARGUMENTS: {"program": program_of(request), **arguments_of(request)},
        OPTIONS: _options(run, () if element is None else _OF_SWEEPS),
        ENVIRONMENT: _environment(run.plan),
        NODES: _nodes(run, hosts),
        VERSIONS: _versions(store.folder(run.run_id), element or 0),
        CODE: _code(run, store),
    }
    shown = {}
    for section, values in facts.items():
        shown[section] = {name: HIDER.hide(value) for name, value in values.items()}
    return shown


def differences(before: Mapping[str, Facts], after: Mapping[str, Facts]) -> list[FactDifference]:
    """Return the facts in which two runs differ, in the order of the sections.

    A fact that one of them does not know is no difference.
    """
    different = []
    for section in SECTIONS:
        old = before[section]
        new = after[section]
        for name in {**old, **new}:
            is_unknown = section in RECORDED and not (name in old and name in new)
            if old.get(name) != new.get(name) and not is_unknown:
                different.append(FactDifference(section, name, old.get(name), new.get(name)))
    return different


def _options(run: Run, left_out: Sequence[str]) -> Facts:
    """Return the options of a run; an option that is given several times has all values."""
    options: Facts = {}
    try:
        groups = option_groups(run.request, run.profile_file or run.profile)
    except (AttributeError, KeyError, TypeError, ValueError):  # of another version of hpcrun
        return {"options": "cannot be read"}
    for option, *words in groups:
        if option in _NOT_OPTIONS or option in left_out:
            continue
        value = " ".join(words) or ON
        options[option] = f"{options[option]}, {value}" if option in options else value
    return options


def _environment(plan: Mapping[str, Any]) -> Facts:
    """Return the variables, modules, set-up lines, Python and container of a plan."""
    environment: Facts = {}
    for name, value in (*pairs_of(plan.get("added")), *pairs_of(plan.get("env"))):
        is_hidden = value is None or is_secret(name, str(value))
        environment[name] = MASK if is_hidden else str(value)
    for name in ("modules", "setup"):
        lines = plan.get(name)
        if isinstance(lines, list) and lines:
            environment[name] = "; ".join(map(str, lines))
    for name, part, field in (
        ("Python", "python", "executable"),
        ("container", "container", "image"),
    ):
        record = plan.get(part)
        if isinstance(record, dict) and record.get(field):
            environment[name] = str(record[field])
    return environment


def _nodes(run: Run, hosts: str | None) -> Facts:
    """Return the size and the nodes of a run; what only a script decides is unknown."""
    number = run.node_choice or str(run.nodes)
    gpus = run.gpus_on_node
    nodes = {
        "size": f"{number}×{gpus}" if gpus else number,
        "cluster": str(run.cluster or run.host),
    }
    shape = run.plan.get("shape")
    if isinstance(shape, dict) and shape.get("gpu_type"):
        nodes["GPU"] = str(shape["gpu_type"])
    elif not gpus and not run.plan.get("batch"):
        nodes["GPU"] = "none"
    if hosts:
        nodes["nodes"] = hosts
    return nodes


def _versions(folder: Path, element: int) -> Facts:
    """Return the versions that the newest attempt has recorded."""
    number = newest_number(folder, element)
    return versions_of(RunFolder(folder).element(element).attempt(number)) if number >= 0 else {}


def _code(run: Run, store: RunStore) -> Facts:
    """Return the folder of the code and its commit, which may be those of an earlier run."""
    code = run.code
    if run.code_of:
        with suppress(HpcrunError):
            code = store.load(run.code_of).code
    if not code:
        return {"folder": str(run.cwd)} if run.cwd else {}
    facts = {"folder": str(code["root"])}
    if code["commit"]:
        facts["commit"] = str(code["commit"])[:_COMMIT_DIGITS]
        if code.get("changed", 0) is not None:
            facts["changes"] = _changes(code, run, store)
    return facts


def _changes(code: Mapping[str, Any], run: Run, store: RunStore) -> str:
    """Return which files differed from the commit.

    Each has a digest of its content, so that equal texts are equal files.
    """
    changes = str(code["changes"])
    if not changes:
        return UNCHANGED
    if snapshot_folder(run, store) is not None:  # the files of a copy are compared
        return changes
    digests = code.get("digests", ())
    if not digests:  # of an older hpcrun, or too many
        return f"{changes} ({NOT_COMPARED})"
    return ", ".join(f"{path} ({digest or NOT_COMPARED})" for path, digest in digests)
