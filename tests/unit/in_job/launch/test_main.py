"""How the parts inside a job start: what they leave to programs of their environment."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from tests.unit.in_job.attempts import LAUNCH, Attempt


def output(attempt: Attempt, text: str, **env: str) -> list[str]:
    """Return the words that a rank prints which runs a text of a shell."""
    attempt.launch("rank", "--", "sh", "-c", text, **env)
    return attempt.text("rank-3.out").split()


@pytest.mark.parametrize(
    ("env", "locale"), [({}, "none"), ({"LC_CTYPE": "C.UTF-8"}, "C.UTF-8")], ids=["none", "given"]
)
def test_a_program_does_not_get_python_s_locale(
    attempt: Attempt, env: dict[str, str], locale: str
) -> None:
    argv = [LAUNCH[0], "-SB", *LAUNCH[2:], "rank", "--", "sh", "-c", "echo ${LC_CTYPE-none}"]
    subprocess.run(argv, env={**attempt.env, "LC_ALL": "", **env}, check=True)
    assert attempt.text("rank-3.out") == f"{locale}\n"


@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o644), (0o077, 0o600)])
def test_hpcrun_s_umask_is_not_that_of_its_programs(
    attempt: Attempt, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        assert output(attempt, "umask") == [f"{umask:04o}"]
    finally:
        os.umask(before)
    assert stat.S_IMODE((attempt.folder / "rank-3.exit").stat().st_mode) == mode


IGNORED = "grep SigIgn /proc/self/status"


@pytest.mark.parametrize("numbers", [[], [int(signal.SIGHUP), int(signal.SIGQUIT)]], ids=str)
def test_a_program_ignores_the_signals_of_its_script(attempt: Attempt, numbers: list[int]) -> None:
    env = {"HPCRUN_IGNORED_SIGNALS": " ".join(map(str, numbers))}
    mask = int(output(attempt, IGNORED, **env)[1], 16)
    of_interest = (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)
    assert [number for number in of_interest if mask >> (number - 1) & 1] == numbers


@pytest.mark.parametrize(("words", "shown"), [((":", "::"), ": ::"), (("::", ":::"), ": ::")])
def test_colons_that_were_hidden_from_srun_come_back(
    attempt: Attempt, words: tuple[str, str], shown: str
) -> None:
    env = {"HPCRUN_COLONS": "1"} if words[0] == "::" else {}
    attempt.launch("rank", "--", "echo", *words, **env)
    assert attempt.text("rank-3.out") == f"{shown}\n"


def test_a_check_becomes_its_program_on_this_node(attempt: Attempt) -> None:
    env = {"SLURMD_NODENAME": "n7", "SLURM_NODEID": "2"}
    attempt.env.pop("HPCRUN_NODE_ADDR")
    show = "echo $HPCRUN_NODE $HPCRUN_NODE_ADDR $HPCRUN_NODE_RANK; exit 4"
    done = attempt.launch("check", "--", "sh", "-c", show, **env)
    assert (done.returncode, done.stdout) == (4, "n7 n7 2\n")


def test_a_check_that_cannot_start_is_said(attempt: Attempt) -> None:
    done = attempt.launch("check", "--", "no-such-program")
    assert done.returncode == 127
    assert done.stderr == "hpcrun: cannot start no-such-program: No such file or directory\n"


@pytest.mark.parametrize(
    ("part", "copy", "is_compiled"),
    [
        pytest.param("job", "programs/launch", True, id="job"),
        pytest.param("pack", "programs/launch", True, id="pack"),
        pytest.param("rank", "programs/launch", False, id="of many"),
        pytest.param("job", "elsewhere/launch", False, id="of a person"),
    ],
)
def test_one_process_compiles_for_all_ranks_of_a_version(
    attempt: Attempt, part: str, copy: str, is_compiled: bool
) -> None:
    folder = attempt.run / copy
    folder.mkdir(parents=True)
    shutil.copy(Path(LAUNCH[-1], "__main__.py"), folder)
    (folder / "processes.py").write_text("raise SystemExit(3)")
    program = [*LAUNCH[:-1], str(folder / "__main__.py"), part]
    assert subprocess.run(program, env=attempt.env).returncode == 3
    assert (folder / "__pycache__").exists() == is_compiled
