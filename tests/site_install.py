"""An installation of hpcrun for a whole site, as docs/site-install.md describes it: owned by root,
with module files. Its packages are those of the tests' environment: no network is needed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from hpcrun.version import __version__
from tests.harness import REPO, SYSTEM_PATH, Completed, Hpcrun

PAGE = REPO / "docs" / "site-install.md"
LMOD = "/usr/share/lmod/lmod/init/bash"
LEFT_OUT = (".git", ".venv*", "build", "tests", "benchmarks", "__pycache__", ".*_cache")


@dataclass(frozen=True)
class Site:
    """A folder in place of /opt/hpcrun, and the source of the version that comes next."""

    root: Path

    @property
    def modules(self) -> Path:
        """The folder for MODULEPATH."""
        return self.root / "modules"

    @property
    def tcl_modules(self) -> Path:
        """The same with the files for Environment Modules, which Lmod reads, too."""
        return self.root / "tcl-modules"

    @property
    def config(self) -> Path:
        """The site's configuration."""
        return self.root / "etc/config.yaml"

    def install(self, version: str, source: Path = REPO) -> None:
        """Install a version with the commands of the page, and bring its packages."""
        wheels = self.root / "wheels" / version
        build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(source)]
        run(sys.executable, *build)
        env = {
            "PATH": f"{Path(sys.executable).parent}:{SYSTEM_PATH}",
            "PIP_NO_DEPS": "1",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
        }
        for block in commands_of_page():
            text = block.replace("/opt/hpcrun", str(self.root))
            run("bash", "-euc", text.replace(f"V={__version__}", f"V={version}"), env=env)
        copy_packages(next(self.root.glob(f"{version}/venv/lib/python3.*/site-packages")))
        self._write_module("hpcrun.lua", self.modules / f"hpcrun/{version}.lua")
        self._write_module("hpcrun.tcl", self.tcl_modules / f"hpcrun/{version}")

    def _write_module(self, name: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        text = (REPO / "packaging/modules" / name).read_text("utf-8")
        target.write_text(text.replace("/opt/hpcrun", str(self.root)))

    def hpcrun(self, person: Hpcrun, *args: str, module: str = "hpcrun") -> Completed:
        """Run hpcrun as a person who loads the module."""
        line = 'source "$0"; module use "$1"; module load "$2"; shift 2; exec hpcrun "$@"'
        argv = ["bash", "-c", line, LMOD, str(self.modules), module, *args]
        # not the checkout, which the tests show to their user
        env = {"HPCRUN_SITE": None, "PYTHONPATH": None}
        return person.run(*argv, env=env, check=False)


def commands_of_page() -> list[str]:
    """The blocks of shell commands of the section Install."""
    section = PAGE.read_text("utf-8").partition("## Install")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert f"V={__version__}" in "".join(blocks)
    return blocks


def run(*argv: str, env: dict[str, str] | None = None) -> None:
    """Run a program in the checkout; a failure has its output."""
    done = subprocess.run(argv, cwd=REPO, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def copy_packages(target: Path) -> None:
    """Copy all packages that hpcrun requires from the tests' environment."""
    done: set[str] = set()
    wanted = ["hpcrun-slurm"]
    while wanted:
        name = wanted.pop()
        if name in done:
            continue
        done.add(name)
        package = distribution(name)
        if name != "hpcrun-slurm":
            copy_package(package, target)
        for text in package.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                wanted.append(requirement.name)


def copy_package(package: Distribution, target: Path) -> None:
    """Copy the files of a package that lie in its site-packages."""
    for file in package.files or ():
        source = Path(str(package.locate_file(file)))
        if ".." not in file.parts and source.is_file():
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / file)  # with its time, by which compiled files are used


def next_version(folder: Path, version: str) -> Path:
    """Return a source whose runs have one field more than those of this version."""
    source = folder / "source"
    shutil.copytree(REPO, source, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    change(source / "hpcrun/version.py", r'__version__ = ".*"', f'__version__ = "{version}"')
    change(
        source / "hpcrun/runs/record.py",
        r"^    # fields that another version of hpcrun wrote$",
        '    of_next: str = "kept"\n\\g<0>',
    )
    return source


def change(path: Path, pattern: str, text: str) -> None:
    """Replace the one place of a file that a pattern finds."""
    changed, number = re.subn(pattern, text, path.read_text("utf-8"), flags=re.MULTILINE)
    assert number == 1, f"{pattern} is {number} times in {path}"
    path.write_text(changed)
