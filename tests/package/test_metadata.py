"""What a package index gets and shows: the wheel, the source archive and the README."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
from readme_renderer.markdown import render
from ruamel.yaml import YAML

from hpcrun.version import __version__
from tests.harness import REPO
from tests.package.environments import Dist, tool

PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]


def test_the_index_accepts_both_files_and_renders_the_readme(dist: Dist) -> None:
    twine = [sys.executable, "-m", "twine", "--no-color", "check", "--strict"]
    done = subprocess.run([*twine, dist.wheel, dist.archive], capture_output=True, text=True)
    assert done.stdout.count("PASSED") == 2, done.stdout


def test_the_rendered_readme_has_no_relative_link(dist: Dist) -> None:
    rendered = render(dist.readme)
    assert rendered is not None
    targets = re.findall(r'(?:href|src)="([^"]+)"', rendered)
    assert len(targets) > 20
    for target in targets:
        assert target.startswith(("https://", "#"))
    tag = f"/hpcrun/v{__version__}/docs/pictures/status.svg"
    assert next(target for target in targets if target.endswith(".svg")).endswith(tag)


def test_each_link_of_the_readme_leads_to_a_file_of_the_repository(
    dist: Dist, subtests: pytest.Subtests
) -> None:
    places = re.findall(rf"/hpcrun/(?:blob/)?v{re.escape(__version__)}/([^)#]+)", dist.readme)
    assert len(places) > 20
    for place in set(places):
        with subtests.test(place=place):
            assert (REPO / place).exists()


def test_the_wheel_has_what_a_wheel_should_have_and_no_more(dist: Dist) -> None:
    check = [
        tool("check-wheel-contents"),
        "--config",
        str(REPO / "pyproject.toml"),
        str(dist.wheel),
    ]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    names = ZipFile(dist.wheel).namelist()
    assert [name for name in names if name.endswith(("/LICENSE", "ruff.toml"))] == [
        f"hpcrun_slurm-{__version__}.dist-info/licenses/LICENSE"
    ]
    with tarfile.open(dist.archive) as archive:
        root = f"hpcrun_slurm-{__version__}"
        assert {f"{root}/LICENSE", f"{root}/README.md"} <= set(archive.getnames())


def test_the_metadata_name_each_python_that_the_workflow_tests(dist: Dist) -> None:
    metadata = dist.metadata
    workflow = YAML(typ="safe").load(REPO / ".github/workflows/test.yml")
    assert workflow["jobs"]["python"]["strategy"]["matrix"]["python"] == PYTHONS
    prefix = "Programming Language :: Python :: "
    stated = [text.removeprefix(prefix) for text in metadata.get_all("Classifier", [])]
    assert [text for text in stated if re.fullmatch(r"3\.\d+", text)] == PYTHONS
    assert metadata["Requires-Python"] == f">={PYTHONS[0]}"
    addresses = [text.partition(", ")[0] for text in metadata.get_all("Project-URL", [])]
    assert addresses == ["Homepage", "Documentation", "Changelog", "Issues", "Source"]


@pytest.mark.parametrize(
    ("tag", "account", "refusal"),
    [
        (f"v{__version__}", "somebody", ""),
        (f"v{__version__}", "OWNER", "replace the placeholder"),
        ("v99.0", "somebody", f"the tag v99.0 is not v{__version__}"),
    ],
)
def test_nothing_is_published_before_the_repository_has_an_address(
    tmp_path: Path, tag: str, account: str, refusal: str
) -> None:
    (tmp_path / "hpcrun").mkdir()
    shutil.copy(REPO / "hpcrun/version.py", tmp_path / "hpcrun")
    shutil.copy(REPO / "pyproject.toml", tmp_path)
    replace = ["sed", "-i", f"s/OWNER/{account}/", "pyproject.toml"]
    subprocess.run(replace, cwd=tmp_path, check=True)
    workflow = YAML(typ="safe").load(REPO / ".github/workflows/publish.yml")
    (step,) = [step for step in workflow["jobs"]["build"]["steps"] if "if" in step]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        cwd=tmp_path,
        env={"GITHUB_REF_NAME": tag, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == bool(refusal)
    assert refusal in done.stdout
