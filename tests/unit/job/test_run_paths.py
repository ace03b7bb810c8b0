"""The layout of a runs folder: spelled in one place, and the same in the programs that travel
without that place.
"""

from __future__ import annotations

import ast
import importlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.in_job import hpcrun_function, hpcrun_runtime
from hpcrun.job import run_paths
from hpcrun.job.run_paths import (
    WITHIN,
    AttemptFolder,
    ElementFolder,
    JobFolder,
    RunFolder,
    RunsFolder,
    StudyFolder,
)
from hpcrun.schedulers import supervisor
from tests.harness import REPO
from tests.launch.jobs import LAUNCH, job

FOLDERS = (AttemptFolder, JobFolder, ElementFolder, RunFolder, StudyFolder, RunsFolder)
TRAVELLING = {
    path
    for pattern in (
        "in_job/**/*.py",
        "features/*/hpcrun_*.py",
        "schedulers/supervisor.py",
    )
    for path in (REPO / "hpcrun").glob(pattern)
}
MODULES = sorted({*(REPO / "hpcrun").rglob("*.py")} - TRAVELLING - {Path(run_paths.__file__)})
CALLS = ("Path", "join", "joinpath", "listdir", "with_name")
BASE = Path("/with/a/few/folders/above")


def names() -> set[str]:
    """The names of all files and folders that the layout has without arguments."""
    values = (
        getattr(folder(BASE), name)
        for folder in FOLDERS
        for name, member in vars(folder).items()
        if isinstance(member, property | run_paths._Below)
    )
    paths = [value for value in values if isinstance(value, Path) and value.is_relative_to(BASE)]
    return {part for path in paths for part in path.relative_to(BASE).parts}


NAMES = names()


def text_of(node: ast.AST, module: str) -> str:
    """What an expression begins with as text, as far as that is known; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(itertools.takewhile(bool, (text_of(part, module) for part in node.values)))
    match node:
        case ast.Name(id=name) if name.isupper() and module:
            value = getattr(importlib.import_module(module), name, "")
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if name.isupper() and module:
            value = getattr(getattr(importlib.import_module(module), owner, None), name, "")
        case _:
            return ""
    return value if isinstance(value, str) else ""


def is_path(text: str) -> bool:
    """Whether a text that is used as a path begins with a name of the layout."""
    return text.partition("/")[0] in NAMES or text.startswith(("rank-", "node-"))


def words(node: ast.AST) -> list[ast.expr]:
    """The parts of an expression that are paths by how they are used."""
    match node:
        case ast.BinOp(left=left, op=ast.Div(), right=right) if "__file__" not in ast.unparse(left):
            return [right]
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=args) if (
            called in CALLS
        ):
            return args
        case ast.Compare(left=ast.Attribute(attr="name"), comparators=compared):
            return compared
    return []


def spelled(source: str, module: str = "") -> Iterator[int]:
    """The lines of a module that spell a path inside a runs folder."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        yield from (word.lineno for word in words(node) if is_path(text_of(word, module)))
        if (
            isinstance(node, ast.JoinedStr)
            and is_path(text := text_of(node, ""))
            and ("/" in text or "-" in text)
        ):
            yield node.lineno
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            files = (part for part in node.value.split("/") if "." in part)
            yield from (node.lineno for part in files if part in NAMES)


def test_no_other_module_spells_a_path_inside_a_runs_folder() -> None:
    found = []
    for path in MODULES:
        module = ".".join(path.relative_to(REPO).with_suffix("").parts).removesuffix(".__init__")
        lines = sorted(set(spelled(path.read_text("utf-8"), module)))
        found += [f"{path.relative_to(REPO)}:{line}" for line in lines]
    assert found == [], "use hpcrun/job/run_paths.py"


def test_a_path_that_is_spelled_is_found_and_nothing_else(subtests: pytest.Subtests) -> None:
    for source in (
        'folder / "elements"',
        'folder / "attempts" / str(number)',
        'f"elements/{index}/attempts"',
        'folder / f"rank-{rank}.err"',
        'f"rank-{rank}.exit"',
        'RECORD = "run.json"',
        'Path(folder, "active", run_id)',
        'os.listdir("jobs")',
        'folder.parent.name == "elements"',
    ):
        with subtests.test(source=source):
            assert list(spelled(source)), source
    assert list(spelled("folder / supervisor.CANCELLED", "hpcrun.schedulers.local"))
    assert list(spelled("folder / CANCELLED", "hpcrun.schedulers.supervisor"))
    none = (
        '"""run.json"""\nrecord["exit"] = f"exit status {status}"\nroot = '
        'PurePath(__file__).parents[1] / "in_job"\n'
    )
    assert not list(spelled(none))


def test_the_supervisor_of_a_local_job_and_the_runner_of_functions_have_the_same_paths() -> None:
    element = WITHIN.element(3)
    assert str(WITHIN.supervisor_record) == supervisor.RECORD
    claims = (WITHIN.submit_claim(), WITHIN.submit_claim("called"))
    assert [str(path) for path in claims] == [supervisor.READY, supervisor.CALLED]
    assert [str(WITHIN.script), str(WITHIN.batch_log)] == [supervisor.SCRIPT, supervisor.BATCH_LOG]
    assert supervisor.TASK_LOG.format(3) == str(WITHIN.task_log(3))
    assert supervisor.ELEMENT.format(3) == str(element.path)
    assert str(element.path / supervisor.CANCELLED) == str(element.cancelled)
    assert supervisor.ATTEMPTS.format(3) == str(element.attempts)
    assert supervisor.EXIT.format(3, 1) == str(element.attempt(1).exit)
    assert f"{hpcrun_function.FOLDER}/{hpcrun_function.CALLS}" == str(WITHIN.calls)


