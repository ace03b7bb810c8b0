"""Options of commands: how each is typed, shown in help, read, written and given in Python.

An option is declared once, as the default of the field that receives its value. The module needs
the standard library alone: ``--help`` imports it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

Reader = Callable[[Any], Any]
"""A value that was typed, recorded or given in Python → the value of the field, or ValueError."""
Writer = Callable[[Any], str | Sequence[str]]
"""The value of a field → the text behind its option; several texts for an option that repeats."""
# the largest number of nodes, ranks or CPUs: more is a mistake, and Slurm counts nodes in 16 bits
MOST = 1_000_000
_OPTION = "option"
_YES = frozenset({"1", "on", "t", "true", "y", "yes"})
_NO = frozenset({"0", "f", "false", "n", "no", "off"})


class WrongTypeError(ValueError):
    """A value is of another kind or too large; a message shows the value behind the reason."""


class WrongItemsError(ValueError):
    """Some values of an option that repeats cannot be read."""

    def __init__(self, items: Sequence[tuple[object, ValueError]]) -> None:
        super().__init__(str(items[0][1]))
        self.items = items


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DeclaredOption:
    """An option: everything that hpcrun knows about it."""

    names: tuple[str, ...]  # ``--nodes`` and ``-N``; none for an argument
    metavar: str | None  # the placeholder of its value; None for a flag
    help: str
    panel: OptionPanel
    read: Reader
    write: Writer = str
    record: Callable[[Any], Any] = lambda value: value  # its value as JSON has it in a run's record
    required: bool = False
    kind: type = str  # what typer reads: bool, int or str
    repeatable: bool = False
    seldom: bool = False  # ``-h`` leaves it out
    # the directive of sbatch that it sets to its value
    directive: str | None = None
    # resubmit adds its values to those of the run; other options replace those of the run
    adds: bool = False
    in_python: bool = True  # the Executor has it as a parameter
    python_name: str | None = None  # the name of the parameter; None for that of the field
    python_help: str | None = None  # what differs from the help there; None if nothing does
    # how a number in Python is typed: ``{}m``; None if it is no text on the command line
    python_number: str | None = None
    complete: Callable[[str], list[str]] | None = None  # what the shell offers for a beginning

    @property
    def name(self) -> str:
        """The name in messages: ``--nodes``, or ``SCRIPT`` for an argument."""
        return self.names[0] if self.names else str(self.metavar)


class OptionPanel:
    """Options that mean something to the same commands, below one title in ``--help``.

    A command names the panels whose options it takes. Several panels may have the same title. The
    methods declare an option as the default of its field.
    """

    def __init__(self, title: str | None) -> None:
        self.title = title

    def option(
        self, form: str, help: str, *, read: Reader, default: Any = None, **attributes: Any
    ) -> Any:
        """Declare an option with a value, or an argument.

        Args:
            form: the names of the option and the placeholder of its value: ``--nodes -N N``.
            help: the text for ``--help``.
            read: reads its value.
            default: the value of the field if the option is not given; MISSING if it must be.
            attributes: other attributes of ``DeclaredOption``.

        Returns:
            The default of a dataclass's field.
        """
        parts = form.split()
        declared = DeclaredOption(
            names=tuple(part for part in parts if part.startswith("-")),
            metavar=next((part for part in parts if not part.startswith("-")), None),
            help=help,
            panel=self,
            read=read,
            required=default is MISSING,
            **attributes,
        )
        return field(default=default, metadata={_OPTION: declared})

    def text(self, form: str, help: str, *, check: Reader = str, **attributes: Any) -> Any:
        """Declare an option whose value is a text, as ``check`` returns it."""
        return self.option(form, help, read=text_reader(check), **attributes)

    def raw_text(self, form: str, help: str, *, check: Reader = str, **attributes: Any) -> Any:
        """Declare an option whose value is a text or a path, in which any bytes may stand."""
        return self.option(form, help, read=raw_text_reader(check), **attributes)

    def directive(self, form: str, help: str, **attributes: Any) -> Any:
        """Declare an option that sets the directive of sbatch with the same name to its value."""
        directive = form.split()[0].removeprefix("--")
        return self.text(form, help, check=not_empty, directive=directive, **attributes)

    def several(
        self, form: str, help: str, *, read_item: Reader | None = None, **attributes: Any
    ) -> Any:
        """Declare an option that repeats; ``read_item`` reads one value, by default a text."""
        read = each(read_item or text_reader(str))
        together = {"write": list, "repeatable": True, **attributes}
        return self.option(form, help, read=read, default=(), **together)

    def number(
        self, form: str, help: str, *, least: int = 1, most: int = MOST, **attributes: Any
    ) -> Any:
        """Declare an option whose value is a whole number between these two."""
        return self.option(form, help, read=whole_number(least, most), kind=int, **attributes)

    def flag(self, form: str, help: str, **attributes: Any) -> Any:
        """Declare an option without a value."""
        return self.option(form, help, read=read_flag, default=False, kind=bool, **attributes)


def option_in(declared: Field[Any]) -> DeclaredOption:
    """Return the option that a field declares."""
    option: DeclaredOption = declared.metadata[_OPTION]
    return option


def options_of(declaring: type[Any]) -> dict[str, DeclaredOption]:
    """Return the options that a dataclass declares: field → option, in the order of ``--help``."""
    return {declared.name: option_in(declared) for declared in fields(declaring)}


# --- reading -------------------------------------------------------------------------------------


def text_reader(check: Reader) -> Reader:
    """Return the reader of a text that is valid UTF-8, as ``check`` returns it."""

    def read(value: object) -> Any:
        # bytes that are not UTF-8 arrive as surrogates
        if not isinstance(value, str) or any("\ud800" <= char <= "\udfff" for char in value):
            raise WrongTypeError("must be a valid string")
        return check(value)

    return read


def raw_text_reader(check: Reader) -> Reader:
    """Return the reader of a text or path with any bytes, as ``check`` returns its text."""

    def read(value: object) -> Any:
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        if not isinstance(text, str):
            raise WrongTypeError("must be a valid string")
        return check(text)

    return read


def each(read_item: Reader) -> Reader:
    """Return the reader of several values, each of which ``read_item`` reads."""

    def read(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
            raise WrongTypeError("must be a valid list")
        items = []
        wrong = []
        for item in value:
            try:
                items.append(read_item(item))
            except ValueError as error:
                wrong.append((item, error))
        if wrong:
            raise WrongItemsError(wrong)
        return tuple(items)

    return read


def whole_number(least: int, most: int) -> Reader:
    """Return the reader of a whole number between these two."""

    def read(value: Any) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError, OverflowError):
            raise WrongTypeError("must be a valid integer") from None
        if not isinstance(value, str) and number != value:
            raise WrongTypeError("must be a valid integer")
        if number < least:
            raise WrongTypeError(f"must be greater than or equal to {least}")
        if number > most:
            raise WrongTypeError(f"must be less than or equal to {most}")
        return number

    return read


def from_text(parse: Reader) -> Reader:
    """Return the reader of a number that is typed in another form; a record has the number."""
    read_number = whole_number(0, 10**18)
    return lambda value: parse(value) if isinstance(value, str) else read_number(value)


def one_of(values: Sequence[str]) -> Reader:
    """Return the reader of one of these words."""
    words = [repr(value) for value in values]
    listed = f"{', '.join(words[:-1])} or {words[-1]}"

    def read(value: object) -> object:
        if value not in values:
            raise WrongTypeError(f"must be {listed}")
        return value

    return read


def read_flag(value: object) -> bool:
    """Return whether a flag is set.

    Raises:
        WrongTypeError: the value is neither yes nor no.
    """
    text = str(value).lower()
    if text not in _YES | _NO:
        raise WrongTypeError("must be a valid boolean")
    return text in _YES


def not_empty(text: str) -> str:
    """Return the text.

    Raises:
        ValueError: the text is empty.
    """
    if not text.strip():
        raise ValueError("is empty")
    return text
