"""The folder of the ranks of one node, on the node's own disk, in which no other user can write.

``rank-N`` holds the process id of a rank's program. ``stop-REASON`` asks all ranks to stop. ``heard-N`` records that
rank N knows this: it has asked, or was signalled and has a handler. ``warned-N`` and ``ended-N`` record that it was
sent the warning, or SIGTERM. So only one process of a node reads the shared file system for all of its ranks, and
hpcrun_runtime.should_stop() reads this folder.
"""

from __future__ import annotations

import binascii
import os
import stat

from .processes import catches, ignores, signal

FOLDER = "HPCRUN_NODE_DIR"
"""The variable with its path."""


class NodeFolder:
    """The folder of the ranks of this attempt on this node; made if it does not exist.

    Raises:
        OSError: it cannot be made, or belongs to another user.
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
        """Write a file; an error is ignored, since the training must continue."""
        try:
            with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            pass

    def claim(self, name: str) -> bool:
        """Make a file; return whether it is new. The process that makes it does the action that the file stands for."""
        try:
            os.close(os.open(os.path.join(self.path, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as error:
            return not isinstance(error, FileExistsError)
        return True

    def has(self, name: str) -> bool:
        """Whether a file exists."""
        return os.path.exists(os.path.join(self.path, name))

    def is_stopping(self) -> bool:
        """Whether the ranks have been asked to stop."""
        return any(name.startswith("stop-") for name in self._names())

    def note_heard(self, rank: int, pid: int, number: int) -> None:
        """Record that a program learns of the stop from a signal: SIGTERM ends a program without a handler for it."""
        if not ignores(pid, number) if number == signal.SIGTERM else catches(pid, number):
            self.put(f"heard-{rank}")

    def programs(self) -> dict[int, int]:
        """Return the running programs: rank → process id."""
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
        """Remove files, and, unless ``stays``, the folder itself if no rank is left in it."""
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
    attempt = f"{binascii.crc32(os.fsencode(env['HPCRUN_ATTEMPT_DIR'])):08x}"  # two clusters may use this job id
    parts = (str(os.getuid()), env["HPCRUN_JOB_ID"], env.get("SLURM_STEP_ID", "0"), attempt)
    return os.path.join(env.get("TMPDIR") or "/tmp", "-".join(("hpcrun", *parts, env["HPCRUN_NODE"])))
