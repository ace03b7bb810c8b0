"""Which tests run which lines of hpcrun/actions and hpcrun/runs: a plugin of pytest, and the record
that it leaves.

The tests run in a copy of the checkout, `python -m hpcrun` too: the copy is first on PYTHONPATH,
which Hpcrun's own clean environment would leave out.
"""

from __future__ import annotations

import ast
import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage, CoverageData
from coverage.exceptions import CoverageException

from dev.mutants.results import OUT_OF_TIME
from dev.syntax import lines_that_use, statement_lines
from tests.harness import REPO, Hpcrun

ROOMS = ("hpcrun/actions", "hpcrun/runs")
_HANDED_ON = ("PYTHONPATH", "COVERAGE_PROCESS_START", "COVERED_BY")
# the file for the durations and failures of the tests, where they are wanted
_REPORTS = "COVERING_REPORTS"
# the file with the seconds that each test may take, where there are such limits
_LIMITS = "COVERING_LIMITS"

_SETTINGS = """[run]
parallel = true
data_file = {folder}/data
context = ${{COVERED_BY-}}
include =
    {tree}/hpcrun/actions/*
    {tree}/hpcrun/runs/*
"""


# --- the plugin: loaded with -p dev.mutants.covering, in every worker
# ------------------------------------


def pytest_configure() -> None:
    clean = Hpcrun.environ.fget  # type: ignore[attr-defined]

    def environ(self: Hpcrun) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in _HANDED_ON if name in os.environ},
            **clean(self),
        }

    Hpcrun.environ = property(environ)  # type: ignore[assignment,method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    os.environ["COVERED_BY"] = item.nodeid  # for the processes that the test starts
    if measuring := Coverage.current():
        measuring.switch_context(item.nodeid)
    if _LIMITS in os.environ:  # ends pytest itself: nothing less ends a loop without end
        limits = json.loads(Path(os.environ[_LIMITS]).read_text())
        faulthandler.dump_traceback_later(limits[item.nodeid], exit=True)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    faulthandler.cancel_dump_traceback_later()


_DURATIONS: dict[str, float] = {}
_FAILED: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _DURATIONS[report.nodeid] = _DURATIONS.get(report.nodeid, 0) + report.duration
    if report.failed or report.skipped:
        _FAILED.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _REPORTS in os.environ and not hasattr(session.config, "workerinput"):
        reports = {"durations": _DURATIONS, "failed": _FAILED}
        Path(os.environ[_REPORTS]).write_text(json.dumps(reports))


# --- the record ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Covering:
    """The tests of each line, by their node ids (none where it ran at import), and how long each
    took, in seconds.
    """

    lines: dict[str, dict[int, set[str]]]
    durations: dict[str, float]

    def tests_of(self, path: str, line: int, source: str) -> list[str]:
        """Return the tests that run a line's statement, or what that defines at import; the
        quickest first.
        """
        tree = ast.parse(source)
        statement = statement_lines(tree, line)
        tests = self._of_lines(path, statement)
        if not tests and self._runs_at_import(path, statement):
            tests = self._of_lines(path, lines_that_use(tree, line))
        return sorted(tests, key=lambda test: self.durations[test])

    def _of_lines(self, path: str, lines: Iterable[int]) -> set[str]:
        by_line = self.lines.get(path, {})
        return {test for line in lines for test in by_line.get(line, ()) if test in self.durations}

    def _runs_at_import(self, path: str, lines: range) -> bool:
        """Whether any of the lines ran outside a test's own time."""
        return any(line in self.lines.get(path, {}) for line in lines)


def copy_checkout(to: Path) -> None:
    """Copy the checkout without what git and the tools keep in it."""
    kept_out = shutil.ignore_patterns(
        ".git", ".venv", ".mutants", "*_cache", ".hypothesis", "docs/pictures"
    )
    shutil.copytree(REPO, to, ignore=kept_out, symlinks=True)


