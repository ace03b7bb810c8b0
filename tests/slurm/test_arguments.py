"""What a rank's sys.argv holds is exactly what was typed, through sbatch, bash and srun."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.harness import Hpcrun

pytestmark = pytest.mark.slurm

any_bytes = st.binary(max_size=12).filter(lambda raw: b"\0" not in raw)
shell_words = st.sampled_from(
    [
        b"$HOME",
        b"`id`",
        b"a b",
        b"",
        b"*",
        b"'",
        b'"',
        b"\\",
        b"\n",
        b"--",
        b"-x",
        b"\xff\xfe",
        b"!!",
        b"#",
    ]
)

SHOW = """
import os, sys
with open(sys.argv[1], "wb") as file:
    file.write(b"".join(os.fsencode(arg) + b"\\0" for arg in [*sys.argv[2:], os.environ["ODD"]]))
"""


@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# srun takes a colon for the next component of a job
@example(args=[b":", b"::", b"a", b":", "grüße €".encode()])
@given(args=st.lists(any_bytes | shell_words, min_size=1, max_size=12))
def test_arguments_and_variables_arrive_as_typed_whatever_the_locale(
    as_researcher: Hpcrun, args: list[bytes]
) -> None:
    person = as_researcher
    script, seen = person.write("show.py", SHOW), person.folder / "seen"
    seen.unlink(missing_ok=True)
    odd = b' "$HOME" `id` \\ \xff\n\''
    job = person.argv("submit", "-P", "a100", "--gpus", "0", "-p", "cpu", "--wait", "--env")
    argv: list[str | bytes] = [*person.become, *job, b"ODD=" + odd, str(script), str(seen), *args]
    locale = {"LANG": "C", "LC_ALL": "C"} if args[0] == b":" else {}
    done = subprocess.run(
        argv, env={**person.environ, **locale}, cwd=person.folder, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert seen.read_bytes().split(b"\0")[:-1] == [*args, odd]
