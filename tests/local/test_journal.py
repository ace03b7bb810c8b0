"""hpcrun -v, HPCRUN_DEBUG, and the log of what hpcrun did that lies in every run's folder."""

from __future__ import annotations

import json
import re

import pytest

from tests.harness import Hpcrun

TOLD = re.compile(r"hpcrun: \d\d:\d\d:\d\d .*supervisor\.py .*: exit status 0, \d+\.\d{3} s")


@pytest.mark.parametrize(("option", "env"), [(["-v"], {}), ([], {"HPCRUN_DEBUG": "1"}), ([], {})])
def test_every_command_is_told_on_stderr_and_stdout_stays_as_it_is(
    hpcrun: Hpcrun, option: list[str], env: dict[str, str]
) -> None:
    done = hpcrun(
        *option, "submit", "-P", "local", "--gpus", "0", "--json", "true", env=env, check=True
    )
    assert (TOLD.search(done.stderr) is not None) is bool(option or env)
    folder = hpcrun.runs / json.loads(done.stdout)["run_id"]
    log = (folder / "hpcrun.log").read_text().splitlines()
    assert re.search(rf" submit: hpcrun [\d.]+ on \S+ in {re.escape(str(hpcrun.folder))}$", log[0])
    assert re.search(r" submit: .*supervisor\.py .*: exit status 0, ", log[1])
