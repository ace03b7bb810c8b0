"""A command of another package."""

from __future__ import annotations

from typing import Annotated

import typer

from hpcrun.cli.context import make_context


def greet(name: Annotated[str, typer.Argument(help="Who is greeted.")]) -> None:
    """Greet somebody from the folder of the runs."""
    typer.echo(f"Hello {name}, your runs are in {make_context().store.root}.")
