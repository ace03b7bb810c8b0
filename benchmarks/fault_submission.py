"""Faults of the submission: a full disk, submits that are killed, many at once."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from fault_site import HPCRUN, Site, Tally


def disk_full(site: Site) -> list[Tally]:
    """Submit into a runs folder on a full disk, with less and with more space left than a run takes
    (some 250 KB).
    """
    small = site.with_runs("small/runs")
    mount = site.folder / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)], check=True)
    try:
        small.runs.mkdir(mode=0o700)
        refused = 0
        for free in range(0, 480, 40):
            size = shutil.disk_usage(mount).free - free * 1024
            (mount / "filler").write_bytes(b"x" * max(0, size))
            done = small.run(HPCRUN, "submit", "-P", "cpu", "--cpus", "1", "-t", "5m", "true")
            refused += done.returncode != 0
            (mount / "filler").unlink()
        small.settle()
        # a job whose own records found no room has nothing but Slurm's word
        tally = small.tally("disk full", lambda _: {"COMPLETED", "FAILED"})
        tally.remark = f"12 submits, {refused} refused"
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)
    return [tally]


def killed(site: Site, kills: int) -> list[Tally]:
    """SIGKILL hpcrun submit, alone or with its sbatch, at every moment of its life."""
    took_s = 1.0

    def once(number: int) -> None:
        argv = [
            HPCRUN,
            "submit",
            "-P",
            "cpu",
            "--cpus",
            "1",
            "-t",
            "5m",
            "--name",
            f"kill{number}",
            "true",
        ]
        process = subprocess.Popen(
            argv,
            cwd=site.folder,
            env=site.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(took_s * number / kills + random.uniform(0, took_s / kills))
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if number % 2 else os.kill)(process.pid, signal.SIGKILL)
        process.wait()

    began = time.monotonic()
    for _ in range(3):
        site.run(HPCRUN, "submit", "-P", "cpu", "--cpus", "1", "-t", "5m", "--dry-run", "true")
    took_s = (time.monotonic() - began) / 3 * 2.5  # some are killed after the end
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(once, range(kills)))
    site.settle(300)
    tally = site.tally(f"SIGKILL of submit, {kills} times")
    states = site.states()
    tally.remark = (
        f"{len(states)} runs, of which {list(states.values()).count('NOT_SUBMITTED')} without a job"
    )
    return [tally]


def at_once(site: Site) -> list[Tally]:
    """Fifty submits at once."""
    with ThreadPoolExecutor(50) as pool:
        jobs = list(
            pool.map(
                lambda _: site.submit("-P", "cpu", "--cpus", "1", "-t", "5m", "true"), range(50)
            )
        )
    site.settle(300)
    tally = site.tally("50 submits at once")
    tally.lost += (
        [] if len(set(jobs)) == 50 else [f"{50 - len(set(jobs))} submits gave no job of their own"]
    )
    return [tally]
