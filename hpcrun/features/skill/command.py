"""hpcrun skill."""

from __future__ import annotations

from pathlib import Path

from hpcrun.cli.commands import COMMANDS
from hpcrun.cli.context import make_context
from hpcrun.cli.options import argument, check_one_of, flag, option
from hpcrun.cli.output import Outcome, stdout, verbatim
from hpcrun.errors import NotFoundError, UsageError, did_you_mean
from hpcrun.features.skill.install import install_skill, skill_text
from hpcrun.features.skill.schema import commands_with_documents, schema_text
from hpcrun.job.text.quoting import quote_bash
from hpcrun.views.text import one_line, written_line

_PERMISSIONS = {
    "allow": "status explain logs metrics sweep compare history where wait doctor import".split(),
    "ask": ["submit", "resubmit", "cancel", "hold", "release", "scale run", "preflight", "dev"],
    "deny": ["clean"],
}
_DENY_WORDS = ("hpcrun * --yes", "hpcrun * -y", "sbatch", "srun", "salloc", "scancel")


def skill(
    folder: Path | None = argument("DIR", "Project for --install. Default: the current folder."),
    install: bool = flag(
        "--install", "Write SKILL.md below .claude/skills and .agents/skills of DIR."
    ),
    permissions: bool = flag("--permissions", "Print permissions for an agent's settings."),
    schema: str | None = option(
        "--schema COMMAND", "Print the JSON Schema of a command's --json, such as 'profile list'."
    ),
) -> Outcome:
    """Print instructions for coding agents, or install them in a project.

    They are a SKILL.md of this version of hpcrun. --install replaces one that an older
    version has written, and refuses one that was changed since.
    """
    check_one_of(install=install, permissions=permissions, schema=schema)
    if folder is not None and not install:
        raise UsageError("DIR has no effect without --install", hint="add --install")
    if schema is not None:
        return Outcome(lambda: [verbatim(_schema(schema))])
    if permissions:
        return Outcome(lambda: [stdout(permission_lines())])
    if install:
        return _install(make_context(announce=None).cwd / (folder or "."))
    return Outcome(lambda: [verbatim(skill_text())])


def permission_lines() -> list[str]:
    """Return rows of a word and a pattern of command lines: what an agent may run.

    Commands that are not there are left out.
    """
    lines = []
    for rule, names in _PERMISSIONS.items():
        for name in names:
            if name in COMMANDS:
                lines.append(f"{rule:<5}  hpcrun {name} *")
    return [*lines, *(f"deny   {words} *" for words in _DENY_WORDS)]


def _install(project: Path) -> Outcome:
    lines = []
    for path, is_new in install_skill(project).items():
        lines.append(written_line(path) if is_new else one_line(f"same     {path}"))
    return Outcome(
        lambda: [stdout([*lines, "", "For the settings of the agent:", *permission_lines()])]
    )


def _schema(name: str) -> str:
    command = name.replace("-", " ")
    known = commands_with_documents()
    if command not in known:
        hint = did_you_mean(command, known, f"commands with --json: {', '.join(known)}")
        raise NotFoundError(f"{quote_bash(name)} is no command with --json", hint=hint)
    return schema_text(command)
