"""Reading the file of ``--roles``: YAML with a section for each role below ``roles:``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcrun.errors import UsageError
from hpcrun.files.reading import read_named_text
from hpcrun.job.request.role_options import read_role, with_last_program
from hpcrun.profiles.yaml_file import MAX_BYTES, parse_plain

_FORM = (
    "roles: {server: {nodes: 1, command: 'vllm serve M --port {port}'}, trainer: {nodes: 3, "
    "command: train.py}}"
)


def load_roles_file(path: Path) -> dict[str, Any]:
    """Return the fields of a request with the roles of a file.

    Raises:
        UsageError: the file cannot be read, or has another form; the message names the file.
    """
    where = f"--roles {path}"
    try:
        data = parse_plain(read_named_text(path, MAX_BYTES))
    except ValueError as error:
        raise UsageError(f"{where}: {error}", hint=_FORM) from None
    if isinstance(data, dict) and len(data) == 1:
        sections = data.get("roles")
    else:
        sections = None
    if not isinstance(sections, dict) or not sections:
        raise UsageError(
            f"{where}: it is not one section roles: with a section for each role", hint=_FORM
        )
    roles = []
    for name, fields in sections.items():
        if not isinstance(fields, dict) or "name" in fields:
            raise UsageError(
                f"{where}: role {name} is not a section with nodes or gpus, and command", hint=_FORM
            )
        roles.append(read_role(f"{where}: role {name}", {**fields, "name": name}))
    return with_last_program(roles)
