"""What `python -m dev.size` counts."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dev.density import density_of, paths
from dev.size import Graph, Source, arrows, circles, imports_of, read_limits, rooms, upward
from dev.syntax import bound_names
from tests.harness import REPO

TEXT = '''"""A module."""

import os  # counted

# not counted


def first(word, *, size=1):
    """Say so."""
    for found in word:
        size += found if found else size if size else 0
    return [part for part in word if part and size]
'''


def test_a_circle_is_found_whatever_leads_into_it() -> None:
    graph: Graph = {
        "start": {"a"},
        "a": {"b"},
        "b": {"c", "leaf"},
        "c": {"a"},
        "leaf": set(),
        "other": {"start"},
    }
    assert circles(graph) == [["a", "b", "c"]]


def _source(module: str, text: str) -> Source:
    return Source(f"{module.replace('.', '/')}.py", module, False, ast.parse(text))


def test_relative_imports_count_and_those_of_a_function_are_lazy() -> None:
    modules = {name: _source(name, "") for name in ("h", "h.a", "h.a.b", "h.a.c", "h.d")}
    text = "from . import c\nfrom ..d import name\nimport h.a\ndef f():\n    from .. import d\n"
    statements = list(imports_of(_source("h.a.b", text), modules))
    assert [(statement.module, statement.is_lazy) for statement in statements] == [
        ("h.a.c", False),
        ("h.d", False),
        ("h.a", False),
        ("h.d", True),
    ]


def test_an_import_that_goes_up_or_to_an_equal_is_found_and_an_ignored_one_is_not() -> None:
    graph: Graph = {
        "h.top": {"h.left.x", "h.low"},
        "h.left.x": {"h.right", "h.low", "h.left.y"},
        "h.left.y": set(),
        "h.right": {"h.top"},
        "h.low": {"h.right"},
        "elsewhere": {"h.top"},
    }
    layers = ["h.top", "h.left | h.right", "h.low"]
    assert upward(graph, layers, []) == [
        "h.left.x -> h.right",
        "h.low -> h.right",
        "h.right -> h.top",
    ]
    ignored = ["h.left.* -> h.right", "h.low -> h.right", "h.right -> h.top"]
    assert upward(graph, layers, ignored) == []


def test_rooms_are_folders_and_files_on_top_and_an_arrow_leads_from_room_to_room() -> None:
    graph: Graph = {
        "job": set(),
        "job.plan.a": {"job.plan.b", "job.text.x", "job.state", "other"},
        "job.plan.b": {"job.text.y"},
        "job.text.x": set(),
        "job.state": {"job.text.x"},
    }
    assert rooms(graph, "job") == ["job", "plan", "state", "text"]
    assert arrows(graph, "job") == ["plan -> state", "plan -> text", "state -> text"]


def test_density_counts_what_is_read_and_not_how_it_is_laid_out(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(TEXT)
    density = density_of([tmp_path / "one.py"])
    # import, def, for, +=, return
    assert density.count["statements"] == 5
    assert density.count["conditional expressions"] == 2
    assert density.count["nested"] == 1
    assert density.count["long lines"] == 0
    spread = TEXT.replace("(word, *, size=1)", "(\n    word, *, size=1\n)")
    (tmp_path / "two.py").write_text(spread)
    assert density_of([tmp_path / "two.py"]).count["tokens"] == density.count["tokens"]


def test_paths_that_expressions_hide_count() -> None:
    function = ast.parse(TEXT).body[2]
    assert isinstance(function, ast.FunctionDef)
    # itself, the loop, two conditional expressions, the comprehension with its condition, the "and"
    assert paths(function) == 7


def test_limits_are_read_from_their_section_alone() -> None:
    text = (
        "[tool.other]\na = 1\n\n[tool.size]\ntokens = 10\nratio = 1.5 # why\n\n[tool.more]\nb = 2\n"
    )
    assert read_limits(text) == {"tokens": 10.0, "ratio": 1.5}


def test_parameters_and_targets_are_names_that_a_file_binds() -> None:
    names = [name for name, _ in bound_names(ast.parse(TEXT))]
    assert sorted(set(names)) == ["first", "found", "part", "size", "word"]


PLANTED = {
    # job_plan imports sweep
    "hpcrun/job/plan/sweep.py": "from .job_plan import build_plan",
    "hpcrun/job/text/units.py": "from ..script import render_script",
    "hpcrun/in_job/launch/records.py": "from .per_job import pack",
    "hpcrun/files/reading.py": "from hpcrun.runs import store",
}


def test_planted_imports_fail_the_check(tmp_path: Path, subtests: pytest.Subtests) -> None:
    unwanted = shutil.ignore_patterns("__pycache__", "*.svg")
    for folder in ("hpcrun", "dev", "docs"):
        shutil.copytree(REPO / folder, tmp_path / folder, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
        shutil.copy(REPO / name, tmp_path / name)
    for file, line in PLANTED.items():
        with (tmp_path / file).open("a") as planted:
            planted.write(f"\n{line}\n")
    argv = [sys.executable, "-m", "dev.size", "-v", "circles", "upward-imports"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    above = [row.split()[0] for row in done.stdout.splitlines() if "ABOVE" in row]
    assert {"circles", "upward-imports"} <= set(above)
    for upward_import in (
        "hpcrun.job.text.units -> hpcrun.job.script",
        "hpcrun.in_job.launch.records -> hpcrun.in_job.launch.per_job.pack",
        "hpcrun.files.reading -> hpcrun.runs.store",
    ):
        with subtests.test(upward_import=upward_import):
            assert f"  {upward_import}\n" in done.stdout
