"""Every command with all its options, as one page and as man pages.

click-man and mkdocs-click find no options here: typer has a click of its own. So the commands are
walked as their own ``--help`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer
from typer.main import get_command

from dev.reference import markdown
from hpcrun.cli.commands import COMMANDS, EXAMPLES, GROUPS
from hpcrun.cli.help_page import HelpRow, command_sections, parameter_sections, usage_words
from hpcrun.cli.main import build_app
from hpcrun.features.skill.schema import commands_with_documents, documents_of
from hpcrun.version import __version__


@dataclass(frozen=True, slots=True)
class CommandHelp:
    """What ``--help`` shows of a command or a group."""

    name: str  # hpcrun scale plan
    usage: str
    paragraphs: list[str]
    sections: dict[str, list[HelpRow]]  # heading → arguments, options, or commands of a group
    examples: list[tuple[str, str]]  # a line to type, and what it does

    @property
    def man_name(self) -> str:
        """The name of the file of its man page."""
        return f"{self.name.replace(' ', '-')}.1"


@cache
def all_commands() -> tuple[CommandHelp, ...]:
    """Return hpcrun itself, then each command and group, by name."""
    return tuple(_walk("hpcrun", get_command(build_app(list(COMMANDS)))))


def _walk(name: str, command: Any) -> Iterator[CommandHelp]:
    context = typer.Context(command, info_name=name, **command.context_settings)
    sections = dict(parameter_sections(command, context))
    if name == "hpcrun":
        sections |= _first_words()
    else:
        sections |= command_sections(command)
        sections["Options"] = [row for row in sections["Options"] if row.name.strip() != "--help"]
    yield CommandHelp(
        name=name,
        usage=" ".join(usage_words(command, name)),
        paragraphs=[" ".join(part.split()) for part in (command.help or "").split("\n\n")],
        sections={heading: [*rows] for heading, rows in sections.items() if rows},
        examples=EXAMPLES.get(name.removeprefix("hpcrun "), []),
    )
    for inner, below in sorted(getattr(command, "commands", {}).items()):
        yield from _walk(f"{name} {inner}", below)


def _first_words() -> dict[str, list[HelpRow]]:
    """Return the commands and groups below the headings of ``hpcrun --help``."""
    sections: dict[str, dict[str, HelpRow]] = {}
    for name, command in COMMANDS.items():
        first = name.split()[0]
        row = HelpRow(first, "", GROUPS.get(first) or command.help)
        sections.setdefault(command.panel, {})[first] = row
    return {panel: [*rows.values()] for panel, rows in sections.items()}


# --- the page ---


def page() -> str:
    """Return the page of all options."""
    lines = markdown.head("All options")
    lines += ["What `--help` shows, of every command. [The commands](commands.md) lead here.", ""]
    documented = commands_with_documents()
    for command in all_commands():
        lines += [f"## {command.name}", ""]
        for paragraph in command.paragraphs:
            lines += [markdown.plain(paragraph), ""]
        lines += ["```text", command.usage, "```", ""]
        name = command.name.removeprefix("hpcrun ")
        if name in documented:
            lines += [_documents(name), ""]
        for heading, rows in command.sections.items():
            cells = [(markdown.code(_label(row)), markdown.plain(row.description)) for row in rows]
            lines += markdown.table([heading, ""], cells)
        if command.examples:
            lines.append("```sh")
            for line, purpose in command.examples:
                lines += [f"# {purpose}", line]
            lines += ["```", ""]
    return "\n".join(lines)


def _documents(name: str) -> str:
    """Return where the JSON Schema of a command's documents is, and their kinds."""
    kinds = dict.fromkeys(shape.get("kind") for shape in documents_of(name, COMMANDS[name]))
    names = "".join(f", `{kind}`" for kind in kinds if kind)
    return f"JSON: [schema](schemas/{name.replace(' ', '-')}.json){names}"


def _label(row: HelpRow) -> str:
    return row.name.strip() + row.placeholder


# --- man pages ---


def man_page(command: CommandHelp) -> str:
    """Return the man page of a command, for groff."""
    title = command.man_name.removesuffix(".1")
    summary, *more = command.paragraphs
    lines = [
        f'.TH "{_roff(title.upper())}" "1" "" "hpcrun {__version__}" "User Commands"',
        ".SH NAME",
        f"{_roff(title)} \\- {_roff(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        f"\\fB{_roff(command.name)}\\fR{_roff(command.usage.removeprefix(command.name))}",
    ]
    if more:
        lines.append(".SH DESCRIPTION")
    for paragraph in more:
        lines += [".PP", _roff(paragraph)]
    for heading, rows in command.sections.items():
        lines.append(f'.SH "{_roff(heading.upper())}"')
        for row in rows:
            lines += [".TP", f"\\fB{_roff(row.name.strip())}\\fR{_roff(row.placeholder)}"]
            lines.append(_roff(row.description))
    if command.examples:
        lines.append(".SH EXAMPLES")
    for line, purpose in command.examples:
        lines += [".PP", f"{_roff(purpose)}:", ".PP", ".nf", f"    {_roff(line)}", ".fi"]
    lines += [".SH SEE ALSO", ",\n".join(_see_also(command))]
    return "\n".join([*lines, ""])


def _see_also(command: CommandHelp) -> list[str]:
    """Return the pages above and below a command, and for hpcrun itself all others."""
    names = []
    for other in all_commands():
        is_below = other.name.startswith(f"{command.name} ")
        is_above = command.name.startswith(f"{other.name} ")
        if is_below or is_above:
            names.append(f"\\fB{_roff(other.man_name.removesuffix('.1'))}\\fR(1)")
    return names


def _roff(text: str) -> str:
    """Return a text that groff prints as it is."""
    text = re.sub(r"`([^`]+)`", r"\1", text)
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace('"', "\\(dq")
    text = text.replace("^", "\\(ha").replace("~", "\\(ti").replace("`", "\\(ga")
    # a line that begins with a dot is a request
    return f"\\&{text}" if text.startswith(".") else text
