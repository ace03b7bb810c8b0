"""The screens of hpcrun top with real run folders and a scheduler that answers, refuses or
hangs.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from hpcrun.actions.status.run_status import ElementStatus, RunStatus, StatusResult
from hpcrun.errors import ProfileError, SchedulerError
from hpcrun.explain.diagnosis.rules import Rule
from hpcrun.explain.first_line import MOST_AT_ONCE
from hpcrun.features.scaling.studies import Study, StudyPoint, StudyStore
from hpcrun.features.top import queue
from hpcrun.features.top.app import RunsScreen, TopApp
from hpcrun.features.top.reader import Reader
from hpcrun.features.top.rows import states_text
from hpcrun.features.top.table import TableScreen
from hpcrun.job.job_states import JobInfo
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.pending_and_usage import QueuedJob
from hpcrun.schedulers.protocol import JobRef
from tests.harness import wait_for
from tests.unit.builders import ports, run, write
from tests.unit.features.top.test_queue import JOBS

EVIL = "[red]x[/]\x1b[2J\u202e"


class Asked:
    """What is asked: it counts how often, hangs while ``free`` is not set, and raises ``error``."""

    def __init__(self) -> None:
        self.free, self.asked = threading.Event(), 0
        self.free.set()
        self.error: Exception | None = None

    def ask(self) -> None:
        self.asked += 1
        self.free.wait(20)
        if self.error:
            raise self.error


class Answers(Asked):
    """A scheduler: all jobs run."""

    name = "slurm"

    def unavailable(self) -> str:
        return "there is no Slurm here"

    def cluster(self) -> str:
        return "alpha"

    def poll(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        self.ask()
        return {
            job.folder: JobInfo(str(job.job_id), "RUNNING", elapsed_s=61, hosts="node1")
            for job in jobs
        }


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    made = RunStore(tmp_path)
    for number, (name, shown) in enumerate((("old", "old"), ("evil", EVIL), ("new", "new"))):
        run_id, job_id = f"2026010{number + 1}-030405-{name}-0a1b", str(70 + number)
        made.create(run(run_id, name=shown, created_s=1000.0 + number, job_id=job_id), "")
    over = LastStatus("COMPLETED", 1.0, final=True, forgotten=True)
    made.save_status("20260101-030405-old-0a1b", over)
    return made


class Screen:
    """What a person sees and does."""

    def __init__(self, pilot: Pilot[None]) -> None:
        self.pilot = pilot

    @property
    def lines(self) -> list[str]:
        strips = self.pilot.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    async def until(self, shown: Callable[[], bool], within_s: float = 10.0) -> None:
        end = time.monotonic() + within_s
        while not shown():
            assert time.monotonic() < end, self.text
            await asyncio.sleep(0.02)
            await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()


@pytest.fixture(autouse=True)
def no_reader_is_left() -> Iterator[None]:
    """Wait for the end of the thread that reads, which the next test would have."""

    def is_reading() -> bool:
        return any("_read_again_and_again" in thread.name for thread in threading.enumerate())

    yield
    wait_for(lambda: not is_reading(), 10, "the end of the reading")


def play(
    store: RunStore,
    scheduler: Any,
    scene: Callable[[Screen], Awaitable[None]],
    size: tuple[int, int] = (80, 24),
) -> None:
    """Run the screens with a scheduler, and play a scene on them."""
    reader = Reader(ports(store, scheduler, time.time()), {}, lambda: (), lambda _: {})

    async def run_it() -> None:
        reader.start()
        async with TopApp(reader).run_test(size=size) as pilot:
            screen = Screen(pilot)
            await screen.until(lambda: scheduler.asked > 0)
            await scene(screen)

    asyncio.run(run_it())


def test_runs_are_shown_filtered_marked_and_asked_about_once(store: RunStore) -> None:
    async def scene(screen: Screen) -> None:
        await screen.until(lambda: screen.text.count("RUNNING") == 2)
        assert [line.split()[0] for line in screen.lines[2:5]] == [
            "new",
            "[red]x[/]\\x1b[2J\\u2…",
            "old",
        ]
        assert screen.lines[0] == "hpcrun top  3 runs, newest first: 2 running, 1 completed"
        assert screen.lines[-1].startswith("enter open")
        await screen.press("slash", *"run", "space", *"new")
        assert screen.lines[-2] == "/run new"
        await screen.press("enter", "space")
        assert screen.lines[2].split()[:3] == ["*", "new", "72"]
        assert screen.lines[0].startswith(
            "hpcrun top  1 marked; filter: run new; 3 runs, newest first: 2 running"
        )
        await screen.press("c")
        assert "Cancel 1 run?" in screen.text
        assert "new  job 72  RUNNING" in screen.text
        await screen.press("n")
        assert screen.lines[-2] == "nothing was done"
        await screen.press("escape", "escape")
        assert not any(line.startswith("*") for line in screen.lines)
        await screen.press("G", "c")  # it has ended: nothing is asked
        assert screen.lines[-2] == "nothing to cancel: old (already ended)"

    play(store, Answers(), scene)


def test_what_calls_a_screen_while_the_program_ends_finds_all_it_needs(store: RunStore) -> None:
    async def scene(screen: Screen) -> None:
        runs = screen.pilot.app.screen
        assert isinstance(runs, RunsScreen)
        await runs.query("*").remove()  # as textual does before it stops the screen's timers
        runs.check()
        runs.show_reading()
        runs.say("too late")

    play(store, Answers(), scene)


def test_a_call_is_made_once_at_a_time(store: RunStore) -> None:
    async def scene(screen: Screen) -> None:
        runs = screen.pilot.app.screen
        assert isinstance(runs, RunsScreen)
        go_on = threading.Event()
        answers: list[object] = []
        assert runs.call("slow", lambda: go_on.wait(10), answers.append, answers.append)
        assert not runs.call("slow", lambda: "again", answers.append, answers.append)
        assert runs.call("quick", lambda: "quick", answers.append, answers.append)
        await screen.until(lambda: answers == ["quick"])
        assert runs.waits_s("slow") > 0
        go_on.set()
        await screen.until(lambda: answers == ["quick", True])
        assert runs.waits_s("slow") == 0
        assert runs.call("slow", lambda: "again", answers.append, answers.append)
        await screen.until(lambda: answers[-1] == "again")

    play(store, Answers(), scene)


def test_keys_that_come_at_once_are_for_the_line_that_the_first_of_them_opens(
    store: RunStore,
) -> None:
    async def scene(screen: Screen) -> None:
        await screen.until(lambda: screen.text.count("RUNNING") == 2)
        app = screen.pilot.app
        for key in ("slash", *"cy", "enter", "j"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await screen.until(lambda: "filter: cy" in screen.lines[0])
        await screen.press("escape", "slash")
        app.post_message(events.Paste("old\x1b[2J\u202e\nnew"))
        await screen.until(lambda: screen.lines[-2] == "/old[2J")
        await screen.press("left", "ctrl+k", "backspace", "backspace", "backspace", "r")
        assert screen.lines[-2] == "/olr"
        await screen.press("ctrl+c")  # leaves the line, not the program
        assert "filter" not in screen.lines[0]
        await screen.press("slash", "escape", "c")
        assert "Cancel 1 run?" in screen.text
        assert screen.lines[2].split()[:2] == ["new", "72"]  # what is below stays on the screen

    play(store, Answers(), scene)


def test_columns_fit_where_rows_came_while_the_terminal_had_another_size(store: RunStore) -> None:
    async def scene(screen: Screen) -> None:
        await screen.until(lambda: "2 running" in screen.text)
        runs = screen.pilot.app.screen
        assert isinstance(runs, RunsScreen)
        headings = screen.lines[1]
        await screen.press("enter", "enter")
        await screen.pilot.resize_terminal(120, 40)
        await screen.pilot.pause()
        runs.show_reading()
        await screen.pilot.resize_terminal(80, 24)
        await screen.press("escape", "escape")
        await screen.until(lambda: screen.lines[0].startswith("hpcrun top"))
        assert screen.lines[1] == headings

    play(store, Answers(), scene)


def test_states_that_ask_for_attention_are_named_first() -> None:
    states = ["RUNNING", "CANCELLED", "TIMEOUT", "TIMEOUT", "FAILED"]
    assert (
        states_text(states, "by name")
        == "5 runs, by name: 1 running, 1 failed, 2 timed out, 1 cancelled"
    )
    assert states_text([], "newest first") == "0 runs, newest first"


def test_keys_work_while_slurm_hangs_and_the_time_of_its_last_answer_is_said(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcrun.features.top.reader.LATE_S", 0.1)
    scheduler = Answers()

    async def scene(screen: Screen) -> None:
        await screen.until(lambda: "2 running" in screen.text)
        scheduler.free.clear()
        await screen.press("R")
        await screen.until(lambda: "Slurm has not responded since" in screen.lines[0])
        await screen.press("j", "k", "question_mark")
        assert "esc closes" in screen.text
        await screen.press("escape")
        scheduler.error = SchedulerError("Slurm does not respond: `squeue`: exit status 1")
        scheduler.free.set()
        await screen.until(lambda: screen.lines[0].endswith("`squeue`: exit status 1"))
        assert re.fullmatch(
            r"hpcrun top  Slurm has not responded since \d\d:\d\d; `.*", screen.lines[0]
        )
        scheduler.error = ValueError("x\ny")  # what is not Slurm's is shown without Slurm
        await screen.press("R")
        words = r"hpcrun top  this is a bug in hpcrun: ValueError: x y; last answer at \d\d:\d\d"
        await screen.until(lambda: re.fullmatch(words, screen.lines[0]) is not None)
        scheduler.error = None
        await screen.press("R")
        await screen.until(lambda: "2 running" in screen.lines[0])

    play(store, scheduler, scene)


def test_a_run_that_is_damaged_or_deleted_while_it_is_shown(store: RunStore) -> None:
    async def scene(screen: Screen) -> None:
        await screen.until(lambda: "2 running" in screen.text)
        (store.folder("20260103-030405-new-0a1b") / "run.json").write_text("{", "utf-8")
        shutil.rmtree(store.folder("20260102-030405-evil-0a1b"))
        await screen.press("R")
        await screen.until(lambda: "DAMAGED" in screen.text and "evil" not in screen.text)
        await screen.press("G", "enter", "l")
        assert "DAMAGED" in screen.text  # there is no page of it
        shutil.rmtree(store.root)
        await screen.press("R")
        await screen.until(lambda: "0 runs" in screen.text)

    play(store, Answers(), scene, (140, 40))


def test_the_runs_of_a_study_are_one_row_and_a_damaged_study_is_left_out(store: RunStore) -> None:
    points = tuple(
        StudyPoint(n, 1, 1, f"2026010{n}-030405-{name}-0a1b")
        for n, name in ((1, "old"), (3, "new"))
    )
    study = Study("20260101-000000-sizes-0a1b", "sizes", 1000.0, "big", "/", points=points)
    studies = StudyStore(store.root)
    studies.save(replace(study, study_id="20260101-000000-bad-0a1b"))
    (studies.folder("20260101-000000-bad-0a1b") / "study.json").write_text("{", "utf-8")
    studies.save(study)

    async def scene(screen: Screen) -> None:
        await screen.until(
            lambda: "study sizes" in screen.text and "2 runs: 1 running, 1 completed" in screen.text
        )
        await screen.press("enter")
        assert [line.split()[0] for line in screen.lines[2:5]] == ["-", "new", "old"]
        await screen.press("space", "c")
        assert "Cancel 1 run?" in screen.text
        assert "1 other chosen: already ended." in screen.text

    play(store, Answers(), scene)


class Queue(Asked):
    """squeue, and what it lists."""

    listed = JOBS

    def jobs(self) -> list[QueuedJob]:
        self.ask()
        return self.listed

    async def again(self, screen: Screen) -> None:
        """Ask it by a key."""
        asked = self.asked
        await screen.press("R")
        await screen.until(lambda: self.asked > asked)


@pytest.fixture
def squeue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue()
    monkeypatch.setattr(queue, "SlurmQueue", lambda env: made)
    monkeypatch.setattr(Answers, "unavailable", lambda self: None)
    monkeypatch.setattr(queue, "user_name", lambda: "me")
    return made


def test_the_queue_is_asked_once_each_time_whatever_was_pressed_before(
    store: RunStore, squeue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "ASK_EVERY_S", 0.2)

    async def scene(screen: Screen) -> None:
        await screen.press("2")
        await screen.until(lambda: "as of" in screen.lines[0])
        for _ in range(4):
            await squeue.again(screen)
            await screen.press("question_mark", "escape")
        before, began = squeue.asked, time.monotonic()
        await asyncio.sleep(1)
        assert 2 <= squeue.asked - before <= (time.monotonic() - began) / 0.18 + 1
        await screen.press("1")
        await asyncio.sleep(0.1)
        before = squeue.asked
        await asyncio.sleep(0.6)
        assert squeue.asked == before, "Slurm is asked for a screen that is not shown"

    play(store, Answers(), scene)


def test_the_queue_says_what_is_wrong_and_the_cursor_stays_at_its_job(
    store: RunStore, squeue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answers, "unavailable", lambda self: "there is no Slurm here")

    async def scene(screen: Screen) -> None:
        await screen.press("3")
        assert screen.lines[0] == "queue by partition  there is no Slurm here"
        await screen.press("2")
        assert screen.lines[0] == "your jobs that hpcrun did not submit  there is no Slurm here"
        monkeypatch.setattr(Answers, "unavailable", lambda self: None)
        await screen.press("R")
        await screen.until(lambda: "as of" in screen.lines[0] and "held by you" in screen.text)
        assert [line.split()[0] for line in screen.lines[2:5]] == ["7", "8", "10"]
        await screen.press("j")
        table = screen.pilot.app.screen
        assert isinstance(table, TableScreen)
        assert table.row is not None
        assert table.row["job"] == "8"
        squeue.listed = squeue.listed[1:]
        await screen.press("R")
        await screen.until(lambda: screen.lines[2].split()[0] == "8")
        assert table.row is not None
        assert table.row["job"] == "8"
        answered = screen.lines[0].partition("as of")[2]
        squeue.error = SchedulerError("Slurm is away")
        for _ in range(2):  # each failure is shown once
            await squeue.again(screen)
            await screen.until(lambda: "away" in screen.lines[0])
            await asyncio.sleep(0.1)
            assert (
                screen.lines[0]
                == f"your jobs that hpcrun did not submit  Slurm is away; as of{answered}"
            )
            assert screen.lines[2].split()[0] == "8"
        await screen.press("1", "j")
        assert screen.lines[0].startswith("hpcrun top")

    play(store, Answers(), scene)


def test_the_causes_of_elements_that_failed_are_worked_out_a_few_at_a_time(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = LastStatus("FAILED", 1.0, final=True, exit_status=1)
    known = run("20260104-030405-lr-0a1b", created_s=1003.0, job_id="80")
    elements = tuple(
        ElementStatus(n, f"80_{n}", (("lr", str(n)),), failed) for n in range(2 * MOST_AT_ONCE)
    )
    whole = replace(failed, cause="20 elements failed")
    sweep = RunStatus(known, store.folder("20260101-030405-old-0a1b"), whole, elements=elements)
    monkeypatch.setattr("hpcrun.features.top.reader.get_status", lambda *_: StatusResult((sweep,)))
    monkeypatch.setattr(
        "hpcrun.explain.first_line.explained_status",
        lambda item, _: replace(item.status, cause=f"KeyError: {item.element}"),
    )
    reader = Reader(ports(store, Answers(), time.time()), {}, lambda: (), lambda _: {})
    reader.start()
    reader.go_on()
    wait_for(lambda: reader.reading.answered_s is not None, 10, "an answer")
    reader.stop()
    causes = [
        reader.run_status(f"{known.run_id}/{n}").status.cause for n in range(2 * MOST_AT_ONCE)
    ]
    assert causes == [
        f"KeyError: {n}" if n < MOST_AT_ONCE else None for n in range(2 * MOST_AT_ONCE)
    ]


def test_a_failed_run_whose_cause_could_not_be_worked_out_is_asked_again(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    known = run("20260102-030405-bad-0a1b", created_s=1000.0, job_id="70")
    store.create(known, "")
    last = LastStatus("FAILED", 1.0, final=True, forgotten=True, exit_status=1)
    store.save_status(known.run_id, last)
    folder = RunFolder(store.folder(known.run_id)).element(0).attempt(0)
    folder.path.mkdir(parents=True)
    write(folder.start, json.dumps({"job_id": "70", "host": "n0", "started": 1.0}))
    write(folder.rank_exit(0), json.dumps({"rank": 0, "node": "n0", "status": 1, "ended": 2.0}))
    broken = [True]

    def rules() -> Sequence[Rule]:
        if broken:
            raise ProfileError("rules.yaml: line 3 cannot be read")
        return ()

    reader = Reader(ports(store, Answers(), time.time()), {}, rules, lambda _: {})

    def cause() -> str | None:
        return reader.run_status(known.run_id).status.cause

    reader.start()
    reader.go_on()
    wait_for(lambda: reader.reading.answered_s is not None, 10, "an answer")
    assert cause() is None
    broken.clear()
    reader.refresh()
    wait_for(lambda: cause() is not None, 10, "the cause")
    reader.stop()
    assert (cause() or "").startswith("rank 0 on n0 failed")
