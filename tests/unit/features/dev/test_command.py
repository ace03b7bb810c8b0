"""The job that hpcrun dev submits."""

from __future__ import annotations

import pytest

from tests.harness import Hpcrun


@pytest.mark.parametrize(
    ("options", "serves"),
    [
        ((), "serve 3600)"),
        (("--ssh",), "serve 3600 ssh)"),
        (("--jupyter",), "serve 3600 ssh)"),
        (("--idle", "0"), "serve 0)"),
    ],
)
def test_the_job_lets_ssh_in_for_what_needs_it(
    hpcrun: Hpcrun, options: tuple[str, ...], serves: str
) -> None:
    shown = hpcrun("dev", "--dry-run", "-P", "a100", "-G", "1", *options, check=True)
    (command,) = [line for line in shown.stdout.splitlines() if line.startswith("command=")]
    assert command.endswith(f" hpcrun_dev {serves}")
