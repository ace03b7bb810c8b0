"""The folder of Ray on a node, with a stub in place of Ray."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from tests.launch.jobs import LAUNCH, job
from tests.launch.ray_stub import write_ray


def test_ray_has_a_folder_that_nobody_foresees(tmp_path: Path) -> None:
    write_ray(tmp_path / "packages", "time.sleep(60)")
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
