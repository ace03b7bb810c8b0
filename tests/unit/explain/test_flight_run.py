"""explain of runs with dumps of torch's flight recorder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

import pytest

from hpcrun.explain.ended import Explanation
from hpcrun.job.run_paths import RoleRanks
from hpcrun.views.explanation_text import explanation_json
from tests.harness import REPO
from tests.local.recorded import replace_fields
from tests.unit.explain.flights import Made, dump, pickled
from tests.unit.explain.written import (
    ATTEMPT,
    CASES,
    OOM,
    WATCHDOG,
    Written,
    explained,
    raised,
    record_end,
    write_run,
)

FLIGHT = Path(ATTEMPT, "flight")
GROUPS = {"0": ("default_pg", range(8))}
NORMAL = [Made("all_reduce", 81)] * 16
WAITS = Made("all_reduce", 88, state="started")
SENTENCE = (
    "ranks 0-1, 3-7 wait in all_reduce #17 of the default group (train.py:88); rank 2 on node01 "
    "did not come: its last "
    "was all_reduce #16 (train.py:81)"
)


def failed_run(
    case: Written, folder: Path, missing: Collection[int] = (2,), dumps: Collection[int] = range(8)
) -> Path:
    """Write a run of 8 ranks with their dumps."""
    write_run(case, folder)
    (folder / FLIGHT).mkdir()
    for rank in dumps:
        calls = NORMAL if rank in missing else [*NORMAL, WAITS]
        (folder / FLIGHT / f"rank_{rank}").write_bytes(pickled(dump(calls, GROUPS)))
    return folder


def shown(said: Explanation) -> list[str]:
    """What the flight recorder adds to the evidence."""
    return [line for part in said.evidence if part.who == "flight recorder" for line in part.lines]


@pytest.mark.parametrize("case", ["watchdog", "watchdog-abort", "watchdog-nccl2"])
@pytest.mark.parametrize("quick", [False, True])
def test_the_rank_that_did_not_come_is_the_cause_of_a_timeout(
    tmp_path: Path, case: str, quick: bool
) -> None:
    said = explained(failed_run(CASES[case], tmp_path / "run"), quick=quick)
    assert said.summary == SENTENCE
    assert said.rule == "collective-missing"
    assert said.level == "cause"
    assert said.rank == 2
    assert said.node == "node01"
    assert said.fix.startswith("look at what the missing rank does after that line")
    assert said.next == "hpcrun logs 4711 --rank 2"
    assert shown(said) == [
        "ranks 0-1, 3-7: all_reduce #17 at /home/ann/project/train.py:88 in step",
        "rank 2: all_reduce #16 at /home/ann/project/train.py:81 in step",
    ]
    assert any("a collective timed out" in part.note for part in said.evidence)


@pytest.mark.parametrize(
    "case",
    [
        Written("cuda-out-of-memory", raised(OOM), WATCHDOG.replace("5", "0"), failed=2),
        Written(None, raised("KeyError: 'lr'"), WATCHDOG.replace("5", "0"), failed=2),
        Written(None, "", WATCHDOG.replace("5", "0"), failed=2, status=3),
        CASES["killed-behind-watchdog"],
    ],
)
def test_what_a_rank_failed_of_by_itself_stays_the_cause(tmp_path: Path, case: Written) -> None:
    said, before = (
        explained(failed_run(case, tmp_path / "run")),
        explained(write_run(case, tmp_path / "alone")),
    )
    assert said.summary == before.summary
    assert said.rule == before.rule
    assert said.rank == before.rank
    assert shown(said)[0] == SENTENCE


def test_the_dumps_decide_nothing_where_ranks_without_records_raised_an_exception(
    tmp_path: Path,
) -> None:
    folder = failed_run(Written(None, raised("KeyError: 'lr'"), others=""), tmp_path / "run")
    for record in (folder / ATTEMPT).glob("rank-*.exit"):
        record.unlink()
    said = explained(folder)
    assert said.rule is None
    assert shown(said)[0].startswith("ranks 0-1, 3-7 wait in all_reduce #17")


def test_the_dumps_of_a_role_are_those_of_its_own_ranks(tmp_path: Path) -> None:
    folder = failed_run(CASES["watchdog"], tmp_path / "run")
    role = RoleRanks("trainer", first_rank=0, ranks=8, first_node=0, nodes=2, on_exit="end")
    replace_fields(folder / "run.json", plan={"roles": [asdict(role)]})
    assert explained(folder).flight is None
    (folder / FLIGHT / role.name).mkdir()
    for path in (folder / FLIGHT).glob("rank_*"):
        path.rename(path.parent / role.name / path.name)
    assert explained(folder).summary == f"trainer: {SENTENCE}"


def test_without_dumps_it_stays_a_timeout(tmp_path: Path) -> None:
    for name, dumps in (("none", ()), ("one", (0,))):
        said = explained(failed_run(CASES["watchdog"], tmp_path / name, dumps=dumps))
        assert said.rule == "collective-timeout"
    assert said.flight is not None
    assert said.flight.unknown == tuple(range(1, 8))
    assert shown(said)[0].endswith("ranks 1-7 left no dump")


def test_ranks_without_a_dump_are_named(tmp_path: Path) -> None:
    said = explained(failed_run(CASES["watchdog"], tmp_path / "run", dumps=[0, 1, 2, 3, 4, 5, 7]))
    assert said.summary.endswith("was all_reduce #16 (train.py:81); rank 6 on node02 left no dump")
    assert said.rank == 2
    assert "7 dumps; none of rank 6" in [part.note for part in said.evidence]
    all_but_one = explained(
        failed_run(CASES["watchdog"], tmp_path / "other", missing=(), dumps=range(7))
    )
    assert all_but_one.rank == 7
    assert all_but_one.summary == (
        "ranks 0-6 wait in all_reduce #17 of the default group (train.py:88); rank 7 on node02 "
        "left no dump"
    )


def test_a_dump_that_cannot_be_read_is_one_remark(tmp_path: Path) -> None:
    folder = failed_run(CASES["watchdog"], tmp_path / "run") / FLIGHT
    whole = (folder / "rank_1").read_bytes()
    (folder / "rank_1").write_bytes(whole[: len(whole) // 2])
    os.truncate(folder / "rank_0", 1 << 40)  # it does not use up what is read of the others
    (folder / "rank_3").write_bytes(b"cos\nsystem\n(S'touch here'\ntR.")
    (folder / "rank_4").unlink()
    (folder / "rank_4").symlink_to("/dev/zero")
    (folder / "rank_5").unlink()
    os.mkfifo(folder / "rank_5")
    (folder / "notes.txt").write_text("mine")
    said = explained(tmp_path / "run")
    assert [remark.removeprefix(f"{FLIGHT}/") for remark in said.unread] == [
        "rank_0: is larger than 16777216 bytes",
        "rank_1: is cut off",
        "rank_3: is no pickle of protocol 2",
        "rank_4: is a symbolic link",
        "rank_5: is not a regular file",
    ]
    assert said.rank == 2


def test_of_many_bad_dumps_the_first_are_named_and_the_others_counted(tmp_path: Path) -> None:
    folder = failed_run(CASES["watchdog"], tmp_path / "run")
    for rank in range(100, 200):
        (folder / FLIGHT / f"rank_{rank}").write_text("bad")
    said = explained(folder)
    assert said.unread[0] == f"{FLIGHT}/rank_100: is no pickle of protocol 2"
    assert said.unread[8:] == (f"{FLIGHT}: 92 more dumps",)
    assert said.rank == 2


def test_status_reads_dumps_only_where_they_are_small(tmp_path: Path) -> None:
    folder = failed_run(CASES["watchdog"], tmp_path / "run")
    (folder / FLIGHT / "rank_7").write_bytes(bytes(9 << 20))
    assert explained(folder, quick=True).rule == "collective-timeout"
    assert explained(folder).rule == "collective-missing"


def test_groups_in_different_orders_are_the_cause(tmp_path: Path) -> None:
    folder = failed_run(CASES["watchdog"], tmp_path / "run", dumps=())
    for path in (REPO / "tests/data/flight/circle").iterdir():
        shutil.copy(path, folder / FLIGHT)
    said = explained(folder)
    assert said.rule == "collective-order"
    assert said.rank is None
    assert said.fix == "let all ranks use the process groups in the same order"
    assert shown(said)[0].startswith(
        "rank 0: all_reduce #2 of group mesh_tp at /tmp/project/train.py:"
    )


def test_a_rank_that_left_well_before_the_others_is_still_the_answer(tmp_path: Path) -> None:
    folder = failed_run(CASES["watchdog"], tmp_path / "run")
    record_end(folder, 2, 0, 1500.0)
    said = explained(folder)
    assert said.summary.startswith(
        "rank 2 on node01 ended first, with exit status 0, while 7 other ranks continued"
    )
    assert shown(said)[0] == SENTENCE


def test_json_has_where_each_group_of_ranks_stood(tmp_path: Path) -> None:
    said = explanation_json(explained(failed_run(CASES["watchdog"], tmp_path / "run")))
    assert said["flight"]["dumps"] == list(range(8))
    (meeting,) = said["flight"]["collectives"]
    assert meeting["finding"] == "missing"
    assert meeting["collective"] == "all_reduce"
    assert meeting["number"] == 17
    assert meeting["absent"] == [
        {
            "ranks": [2],
            "collective": "all_reduce",
            "number": 16,
            "group": "the default group",
            "tensors": "[1024] Float",
            "at": "/home/ann/project/train.py:81",
        }
    ]
    without = write_run(CASES["watchdog"], tmp_path / "without")
    assert explanation_json(explained(without))["flight"] is None
