"""The page that ``--help`` prints: headings, and names beside their descriptions.

The page has no boxes: agents, pipes and narrow terminals read it as well.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import typer

SELDOM: set[str] = set()
"""The options that ``-h`` leaves out: ``--help`` shows them."""
_NARROWEST = 40
_LONGEST_LABEL = 26
"""A longer name, with its placeholder, has a line of its own: so 80 columns have room for 50 of
text.
"""
_fill = partial(textwrap.fill, break_long_words=False, break_on_hyphens=False)
_HEADING = {"fg": "green", "bold": True}
_NAME = {"fg": "cyan", "bold": True}
_PLACEHOLDER = {"fg": "cyan"}


class HelpRow(NamedTuple):
    """An argument, an option or a command, and its description."""

    name: str  # ``-n, --lines``
    placeholder: str  # of the value of an option: ``N``
    description: str

    @property
    def length(self) -> int:
        """The columns of the name and the placeholder."""
        return len(self.name) + len(self.placeholder)


Sections = Mapping[str, Sequence[HelpRow]]
"""Heading → the rows below it."""


def help_page(command: Any, ctx: Any) -> str:
    """Return the help of a command or a group, as wide as the terminal.

    Args:
        command: a command of typer, with its help, its parameters and its epilog.
        ctx: its context.
    """
    width = max(shutil.get_terminal_size().columns, _NARROWEST)
    parts = [_usage(command, ctx, width)]
    for paragraph in (command.help or "").split("\n\n"):
        parts.append(_fill(paragraph, width))
    parts += _tables(parameter_sections(command, ctx), width)
    parts += _tables(command_sections(command), width)
    parts.append("\n".join(_epilog_lines(command.epilog or "", width)))
    return "\n\n".join(part for part in parts if part)


def _usage(command: Any, ctx: Any, width: int) -> str:
    words = ["Usage:", *usage_words(command, ctx.command_path)]
    text = _fill(" ".join(words), width, subsequent_indent=" " * 8)
    return text.replace("Usage:", _styled("Usage:", _HEADING), 1)


def usage_words(command: Any, path: str) -> list[str]:
    """Return how a command is typed: its path, and its options and arguments."""
    words = [path, command.options_metavar]
    words += [_usage_of(param) for param in command.params if _is_argument(param)]
    if hasattr(command, "commands"):
        words.append(command.subcommand_metavar)
    return words


def _usage_of(argument: Any) -> str:
    """Return an argument as the line of usage has it: ``NAME``, ``[RUN]...``."""
    label = _argument_label(argument)
    if label.startswith("["):  # it has brackets of its own
        return label
    name = label.removesuffix("...")
    if not argument.required:
        name = f"[{name}]"
    return name if argument.nargs == 1 else f"{name}..."


def parameter_sections(command: Any, ctx: Any) -> Sections:
    """Return the arguments and options below the headings of their panels."""
    sections: dict[str, list[HelpRow]] = {"Arguments": [], "Options": []}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is None:  # it is hidden
            continue
        description = " ".join(record[1].split())
        if _is_argument(param):
            row = HelpRow(_argument_label(param), "", description)
            heading = param.rich_help_panel or "Arguments"
        else:
            row = HelpRow(_option_names(param), _placeholder(param, ctx), description)
            heading = param.rich_help_panel or "Options"
        sections.setdefault(heading, []).append(row)
    return sections


def command_sections(group: Any) -> Sections:
    """Return the commands of a group below the headings of their panels."""
    sections: dict[str, list[HelpRow]] = {}
    for name, command in getattr(group, "commands", {}).items():
        first_line = (command.help or "").partition("\n")[0]
        heading = command.rich_help_panel or "Commands"
        sections.setdefault(heading, []).append(HelpRow(name, "", first_line))
    return sections


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _argument_label(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _option_names(option: Any) -> str:
    """Return the names of an option, with a column for the short ones: ``-n, --lines``."""
    names = sorted((*option.opts, *option.secondary_opts), key=len)
    text = ", ".join(names)
    has_short = len(names[0]) == 2
    return text if has_short else f"    {text}"


def _placeholder(option: Any, ctx: Any) -> str:
    """Return a blank and the placeholder of an option's value; nothing of one without a value."""
    if option.is_flag or option.count:
        return ""
    if option.metavar:
        return f" {option.metavar}"
    if option.type_descriptor.is_choice:  # of another package's command
        return f" {option.display_type(ctx)}"
    return f" {option.name.upper()}"


def _tables(sections: Sections, width: int) -> list[str]:
    """Return each heading with its rows; all descriptions begin in the same column."""
    longest = min(_LONGEST_LABEL, width // 3)
    lengths = [0]
    for rows in sections.values():
        lengths += [row.length for row in rows if row.length <= longest]
    column = 4 + max(lengths)
    tables = []
    for heading, rows in sections.items():
        lines = [_styled(f"{heading}:", _HEADING)]
        for row in rows:
            lines += _row_lines(row, column, width)
        if rows:
            tables.append("\n".join(lines))
    return tables


def _row_lines(row: HelpRow, column: int, width: int) -> list[str]:
    label = "  " + _styled(row.name, _NAME) + _styled(row.placeholder, _PLACEHOLDER)
    indent = " " * column
    text = _fill(row.description, width, initial_indent=indent, subsequent_indent=indent)
    if row.length > column - 4:
        return [label, text]
    gap = " " * (column - 2 - row.length)
    return [label + gap + text.lstrip()]


def _epilog_lines(epilog: str, width: int) -> Iterable[str]:
    """Yield the lines of an epilog; indented lines, which are examples, stay as they are."""
    for line in epilog.splitlines():
        if line.startswith(" "):
            yield line
        elif line.endswith(":"):
            yield _styled(line, _HEADING)
        else:
            yield _fill(line, width)


def _styled(text: str, style: Mapping[str, Any]) -> str:
    if text and _has_colours():
        return typer.style(text, **style)
    return text


def _has_colours() -> bool:
    """Return whether stdout is a terminal that shows colours, and the user has not refused them."""
    is_dumb = os.environ.get("TERM", "dumb") in ("dumb", "unknown")
    return sys.stdout.isatty() and not is_dumb and not os.environ.get("NO_COLOR")
