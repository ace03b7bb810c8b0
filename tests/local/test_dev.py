"""hpcrun dev in a job of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness import Hpcrun

HIDDEN = 'mount --bind /dev/null "$1"; shift; exec "$@"'


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.needs("sshd")
def test_without_sshd_on_the_node_no_job_is_left(hpcrun: Hpcrun) -> None:
    sshd = str(Path("/usr/sbin/sshd").resolve())
    dev = hpcrun.argv("dev", "-P", "local", "--gpus", "0", "--jupyter")
    hidden = ("unshare", "--mount", "sh", "-ec", HIDDEN, "sh", sshd)
    done = hpcrun.run(*hidden, *dev, check=False)
    assert "Jupyter on the node; the job ends after 60m without use" in done.stdout
    assert done.returncode == 4
    assert "there is no sshd on " in done.stderr
    assert "hint: a shell without it: hpcrun dev" in done.stderr
    assert hpcrun.ended()["state"] == "FAILED"
