"""Programs that start others, handle signals or crash: on this machine they behave as without hpcrun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness import Hpcrun, wait_for
from tests.programs import LAST, RIGHT, SCRIPTS, WAYS, Left


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_it_is_as_without_hpcrun(hpcrun: Hpcrun, name: str, way: str) -> None:
    (hpcrun.folder / name).write_text(SCRIPTS[name])
    submit = ("submit", "-P", "local", "--gpus", "0", "--json", *WAYS[way])
    if name == LAST:
        hpcrun(*submit, name, check=True)
        wait_for(lambda: "ready" in hpcrun("logs", "last").stdout, 30, "the program to listen")
        hpcrun("cancel", "last", check=True)
        wait_for(lambda: "CANCELLED" in hpcrun("status").stdout, 30, "its end")
    else:
        hpcrun(*submit, "--wait", name)
    (run,) = json.loads(hpcrun("status", "--json", "last", check=True).stdout)["runs"]
    assert Left.of(Path(run["folder"])) == RIGHT[name]
    assert run["state"] == {"dies.py": "FAILED", LAST: "CANCELLED"}.get(name, "COMPLETED")
