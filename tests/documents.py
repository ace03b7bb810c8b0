"""Whether what a command prints with --json is what its JSON Schema in docs/schemas says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match

from hpcrun.cli.commands import COMMANDS, GROUPS

SCHEMAS = Path(__file__).resolve().parents[1] / "docs/schemas"
MOST = 1 << 20
"""Characters of a document: a longer one is of a sweep with thousands of elements, all alike."""


def schema_file(command: str) -> str:
    return f"{command.replace(' ', '-')}.json"


def check_printed(args: Sequence[str], stdout: str) -> None:
    """Check the document of a command line; there is none if it has no --json, or failed early."""
    command = command_of(args)
    if "--json" not in args or command is None or not stdout.startswith("{") or len(stdout) > MOST:
        return
    try:
        document = json.loads(stdout)
    except ValueError:  # the program's own --json
        return
    if errors := errors_in(command, document):
        raise AssertionError(
            f"hpcrun {' '.join(args)}: docs/schemas/{schema_file(command)} says otherwise:\n"
            + "\n".join(errors)
        )


def command_of(args: Sequence[str]) -> str | None:
    """The name of the command in a command line."""
    for number, word in enumerate(args):
        if word in GROUPS:
            return " ".join(args[number : number + 2])
        if word in COMMANDS:
            return word
    return None


def errors_in(command: str, document: dict[str, Any]) -> list[str]:
    """What is wrong with a document, by the schema of its command that allows no other fields."""
    errors: list[list[str]] = []
    for validator in validators(command):
        kind = validator.schema["properties"].get("kind", {}).get("const")
        if kind == document.get("kind"):
            found = [*map(in_words, validator.iter_errors(document))]
            if not found:
                return []
            errors.append(found)
    if not errors:
        return [f"no document of kind {document.get('kind')!r}"]
    return min(errors, key=len)


def in_words(error: ValidationError) -> str:
    inner = best_match(error.context) if error.context else None
    detail = f" ({inner.message[:300]})" if inner else ""
    return f"{error.json_path}: {error.message[:300]}{detail}"


@cache
def validators(command: str) -> list[Draft202012Validator]:
    """The validators of each document that a command may print."""
    schema = json.loads((SCHEMAS / schema_file(command)).read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    strict = closed(schema)
    definitions = strict.get("$defs", {})
    return [Draft202012Validator({**choice, "$defs": definitions}) for choice in strict["anyOf"]]


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """A copy of a schema whose objects have the named fields alone."""
    copy = deepcopy(schema)
    for part in parts(copy):
        if "properties" in part and part.get("type") == "object":
            part.setdefault("additionalProperties", False)
    return copy


def parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from parts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from parts(inner)
