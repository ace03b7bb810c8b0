"""Asking real interpreters what they are; torch is stood in for by packages that say what one would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.job.plan import PythonEnvironment
from hpcrun.schedulers.host import DriverFacts, PythonFacts, ask_driver, ask_python, parse_driver, parse_probe
from tests.unit.given import write

# of nvidia-smi 535; only the lines that are read
TABLE = """
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
"""


@pytest.fixture(scope="session")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def torch_in(venv: Path, init: str, *, cuda: str | None = "12.8") -> None:
    (site,) = venv.glob("lib/python*/site-packages")
    write(site / "torch/__init__.py", init)
    write(site / "torch/version.py", f"__version__ = '2.9.1+cu128'\ncuda = {cuda!r}\nhip = None\n")
    write(site / "torch-2.9.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nRequires-Python: >=3.10\n")


def asked(venv: Path, *, kernels: bool = True) -> PythonFacts:
    python = PythonEnvironment(f"{venv}/bin/python", "PATH", str(venv))
    return ask_python(python, {"PATH": "/usr/bin:/bin"}, kernels=kernels)


def test_a_python_without_torch(venv: Path) -> None:
    found = asked(venv)
    assert found.version == sys.version_info[:3]
    assert (found.torch, found.problem) == (None, None)


def test_torch_is_read_from_its_files_without_importing_it(venv: Path) -> None:
    torch_in(venv, "raise ImportError('it was imported')\n")
    found = asked(venv, kernels=False)
    assert (found.torch, found.cuda, found.requires_python) == ("2.9.1+cu128", "12.8", ">=3.10")
    assert (found.kernels, found.problem) == ((), None)


def test_what_its_kernels_are_built_for_is_asked_without_a_gpu(venv: Path) -> None:
    torch_in(venv, "class _C:\n    _cuda_getArchFlags = staticmethod(lambda: 'sm_80 sm_90 compute_90')\n")
    assert asked(venv).kernels == ("sm_80", "sm_90", "compute_90")


def test_a_torch_that_cannot_be_imported_says_why(venv: Path) -> None:
    torch_in(venv, "raise ImportError('libcudnn.so.9: no such file')\n")
    found = asked(venv)
    assert (found.torch, found.problem) == ("2.9.1+cu128", "ImportError: libcudnn.so.9: no such file")


def test_an_import_that_takes_too_long_costs_only_the_kernels(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch_in(venv, "import time\ntime.sleep(60)\n")
    monkeypatch.setattr("hpcrun.schedulers.host._IMPORT_WITHIN_S", 1)
    found = asked(venv)
    assert (found.torch, found.kernels, found.problem) == ("2.9.1+cu128", (), None)


def test_a_build_without_cuda_is_not_imported(venv: Path) -> None:
    torch_in(venv, "raise ImportError('it was imported')\n", cuda=None)
    assert (asked(venv).cuda, asked(venv).problem) == (None, None)


def test_a_folder_called_torch_here_is_not_the_job_s(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_in(venv, "")
    write(tmp_path / "torch/__init__.py", "")
    monkeypatch.chdir(tmp_path)
    assert asked(venv, kernels=False).torch == "2.9.1+cu128"


@pytest.mark.parametrize(
    ("program", "says"),
    [("/nowhere/python", "/nowhere/python: No such file or directory"), ("/bin/false", "it printed nothing")],
)
def test_what_is_no_python(program: str, says: str) -> None:
    found = ask_python(PythonEnvironment(program, "PATH"), {"PATH": "/bin"}, kernels=False)
    assert (found.version, found.problem) == (None, says)


def test_what_a_site_s_start_up_files_print_is_passed_over() -> None:
    text = 'Welcome to Alpha!\n{"version": [3, 9, 1]}\n[]\n7\n{"torch": "2.3.0", "cuda": "12.1"}\n'
    assert parse_probe(text, None) == PythonFacts((3, 9, 1), "2.3.0", "12.1")


def test_the_driver(tmp_path: Path) -> None:
    assert parse_driver(TABLE, "9.0\n8.9\n") == DriverFacts("535.104.05", (12, 2), ("9.0", "8.9"))
    assert parse_driver("babble", "[N/A]\n") == DriverFacts()
    assert ask_driver({"PATH": str(tmp_path)}) == DriverFacts()
    smi = write(tmp_path / "nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed' >&2\nexit 9\n")
    smi.chmod(0o755)
    assert ask_driver({"PATH": f"{tmp_path}:/bin"}) == DriverFacts()
