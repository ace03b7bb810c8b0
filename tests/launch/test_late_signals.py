"""A signal that reaches a wrapper only after its program, or the program's own wrapper, has ended of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

WRAPPER = """
import os, signal, sys, threading, time
from hpcrun.launch.processes import hear, start, wait
hear()
pid = start(["sh", "-c", sys.argv[1]], os.environ)
late = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGTERM))
late.start()
found = wait([pid], lambda info: print("heard", info.si_signo, flush=True))
print(found[1])
late.join()
"""


@pytest.mark.parametrize("program", ["kill -TERM $$", "exit 143"], ids=["a program", "a wrapper"])
def test_a_signal_that_comes_after_the_end_that_it_made_is_heard(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", WRAPPER, program], capture_output=True, text=True, timeout=30)
    assert done.stdout == "heard 15\n143\n", done.stderr


def test_after_any_other_end_no_signal_is_waited_for() -> None:
    done = subprocess.run([sys.executable, "-c", WRAPPER, "exit 3"], capture_output=True, text=True, timeout=30)
    assert done.stdout == "3\n", done.stderr
