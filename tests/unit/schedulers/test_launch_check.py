"""Asking srun and torchrun about options: programs of a test's own in their places."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcrun.job.plan.job_plan import PythonEnvironment
from hpcrun.machine.host import torchrun_refusal, uv_refusal
from hpcrun.schedulers.srun_options import mpi_types, parse_mpi_list, srun_refusal
from tests.unit.builders import write

SRUN = """#!/bin/sh
echo asked >>{folder}/asked
for word; do case $word in
  --mpi=list) echo 'MPI plugin types are...'; printf '\\tpmix\\n\\tnone\\n'
    echo 'specific pmix plugin versions available: pmix_v4'; exit;;
  --foo*) echo "srun: unrecognized option '$word'" >&2
    echo 'Try "srun --help" for more information' >&2; exit 255;;
  --vers*) echo 22.05; exit;;
esac; done
{before}
echo 'srun: fatal: No command given to execute.' >&2; exit 1
"""


def env(folder: Path, before: str = "") -> dict[str, str]:
    write(folder / "srun", SRUN.format(folder=folder, before=before)).chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_what_srun_knows_is_taken_and_what_not_is_refused_in_its_words(tmp_path: Path) -> None:
    around = env(tmp_path)
    assert srun_refusal(["--mpi=pmix_v4", "--overlap"], around) is None
    assert srun_refusal(["--foo=1"], around) == "unrecognized option '--foo=1'"
    assert srun_refusal(["--vers"], around) == "it would print text and exit"
    assert (
        srun_refusal(["--mpi=mvapich"], around)
        == "--mpi=mvapich is none of pmix, none, pmix_v4, openmpi"
    )
    assert (
        srun_refusal(
            ["--overlap"],
            env(tmp_path / "fails", "echo 'srun: fatal: no configuration' >&2; exit 1"),
        )
        is None
    )
    assert srun_refusal(["--foo"], {"PATH": str(tmp_path / "none")}) is None
    assert parse_mpi_list("srun: MPI types are...\nsrun: none\nsrun: pmi2\n") == (
        "none",
        "pmi2",
        "openmpi",
    )
    assert parse_mpi_list("something else") == ()


def test_srun_is_asked_once(tmp_path: Path) -> None:
    around = env(tmp_path)
    for _ in range(3):
        assert srun_refusal(["--overlap"], around) is None
    assert (tmp_path / "asked").read_text() == "asked\n"


@pytest.mark.parametrize(
    ("default", "types"),
    [("none", ("pmix",)), ("pmix", ()), ("cray_shasta", ()), (None, ("pmix",))],
)
def test_a_job_needs_an_mpi_type_unless_the_cluster_has_a_default(
    tmp_path: Path, default: str | None, types: tuple[str, ...]
) -> None:
    line = "exit 1" if default is None else f"echo 'MpiDefault              = {default}'"
    write(tmp_path / "scontrol", f"#!/bin/sh\n{line}\n").chmod(0o755)
    assert mpi_types(env(tmp_path)) == types
    assert mpi_types({"PATH": str(tmp_path / "none")}) == ("pmix", "pmi2")


def test_torchrun_is_asked_by_its_own_parser(tmp_path: Path) -> None:
    def refusal(*words: str, python: str = sys.executable) -> str | None:
        return torchrun_refusal(PythonEnvironment(python, "PATH"), words, {"PATH": "/usr/bin:/bin"})

    # one that it takes: tests/local/test_torchrun_options.py; each call imports torch
    said = refusal("--max-restarts=one")
    assert said is not None
    assert "invalid int value: 'one'" in said
    assert refusal("--max-restartz=1", python=str(tmp_path / "python")) is None


def test_a_lock_that_is_old_is_refused_in_uv_s_words(tmp_path: Path) -> None:
    uv, around = (
        write(tmp_path / "uv", "#!/bin/sh\nexit 0\n"),
        {"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    uv.chmod(0o755)
    assert uv_refusal("/p", {"PATH": "/nowhere"}) is uv_refusal("/p", around) is None
    uv.write_text('#!/bin/sh\necho "Using CPython 3.11\nerror: $* is old" >&2; exit 1\n')
    assert uv_refusal("/p x", around) == "error: lock --check --project /p x is old"
