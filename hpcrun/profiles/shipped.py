"""The places of the files that hpcrun ships: inside an installed wheel, or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path

from hpcrun.profiles.folder import Folder

_PACKAGE = Path(__file__).resolve().parent.parent


def shipped_folder(kind: str) -> Path:
    """Return the folder of the shipped ``templates`` or ``cluster_profiles``.

    A wheel has them in ``hpcrun/shipped`` (pyproject's force-include); an editable install and a plain
    checkout have them at the top level.
    """
    installed = _PACKAGE / "shipped" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def shipped(kind: str) -> Folder:
    """Return the shipped ``templates`` or ``cluster_profiles``, which are as trustworthy as hpcrun itself."""
    return Folder(shipped_folder(kind), checked=False)
