"""Check whether another user could have written the files that hpcrun reads.

The rules are those of sshd's StrictModes and sudo.

Files of profiles, templates and rules, and of runs, become commands that run as hpcrun's user. So
their owner, and the owner of every folder on the path, must be this user, root, or the account that
owns hpcrun's own program (which could change hpcrun itself); and no other user may write to any of
them.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from functools import cache
from pathlib import Path

from hpcrun.errors import ProfileError
from hpcrun.files.reading import NotRegularError, open_regular

_MOST_LINKS = 40  # as Linux: path_resolution(7)
_OTHERS = stat.S_IWOTH
_GROUP = stat.S_IWGRP
_ACL = "system.posix_acl_access"
_PROGRAM = Path(__file__).resolve().parents[1]


class UnsafeFileError(ProfileError):
    """A file that another user could have written."""


def danger_to(path: Path) -> str | None:
    """Return how a user who is not trusted could write to a file or folder, or replace it.

    The result is None if no such user can. Links are followed, and each part of their path is
    checked. Folders above the home folder belong to the system and are not checked.

    Raises:
        OSError: it does not exist, or cannot be checked.
    """
    way = _way(path)
    for number, (place, status) in enumerate(way, 1):
        danger = danger_in(place, status, reads_from=number == len(way))
        if danger and not _is_above_home(place):
            return danger
    return None


def replacer_of(path: Path) -> tuple[Path, str] | None:
    """Return the first folder or link by which anybody could replace a path, and how.

    The result is None if there is none.

    The owner and the group of a folder above are trusted: sites give storage to groups, whose
    members share it.

    Raises:
        OSError: it does not exist, or cannot be checked.
    """
    for place, status in _way(path):
        if stat.S_ISLNK(status.st_mode):
            danger = danger_in(place, status)
        elif status.st_mode & _OTHERS and not status.st_mode & stat.S_ISVTX:
            danger = _writable(place, status)
        else:
            continue
        if danger and not _is_above_home(place):
            return place, danger
    return None


def danger_in_project(path: Path, project: Path) -> str | None:
    """Return how someone who cannot change a project could replace a program in the project.

    The result is None if nobody can.

    Whoever runs a project's scripts trusts its owner and its group. A link in a folder such as /tmp
    is another user's.

    Raises:
        OSError: it does not exist, or cannot be checked.
    """
    trusted = trusted_owners() | {project.stat().st_uid}
    for place, status in _way(path):
        if project.is_relative_to(place):  # the project itself, or a folder above
            continue
        if not place.is_relative_to(project):
            danger = danger_in(place, status, reads_from=False)
            if danger and not _is_above_home(place):
                return danger
        elif status.st_uid not in trusted:
            return f"{place} belongs to another user (uid {status.st_uid})"
        elif _others_can_write(status):
            return _writable(place, status)
    return None


def _others_can_write(status: os.stat_result) -> bool:
    """Whether anybody can write; a link's own mode has no effect."""
    return not stat.S_ISLNK(status.st_mode) and bool(status.st_mode & _OTHERS)


def _writable(place: Path, status: os.stat_result) -> str:
    return f"other users can write to {place} (mode {stat.S_IMODE(status.st_mode):04o})"


def danger_in(path: Path, status: os.stat_result, *, reads_from: bool = True) -> str | None:
    """Return how a user who is not trusted could write to one file or folder.

    The result is None if no such user can.

    Args:
        path: the file or folder, for the text.
        status: the status of this file or folder.
        reads_from: whether any file in this folder would be read. If only one file is read, a
            sticky bit is enough: other users can then add files, but not replace this one.
    """
    if status.st_uid not in trusted_owners():
        return f"{path} belongs to another user (uid {status.st_uid})"
    if stat.S_ISLNK(status.st_mode):  # a link's own mode has no effect
        return None
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX and not reads_from:
        return None
    if status.st_mode & _OTHERS:
        return _writable(path, status)
    if status.st_mode & _GROUP and not _is_private_group(path, status):
        return _writable(path, status)
    return None


def trusted_owners() -> frozenset[int]:
    """Return the users whose files may run as this user. For root, this is only root."""
    me = os.geteuid()
    return frozenset({0} if me == 0 else {me, 0, program_owner()})


@cache
def program_owner() -> int:
    """Return the owner of hpcrun's own program: sites install software with a separate account."""
    return os.stat(_PROGRAM).st_uid


def read_checked(path: Path, most_bytes: int) -> bytes:
    """Read a file that only trusted users can have written.

    The check and the reading use the same open file.

    Returns:
        At most ``most_bytes`` + 1 bytes.

    Raises:
        UnsafeFileError: another user could have written it.
        OSError: it does not exist, or cannot be read; EINVAL if it is not a regular file.
    """
    content, status = read_open(path, most_bytes)
    danger = danger_to(path) or danger_in(path, status)
    if danger is None and not os.path.samestat(status, path.stat()):
        danger = f"{path} was replaced while it was read"
    if danger:
        raise UnsafeFileError(f"{path} is not used: {danger}", hint=way_out(path))
    return content


def read_open(path: Path, most_bytes: int, *, follow: bool = True) -> tuple[bytes, os.stat_result]:
    """Read a regular file, at most ``most_bytes`` + 1 bytes, and its status.

    The status is taken while the file is open.

    Raises:
        OSError: as ``read_checked``; ELOOP for a link if ``follow`` is False.
    """
    try:
        with open_regular(path, links=follow) as file:
            status = os.fstat(file.fileno())
            return file.read(most_bytes + 1), status
    except NotRegularError as error:
        raise OSError(error.errno, "not an ordinary file") from None


def way_out(path: Path) -> str:
    """Return advice about a file that other users can write."""
    return (
        "check its contents, then: chmod go-w (its folders too); or copy it to your own "
        f"folder: cp {shlex.quote(str(path))} ~/"
    )


def _way(path: Path) -> list[tuple[Path, os.stat_result]]:
    """Return every folder and link on the path, and its target, each with its status.

    Raises:
        OSError: if the path has too many links (ELOOP), or a part cannot be checked.
    """
    parts = list(Path(Path.cwd(), path).parts[1:])
    here = Path("/")
    links = 0
    visited = [(here, here.lstat())]
    while parts:
        part = parts.pop(0)
        if part == "..":
            here = here.parent
            continue
        place = here / part
        status = place.lstat()
        visited.append((place, status))
        if not stat.S_ISLNK(status.st_mode):
            here = place
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = Path(os.readlink(place))
        if target.is_absolute():
            here = Path("/")
        parts = [part for part in target.parts if part != "/"] + parts
    return visited


def _is_above_home(place: Path) -> bool:
    import pwd  # only after a problem: on clusters this may ask a server

    try:
        home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return False
    return place in (*home.parents, *home.resolve().parents)


def _is_private_group(path: Path, status: os.stat_result) -> bool:
    """Return whether the group is the user's own, without other members.

    pam_umask(8) sets umask 002 for such users.

    With an access control list, the group's bits show the rights that it gives to others: acl(5).
    """
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    has_name_of_user = group.gr_gid == user.pw_gid and group.gr_name == user.pw_name
    if not has_name_of_user or set(group.gr_mem) - {user.pw_name}:
        return False
    try:
        os.getxattr(path, _ACL)
    except OSError as error:
        return error.errno in (errno.ENODATA, errno.ENOTSUP)
    return False
