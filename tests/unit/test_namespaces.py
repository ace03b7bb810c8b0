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
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes them")


@root
def test_a_process_with_several_threads_enters_them() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=REPO, check=True)


@root
def test_they_can_be_made_inside_others() -> None:
    """A worker whose cluster has namespaces of its own may be given this file."""
    subprocess.run([sys.executable, "-c", NESTED], cwd=REPO, check=True)
