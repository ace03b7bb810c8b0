"""``python program_versions.py FOLDER``: write the record ``versions`` into an attempt's folder.

It has the versions of Python, torch, CUDA, cuDNN, NCCL and the driver of NVIDIA, without an import
of any of them. What cannot be read is left out. The program's own Python runs this file, in the
environment of the program, so that it finds the packages that the program would import.
``hpcrun/runs/job_versions.py`` reads the record.
"""

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

RECORD = "versions"
DRIVER = "/proc/driver/nvidia/version"
"""Of the kernel's module: ``NVRM version: NVIDIA UNIX ... Kernel Module ...  550.54.15  ...``."""
_MOST_TEXT = 1 << 16
_VERSION = r"\d[\w.+!-]{0,60}"
_OF_DRIVER = re.compile(rf"Kernel Module(?:\s+for\s+\S+)?\s+({_VERSION})", re.ASCII)
_OF_TORCH = re.compile(
    rf"^(__version__|cuda)(?:\s*:[^=\n]*)?\s*=\s*['\"]({_VERSION})['\"]", re.ASCII | re.MULTILINE
)
_IN_TORCH = {"__version__": "torch", "cuda": "cuda"}


def main() -> None:
    """Write the record; an error is no matter of the job."""
    folder = sys.argv[1]
    os.nice(19)  # the ranks start at the same time
    versions = {"python": "{}.{}.{}".format(*sys.version_info[:3])}
    here = os.path.dirname(os.path.abspath(__file__))
    versions.update(torch_versions([path for path in sys.path if path != here]))
    driver = _OF_DRIVER.search(read(DRIVER))
    if driver:
        versions["driver"] = driver.group(1)
    write(folder, versions)


def torch_versions(path: list[str]) -> dict[str, str]:
    """Return the versions of torch, and of what its build for NVIDIA's GPUs was installed with.

    Args:
        path: the folders in which Python looks for modules.
    """
    text = ""
    for folder in path:
        text = read(os.path.join(folder, "torch", "version.py"))
        if text:
            break
    else:
        return {}
    versions = {_IN_TORCH[match.group(1)]: match.group(2) for match in _OF_TORCH.finditer(text)}
    if "cuda" in versions:
        versions.update(libraries(os.listdir(folder), versions["cuda"].partition(".")[0]))
    return versions


def libraries(names: list[str], cuda: str) -> dict[str, str]:
    """Return the versions of cuDNN and NCCL for a major version of CUDA.

    They are in the names of installed packages: ``nvidia_nccl_cu12-2.21.5.dist-info``. A name that
    is there twice is what is left of an update, and says nothing.
    """
    versions = {}
    for library in ("cudnn", "nccl"):
        package = re.compile(rf"nvidia_{library}_cu{cuda}-({_VERSION})\.dist-info", re.ASCII)
        matches = [match for match in map(package.fullmatch, names) if match]
        if len(matches) == 1:
            versions[library] = matches[0].group(1)
    return versions


def read(path: str) -> str:
    """Return the beginning of a text file, the empty string if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_TEXT)
    except OSError:
        return ""


def write(folder: str, versions: Mapping[str, str]) -> None:
    """Write the record at once; without json, which is slow to import.

    A job that ends in this instant kills this program: no other file may be left of it.
    """
    members = ", ".join(f'"{name}": "{version}"' for name, version in versions.items())
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    descriptor = os.open(os.path.join(folder, RECORD), flags, 0o644)
    try:
        os.write(descriptor, f"{{{members}}}\n".encode())
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main()
