"""A mistake in somebody's own rules of explain: its line, and what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.explain.rules import load_rules
from hpcrun.profiles.mistakes import MistakesError
from tests.unit.given import write


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("mine:\n  contains: no free seat\n  cuase: x\n", 3, "did you mean 'cause'?"),
        ("mine:\n  contains: no free seat\n  zzzzzzzz: x\n", 3, "docs/explain.md has the keys of a rule"),
        ("mine:\n  contains: x\n  cause: y\n  level: nonsense\n", 4, "docs/explain.md has the keys of a rule"),
        ("mine:\n  contains: no free seat\n", 1, "docs/explain.md has the keys of a rule"),
    ],
)
def test_a_mistake_is_shown_at_its_line(tmp_path: Path, text: str, line: int, hint: str) -> None:
    path = write(tmp_path / "rules.yaml", text)
    with pytest.raises(MistakesError) as refused:
        load_rules([tmp_path])
    (mistake,) = refused.value.mistakes
    assert (mistake.path, mistake.line, refused.value.hint) == (path, line, hint)
