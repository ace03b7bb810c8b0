"""What doctor found, as it is shown."""

from __future__ import annotations

import pytest

from hpcrun.features.doctor.check import PROFILE, PYTHON, SLURM, Check, Checkup
from hpcrun.features.doctor.command import checkup_json, checkup_text

LONG = "a folder that compute nodes see too, unless this one is exported to them by somebody who knows how"
FOUND = Checkup(
    "mine",
    (
        Check(SLURM, "commands", "green", "all"),
        Check(PROFILE, "partition gpu\x1b[2J", "red", "there is no\nsuch \x1b]0;x\x07 partition", "hpcrun profile set"),
        Check(PYTHON, "a name that is longer than any", "yellow", "not checked", LONG),
    ),
)


def test_each_group_each_check_and_what_to_do() -> None:
    assert checkup_text(FOUND, 400).plain.splitlines() == [
        "Slurm", "  ok       commands              all", "Profile mine",
        "  error    partition gpu?[2J     there is no such ?]0;x? partition",
        "                                 fix: hpcrun profile set", "Python",
        "  warning  a name that is longer than any", "                                 not checked",
        f"                                 fix: {LONG}", "1 ok, 1 warning, 1 error",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [80, 60])
def test_it_fits_a_narrow_terminal(width: int) -> None:
    lines = checkup_text(FOUND, width).plain.splitlines()
    assert max(map(len, lines)) <= width + 5
    assert " ".join(" ".join(lines).split()).count(LONG) == 1


def test_json() -> None:
    document = checkup_json(FOUND)
    assert (document["kind"], document["profile"], document["ok"]) == ("doctor", "mine", False)
    assert document["checks"][0] == {
        "group": "Slurm", "name": "commands", "level": "green", "seen": "all", "fix": None
    }  # fmt: skip
    assert checkup_json(Checkup(None, FOUND.checks[::2]))["ok"]
