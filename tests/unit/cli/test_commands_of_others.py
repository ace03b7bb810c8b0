"""Commands of other packages, found by the entry points of what is really installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import REPO, Hpcrun


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip has installed a package with a command."""
    folder = tmp_path_factory.mktemp("site")
    quick = ["--quiet", "--no-deps", "--no-build-isolation", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "install", *quick, "--target", str(folder)]
    subprocess.run([*pip, str(REPO / "tests/data/plugin")], check=True, capture_output=True)
    return folder


def with_help(hpcrun: Hpcrun, *args: str, path: Path) -> str:
    """What a command prints on stdout while a folder is on Python's path."""
    done = hpcrun(*args, env={"PYTHONPATH": str(path)})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("kind", ["dist-info", "egg-info"])
def test_the_command_of_an_installed_package_is_listed_and_runs(
    hpcrun: Hpcrun, site: Path, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "a [folder]"
    shutil.copytree(site, folder)
    if kind == "egg-info":
        info = next(folder.glob("*.dist-info")).rename(folder / "hpcrun_greeting.egg-info")
        (info / "METADATA").rename(info / "PKG-INFO")
    listed = with_help(hpcrun, "--help", path=folder)
    panel = listed.partition("\nOther packages:\n")[2].splitlines()
    assert panel[0] == "  greet      Greet somebody from the folder of the runs."
    own = with_help(hpcrun, "greet", "--help", path=folder).splitlines()
    assert own[0].endswith(" greet [OPTIONS] NAME")
    assert "  NAME        Who is greeted. [required]" in own
    greeting = with_help(hpcrun, "greet", "Ann", path=folder)
    assert greeting == f"Hello Ann, your runs are in {hpcrun.runs}.\n"


def test_a_package_cannot_replace_a_command_and_a_broken_one_breaks_no_help(
    hpcrun: Hpcrun, site: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "site"
    shutil.copytree(site, folder)
    points = next(folder.glob("*.dist-info")) / "entry_points.txt"
    lines = ["status = hpcrun_greeting:greet", "lost = no_such.module:lost", "odd = odd:odd"]
    points.write_text("\n".join(["[hpcrun.commands]", *lines]))
    (folder / "odd.py").write_text("def odd(:")
    (folder / "unreadable.dist-info/entry_points.txt").mkdir(parents=True)
    listed = with_help(hpcrun, "--help", path=folder)
    panel = listed.partition("\nOther packages:\n")[2].splitlines()
    assert [line.rstrip() for line in panel[:3]] == ["  lost", "  odd", ""]
    assert "newest runs" in with_help(hpcrun, "status", "--help", path=folder)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def greet():\n    raise KeyError('x')", "KeyError: 'x'"),
    ],
)
def test_a_broken_command_is_the_fault_of_its_package(
    hpcrun: Hpcrun, site: Path, tmp_path: Path, source: str, reason: str
) -> None:
    folder = tmp_path / "site"
    shutil.copytree(site, folder)
    (folder / "hpcrun_greeting.py").write_text(f"{source}\n")
    done = hpcrun("greet", env={"PYTHONPATH": str(folder)})
    message, hint = done.stderr.splitlines()
    assert done.returncode == 1
    assert message == (
        f"hpcrun: the command greet of the package hpcrun-greeting has failed: {reason}"
    )
    assert hint.startswith("hint: pip install --upgrade hpcrun-greeting, or uninstall it; HPC")


def test_a_package_that_breaks_at_import_breaks_no_help(
    hpcrun: Hpcrun, site: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "site"
    shutil.copytree(site, folder)
    (folder / "broken").mkdir()
    (folder / "broken/__init__.py").write_text("raise RuntimeError('no licence')\n")
    (folder / "broken/part.py").write_bytes(b"\0")
    points = next(folder.glob("*.dist-info")) / "entry_points.txt"
    points.write_text("[hpcrun.commands]\nodd = broken.part:odd\n")
    assert "\n  odd" in with_help(hpcrun, "--help", path=folder)


def test_without_such_a_package_the_metadata_of_packages_are_not_read(hpcrun: Hpcrun) -> None:
    python, *command = hpcrun.argv("--help")
    done = hpcrun.run(python, "-X", "importtime", *command)
    assert "hpcrun.cli.commands" in done.stderr
    assert "importlib.metadata" not in done.stderr
