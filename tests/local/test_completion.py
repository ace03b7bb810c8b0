"""Completion in shells that are not bash, as a person gets it with the tab key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pexpect
import pytest

from tests.harness import REPO, Hpcrun

TCSH = REPO / "packaging/hpcrun.tcsh"


@pytest.fixture
def tcsh(hpcrun: Hpcrun) -> Iterator[Any]:
    """A tcsh that has read the file of the page."""
    env: Any = {**hpcrun.environ, "LANG": "C", "TERM": "xterm"}
    shell = pexpect.spawn("tcsh", ["-f"], env=env, cwd=str(hpcrun.folder), encoding="utf-8")
    shell.timeout = 60
    shell.sendline(f"set prompt='ready> '; source {TCSH}")
    shell.expect("\r?\nready> ")
    yield shell
    shell.close(force=True)


@pytest.mark.needs("tcsh")
def test_tcsh_completes_commands_options_profiles_and_files(hpcrun: Hpcrun, tcsh: Any) -> None:
    hpcrun.write("train.py", "")
    tcsh.send("hpcrun subm\t")
    tcsh.expect("submit ")
    tcsh.send("--gpus-per\t")
    tcsh.expect("--gpus-per-node ")
    tcsh.send("4 --profile v1\t")
    tcsh.expect("v100 ")
    tcsh.send("trai\t")
    tcsh.expect("train.py ")


@pytest.mark.needs("fish")
def test_fish_completes_what_the_program_prints_for_it(hpcrun: Hpcrun) -> None:
    line = "env _HPCRUN_COMPLETE=source_fish hpcrun | source; complete --do-complete 'hpcrun subm'"
    assert hpcrun.run("fish", "-c", line).stdout.startswith("submit")