def test_the_templates_have_the_same_paths(subtests: pytest.Subtests) -> None:
    text = "\n".join(path.read_text() for path in (REPO / "templates").rglob("*.j2"))
    run = RunFolder(Path("$HPCRUN_RUN_DIR"))
    element = run.element(3)
    attempt = element.attempt(1)
    for path in (element.checkpoints, attempt.path, attempt.start):
        with subtests.test(path=path):
            assert str(path).replace("/3", "/$element").replace("/1", "/$attempt") in text
    for path in (
        AttemptFolder(Path("$HPCRUN_ATTEMPT_DIR")).start,
        AttemptFolder(Path("$HPCRUN_ATTEMPT_DIR")).exit,
    ):
        assert f'>"{path}"' in text
    for path in (run.programs("launch"), run.code, run.programs("preflight") / "judge.py"):
        with subtests.test(path=path):
            assert str(path) in text


def test_a_job_leaves_its_records_at_the_same_paths(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    chain = [*LAUNCH, "node", "--", *LAUNCH, "rank", "--once", "--"]
    with job(tmp_path, ["sh", "-c", "echo out; echo err >&2"], nodes=2, chain=chain) as running:
        assert running.end() == 0
        attempt = RunFolder(tmp_path / "run").element(0).attempt(0)
    assert attempt.path == running.attempt
    assert attempt.run == tmp_path / "run"
    nodes, ranks = ["local-0", "local-1"], [0, 1]
    assert attempt.hosts.read_text().split() == nodes
    assert attempt.exit.is_file()
    assert not attempt.stop.exists()  # nobody has asked to stop
    there = [path.name for path in attempt.path.iterdir()]
    assert sorted(run_paths.parse_nodes(there)) == nodes
    assert [attempt.node_file(node).is_file() for node in nodes] == [True, True]
    for kind in ("out", "err", "exit"):
        with subtests.test(kind=kind):
            assert run_paths.parse_ranks(there, kind) == ranks
    assert [attempt.rank_log(rank, "out").read_text() for rank in ranks] == ["out\n", "out\n"]
    assert [attempt.rank_exit(rank).is_file() for rank in ranks] == [True, True]


def test_a_rank_logs_its_metrics_to_the_same_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "7")
    hpcrun_runtime.log_metrics(loss=1.0)
    assert AttemptFolder(tmp_path).rank_metrics(7).is_file()
    assert run_paths.parse_ranks([path.name for path in tmp_path.iterdir()], "metrics") == [7]


@pytest.mark.parametrize("program", ["launch", "preflight"])
def test_what_only_happens_now_and_then_has_the_same_name(program: str) -> None:
    sources = (path.read_text() for path in (REPO / "hpcrun/in_job" / program).rglob("*.py"))
    texts = {
        node.value
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant)
    }
    attempt, run = AttemptFolder(BASE), RunFolder(BASE)
    assert {attempt.hosts.name, attempt.preflight.name} <= texts
    if program == "launch":
        assert {
            getattr(attempt, path).name for path in ("start", "heartbeat", "exit", "stop", "flight")
        } <= texts
        assert {
            run.elements.name,
            run.cancelled.name,
            run.programs().name,
            "runtime",
            "preflight",
        } <= texts
        assert {run.messages().name, run.messages("sender").name, run.messages("log").name} <= texts
    else:
        assert attempt.verdict.name in texts


def test_a_job_s_folder_is_a_run_s_or_an_element_s() -> None:
    run = RunFolder(Path("/runs/20260101-120000-train-0000"))
    folders = [JobFolder(run.path), JobFolder(run.element(4).path)]
    assert [(folder.run, folder.is_element) for folder in folders] == [
        (run.path, False),
        (run.path, True),
    ]


def test_names_in_a_runs_folder_say_what_they_are() -> None:
    run_id = "20260101-120000-a.b-c-0f0f"
    runs = RunsFolder(Path("/runs"))
    assert run_paths.run_name(run_id) == "a.b-c"
    for item in (runs.incomplete(run_id), runs.removed(run_id)):
        assert run_paths.parse_aside(item.path.name) == run_id
    assert run_paths.parse_aside(run_id) is None
    assert run_paths.parse_job_entry(runs.job_entry("4711", run_id).name) == ("4711", run_id)
    assert run_paths.parse_job_entry("4711") is None
    entries = [
        runs.active,
        runs.jobs,
        runs.studies,
        runs.run(run_id).path,
        runs.removed(run_id).path,
    ]
    assert run_paths.run_names(path.name for path in entries) == [run_id]


def test_numbers_and_ranks_are_in_order_and_nothing_else_is_one() -> None:
    assert run_paths.parse_numbers(["10", "2", "0", "02", "x", "-1", "²", "12345678"]) == [0, 2, 10]
    assert run_paths.parse_ranks(
        ["rank-10.out", "rank-2.err", "rank-x.out", ".rank-7.exit.12"], "out", "err"
    ) == [2, 10]


def test_checkpoints_are_those_of_an_element() -> None:
    inside = WITHIN.element(3).checkpoints
    assert run_paths.is_checkpoint((*inside.parts, "epoch-1"))
    assert not run_paths.is_checkpoint((*WITHIN.code.parts, *inside.parts))
