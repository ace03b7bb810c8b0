"""The SKILL.md of this version, and writing it where coding agents read it.

The last line of an installed file has the hash of the lines above: by it hpcrun knows whether
anybody has changed the file since.
"""

from __future__ import annotations

import hashlib
import os
import re
from importlib.resources import files
from pathlib import Path

from hpcrun.errors import PlanError, UsageError
from hpcrun.files.reading import read_bytes
from hpcrun.files.writing import make_folder, replace_file
from hpcrun.job.text.quoting import quote_bash
from hpcrun.version import __version__

PLACES = (".claude/skills/hpcrun/SKILL.md", ".agents/skills/hpcrun/SKILL.md")
"""Where agents look for skills, below a project's folder."""
_LAST_LINE = re.compile(
    rb"<!-- written by hpcrun [^\n]*; `hpcrun skill --install` replaces it; (?P<hash>\w{16}) -->\n"
)


def skill_text() -> str:
    """Return the SKILL.md of this version."""
    return files("hpcrun.features.skill").joinpath("SKILL.md").read_text("utf-8")


def install_skill(project: Path) -> dict[Path, bool]:
    """Write SKILL.md below a project's folder, in each place; nothing if one of them is changed.

    Returns:
        the files, and whether each was written; else it was there with this text.

    Raises:
        UsageError: there is no such folder.
        PlanError: a file was changed since hpcrun wrote it, cannot be written, lies outside the
            project through a link, or in the folder of another user.
    """
    if not project.is_dir():
        raise UsageError(f"there is no folder {project}", hint="name the folder of the project")
    text = skill_text()
    last = f"<!-- written by hpcrun {__version__}; `hpcrun skill --install` replaces it; "
    content = f"{text}{last}{_hash(text.encode())} -->\n".encode()
    paths = [project / place for place in PLACES]
    try:
        for path in paths:
            _check_place(path, project)
        is_new = {path: _is_to_write(path, content) for path in paths}
        for path in paths:
            # one place may be a link to the other
            if is_new[path] and _is_to_write(path, content):
                make_folder(path.parent)
                replace_file(path, content, mode=0o644)
    except OSError as error:
        place = error.filename or project
        raise PlanError(f"{place} cannot be written: {error.strerror}") from None
    return is_new


def _check_place(path: Path, project: Path) -> None:
    """Check that a file of the project lies in it, and in folders of its owner or of this user.

    Raises:
        PlanError: a link leads out of the project, or a folder belongs to another user.
        OSError: a folder cannot be checked.
    """
    real = Path(os.path.realpath(path))
    root = Path(os.path.realpath(project))
    hint = f"hpcrun skill >{quote_bash(str(real))} writes it there all the same"
    if not real.is_relative_to(root):
        raise PlanError(f"{path} is {real}, outside the project: nothing was written", hint=hint)
    owners = {os.geteuid(), root.stat().st_uid}
    for part in (real, *real.parents):
        if part == root:
            return
        if part.exists() and part.stat().st_uid not in owners:
            raise PlanError(f"{part} belongs to another user: nothing was written", hint=hint)


def _is_to_write(path: Path, content: bytes) -> bool:
    """Return whether a file lacks this content.

    Raises:
        PlanError: it has content that hpcrun did not write.
        OSError: it cannot be read.
    """
    if not os.path.lexists(path):
        return True
    present = read_bytes(path)
    if present == content:
        return False
    *lines, last = present.splitlines(keepends=True) or [b""]
    match = _LAST_LINE.fullmatch(last)
    if match is None or match["hash"].decode() != _hash(b"".join(lines)):
        raise PlanError(
            f"{path} was changed since hpcrun wrote it, or hpcrun did not write it",
            hint=f"see the difference: hpcrun skill | diff {quote_bash(str(path))} -",
        )
    return True


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
