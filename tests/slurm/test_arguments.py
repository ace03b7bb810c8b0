"""What a rank's sys.argv holds is exactly what was typed, through sbatch, bash and srun."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.harness import Hpcrun

pytestmark = pytest.mark.slurm

any_bytes = st.binary(max_size=12).filter(lambda raw: b"\0" not in raw)
shell_words = st.sampled_from(
    [b"$HOME", b"`id`", b"a b", b"", b"*", b"'", b'"', b"\\", b"\n", b"--", b"-x", b"\xff\xfe", b"!!", b"#"]
)

SHOW = """
import os, sys
with open(sys.argv[1], "wb") as file:
    file.write(b"".join(os.fsencode(arg) + b"\\0" for arg in sys.argv[2:]))
"""


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(args=[b":", b"::", b"a", b":"])  # srun takes a colon for the next component of a job
@given(args=st.lists(any_bytes | shell_words, min_size=1, max_size=12))
def test_arguments_arrive_as_typed(as_researcher: Hpcrun, args: list[bytes]) -> None:
    person = as_researcher
    script, seen = person.folder / "show.py", person.folder / "seen"
    script.write_text(SHOW)
    seen.unlink(missing_ok=True)
    argv = [*person.become, *person.argv("submit", "-P", "a100", "--gpus", "0", "-p", "cpu", "--wait")]
    done = subprocess.run(
        [*argv, str(script), str(seen), *args], env=person.environ, cwd=person.folder, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert seen.read_bytes().split(b"\0")[:-1] == args


def test_variables_arrive_as_typed(as_researcher: Hpcrun) -> None:
    value = b' "$HOME" `id` \\ \xff\n\''
    job = as_researcher.argv("submit", "-P", "a100", "--gpus", "0", "-p", "cpu", "--wait", "--env")
    argv: list[str | bytes] = [*as_researcher.become, *job, b"ODD=" + value, "printenv", "--null", "ODD"]
    subprocess.run(argv, env=as_researcher.environ, cwd=as_researcher.folder, check=True, capture_output=True)
    (log,) = as_researcher.runs.glob("*/elements/0/attempts/0/rank-0.out")
    assert log.read_bytes() == value + b"\0"


def test_the_locale_changes_nothing(as_researcher: Hpcrun, tmp_path: Path) -> None:
    typed = os.fsdecode("grüße €".encode())
    script = as_researcher.folder / "show.py"
    script.write_text(SHOW)
    for locale in ("C", "C.UTF-8"):
        seen = as_researcher.folder / f"seen-{locale}"
        job = ("submit", "-P", "a100", "--gpus", "0", "-p", "cpu", "--wait", str(script), str(seen), typed)
        as_researcher(*job, env={"LANG": locale, "LC_ALL": locale}, check=True)
        assert seen.read_bytes() == "grüße €".encode() + b"\0"
