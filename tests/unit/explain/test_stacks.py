"""What explain --stacks makes of what the nodes of a job answer, which may be anything."""

from __future__ import annotations

import base64
import json
import os
import time
import zlib
from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain import stacks
from hpcrun.explain.diagnosis.stack_groups import RankStack
from hpcrun.explain.diagnosis.traceback import Frame
from hpcrun.explain.ended import Explanation
from hpcrun.explain.running import explain_running, read_running
from hpcrun.explain.stacks import Answers, read_answers, source_lines, stacks_remark
from hpcrun.machine.process import Completed
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run
from tests.unit.explain.test_running import NOW_S, attempt, node, wrote

SPY = '[{"thread_name": "MainThread", "frames": [{"name": "f", "filename": "t.py", "line": %s}]}]'


def answer(record: str | bytes, place: str = "0/1") -> str:
    data = record if isinstance(record, bytes) else record.encode()
    return (
        f"hpcrun-stacks n1 {zlib.crc32(data)} {place} "
        f"{base64.b64encode(zlib.compress(data)).decode()}"
    )


def read(*lines: str) -> Answers:
    return read_answers(Completed("stacks", 0, "\n".join(lines), ""))


GOOD = answer(json.dumps({"rank": 1, "node": "n1", "state": "S", "pid": 5}))


@pytest.mark.parametrize(
    "line",
    [
        *(
            answer(f"{{{fields}}}")
            for fields in (
                '"rank": 1e999',
                '"rank": [1]',
                '"rank": null',
                '"rank": -1',
                '"rank": "0"',
                '"rank": true',
                '"ras": 5, "node": "n2"',
                '"node": [1]',
                '"rank": 0, "pid": [1]',
                '"rank": 0, "busy": NaN',
                '"rank": 0, "workers": 5',
                '"rank": 0, "how": "py-spy", "stack": 7',
            )
        ),
        *map(answer, ("[" * 100_000, "9" * 5000, "")),
        *(
            answer("{}", place)
            for place in ("²/1", "0/²", "0/" + "9" * 5000, "9" * 5000 + "/1", "1/1", "0/0", "0/-1")
        ),
        "hpcrun-stacks n2 0 0/1 !!",
        "hpcrun-stacks n2 0 0/1 é",
        "hpcrun-stacks n2 0 0/1 " + answer("{}").split()[-1][:-8],
    ],
    ids=range(25),
)
def test_a_strange_answer_is_left_out_and_the_others_are_read(line: str) -> None:
    found = read(line, GOOD)
    assert [each.rank for each in found.ranks] == [1]
    assert found.rank_of == {5: 1}
    assert found.nodes == frozenset()


@pytest.mark.parametrize("line", ["1e999", "-1", "null", "9" * 400, '"x"', "[[]]"])
def test_a_strange_line_of_a_frame_is_none(line: str) -> None:
    (rank,) = read(answer(json.dumps({"rank": 0, "how": "py-spy", "stack": SPY % line}))).ranks
    assert rank.frames == (Frame("t.py", 0, "f"),)


def test_a_name_that_cannot_be_printed_is_no_trouble() -> None:
    stack = (SPY % 7).replace("t.py", r"\ud800.py").replace('"f"', r'"\udfff"')
    (rank,) = read(answer(json.dumps({"rank": 0, "how": "py-spy", "stack": stack}))).ranks
    assert rank.frames == (Frame("?.py", 7, "?"),)


def test_an_answer_that_inflates_without_an_end_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bomb = answer(b'{"rank": 0, "node": "' + b"x" * (64 << 20) + b'"}')
    assert [each.rank for each in read(bomb, GOOD).ranks] == [1]
    monkeypatch.setattr(stacks, "_MOST_INFLATED", 30)
    assert read(answer('{"node": "n1", "ras": []}   '), GOOD).ranks == ()


def asked(path: Path, ranks: tuple[RankStack, ...], started_s: float) -> Explanation:
    running = read_running(
        RunStatus(run(nodes=1), path, LastStatus("RUNNING", NOW_S), live=True), NOW_S, {}
    )
    assert running is not None
    assert running.attempt.started_s == started_s
    return explain_running(
        running, stacks_remark(running, Answers(ranks, frozenset({"n0"})), ["n0"])
    )


