"""A host's hardware from a tree as the kernel has it, its modules, its quota, and real interpreters
without torch.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.job.plan.job_plan import PythonEnvironment
from hpcrun.machine.host import (
    SCRIPT,
    DriverFacts,
    ModuleFacts,
    PythonFacts,
    Quota,
    Use,
    ask_driver,
    ask_python,
    ask_quota,
    host_facts,
    parse_driver,
    parse_probe,
    parse_quota,
    quota_command,
    try_modules,
)
from tests.shellcheck import complaints
from tests.unit.builders import write


def look(
    root: Path, **env: str
) -> tuple[dict[str, int], dict[str, str], tuple[str, ...], str | None, str | None]:
    facts = host_facts("n1", {"PATH": f"{root}/bin:/usr/bin:/bin", **env}, timeout_s=10, root=root)
    return facts.gpus, facts.hcas, facts.interfaces, facts.modules, facts.problem


def nvidia_smi(root: Path, line: str) -> None:
    write(root / "bin/nvidia-smi", f"#!/bin/sh\n{line}\n").chmod(0o755)


def adapter(root: Path, name: str, state: str, link: str) -> None:
    port = root / "sys/class/infiniband" / name / "ports/1"
    for file, text in (("state", state), ("link_layer", link), ("rate", "200 Gb/sec (4X HDR)")):
        write(port / file, f"{text}\n")


def interface(root: Path, name: str, state: str, *, device: bool) -> None:
    folder = root / "sys/class/net" / name
    write(folder / "operstate", f"{state}\n")
    if device:
        (folder / "device").mkdir()


def test_a_bare_host_has_nothing_and_its_module_system_is_seen(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    assert look(tmp_path, PATH=f"{tmp_path}/bin") == ({}, {}, (), None, None)
    assert look(tmp_path, LMOD_CMD="/opt/lmod")[3] == "Lmod"
    assert look(tmp_path, MODULESHOME="/usr/share/modules")[3] == "Environment Modules"
    write(tmp_path / "etc/profile.d/lmod.sh", "")
    assert look(tmp_path)[3] == "Lmod"


def test_gpus_are_counted_by_model_and_a_driver_that_fails_is_named(tmp_path: Path) -> None:
    nvidia_smi(tmp_path, "echo NVIDIA H100; echo NVIDIA H100")
    assert look(tmp_path)[0] == {"NVIDIA H100": 2}
    nvidia_smi(tmp_path, "echo 'no driver' >&2; exit 9")
    gpus, *_, problem = look(tmp_path)
    assert gpus == {}
    assert problem is not None
    assert problem.endswith(": exit status 9 no driver")


def test_only_active_adapters_and_real_interfaces_count(tmp_path: Path) -> None:
    adapter(tmp_path, "mlx5_1", "1: DOWN", "Ethernet")
    adapter(tmp_path, "mlx5_0", "4: ACTIVE", "InfiniBand")
    interface(tmp_path, "ib0", "up", device=True)
    interface(tmp_path, "eth1", "down", device=True)
    interface(tmp_path, "docker0", "up", device=False)
    _, hcas, interfaces, *_ = look(tmp_path)
    assert hcas == {"mlx5_0": "InfiniBand 200 Gb/sec (4X HDR)"}
    assert interfaces == ("ib0",)


# like Lmod's hierarchy: cuda is there once gcc is loaded
MODULE = """() {
  case $2 in
    gcc/*) LOADED=gcc ;;
    cuda/*)
      if [ "${LOADED-}" != gcc ]; then
        echo "Lmod has detected the following error:  $2 is unknown" >&2
        return 1
      fi ;;
    slow) exec sleep 60 ;;
    *) echo "unknown: $2" >&2; return 1 ;;
  esac
}"""
ENV = {"PATH": "/usr/bin:/bin", "BASH_FUNC_module%%": MODULE}


def test_modules_are_loaded_one_after_the_other_by_names_that_are_no_shell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert try_modules(["gcc/13", "cuda/12.6"], ENV) == ModuleFacts(True, {})
    unknown = "$(touch /tmp/x); a b"
    cuda = "Lmod has detected the following error: cuda/12.6 is unknown"
    facts = try_modules(["cuda/12.6", "gcc/13", unknown], ENV)
    assert facts == ModuleFacts(True, {"cuda/12.6": cuda, unknown: f"unknown: {unknown}"})
    monkeypatch.setattr("hpcrun.machine.host._ANSWER_WITHIN_S", 0.5)
    assert try_modules(["gcc/13", "slow"], ENV).problem == "timed out after 0.5 s"


def test_the_module_command_of_a_site_is_found_by_its_home(tmp_path: Path) -> None:
    """A shell such as tcsh or fish has no function of bash to pass on."""
    if Path("/usr/share/lmod").exists() or Path("/usr/share/modules").exists():
        shown = "this machine has one of its own"
        pytest.skip(shown)
    write(tmp_path / "init/bash", MODULE.replace("() {", "module() {", 1))
    env = {"PATH": "/usr/bin:/bin", "MODULESHOME": str(tmp_path)}
    assert try_modules(["gcc/13", "cuda/12.6"], env) == ModuleFacts(True, {})


def test_a_machine_without_a_module_command() -> None:
    if any(
        Path(file).exists()
        for file in ("/usr/share/lmod", "/usr/share/modules", "/etc/profile.d/modules.sh")
    ):
        pytest.skip("this machine has one")
    assert try_modules(["gcc"], {"PATH": "/usr/bin:/bin"}) == ModuleFacts(False, {})


def test_shellcheck_has_nothing_to_say_of_the_script(tmp_path: Path) -> None:
    path = write(tmp_path / "modules.sh", f"#!/bin/bash\n{SCRIPT}")
    assert complaints(path) == ""


QUOTA = """Disk quotas for user me (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
   nas:/export 104857600* 100000000 110000000 1763700000  81234  0  0  0
      /dev/sda1    1024       0       0       0      12       0       0       0
"""
# a long name stands on a line of its own
LFS = """/lustre/scratch/projects/a-long-name
              [1024]       0    2048       -      10       0      20       -
"""


def test_a_quota_is_read_from_the_line_of_what_is_mounted(subtests: pytest.Subtests) -> None:
    for text, name, quota in (
        (QUOTA, "nas:/export", Quota(Use(104857600, 100000000, 110000000), Use(81234, 0, 0))),
        (QUOTA, "/dev/sda1", Quota(Use(1024, 0, 0), Use(12, 0, 0))),
        (QUOTA, "/dev/sdb1", None),
        (LFS, "/lustre/scratch/projects/a-long-name", Quota(Use(1024, 0, 2048), Use(10, 0, 20))),
        ("nas:/export", "nas:/export", None),
        ("nas:/export a b c d e f g h", "nas:/export", None),
    ):
        with subtests.test(text=text):
            assert parse_quota(text, [name]) == quota


@given(st.text())
def test_any_text_at_all(text: str) -> None:
    parse_quota(text, ["x"])


def test_the_command_is_asked_where_it_is(tmp_path: Path) -> None:
    assert ask_quota(Path("/x"), ["nas:/export"], "nfs", {"PATH": str(tmp_path)}) is None
    write(tmp_path / "quota", f"#!/bin/sh\ncat <<'END'\n{QUOTA}END\nexit 1\n").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/bin"}
    assert ask_quota(Path("/x"), ["nas:/export"], "nfs", env) == parse_quota(QUOTA, ["nas:/export"])
    assert quota_command(Path("/lustre/x"), "lustre")[:2] == ["lfs", "quota"]


# of nvidia-smi 535; only the lines that are read
TABLE = """
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |
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
    write(
        site / "torch-2.9.1.dist-info/METADATA",
        "Metadata-Version: 2.1\nName: torch\nRequires-Python: >=3.10\n",
    )


def asked(venv: Path, *, kernels: bool = True) -> PythonFacts:
    python = PythonEnvironment(f"{venv}/bin/python", "PATH", str(venv))
    return ask_python(python, {"PATH": "/usr/bin:/bin"}, kernels=kernels)


def test_a_python_without_torch(venv: Path) -> None:
    found = asked(venv)
    assert found.version == sys.version_info[:3]
    assert found.torch is None
    assert found.problem is None


def test_torch_is_read_from_its_files_without_importing_it(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_in(venv, "raise ImportError('it was imported')\n")
    found = asked(venv, kernels=False)
    assert found.torch == "2.9.1+cu128"
    assert found.cuda == "12.8"
    assert found.requires_python == ">=3.10"
    assert found.kernels == ()
    assert found.problem is None
    torch_in(venv, "raise ImportError('it was imported')\n", cuda=None)
    assert asked(venv).cuda is None
    assert asked(venv).problem is None
    torch_in(venv, "")
    write(tmp_path / "torch/__init__.py", "")
    monkeypatch.chdir(tmp_path)
    assert asked(venv, kernels=False).torch == "2.9.1+cu128"  # not the folder of that name here


def test_the_kernels_of_torch_are_asked_for_and_one_that_cannot_answer_says_why(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_in(
        venv, "class _C:\n    _cuda_getArchFlags = staticmethod(lambda: 'sm_80 sm_90 compute_90')\n"
    )
    assert asked(venv).kernels == ("sm_80", "sm_90", "compute_90")
    torch_in(venv, "raise ImportError('libcudnn.so.9: no such file')\n")
    found = asked(venv)
    assert found.torch == "2.9.1+cu128"
    assert found.problem == "ImportError: libcudnn.so.9: no such file"
    torch_in(venv, "import time\ntime.sleep(60)\n")
    monkeypatch.setattr("hpcrun.machine.host._IMPORT_WITHIN_S", 1)
    found = asked(venv)
    assert found.torch == "2.9.1+cu128"
    assert found.kernels == ()
    assert found.problem is None


def test_what_is_no_python_and_what_a_site_s_start_up_files_print() -> None:
    for program, says in (
        ("/nowhere/python", "/nowhere/python: No such file or directory"),
        ("/bin/false", "it printed nothing"),
    ):
        found = ask_python(PythonEnvironment(program, "PATH"), {"PATH": "/bin"}, kernels=False)
        assert found.version is None
        assert found.problem == says
    text = 'Welcome to Alpha!\n{"version": [3, 9, 1]}\n[]\n7\n{"torch": "2.3.0", "cuda": "12.1"}\n'
    assert parse_probe(text, None) == PythonFacts((3, 9, 1), "2.3.0", "12.1")


def test_the_driver(tmp_path: Path) -> None:
    assert parse_driver(TABLE, ["9.0", "8.9"]) == DriverFacts("535.104.05", (12, 2), ("9.0", "8.9"))
    assert parse_driver("babble", ["[N/A]"]) == ask_driver({"PATH": str(tmp_path)}) == DriverFacts()
    nvidia_smi(tmp_path, "echo 'NVIDIA-SMI has failed' >&2\nexit 9")
    assert ask_driver({"PATH": f"{tmp_path}/bin:/bin"}) == DriverFacts()


def test_the_driver_and_the_capabilities_of_its_cards_are_asked_for(tmp_path: Path) -> None:
    table = write(tmp_path / "table", TABLE)
    nvidia_smi(tmp_path, f"case $# in 0) cat {table} ;; *) echo 9.0; echo 9.0 ;; esac")
    found = ask_driver({"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert found == DriverFacts("535.104.05", (12, 2), ("9.0", "9.0"))


def test_a_driver_whose_cards_do_not_answer_has_no_capabilities(tmp_path: Path) -> None:
    table = write(tmp_path / "table", TABLE)
    nvidia_smi(tmp_path, f"case $# in 0) cat {table} ;; *) exit 9 ;; esac")
    found = ask_driver({"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert found == DriverFacts("535.104.05", (12, 2))
