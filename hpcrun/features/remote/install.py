"""``hpcrun login --install``: put this version of hpcrun on the host.

The installation goes into a virtual environment on the host, which needs no network.

The wheels travel from here: one made of this installation, and those of its dependencies, for the
Python there.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from hpcrun.cli.output import tell
from hpcrun.errors import PlanError, SchedulerError
from hpcrun.features.remote.connection import Connection, rsh_option
from hpcrun.machine.process import run_command
from hpcrun.profiles.folders import shipped_folder
from hpcrun.version import __version__

INSTALLED = ".local/share/hpcrun/remote"
"""The folder, below the home there, of the versions that are installed in this way."""
_DISTRIBUTION = "hpcrun-slurm"
_MINUTES_S = 900.0
_GLIBC = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")  # from RHEL 8 and Debian 10 on
_FIND_PYTHON = """
for name in python3 python3.13 python3.12 python3.11 python3.10 python3.14; do
  "$name" -c 'import sys, platform, venv; \
print("//", *sys.version_info[:2], platform.machine(), sys.executable) \
if sys.version_info >= (3, 10) else sys.exit(1)' 2>/dev/null && exit 0
done; exit 1
"""

# pip's own wheel is a program: the Python of a cluster may lack ensurepip. The programs of
# hpcrun name their Python in line 1, or in line 2 where the path is too long for the first
_INSTALL = """set -e
cd {folder}
{python} -m venv --clear --without-pip {version}.part
set -- {version}.wheels/pip-*.whl
{version}.part/bin/python "$1/pip" install --quiet --no-index --find-links {version}.wheels \
{version}.wheels/{wheel}
test ! -e {version} || find {version} -delete
mv {version}.part {version}
sed -i '1,2s|{version}.part|{version}|' {version}/bin/hpcrun {version}/bin/hpcrun-slurm
find {version}.wheels -delete
"""


def install_hpcrun(connection: Connection, path: str) -> None:
    """Install this version of hpcrun on a host.

    Args:
        connection: the open connection to the host.
        path: PATH of a login shell there.

    Raises:
        PlanError: there is no Python for it there, or the wheels cannot be downloaded here.
        SchedulerError: the host cannot take or install them.
    """
    major, minor, machine, python = _python_of(connection, path)
    with tempfile.TemporaryDirectory(prefix="hpcrun-wheels-") as name:
        wheels = Path(name)
        wheel = _own_wheel(wheels)
        _download(wheels, wheel, f"{major}.{minor}", machine)
        size = sum(file.stat().st_size for file in wheels.iterdir())
        tell([f"hpcrun: copying {len(list(wheels.iterdir()))} wheels, {size / 1024**2:.0f} MB"])
        folder = connection.make_folder(INSTALLED)
        argv = [
            "rsync",
            "--recursive",
            "--delete",
            rsh_option(connection),
            "--",
            f"{wheels}/",
            f"{connection.host}:{folder}/{__version__}.wheels/",
        ]
        done = run_command(argv, timeout_s=_MINUTES_S, cwd=Path("/"))
        if not done.ok:
            raise SchedulerError(f"the wheels cannot be copied: {done.stderr.strip()[-300:]}")
    script = _INSTALL.format(
        folder=shlex.quote(folder),
        version=__version__,
        python=shlex.quote(python),
        wheel=wheel.name,
    )
    done = connection.run(script, timeout_s=_MINUTES_S)
    if not done.ok:
        raise SchedulerError(
            f"hpcrun cannot be installed on {connection.host}: {done.stderr.strip()[-400:]}"
        )


def _python_of(connection: Connection, path: str) -> tuple[str, str, str, str]:
    """Return the version, the machine and the path of a Python there that can run hpcrun.

    Raises:
        PlanError: the host has no Python 3.10 or later.
    """
    done = connection.run(f"PATH={shlex.quote(path)}\n{_FIND_PYTHON}")
    words = done.stdout.rpartition("//")[2].split()
    if (
        not done.ok
        or len(words) != 4
        or not (words[0] + words[1]).isdigit()
        or not words[2].replace("_", "").isalnum()
    ):
        raise PlanError(
            f"no Python 3.10 or later on {connection.host}",
            hint="a module with one, loaded by your .profile there",
        )
    major, minor, machine, python = words
    return major, minor, machine, python


def _download(wheels: Path, wheel: Path, python: str, machine: str) -> None:
    platforms = [option for name in _GLIBC for option in ("--platform", f"{name}_{machine}")]
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--python-version",
        python,
        *platforms,
        "--dest",
        str(wheels),
        str(wheel),
        "pip",
    ]
    done = run_command(argv, timeout_s=_MINUTES_S, cwd=wheels)  # a project's pip.py is not imported
    if not done.ok:
        raise PlanError(f"the wheels cannot be downloaded here: {done.stderr.strip()[-300:]}")


def _own_wheel(folder: Path) -> Path:
    """Write a wheel of this installation, editable or not, and return its path.

    The format is the one of packaging.python.org, binary distribution format.

    Raises:
        PlanError: this hpcrun is not installed.
    """
    try:
        installed = distribution(_DISTRIBUTION)
    except PackageNotFoundError:
        raise PlanError(
            "this hpcrun is not installed", hint="pip install -e . in its checkout"
        ) from None
    name = f"hpcrun_slurm-{__version__}"
    path = folder / f"{name}-py3-none-any.whl"
    info = f"{name}.dist-info"
    texts = {
        f"{info}/METADATA": installed.read_text("METADATA") or "",
        f"{info}/entry_points.txt": installed.read_text("entry_points.txt") or "",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hpcrun\nRoot-Is-Purelib: true\nTag: "
        "py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        names = []
        for file, target in _own_files():
            wheel.write(file, target)
            names.append(target)
        for target, text in texts.items():
            wheel.writestr(target, text)
            names.append(target)
        wheel.writestr(
            f"{info}/RECORD", "".join(f"{target},,\n" for target in [*names, f"{info}/RECORD"])
        )
    return path


def _own_files() -> Iterator[tuple[Path, str]]:
    """Yield the files of this installation, and their places in a wheel.

    The places are as pyproject's force-include has them.
    """
    package = Path(__file__).resolve().parents[2]
    places = {package: "hpcrun"} | {
        shipped_folder(name): f"hpcrun/shipped/{name}" for name in ("templates", "cluster_profiles")
    }
    for root, target in places.items():
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(set(folders) - {"__pycache__"})
            for name in sorted(files):
                yield (
                    Path(folder, name),
                    f"{target}/{os.path.relpath(os.path.join(folder, name), root)}",
                )
    yield package / "runtime.py", "hpcrun_runtime.py"
