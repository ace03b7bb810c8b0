"""Which folders an environment imports packages from besides its own: what `pip install -e` leaves behind."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpcrun.job.plan import PythonEnvironment
from hpcrun.reading import read_bytes

_IN_QUOTES = re.compile(r"""['"](/[^'"\n]+)['"]""")
_LARGEST = 100_000  # of a file that names folders, in bytes


def editable_folders(python: PythonEnvironment, env: Mapping[str, str]) -> list[Path]:
    """Return the folders outside of site-packages that a Python finds packages in.

    They are named in ``.pth`` files, or in the finder that setuptools writes for some projects; both come after
    PYTHONPATH.
    """
    return [folder for site in _site_folders(python, env) for folder in (*_in_pth(site), *_in_finders(site))]


def _site_folders(python: PythonEnvironment, env: Mapping[str, str]) -> list[Path]:
    found = shutil.which(python.executable, path=env.get("PATH")) or python.executable
    bases = [Path(python.prefix) if python.prefix else Path(found).parent.parent]
    if env.get("HOME"):
        bases.append(Path(env["HOME"], ".local"))
    return [site for base in bases for site in sorted(base.glob("lib/python3*/site-packages"))]


def _in_pth(site: Path) -> Iterator[Path]:
    for line in _lines(site.glob("*.pth")):
        word = line.strip()
        if word and not word.startswith(("#", "import ", "import\t")):  # as site.py reads them
            yield site / word


def _in_finders(site: Path) -> Iterator[Path]:
    for line in _lines(site.glob("__editable__*_finder.py")):
        for package in _IN_QUOTES.findall(line):
            yield Path(package).parent


def _lines(files: Iterator[Path]) -> Iterator[str]:
    for file in sorted(files):
        try:
            yield from read_bytes(file, _LARGEST, links=True).decode("utf-8", "surrogateescape").splitlines()
        except OSError:
            continue
