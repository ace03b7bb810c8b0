"""The versions of Python, torch, CUDA, cuDNN, NCCL and the driver with which an attempt ran."""

from __future__ import annotations

import re

from hpcrun.files import reading
from hpcrun.job.run_paths import AttemptFolder
from hpcrun.runs.attempt import joined_files

NAMES = ("python", "torch", "cuda", "cudnn", "nccl", "driver")
_VERSION = re.compile(r"\d[\w.+!-]{0,60}", re.ASCII)
_MOST_BYTES = 4096


def versions_of(folder: AttemptFolder) -> dict[str, str]:
    """Return name → version of an attempt, in the order of ``NAMES``; unknown ones are left out.

    The first rank writes the record soon after its start: in_job/launch/program_versions.py.
    """
    try:
        record = reading.parse_object(_text(folder))
    except (OSError, ValueError):
        return {}
    versions = {}
    for name in NAMES:
        version = record.get(name)
        if isinstance(version, str) and _VERSION.fullmatch(version):
            versions[name] = version
    return versions


def _text(folder: AttemptFolder) -> str:
    """Return the text of the record; OSError if there is none."""
    try:
        return reading.read_text(folder.versions, _MOST_BYTES)
    except FileNotFoundError:
        return joined_files(folder).get(folder.versions.name, "")