def run_tests(
    tree: Path, arguments: list[str], timeout_s: float | None, **variables: str
) -> tuple[int, str]:
    """Run tests in a copy of the checkout; return pytest's exit status and what it printed.

    Raises subprocess.TimeoutExpired.
    """
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "dev.mutants.covering",
        "-p",
        "no:cacheprovider",
        "-q",
        *arguments,
    ]
    environ = {**os.environ, "PYTHONPATH": str(tree), **variables}
    process = subprocess.Popen(
        argv,
        cwd=tree,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return process.returncode, output


AT_IMPORT = "at import"
ENDED_BY_LIMIT = 1  # faulthandler's, and no report


def first_failure(tree: Path, tests: Sequence[str], limits: Mapping[str, float]) -> str | None:
    """Run tests in a copy of the checkout, and return the first that fails, and fails again when it
    is alone.

    One that fails only once was broken by the machine's load.

    Args:
        limits: how many seconds each test may take.

    Returns:
        The test's node id, or OUT_OF_TIME; AT_IMPORT where none could begin, None where none fails.
    """
    left = list(tests)
    while left:
        status, report = _run_until_failure(tree, left, limits)
        if status == 0:
            return None
        if report is None:
            return OUT_OF_TIME if status == ENDED_BY_LIMIT else AT_IMPORT
        if not report["failed"]:
            return AT_IMPORT
        failed = str(report["failed"][-1])
        status, said_again = _run_until_failure(tree, [failed], limits)
        if status != 0:
            return OUT_OF_TIME if said_again is None and status == ENDED_BY_LIMIT else failed
        left = [test for test in left if test not in report["durations"]]
    return None


def _run_until_failure(
    tree: Path, tests: Sequence[str], limits: Mapping[str, float]
) -> tuple[int, dict[str, Any] | None]:
    """Return pytest's exit status and its report, None where a test ran out of its time."""
    names, limits_file, reports = (
        tree / "mutant.tests",
        tree / "mutant.limits",
        tree / "mutant.reports",
    )
    names.write_text("\n".join(tests))
    limits_file.write_text(json.dumps({test: limits[test] for test in tests}))
    reports.unlink(missing_ok=True)
    variables = {_LIMITS: str(limits_file), _REPORTS: str(reports)}
    try:
        status, _ = run_tests(
            tree, ["-x", f"@{names}"], 60 + sum(limits[test] for test in tests), **variables
        )
    except subprocess.TimeoutExpired:
        return ENDED_BY_LIMIT, None
    return status, json.loads(reports.read_text()) if reports.exists() else None


def measure(folder: Path, tests: list[str], workers: int) -> Covering:
    """Run the tests once, and record which of them run which lines; those that fail or are skipped
    are left out.
    """
    tree, reports = folder / "tree", folder / "reports.json"
    copy_checkout(tree)
    settings = folder / "coveragerc"
    settings.write_text(_SETTINGS.format(folder=folder, tree=tree))
    variables = {"COVERAGE_PROCESS_START": str(settings), _REPORTS: str(reports)}
    _, output = run_tests(tree, [*tests, f"--numprocesses={workers}"], None, **variables)
    if not reports.exists():
        raise RuntimeError(f"the tests did not run:\n{output[-3000:]}")
    report: dict[str, Any] = json.loads(reports.read_text())
    failed = set(report["failed"])
    durations = {
        test: seconds for test, seconds in report["durations"].items() if test not in failed
    }
    return Covering(_read_lines(folder, tree), durations)


def _read_lines(folder: Path, tree: Path) -> dict[str, dict[int, set[str]]]:
    lines: dict[str, dict[int, set[str]]] = {}
    for path in folder.glob("data.*"):
        data = CoverageData(basename=str(path))
        try:
            data.read()
        except CoverageException:
            # of a process that was killed while it wrote: tests do that to hpcrun
            continue
        for file in data.measured_files():
            by_line = lines.setdefault(str(Path(file).relative_to(tree)), {})
            for line, contexts in data.contexts_by_lineno(file).items():
                by_line.setdefault(line, set()).update(context for context in contexts if context)
        data.close()
        path.unlink()
    return lines


def save(covering: Covering, path: Path) -> None:
    lines = {
        file: {line: sorted(tests) for line, tests in by.items()}
        for file, by in covering.lines.items()
    }
    path.write_text(json.dumps({"lines": lines, "durations": covering.durations}))


def load(path: Path) -> Covering:
    saved = json.loads(path.read_text())
    lines = {
        file: {int(line): set(tests) for line, tests in by.items()}
        for file, by in saved["lines"].items()
    }
    return Covering(lines, saved["durations"])
