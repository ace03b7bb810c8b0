"""docs/schemas has the JSON Schema of every document that --json prints, as this code makes it.

`make golden` writes them anew. A field that the difference takes away breaks somebody's script.
"""

from __future__ import annotations

from typing import Any

import pytest
from typer.main import get_command

from hpcrun.cli.commands import COMMANDS, GROUPS
from hpcrun.cli.main import build_app
from hpcrun.features.skill.schema import commands_with_documents, schema_text
from tests.documents import SCHEMAS, schema_file, validators

DOCUMENTED = commands_with_documents()


def commands_with_json() -> list[str]:
    """The names of the commands that have --json in their help."""
    app: Any = get_command(build_app(COMMANDS))
    commands = dict(app.commands)
    for group in GROUPS:
        in_group = commands.pop(group).commands
        commands |= {f"{group} {name}": command for name, command in in_group.items()}
    return [
        name
        for name, command in commands.items()
        if any("--json" in param.opts for param in command.params)
    ]


def test_every_command_with_json_has_documents_and_no_other() -> None:
    assert sorted(commands_with_json()) == sorted(DOCUMENTED)


@pytest.mark.parametrize("command", DOCUMENTED)
def test_the_schema_in_docs_is_the_one_that_this_code_makes(
    command: str, update_golden: bool
) -> None:
    path = SCHEMAS / schema_file(command)
    made = schema_text(command)
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(made, "utf-8")
    assert path.read_text("utf-8") == made, "make golden, and read the difference"
    assert validators(command)  # by the schema of schemas


def test_every_schema_in_docs_is_of_a_command() -> None:
    known = {schema_file(command) for command in DOCUMENTED}
    assert {path.name for path in SCHEMAS.iterdir()} == known
