"""Xids: explain and preflight judge by one table."""

from __future__ import annotations

import pytest

from hpcrun.explain.diagnosis.rules import load_rules
from hpcrun.in_job.preflight.grade_checks import FAILED, check_node
from hpcrun.in_job.preflight.xids import NOTE, RESET, WORTH_A_WORD, XIDS
from tests.unit.in_job.preflight.test_judge import cluster

RULES = {rule.name: rule for rule in load_rules([])}


@pytest.mark.parametrize("code", sorted(XIDS))
def test_what_explain_says_of_an_xid_is_what_preflight_says(code: int) -> None:
    kind, meaning = XIDS[code]
    rule = RULES.get(f"xid-{code}")
    assert (rule is None) == (kind == NOTE)
    line = f"[ 12.3] NVRM: Xid (PCI:0000:b4:00): {code}, pid=1896, some words"
    if rule is not None:
        found = rule.match(line.encode(), line)
        assert found is not None
        assert found["gpu"] == "PCI:0000:b4:00"
        assert meaning in rule.cause or code == 94
        assert rule.match(b"NVRM: Xid", line.replace(f": {code},", f": {code}0,")) is None
    _, reports = cluster(2)
    reports["n1"] |= {"errors": {"ecc": None, "rows": None, "xids": [code]}}
    errors = check_node("n1", reports, {}, ())["errors"]
    assert (errors["mark"] == FAILED) == (kind == RESET)
    assert (meaning in errors["text"]) == (kind == RESET or code in WORTH_A_WORD)


def test_codes_that_need_a_reset_by_nvidias_catalogue() -> None:
    named = {46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}  # RESET_GPU there
    assert all(XIDS[code][0] == RESET for code in named)
