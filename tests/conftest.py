"""Fixtures for the real program and the real cluster, and the account of slurm tests that were
skipped.
"""

from __future__ import annotations

import gc
import os
import re
import secrets
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.harness import (
    RECIPES,
    REPO,
    SYSTEM_PATH,
    TRACKERS,
    Cluster,
    Hpcrun,
    account,
    cluster_error,
    cluster_sh,
    end_processes_of,
    end_servers,
    folder_open_to_others,
    new_researcher,
    only_session_on_cluster,
    process_ids,
    shown_to_researcher,
)
from tests.namespaces import Namespaces
from tests.preloaded import compile_templates_once, parse_shipped_files_once

NOT_INSTALLED = "is not installed"
SKIPPED: list[tuple[str, str]] = []
"""What each test that was skipped needs, and why it was skipped."""


# --- the cluster ---------------------------------------------------------------------------------


def slurm_is_required() -> bool:
    """Whether a slurm test that cannot run is a failure: so in CI."""
    return os.environ.get("HPCRUN_REQUIRE_SLURM") == "1"


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Cluster]:
    """The development cluster: one that is up already, or one for this session alone."""
    with ExitStack() as until_end:
        # who else cannot start one, and need not wait to be told
        if os.geteuid() == 0 and NAMESPACES is None:
            until_end.enter_context(only_session_on_cluster())
        was_up = cluster_error("status") is None
        if error := cluster_error("up"):
            if error.incapable and not slurm_is_required():
                pytest.skip(str(error))
            pytest.fail(f"no Slurm cluster: {error}", pytrace=False)
        if not was_up:
            until_end.callback(cluster_sh, "down")
        yield Cluster.running()


@pytest.fixture
def cluster(slurm_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, put in order again after the test: daemons, cables, nodes, and no job that came
    since left.
    """
    jobs_of_others = slurm_cluster.jobs()
    yield slurm_cluster
    slurm_cluster.restore(keep=jobs_of_others)


def programs_are_required() -> bool:
    """Whether a test that finds no editor or no LaTeX is a failure: so in CI."""
    return os.environ.get("HPCRUN_REQUIRE_PROGRAMS") == "1"


def pytest_runtest_setup(item: pytest.Item) -> None:
    programs = [program for mark in item.iter_markers("needs") for program in mark.args]
    path = f"{SYSTEM_PATH}:{TRACKERS}/bin"
    missing = [
        (program, programs_are_required())
        for program in programs
        if shutil.which(program, path=path) is None
    ]
    if item.get_closest_marker("recipes") and not (RECIPES / "installed").exists():
        missing.append((RECIPES.name, os.environ.get("HPCRUN_REQUIRE_RECIPES") == "1"))
    missing += [
        (f"the package {package}", programs_are_required())
        for mark in item.iter_markers("needs_package")
        for package in mark.args
        if find_spec(package) is None
    ]
    for name, is_required in missing:
        reason = f"{name} {NOT_INSTALLED}"
        if is_required:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def _cluster_for_slurm_tests(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("slurm"):
        request.getfixturevalue("cluster")


# --- the program ---------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _command_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of its own for each test: ``hpcrun -v`` in this process turns it on for good."""
    from hpcrun.machine import command_log  # not before pytest_configure

    monkeypatch.setattr(command_log, "_logs", [])


@pytest.fixture
def hpcrun(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hpcrun]:
    """The hpcrun command in a folder of its own; in slurm tests pointed at the cluster.

    What it has started on this machine ends with the test, which may have failed.
    """
    is_slurm_test = request.node.get_closest_marker("slurm") is not None
    extra = request.getfixturevalue("cluster").env if is_slurm_test else {}
    older = process_ids()
    yield Hpcrun(folder=tmp_path, checkout=REPO, venv=Path(sys.prefix), extra=extra)
    if not is_slurm_test:  # the cluster ends its jobs
        end_processes_of(tmp_path, older)


@pytest.fixture(scope="session")
def _shown_checkout(slurm_cluster: Cluster) -> Iterator[tuple[Path, Path]]:
    with shown_to_researcher(slurm_cluster) as shown:
        yield shown
        end_servers()


@pytest.fixture(scope="session")
def _researchers_folders(slurm_cluster: Cluster) -> Iterator[Path]:
    """Of the session, not of a test: a test's jobs may write in their folder until the cluster has
    ended them.
    """
    with folder_open_to_others() as folder:
        yield folder


@pytest.fixture
def as_researcher(
    cluster: Cluster, _shown_checkout: tuple[Path, Path], _researchers_folders: Path
) -> Hpcrun:
    """The hpcrun command as the cluster's ordinary user runs it: root would pass every permission
    check.
    """
    return new_researcher(_researchers_folders, cluster, _shown_checkout)


# --- pytest itself -------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing"
    )


