"""Faults between a laptop and the cluster, while ``hpcrun --on`` submits: with a real sshd on this
machine.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cluster import wait_for
from fault_site import HPCRUN, Site, Tally

from tests.harness import Hpcrun
from tests.remote import LoginNode, kill_connection, laptop, login_node

_JOB = ("submit", "-P", "cpu", "--cpus", "1", "-t", "5m")
_CODE_MB = 40
ASLEEP_S = 120.0
_USER = "root"


class Reach:
    """A laptop, and a login node of the cluster that can be restarted."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder, self.home = site, folder, folder / "there"
        self.home.mkdir(parents=True)
        (self.home / ".profile").write_text(
            f"export PATH={Path(HPCRUN).parent}:{site.env['PATH']}\n"
        )
        self.node = LoginNode(self.home, 0)
        self._server = contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        """Start its sshd, at the same port as before."""
        wanted = ("SLURM_CONF", "HPCRUN_RUNS")
        environ = {"HOME": str(self.home), **{name: self.site.env[name] for name in wanted}}
        node = login_node(self.home / "sshd", environ, user=_USER, port=self.node.port)
        self.node = self._server.enter_context(node)

    def power_off(self) -> None:
        """Kill all that runs on it: sshd, its sessions and their programs."""
        table = subprocess.run(
            ["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
        ).stdout
        children: dict[int, list[int]] = {}
        for pid, parent in (map(int, line.split()) for line in table.splitlines()):
            children.setdefault(parent, []).append(pid)
        servers = subprocess.run(
            ["pgrep", "-f", f"{self.home}/sshd/sshd_config"], capture_output=True, text=True
        )
        doomed = [int(pid) for pid in servers.stdout.split()]
        for pid in doomed:
            doomed += children.get(pid, [])
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._server.close()

    def copies(self) -> Iterator[Path]:
        """Yield the copies of the code there that have the name of a complete one."""
        for path in (self.home / "hpcrun-code").glob("*/2*"):
            if path.suffix != ".part" and not path.is_symlink():
                yield path


@contextlib.contextmanager
def reach(site: Site, name: str) -> Iterator[tuple[Reach, Hpcrun]]:
    """Begin with a login node, and a laptop that is logged in and has a project of some
    megabytes.
    """
    there = Reach(site, site.folder / name)
    try:
        with laptop(site.folder / name / "laptop", far=there.node) as here:
            here.write("project/train.py", "print('trained')\n")
            here.write("project/large.bin", "").write_bytes(os.urandom(_CODE_MB << 20))
            here.run(*here.argv("login", "far"))
            yield there, here
    finally:
        there.power_off()


def cut_off(site: Site, kills: int) -> list[Tally]:
    """Break the connection, and reboot the login node, at random moments of a submission."""

    def master(there: Reach, here: Hpcrun) -> None:
        del there
        kill_connection(here, "far")

    def reboot(there: Reach, here: Hpcrun) -> None:
        del here
        there.power_off()
        there.start()

    return [
        _interrupted(site.with_runs("runs-master"), "connection", master, max(6, kills // 10)),
        _interrupted(site.with_runs("runs-reboot"), "login node", reboot, max(6, kills // 10)),
    ]


def _interrupted(
    site: Site, what: str, fault: Callable[[Reach, Hpcrun], None], times: int
) -> Tally:
    submitted, bad = 0, []
    with reach(site, what.replace(" ", "-")) as (there, here):
        began = time.monotonic()
        here.run(*here.argv("--on", "far", *_JOB, "train.py"), cwd=here.folder / "project")
        took_s = (time.monotonic() - began) * 2  # some are interrupted after the end
        for number in range(times):
            here.write("project/large.bin", "").write_bytes(os.urandom(_CODE_MB << 20))
            argv = here.argv("--on", "far", *_JOB, "--name", f"cut{number}", "train.py")
            process = subprocess.Popen(
                argv,
                cwd=here.folder / "project",
                env=here.environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            time.sleep(took_s * random.uniform(number / times, (number + 1) / times))
            fault(there, here)
            _, stderr = process.communicate(timeout=120)
            submitted += process.returncode == 0
            if "Traceback" in (text := stderr.decode()) or (
                process.returncode and text.count("hpcrun: ") < 1
            ):
                bad.append(f"cut{number}: exit status {process.returncode}: {text.strip()[-200:]}")
            here.run(*here.argv("login", "far"))
        whole = here.folder / "project/train.py"
        half = [
            str(path)
            for path in there.copies()
            if not filecmp.cmp(whole, path / "train.py", shallow=False)
            or (path / "large.bin").stat().st_size != _CODE_MB << 20
        ]
        site.settle()
    tally = site.tally(f"{what} lost in submit from a laptop, {times} times")
    tally.orphaned += half
    tally.wrong += bad
    if len(site.jobs()) < submitted + 1:
        tally.lost.append(f"{submitted + 1} submits succeeded, {len(site.jobs())} jobs")
    tally.remark = f"{submitted} submitted, {tally.runs - 1} runs"
    return tally


def no_space(site: Site) -> list[Tally]:
    """Submit from a laptop to a login node whose disk is full, and again with space."""
    site = site.with_runs("runs-space")
    with reach(site, "space") as (there, here):
        mount = there.home / "hpcrun-code"
        mount.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_CODE_MB // 2}m", "tmpfs", str(mount)],
            check=True,
        )
        try:
            argv = here.argv("--on", "far", *_JOB, "train.py")
            refused = here.run(*argv, cwd=here.folder / "project", check=False)
            half = [str(path) for path in there.copies()]
            subprocess.run(["mount", "-o", f"remount,size={_CODE_MB * 3}m", str(mount)], check=True)
            here.run(*argv, cwd=here.folder / "project")
            site.settle()
        finally:
            subprocess.run(["umount", "--lazy", str(mount)], check=True)
    tally = site.tally("disk full on the login node")
    tally.orphaned += half
    if refused.returncode == 0 or "No space left on device" not in refused.stderr:
        tally.wrong.append(f"exit status {refused.returncode}: {refused.stderr.strip()[-500:]}")
    return [tally]


def asleep(site: Site) -> list[Tally]:
    """Stop all processes of the laptop for two minutes while it follows a job."""
    site = site.with_runs("runs-asleep")
    with reach(site, "asleep") as (_, here):
        here.write("project/train.py", "import time\ntime.sleep(20)\nprint('trained')\n")
        argv = here.argv("--on", "far", *_JOB, "--follow", "train.py")
        out = here.write("project/out", "")
        with out.open("w") as sink:
            process = subprocess.Popen(
                argv, cwd=here.folder / "project", env=here.environ, stdout=sink, stderr=sink
            )
        wait_for(lambda: "submitted" in out.read_text(), "the job", 60)
        signal_laptop(here, stop=True)
        time.sleep(ASLEEP_S)
        signal_laptop(here, stop=False)
        status = process.wait(60)
        site.settle()
    tally = site.tally(f"laptop asleep for {ASLEEP_S:g} s")
    if status != 0 or "trained" not in out.read_text():
        tally.wrong.append(f"exit status {status}: {out.read_text()[-200:]}")
    return [tally]


def signal_laptop(here: Hpcrun, *, stop: bool) -> None:
    """Stop all processes of the laptop, as it does when it sleeps, or continue them."""
    number = signal.SIGSTOP if stop else signal.SIGCONT
    runtime = f"XDG_RUNTIME_DIR={here.extra['XDG_RUNTIME_DIR']}\0".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if runtime in path.read_bytes() and int(path.parent.name) != os.getpid():
                os.kill(int(path.parent.name), number)
