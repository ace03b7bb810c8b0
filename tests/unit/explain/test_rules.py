"""A mistake in somebody's own rules of explain: its line, and what was meant."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.diagnosis.facts import Cause, Culprit, Diagnosis
from hpcrun.explain.diagnosis.rules import load_rules
from hpcrun.explain.ended import advice
from hpcrun.profiles.yaml_file import MistakesError
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run, write


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("mine:\n  contains: no free seat\n  cuase: x\n", 3, "did you mean 'cause'?"),
        (
            "mine:\n  contains: no free seat\n  zzzzzzzz: x\n",
            3,
            "docs/explain.md has the keys of a rule",
        ),
        (
            "mine:\n  contains: x\n  cause: y\n  level: nonsense\n",
            4,
            "docs/explain.md has the keys of a rule",
        ),
        ("mine:\n  contains: no free seat\n", 1, "docs/explain.md has the keys of a rule"),
    ],
)
def test_a_mistake_is_shown_at_its_line(tmp_path: Path, text: str, line: int, hint: str) -> None:
    path = write(tmp_path / "rules.yaml", text)
    with pytest.raises(MistakesError) as refused:
        load_rules([tmp_path])
    (mistake,) = refused.value.mistakes
    assert mistake.path == path
    assert mistake.line == line
    assert refused.value.hint == hint


def test_advice_names_the_run_and_has_no_word_to_fill_in(tmp_path: Path) -> None:
    places = re.compile(r"(?<![-\w])(JOB|RUN|RANK|NODE|PROFILE|JOBID)(?!\w)")
    rules = load_rules([])
    assert [
        rule.name for rule in rules if places.search(f"{rule.fix} {rule.next}".replace("RANK=", ""))
    ] == []
    told = next(rule for rule in rules if rule.name == "told-to-end")
    item = RunStatus(run(job_id="4711"), tmp_path, LastStatus("FAILED", 0.0, final=True))
    assert advice(item, Diagnosis(Cause(told), Culprit(None))).startswith(
        "`sacct -j 4711 -o State,Reason` "
    )
    nameless = replace(item, run=replace(item.run, job_id=None))  # logs alone
    assert (
        advice(nameless, Diagnosis(Cause(told), Culprit(None)))
        == "with --requeue the record has the reason"
    )