def pytest_configure(config: pytest.Config) -> None:
    # whatever PYTHONDONTWRITEBYTECODE says: each worker would compile all tests anew
    sys.dont_write_bytecode = False
    compile_templates_once()
    parse_shipped_files_once()
    # A shell's background job ignores Ctrl-C, and so would every program that it starts, whatever a
    # test types.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect the tests.

    They stay until the end, so that Python need not search them for garbage again and again.
    """
    gc.disable()
    try:
        import_own_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def import_own_share(config: pytest.Config) -> None:
    """Import this worker's share of the test modules before all workers import all of them.

    Python and pytest keep what they have compiled. Workers that import the modules in one order
    would each compile all of them, in a checkout that is new.
    """
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None:
        return
    number = int(worker["workerid"].removeprefix("gw"))
    folders = [Path(arg) for arg in config.args if Path(arg).is_dir()]
    modules = sorted(module for folder in folders for module in folder.rglob("test_*.py"))
    for module in modules[number :: worker["workercount"]]:
        with suppress(Exception):  # pytest says so when it collects the module
            import_module(".".join(module.resolve().relative_to(REPO).with_suffix("").parts))


# Not by xdist's own groups: xdist 3.8 writes them into what pytest 9.2 no longer reads.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a module run in one worker, in their order: they share what is dear to make.

    Slurm tests mostly wait, and each worker that runs one starts a cluster. So two workers of three
    begin with them, while the others compute; who is done helps with what is left.
    """
    from xdist.scheduler import LoadScopeScheduling

    # xdist 3.8 begins with the modules of most tests otherwise: not those that take longest
    config.option.loadscopereorder = False

    class ByModule(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0]

        def _assign_work_unit(self, node: Any) -> None:
            with_cluster = self.nodes.index(node) < max(1, self.numnodes * 2 // 3)
            suits = [module for module in self.workqueue if needs_slurm(module) == with_cluster]
            if suits:  # of the others the first: LoadScopeScheduling takes from the front
                self.workqueue.move_to_end(suits[0], last=False)
            super()._assign_work_unit(node)

    return ByModule(config, log)


def needs_slurm(module: str) -> bool:
    return module.startswith("tests/slurm/")


# A module runs in one worker: the longest are begun first, so that at the end no worker is alone
# with one. `make slow` names them.
LONGEST = """
    slurm/guides docs/guides slurm/explain local/batch_script slurm/remote local/examples
    slurm/resume slurm/controller launch/roles slurm/dev slurm/trainers launch/use
    slurm/without_terminal slurm/restart slurm/preflight slurm/states slurm/submit_once
    local/remote_install slurm/requeue local/torchrun_options slurm/placement
    local/site_in_browser slurm/pack local/without_terminal local/secrets launch/as_without
    slurm/api slurm/as_without local/preflight slurm/in_the_job local/flight local/notify
    local/fetch launch/ends local/shared_storage slurm/hangs slurm/init launch/stacks
    slurm/promises slurm/skill package/wheel
""".split()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the modules that take longest first."""

    def place(item: pytest.Item) -> int:
        name = f"{item.path.parent.name}/{item.path.stem.removeprefix('test_')}"
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=place)


# --- a cluster for each worker -------------------------------------------------------------------

NAMESPACES: Namespaces | None = None
"""Those of this process where it is one of several workers; the cluster of a lone process is the
machine's.
"""


def is_slurm_test(item: pytest.Item) -> bool:
    return item.get_closest_marker("slurm") is not None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a slurm test in the worker's namespaces."""
    global NAMESPACES
    if NAMESPACES is None and is_slurm_test(item) and may_have_own_cluster():
        install_slurm()
        NAMESPACES = Namespaces()
        # not by the process's id: in a container's namespace that is the same at each run
        os.environ["HPCRUN_CLUSTER_DIR"] = f"/tmp/hpcrun-cluster-{secrets.token_hex(4)}"
    if NAMESPACES is None or not is_slurm_test(item):
        return (yield)
    with NAMESPACES.entered():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """End in the worker's namespaces what the session has begun there, also after a test outside:
    that one may need the network.
    """
    if NAMESPACES is None or is_slurm_test(item) or nextitem is not None:
        return (yield)
    with NAMESPACES.entered():
        return (yield)


def may_have_own_cluster() -> bool:
    return (
        "PYTEST_XDIST_WORKER" in os.environ and os.geteuid() == 0 and cluster_error("check") is None
    )


def install_slurm() -> None:
    """Install Slurm's packages while there is a network to fetch them by; one worker does it for
    all.
    """
    with only_session_on_cluster():
        cluster_sh("install")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a slurm test that fails what its runs wrote, and what Slurm's daemons complained of:
    both will be gone.
    """
    report = yield
    if report.failed and is_slurm_test(item):
        for person in getattr(item, "funcargs", {}).values():
            if isinstance(person, Hpcrun):
                report.sections.append(
                    (f"runs in {person.runs}", "\n\n".join(accounts(person.runs)))
                )
        report.sections.append(("Slurm's daemons", complaints_of_slurm()))
    return report


def accounts(runs: Path, most: int = 10) -> list[str]:
    """What is known of the newest runs of a folder."""
    return [f"{run.name}\n{account(run)}" for run in sorted(runs.glob("*-*-*"))[-most:]]


def complaints_of_slurm(most: int = 40) -> str:
    """The last lines of the daemons' logs that speak of something unusual."""
    folder = Path(os.environ.get("HPCRUN_CLUSTER_DIR", "/tmp/hpcrun-cluster"), "log")
    unusual = re.compile(
        r"missing from|not responding|due to failure|drain|expired|revoked|unexpected",
        re.IGNORECASE,
    )
    texts = {
        log.name: log.read_text(errors="replace").splitlines() for log in folder.glob("slurm*.log")
    }
    lines = [
        f"{line} ({name})" for name, text in texts.items() for line in text if unusual.search(line)
    ]
    return "\n".join(sorted(lines)[-most:])


# Not makereport: with xdist that is called in the workers only.
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    expected_to_fail = hasattr(report, "wasxfail")  # pytest calls those skipped as well
    if report.skipped and not expected_to_fail:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        # a slurm test that lacks a program is one of those that CI runs with the programs
        kinds = (
            ("needs", "needs_package", "recipes")
            if reason.endswith(NOT_INSTALLED)
            else ("slurm", "needs", "needs_package")
        )
        SKIPPED.extend((kind, reason) for kind in kinds if kind in report.keywords)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    yield  # pytest's own list of skips comes first
    for (kind, reason), count in Counter(SKIPPED).items():
        tests = "1 test" if count == 1 else f"{count} tests"
        terminalreporter.write_line(f"{kind}: {tests} skipped: {reason}", yellow=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if slurm_is_required() and any(kind == "slurm" for kind, _ in SKIPPED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
