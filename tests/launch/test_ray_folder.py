"""The folder of Ray on a node, with a stub in place of Ray."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from tests.launch.jobs import LAUNCH, job

RAY = """
def is_initialized():
    return True
def nodes():
    import os
    return [{"NodeName": os.environ["HPCRUN_NODE"], "Alive": True}]
"""
START = """
import socket, sys, time
def main():
    port = next(word for word in sys.argv if word.startswith("--port="))
    with socket.create_server(("", int(port.partition("=")[2]))):
        time.sleep(60)
"""


def test_ray_has_a_folder_that_nobody_foresees(tmp_path: Path) -> None:
    for name, text in (("__init__", RAY), ("scripts/__init__", ""), ("scripts/scripts", START)):
        path = tmp_path / f"packages/ray/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    prefix = f"hpcrun-node-L{secrets.token_hex(8)}"  # of no job of another session
    env = {
        "PYTHONPATH": str(tmp_path / "packages"),
        "HPCRUN_JOB_ID": prefix.removeprefix("hpcrun-node-"),
    }
    show = ["sh", "-c", f"ls -ld /tmp/{prefix}.*"]
    names = set()
    for number in ("1", "2"):
        with job(tmp_path / number, show, chain=[*LAUNCH, "ray", "--"], env=env) as running:
            assert running.end() == 0, running.err()
            match = re.match(rf"drwx------.* /tmp/{prefix}\.([0-9a-f]{{8}})\n", running.out())
            assert match, running.out()
            names.add(match[1])
    assert len(names) == 2
    assert not [*Path("/tmp").glob(f"{prefix}.*")]
