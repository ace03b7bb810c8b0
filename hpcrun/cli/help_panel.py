"""A panel of ``--help``, and the options that are declared in it."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, cast

import typer


class Declared(NamedTuple):
    """An option of a command: the annotation from which typer makes it, and its default."""

    annotation: Any
    default: Any


class HelpPanel:
    """A panel of ``--help``. Each method declares an option in it, which need not be given."""

    def __init__(self, title: str) -> None:
        self.title = title

    def text(self, *names: str, metavar: str, help: str, complete: Any = None) -> Declared:
        """Declare an option with one value, kept as it is typed."""
        return self._declared(str | None, names, help, metavar, complete)

    def texts(self, *names: str, metavar: str, help: str) -> Declared:
        """Declare an option that may be repeated."""
        return self._declared(list[str] | None, names, help, metavar)

    def number(self, *names: str, metavar: str, help: str) -> Declared:
        """Declare an option with a whole number."""
        return self._declared(int | None, names, help, metavar)

    def flag(self, *names: str, help: str) -> Declared:
        """Declare an option without a value."""
        return self._declared(bool, names, help, default=False)

    def _declared(
        self, type_: Any, names: tuple[str, ...], help: str, metavar: str | None = None, complete: Any = None,
        default: bool | None = None,
    ) -> Declared:  # fmt: skip
        option = typer.Option(
            *names, help=help, rich_help_panel=self.title, metavar=metavar, show_default=False, autocompletion=complete
        )
        return Declared(cast(Any, Annotated)[type_, option], default)
