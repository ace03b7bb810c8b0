"""Namespaces of one's own for a worker of tests: in them it starts a Slurm cluster that meets no
other.

A cluster takes names that are the machine's: a bridge, network namespaces, lines of /etc/hosts,
ports. Several workers can have one each where each has its own network, mounts and host name.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# clone(2), sched.h: os.unshare and os.setns came with Python 3.12
_FLAGS = {"mnt": 0x00020000, "uts": 0x04000000, "ipc": 0x08000000, "net": 0x40000000}
_OWN_FOLDER = 0x00000200  # CLONE_FS
_SETUP = """
set -e
mount --make-rprivate /
# inside another of these: nothing can be mounted on its deleted file
if grep --quiet '//deleted /etc/hosts ' /proc/self/mountinfo; then umount /etc/hosts; fi
mount --bind "$1" /etc/hosts
mkdir -p /run/netns
mount -t tmpfs -o mode=755 tmpfs /run/netns
ip link set lo up
"""


class Namespaces:
    """Namespaces that a thread enters and leaves; they go when the process ends.

    Raises:
        OSError: this user may not make them.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        hosts = Path(tempfile.mkstemp(prefix="hpcrun-hosts-")[1])
        hosts.chmod(0o644)
        shutil.copyfile("/etc/hosts", hosts)
        self._outside = self._current()
        self._check(self._libc.unshare(sum(_FLAGS.values())))
        self._inside = self._outside
        try:
            subprocess.run(["bash", "-c", _SETUP, "bash", hosts], check=True, capture_output=True)
            self._inside = self._current()
        finally:
            self._enter(self._outside)
            hosts.unlink()  # the mount keeps it

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be inside for a while: this thread, and all that it starts meanwhile."""
        self._enter(self._inside)
        try:
            yield
        finally:
            self._enter(self._outside)

    def _enter(self, descriptors: dict[str, int]) -> None:
        folder = os.getcwd()
        # setns(2) refuses mounts to a thread that shares its folder with another, and a test may
        # leave a thread behind
        self._check(self._libc.unshare(_OWN_FOLDER))
        for kind, flag in _FLAGS.items():
            self._check(self._libc.setns(descriptors[kind], flag))
        # setns(2): a change of mounts leads to their top, also out of a chroot
        os.fchdir(descriptors["root"])
        os.chroot(".")
        os.chdir(folder)

    def _check(self, status: int) -> None:
        if status != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    @staticmethod
    def _current() -> dict[str, int]:
        paths = {kind: f"/proc/thread-self/ns/{kind}" for kind in _FLAGS} | {"root": "/"}
        return {kind: os.open(path, os.O_RDONLY | os.O_CLOEXEC) for kind, path in paths.items()}
