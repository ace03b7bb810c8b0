"""The example of docs/plug-ins.md, and what becomes of plug-ins, installed as real packages."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import REPO, Completed, Hpcrun

PlugIn = Callable[..., Completed]
CODE = re.compile(r"^```(?:toml|python)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """The two files of the page."""
    files = dict(CODE.findall((REPO / "docs/plug-ins.md").read_text("utf-8")))
    assert set(files) == {"pyproject.toml", "hpcrun_budget.py"}
    return files


@pytest.fixture(scope="module")
def site(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip has installed them."""
    source = tmp_path_factory.mktemp("budget")
    for name, text in files.items():
        (source / name).write_text(text)
    folder = tmp_path_factory.mktemp("site")
    quick = ["--quiet", "--no-deps", "--no-build-isolation", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "install", *quick, "--target", str(folder)]
    subprocess.run([*pip, str(source)], check=True, capture_output=True)
    return folder


def with_body(site: Path, folder: Path, body: str) -> Path:
    """Return a copy of the installed package whose command does something else."""
    (info,) = site.glob("*.dist-info")
    target = folder / info.name
    target.mkdir(parents=True)
    for name in ("METADATA", "entry_points.txt"):
        (target / name).write_text((info / name).read_text())
    source = f"import typer\nfrom hpcrun.errors import NotFoundError\ndef budget():\n    {body}\n"
    (folder / "hpcrun_budget.py").write_text(source)
    return folder


def test_the_example_of_the_page_runs(hpcrun: Hpcrun, site: Path) -> None:
    env = {"PYTHONPATH": str(site)}
    hpcrun("submit", "-P", "local", "--gpus", "0", "--wait", "-J", "small", "true", check=True)
    panel = hpcrun("--help", env=env).stdout.partition("\nOther packages:\n")[2]
    assert panel.split("\n")[0].split(maxsplit=1) == [
        "budget",
        "Show the GPU-hours of your runs by name, and what is left.",
    ]
    shown = hpcrun("budget", "--limit", "5", env=env, check=True)
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["0.00", "small"],
        ["5.00", "left", "of", "5"],
    ]
    over = hpcrun("budget", "--limit", "-1", env=env)
    assert over.returncode == 1
    assert over.stderr.splitlines() == [
        "hpcrun: 1.00 GPU-hours too many",
        "hint: hpcrun history --by project",
    ]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return 3", 3),
        ("raise typer.Exit(4)", 4),
        ("raise SystemExit(5)", 5),
        ("raise NotFoundError('none')", 6),
        ("return ['a', 'list']", 0),
        ("return 'a text'", 0),
        ("pass", 0),
    ],
)
def test_a_plug_in_chooses_its_exit_status(
    hpcrun: Hpcrun, site: Path, tmp_path: Path, body: str, status: int
) -> None:
    folder = with_body(site, tmp_path / "other", body)
    done = hpcrun("budget", env={"PYTHONPATH": str(folder)})
    assert done.returncode == status
    assert done.stdout == ""


def test_a_misspelt_plug_in_is_proposed(hpcrun: Hpcrun, site: Path) -> None:
    done = hpcrun("budgte", env={"PYTHONPATH": str(site)})
    assert done.returncode == 2
    assert "did you mean hpcrun budget?" in done.stderr
    done = hpcrun("budget", "--limti", "5", env={"PYTHONPATH": str(site)})
    assert "did you mean --limit?" in done.stderr


def test_a_broken_plug_in_is_named_and_its_traceback_can_be_seen(
    hpcrun: Hpcrun, site: Path, tmp_path: Path
) -> None:
    folder = with_body(site, tmp_path / "other", "raise KeyError('hours')")
    env = {"PYTHONPATH": str(folder)}
    done = hpcrun("-v", "budget", env=env)
    assert "the command budget of the package hpcrun-budget has failed" in done.stderr
    assert "bug in hpcrun" not in done.stderr
    assert "Traceback" in hpcrun("budget", env={**env, "HPCRUN_DEBUG": "1"}).stderr