@pytest.mark.parametrize("age_s", [5.0, 60.0, 7200.0])
@pytest.mark.parametrize("has_begun", [True, False])
def test_of_a_job_that_has_written_nothing_yet_there_is_a_verdict(
    age_s: float, has_begun: bool, tmp_path: Path
) -> None:
    folder = attempt(tmp_path, started_s=NOW_S - age_s)
    if has_begun:
        node(folder, "n0", 0, 2)
        wrote(folder, 0, "", age_s)
    stack = RankStack(0, "n0", (Frame("/x/t.py", 3, "load"),), state="S", how="py-spy")
    assert "is in load (t.py:3)" in asked(tmp_path, (stack,), NOW_S - age_s).summary
    assert "no process of a rank was found" in asked(tmp_path, (), NOW_S - age_s).summary


def test_lines_are_shown_of_files_of_python_only(tmp_path: Path) -> None:
    secret, code, link = tmp_path / "hostname", tmp_path / "t.py", tmp_path / "link.py"
    fifo, large, folder = tmp_path / "fifo.py", tmp_path / "large.py", tmp_path / "folder.py"
    secret.write_text("secret\n")
    code.write_text("load()\n")
    link.symlink_to(secret)
    (tmp_path / "circle.py").symlink_to(tmp_path / "circle.py")
    (tmp_path / "same.py").symlink_to(code)
    os.mkfifo(fifo)
    folder.mkdir()
    large.write_text("x\n" * (3 << 20))
    files = (
        secret,
        code,
        link,
        fifo,
        folder,
        large,
        tmp_path / "circle.py",
        tmp_path / "same.py",
        Path("/dev/zero"),
    )
    ranks = [
        RankStack(number, "n0", (Frame(str(file), 1, "f"),)) for number, file in enumerate(files)
    ]
    shown = source_lines(ranks, time.time() + 60)
    assert {Path(frame.file).name: line for frame, line in shown.items()} == {
        "t.py": "load()",
        "same.py": "load()",
    }


def test_hpcrun_s_own_py_spy_is_not_one_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", "bin/python")
    for name in ("py-spy", "bin/py-spy"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch(0o755)
    assert stacks._own_py_spy({"PATH": ":.:bin:"}) == ""
    assert stacks._own_py_spy({"PATH": f":{tmp_path}/bin"}) == f"{tmp_path}/bin/py-spy"


def test_the_stacks_of_the_first_six_groups_are_shown(tmp_path: Path) -> None:
    attempt(tmp_path, started_s=NOW_S - 60)
    ranks = [RankStack(rank, "n0", (Frame("/x/t.py", rank + 1, "load"),)) for rank in range(8)]
    shown = asked(tmp_path, tuple(ranks), NOW_S - 60).evidence
    assert sum("in load" in one.lines[0] for one in shown) == 6


def test_five_frames_of_the_user_and_the_innermost_are_shown(tmp_path: Path) -> None:
    attempt(tmp_path, started_s=NOW_S - 60)
    of_user = [Frame("/x/t.py", number, "load") for number in range(1, 8)]
    library = Frame("/v/site-packages/torch/nn.py", 9, "wait")
    (stack, *_) = asked(tmp_path, (RankStack(0, "n0", (*of_user, library)),), NOW_S - 60).evidence
    lines = [f"/x/t.py:{number} in load" for number in range(3, 8)]
    assert stack.lines == (*lines, "nn.py:9 in wait")


@pytest.mark.parametrize(
    ("code", "shown"),
    [("x" * 80, "x" * 80), ("x" * 81, "x" * 79 + "…")],
    ids=["whole", "cut"],
)
def test_a_long_line_of_code_is_cut(tmp_path: Path, code: str, shown: str) -> None:
    file = tmp_path / "t.py"
    file.write_text(f"    {code}\n")
    ranks = [RankStack(0, "n0", (Frame(str(file), 1, "f"),))]
    assert list(source_lines(ranks, time.time() + 60).values()) == [shown]
