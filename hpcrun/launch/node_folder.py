"""What the ranks of one node share: a folder on the node's own disk, in which nobody else can write.

``rank-N`` holds the process id of a rank's program, ``stop-REASON`` says that all are to stop, ``heard-N`` that rank
N knows it: it has asked, or was signalled and has a handler; ``warned-N`` and ``ended-N`` that it was sent the
warning, and SIGTERM. So one process of a node looks at the shared file system for all of its ranks, and
hpcrun_runtime.should_stop() looks here.
"""

from __future__ import annotations

import binascii
import os
import stat

from .processes import catches, ignores, signal

FOLDER = "HPCRUN_NODE_DIR"
"""The variable that names it."""


class NodeFolder:
    """The folder of the ranks of this attempt on this node, made where it is not there.

    Raises:
        OSError: it cannot be made, or belongs to somebody else.
    """

    def __init__(self, path: str = "") -> None:
        self.path = path or _path()
        try:
            os.mkdir(self.path, 0o700)
        except FileExistsError:
            found = os.lstat(self.path)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
                raise PermissionError(f"{self.path} is somebody else's") from None

    def put(self, name: str, text: str = "") -> None:
        """Write a file; one that cannot be written is left out: training is worth more."""
        try:
            with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            pass

    def claim(self, name: str) -> bool:
        """Make a file; returns whether it was not there. Whoever makes it does what it stands for."""
        try:
            os.close(os.open(os.path.join(self.path, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as error:
            return not isinstance(error, FileExistsError)
        return True

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        return os.path.exists(os.path.join(self.path, name))

    def is_stopping(self) -> bool:
        """Whether the ranks have been asked to stop."""
        return any(name.startswith("stop-") for name in self._names())

    def note_heard(self, rank: int, pid: int, number: int) -> None:
        """Note that a program learns from a signal that it is to stop: SIGTERM ends whoever has no handler for it."""
        if not ignores(pid, number) if number == signal.SIGTERM else catches(pid, number):
            self.put(f"heard-{rank}")

    def programs(self) -> dict[int, int]:
        """Return the programs that run: rank → process id."""
        found = {}
        for name in self._names():
            if name.startswith("rank-"):
                try:
                    with open(os.path.join(self.path, name), encoding="utf-8") as file:
                        found[int(name[len("rank-") :])] = int(file.read())
                except (OSError, ValueError):  # it has just ended
                    continue
        return found

    def remove(self, *names: str, stays: bool = False) -> None:
        """Remove files, and unless it stays the folder itself where no rank is left in it."""
        for name in names:
            self._unlink(name)
        if stays:
            return
        left = self._names()
        if not any(name.startswith("rank-") for name in left):
            for name in left:
                self._unlink(name)
            try:
                os.rmdir(self.path)
            except OSError:
                return

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except OSError:
            return []

    def _unlink(self, name: str) -> None:
        try:
            os.unlink(os.path.join(self.path, name))
        except OSError:
            return


def _path() -> str:
    env = os.environ
    attempt = f"{binascii.crc32(os.fsencode(env['HPCRUN_ATTEMPT_DIR'])):08x}"  # two clusters may have a job of this id
    parts = (str(os.getuid()), env["HPCRUN_JOB_ID"], env.get("SLURM_STEP_ID", "0"), attempt)
    return os.path.join(env.get("TMPDIR") or "/tmp", "-".join(("hpcrun", *parts, env["HPCRUN_NODE"])))
