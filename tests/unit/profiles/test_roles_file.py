"""The file of --roles: a section for each role."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.errors import UsageError
from hpcrun.profiles.roles_file import load_roles_file
from tests.unit.builders import write

GOOD = """
roles:
  server: {nodes: 1, command: 'serve.py --port {port}'}
  trainer: {nodes: 3, command: train.py}
"""


def test_each_section_is_a_role_and_the_last_has_the_program(tmp_path: Path) -> None:
    fields = load_roles_file(write(tmp_path / "roles.yaml", GOOD))
    assert [role.name for role in fields["roles"]] == ["server", "trainer"]
    assert fields["script"] == "train.py"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "--roles {path}: "),
        ("{}", "it is not one section roles: with a section for each role"),
        ("[]", "it is not one section roles:"),
        ("roles: {}", "it is not one section roles:"),
        ("roles: [server]", "it is not one section roles:"),
        ("roles: {a: {nodes: 1, command: x}}\nother: 1", "it is not one section roles:"),
        ("roles: {server: 1}", "role server is not a section with nodes or gpus, and command"),
        ("roles: {server: {name: x, nodes: 1, command: x}}", "role server is not a section"),
        ("roles: {server: {nodes: x, command: x}}", "role server"),
    ],
)
def test_another_form_is_refused_with_the_file(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path / "roles.yaml", text)
    with pytest.raises(UsageError) as refused:
        load_roles_file(path)
    assert problem.format(path=path) in refused.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--roles {tmp_path}/none: cannot read") as refused:
        load_roles_file(tmp_path / "none")
    assert (refused.value.hint or "").startswith("roles: {server: {nodes: 1, command: ")
