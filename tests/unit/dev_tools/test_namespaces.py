"""The namespaces of a worker of tests."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.harness import REPO

PROGRAM = """
import os, threading, time
from tests.namespaces import Namespaces
inside = Namespaces()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
here = os.getcwd()
with inside.entered():
    assert os.listdir("/run/netns") == []
assert os.getcwd() == here
"""


NESTED = """
from tests.namespaces import Namespaces
with Namespaces().entered():
    with Namespaces().entered():
        assert "localhost" in open("/etc/hosts").read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes them")
@pytest.mark.parametrize(
    "program", [PROGRAM, NESTED], ids=["with several threads", "inside others"]
)
def test_a_process_enters_them(program: str) -> None:
    """A worker whose cluster has namespaces of its own may be given this file."""
    subprocess.run([sys.executable, "-c", program], cwd=REPO, check=True)
