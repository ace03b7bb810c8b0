"""What init found, would write and has written, and what to type next."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcrun.actions.profiles.detect_types import accounts_of, gpu_offers
from hpcrun.actions.profiles.edit import FileChange
from hpcrun.actions.profiles.init import Setup
from hpcrun.schedulers.cluster_facts import ClusterFacts
from hpcrun.views.text import one_line


def cluster_lines(facts: ClusterFacts) -> list[str]:
    """Return what a cluster is, in a few lines."""
    name, version = facts.config.get("ClusterName", "unknown"), facts.config.get("SLURM_VERSION", "of unknown version")
    gpus = [f"{offer.type or 'GPU'} ({offer.nodes} × {offer.per_node})" for offer in gpu_offers(facts)]
    lines = [f"cluster    {name}, Slurm {version}", f"GPUs       {', '.join(gpus) or 'none'}"]
    accounts = accounts_of(facts)
    return [one_line(line) for line in [*lines, *([f"accounts   {', '.join(accounts)}"] if accounts else [])]]


def setup_lines(setup: Setup, kept: Path | None) -> list[str]:
    """Return what has been written, and where the old text of the profile is kept."""
    lines = []
    if setup.profile:
        label = "unchanged" if not setup.profile.changed else "changed" if setup.profile.before else "written"
        lines.append(f"{label:<9}  {setup.profile.path}")
    if kept:
        lines.append(f"kept       {kept}, the profile until now")
    instead = f" instead of {setup.instead_of}" if setup.instead_of else ""
    lines.append(f"default    {setup.name}{instead}, in {setup.config.path}")
    if setup.runs:
        lines.append(f"runs       {setup.runs}")
    if setup.outdated:
        keys = ", ".join(setup.outdated)
        lines.append(f"note       the profile has other values than Slurm reports for {keys}; hpcrun init --force")
        lines.append("           replaces it by the detected profile, and keeps the old file")
    return [one_line(line) for line in lines]


def files_lines(setup: Setup) -> list[str]:
    """Return what would be written: the text of a new file, the difference of one that exists."""
    lines: list[str] = []
    for change in setup.files:
        if not change.changed:
            lines.append(one_line(f"# {change.path}: unchanged"))
        elif change.before is None:
            lines += [one_line(f"# {change.path}:"), *change.after.splitlines()]
        else:
            lines += diff_lines(change)
    return lines


def diff_lines(change: FileChange) -> list[str]:
    """Return the difference between a file as it is and as it should be."""
    before, after = (change.before or "").splitlines(), change.after.splitlines()
    names = f"{change.path} (now)", f"{change.path} (new)"
    return [one_line(line) for line in difflib.unified_diff(before, after, *names, lineterm="", n=1)]


def next_lines(commands: Sequence[tuple[str, str]]) -> list[str]:
    """Return the commands to type next, each with what it does."""
    width = max(len(command) for command, _ in commands)
    heads = ["next", *[""] * (len(commands) - 1)]
    return [f"{head:<9}  {command:<{width}}  # {what}" for head, (command, what) in zip(heads, commands, strict=True)]


def setup_json(setup: Setup) -> dict[str, Any]:
    """Return what is to be written as a JSON document."""
    return {
        "kind": "init",
        "profile": setup.name,
        "scheduler": "slurm" if setup.profile else "local",
        "runs": setup.runs,
        "instead_of": setup.instead_of,
        "outdated": list(setup.outdated),
        "written": False,
        "files": [
            {"path": str(change.path), "changed": change.changed, "before": change.before, "text": change.after}
            for change in setup.files
        ],
    }
