"""The page of a run and the page of a log, with real files: what a person sees after a key."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest
from textual.events import Mount
from textual.pilot import Pilot

from hpcrun.actions.status.run_status import ElementStatus, RunStatus, element_row
from hpcrun.errors import HpcrunError, NotFoundError
from hpcrun.explain.diagnosis.rules import Rule
from hpcrun.features.top import log_page, run_page
from hpcrun.features.top.app import TopApp
from hpcrun.features.top.log_page import LogPage
from hpcrun.features.top.log_window import LogView, open_logs
from hpcrun.features.top.run_page import RunPage
from hpcrun.features.top.sections import RanksSection
from hpcrun.job.run_paths import AttemptFolder, RunFolder
from hpcrun.runs.attempt import attempts
from hpcrun.runs.log_files import LogFile
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run, write


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of a run is read anew much more often than for a person."""
    monkeypatch.setattr(run_page, "TICK_S", 0.05)


@dataclass
class _Desk:
    """A reader over one run, whose files are real; ``opens`` holds up all reading until it is
    set.
    """

    item: RunStatus
    gone: str = ""
    asked: int = 0
    opens: threading.Event = field(default_factory=threading.Event)
    app: TopApp | None = None
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.opens.set()

    @property
    def reader(self) -> Any:
        return self

    def run_status(self, run_id: str) -> RunStatus:
        self.asked += 1
        if self.gone:
            raise NotFoundError(self.gone)
        index = run_id.partition("/")[2]
        return element_row(self.item, self.item.elements[int(index)]) if index else self.item

    def stop(self) -> None:
        self.opens.set()

    def rules(self) -> Sequence[Rule]:
        return ()

    def metric_patterns(self, profile: str) -> Mapping[str, str]:
        return {}

    def now_s(self) -> float:
        return time.time()

    def in_background(
        self,
        call: Callable[[], Any],
        then: Callable[[Any], object],
        failed: Callable[[HpcrunError | OSError], object],
    ) -> None:
        def work() -> None:
            self.opens.wait(20)
            assert self.app is not None
            try:
                answer = call()
            except (HpcrunError, OSError) as error:
                self.app.call_later(failed, error)
            else:
                self.app.call_later(then, answer)

        threading.Thread(target=work, daemon=True).start()


class _App(TopApp):
    """Shows one page."""

    def __init__(self, desk: _Desk, page: RunPage | LogPage) -> None:
        super().__init__(desk.reader)
        desk.app, self._page = self, page

    def on_mount(self, event: Mount) -> None:  # type: ignore[override]
        event.prevent_default()
        self.push_screen(self._page)


def _screen(app: TopApp) -> str:
    return "\n".join(
        "".join(part.text for part in strip).rstrip()
        for strip in app.screen._compositor.render_strips()
    )


async def _seen(pilot: Pilot[None], text: str) -> str:
    end = time.monotonic() + 20
    while text not in (shown := _screen(pilot.app)):  # type: ignore[arg-type]
        assert time.monotonic() < end, f"{text!r} does not come:\n{shown}"
        await pilot.pause(0.02)
    return shown


def _watch(
    desk: _Desk, page: RunPage | LogPage, look: Callable[[Pilot[None]], Coroutine[Any, Any, None]]
) -> None:
    async def watch() -> None:
        async with _App(desk, page).run_test(size=(80, 24)) as pilot:
            await look(pilot)

    asyncio.run(watch())


def _play(
    desk: _Desk, page: RunPage | LogPage, *steps: tuple[str | Callable[[], object], str]
) -> list[str]:
    """Press some keys, type a search or do something, and wait for a text; return what was shown
    each time.
    """
    shown = []

    async def look(pilot: Pilot[None]) -> None:
        for keys, text in steps:
            if not isinstance(keys, str):
                answer = keys()
                await (answer if isawaitable(answer) else asyncio.sleep(0))
            elif keys.startswith("/"):
                await pilot.press(
                    "slash", *("space" if key == " " else key for key in keys[1:]), "enter"
                )
            else:
                await pilot.press(*keys.split())
            shown.append(await _seen(pilot, text))

    _watch(desk, page, look)
    return shown


def _attempt(path: Path, number: int = 0) -> AttemptFolder:
    folder = RunFolder(path).element(0).attempt(number)
    folder.path.mkdir(parents=True)
    write(folder.start, json.dumps({"job_id": "4711", "host": "n0", "started": time.time() - 60}))
    return folder


def _given(path: Path, world_size: int = 4, state: str = "FAILED") -> tuple[_Desk, AttemptFolder]:
    """A run of which rank 2 failed."""
    folder = _attempt(path)
    for rank in range(world_size):
        write(folder.rank_log(rank, "out"), f"rank {rank} [bold]step 9[/bold]\n")
        end = {
            "rank": rank,
            "node": f"n{rank // 8}",
            "status": 1 if rank == 2 else 143,
            "ended": time.time() - 9,
        }
        if state == "FAILED":
            write(folder.rank_exit(rank), json.dumps(end))
    write(folder.rank_log(2, "err"), "Traceback (most recent call last):\nKeyError: 'recall'\n")
    write(
        folder.rank_metrics(0),
        "".join(f'{{"step": {n}, "loss": {9 - n}, "acc": {n}}}\n' for n in range(9)),
    )
    write(
        RunFolder(path).script,
        "#!/bin/bash\n#SBATCH --nodes=1\n" + "echo line\n" * 50 + "srun train\n",
    )
    cause = "rank 2 failed first: KeyError"
    status = LastStatus(state, time.time(), final=state == "FAILED", exit_status=1, cause=cause)
    return _Desk(
        RunStatus(run(request={"script": "train.py"}, world_size=world_size), path, status)
    ), folder


def test_each_number_shows_a_section(tmp_path: Path) -> None:
    desk, _ = _given(tmp_path)
    ranks, *others = _play(
        desk,
        RunPage(desk.reader, "r"),
        ("", "KeyError: 'recall'"),
        ("2", "1 attempt: ran"),
        ("3", "loss by step (1 of 2"),
        ("4", "No use of the hardware"),
        ("5", "rank 2 on n0 failed"),
        ("6", "#SBATCH --nodes=1"),
        ("7", "hpcrun submit"),
        ("3 m", "acc by step (2 of 2"),
    )
    lines = ranks.splitlines()
    assert lines[0].startswith("FAILED  train  job 4711")
    assert lines[1].startswith("KeyError (rank 2)")
    assert lines[3].endswith("ago; 1 failed, 3 terminated")
    assert [line.split()[0] for line in lines[5:9]] == ["2", "0", "1", "3"]
    assert "rank 0 [bold]step 9[/bold]" in ranks
    assert max(len(line) for shown in others for line in shown.splitlines()) <= 80


def test_ranks_are_filtered_and_their_logs_opened(tmp_path: Path) -> None:
    desk, _ = _given(tmp_path, 512)

    asked = []

    def note() -> None:
        asked.append(desk.asked)

    shown = _play(
        desk,
        RunPage(desk.reader, "r"),
        ("", "KeyError: 'recall'"),
        ("G", "512 ranks, end"),
        ("", "rank 511 [bold]step 9[/bold]"),
        ("slash n 6 3", "8 of 512 ranks shown"),
        ("enter down enter", "rank 505, out and err"),
        (note, ""),
        (lambda: asyncio.sleep(0.2), ""),
        (note, ""),
        ("escape", "8 of 512 ranks shown"),
        ("escape", "1 failed, 511 terminated"),
    )
    assert "/n63" in shown[3]
    assert asked[0] == asked[1], "the page reads on below the log"


def test_lines_are_searched(tmp_path: Path) -> None:
    desk, _ = _given(tmp_path)
    shown = _play(
        desk,
        RunPage(desk.reader, "r"),
        ("6", "53 lines, top"),
        ("/bash", "/bash: line 1 of 53"),
        ("/srun", "/srun: line 53 of 53"),
        ("n", "/srun: from the top again, line 53 of 53"),
        ("/line", "/line: from the top again, line 3 of 53"),
        ("N", "/line: from the end again, line 52 of 53"),
        ("/[zz", "/[zz: searched as plain text (no regular expression), no match"),
        ("g R", "#!/bin/bash"),
    )
    assert "srun train" in shown[2]


def test_a_line_at_the_top_stays_when_lines_are_wrapped_no_longer(tmp_path: Path) -> None:
    desk, _ = _given(tmp_path)
    write(RunFolder(tmp_path).script, f"#!/bin/bash -{'x' * 100}\n" + "echo line\n" * 50)
    shown = _play(
        desk,
        RunPage(desk.reader, "r"),
        ("6", "#!/bin/bash"),
        ("w j", "long lines are wrapped"),
        ("w", "long lines go on to the right"),
    )
    assert "#!/bin/bash" not in shown[1]
    assert "#!/bin/bash" in shown[2]


def test_a_screen_down_keeps_a_line_and_a_step_to_the_right_ends_wrapping(tmp_path: Path) -> None:
    desk, _ = _given(tmp_path)
    script = RunFolder(tmp_path).script
    script.write_text(script.read_text("utf-8") + "word " * 40 + "\n", "utf-8")
    *_, last_page, _, wrapped, right = _play(
        desk,
        RunPage(desk.reader, "r"),
        ("6", "54 lines, top"),
        ("space", "54 lines, 33%"),
        ("pageup", "54 lines, top"),
        ("G", "54 lines, end"),
        ("w", "long lines are wrapped"),
        ("G", "echo line"),
        ("l", "54 lines, "),
    )
    assert last_page.count("word") == 16
    assert last_page.splitlines()[-3].endswith("…")
    assert wrapped.count("word") == 40
    assert "cho line" not in right  # a step is longer than these lines


def test_a_file_system_that_hangs_is_named_and_keys_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, _ = _given(tmp_path)
    desk.opens.clear()
    monkeypatch.setattr(run_page, "LATE_S", 0.0)

    _play(
        desk,
        RunPage(desk.reader, "r"),
        ("", "the file system has not responded for 0 s: "),
        ("6", "reading ..."),
        (desk.opens.set, "#!/bin/bash"),
    )


def test_a_run_that_is_removed_leaves_what_was_read(tmp_path: Path) -> None:
    desk, _ = _given(tmp_path)

    shown = _play(
        desk,
        RunPage(desk.reader, "r"),
        ("", "KeyError: 'recall'"),
        (RunFolder(tmp_path).script.unlink, ""),
        ("6", "No such file or directory: /"),
        (lambda: setattr(desk, "gone", "there is no run 'r' any more"), ""),
        ("1", "there is no run 'r' any more; shown is what was last read"),
    )
    assert "KeyError: 'recall'" in shown[-1]


def test_a_sweep_shows_one_element_and_its_cause(tmp_path: Path) -> None:
    desk, _ = _given(tmp_path)
    cause = "KeyError: 'recall' (rank 2, n0)"
    element = ElementStatus(0, "4711_0", (("lr", "0.1"),), replace(desk.item.status, cause=cause))
    desk.item = replace(
        desk.item, elements=(element,), status=replace(desk.item.status, cause="whole")
    )
    shown, _ = _play(desk, RunPage(desk.reader, "r"), ("", "lr=0.1"), ("", cause))
    assert shown.startswith("FAILED  train/0  job 4711_0")


def test_a_log_is_followed_and_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, folder = _given(tmp_path, state="RUNNING")
    out = folder.rank_log(0, "out")
    out.write_text("first needle\n" + "".join(f"line {n}\n" for n in range(30_000)))
    write(folder.rank_log(0, "err"), "2026-11-20 10:00:00 on stderr\x1b]0;title\x07\n")
    monkeypatch.setattr(log_page, "READ_EVERY_S", 0.02)

    async def look(pilot: Pilot[None]) -> None:
        await _seen(pilot, "line 29999")
        with out.open("a") as file:
            file.write("\x1b[31mred\x1b[0m [b]new[/b]\x1b[2J")
        assert "following (" in await _seen(pilot, "red [b]new[/b]")

    _watch(desk, LogPage(desk.reader, desk.item, 0), look)
    # while something is drawn, a test waits longer for its keys
    monkeypatch.setattr(log_page, "READ_EVERY_S", 1.0)
    shown = _play(
        desk,
        LogPage(desk.reader, desk.item, 0),
        ("", "red [b]new[/b]"),
        ("/NEEDLE", "/NEEDLE: no match in this log"),
        ("/[b]new[", "/[b]new[: searched as plain text (no regular expression), n next"),
        ("/needle", "first needle"),
        ("n", "/needle: from the top again, n next"),
        ("/line 29999", "/line 29999: n next"),
        ("/first", "/first: from the top again, n next"),
        ("/line 29999", "/line 29999: "),
        ("N", "line 29999"),
        ("N", "/line 29999: from the end again, n next"),
        ("G", "red [b]new[/b]"),
        ("g", "beginning ("),
        ("o", "rank 0, out, attempt 1"),
        ("", "line 29999"),
        ("o", "rank 0, err"),
        ("", "2026-11-20 10:00:00 on stderr"),
        ("t", "\n10:00:00 on stderr"),
        ("right_square_bracket", "rank 1, err"),
    )
    assert "2026-11-20" not in shown[-2]


def test_a_log_goes_on_with_the_next_attempt_and_says_that_its_run_has_ended_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, _ = _given(tmp_path, state="RUNNING")
    reads: list[Path] = []

    def noted(folder: Path, element: int) -> Any:
        reads.append(folder)
        return attempts(folder, element)

    monkeypatch.setattr(log_page, "READ_EVERY_S", 0.02)
    monkeypatch.setattr(log_page, "NEW_ATTEMPT_EVERY_S", 0.5)
    monkeypatch.setattr(log_page, "attempts", noted)

    async def look(pilot: Pilot[None]) -> None:
        await _seen(pilot, "following (")
        write(_attempt(tmp_path, 1).rank_log(0, "out"), "again\n")
        assert "again" in await _seen(pilot, "rank 0, out and err, attempt 2")
        await _seen(pilot, "attempt 2 began")
        # it is short: the run ends before it is looked for
        write(_attempt(tmp_path, 2).rank_log(0, "out"), "last\n")
        desk.item = replace(
            desk.item, status=replace(desk.item.status, state="COMPLETED", final=True)
        )
        assert "last" in await _seen(pilot, "rank 0, out and err, attempt 3")
        shown = await _seen(pilot, "end (")
        assert "following" not in shown
        assert "began" not in shown
        asked = len(reads)
        await pilot.pause(0.7)
        assert len(reads) == asked, "attempts are looked for after the end"
        desk.gone = "there is no run 'r' any more"
        await pilot.pause(0.2)
        await _seen(pilot, "last")

    _watch(desk, LogPage(desk.reader, desk.item, 0), look)


@pytest.mark.parametrize(
    ("page", "error", "words"),
    [
        ("run", OSError("timed out"), "timed out"),
        ("log", OSError(5, "Input/output error"), "Input/output error"),
        ("run", PermissionError(13, "Permission denied", "/runs/x"), "Permission denied: /runs/x"),
        ("log", PermissionError(13, "Permission denied", "/runs/x"), "Permission denied: /runs/x"),
    ],
)
def test_an_error_is_shown_with_its_file_if_it_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, words: str, page: str
) -> None:
    desk, _ = _given(tmp_path)

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(RanksSection, "read", fails)
    monkeypatch.setattr(log_page, "open_logs", fails)
    shown = _play(
        desk,
        RunPage(desk.reader, "r") if page == "run" else LogPage(desk.reader, desk.item, 0),
        ("", words),
    )
    assert words in [line.strip() for line in shown[0].splitlines()]


def test_a_log_that_could_not_be_opened_is_opened_when_the_file_system_responds_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, _ = _given(tmp_path, state="RUNNING")
    monkeypatch.setattr(log_page, "READ_EVERY_S", 0.02)
    monkeypatch.setattr(log_page, "SLOWEST_S", 0.3)
    fails, tried = [True], []

    def opened(logs: Sequence[LogFile]) -> LogView:
        tried.append(time.monotonic())
        if fails:
            raise OSError(116, "Stale file handle")
        return open_logs(logs)

    monkeypatch.setattr(log_page, "open_logs", opened)

    async def look(pilot: Pilot[None]) -> None:
        await _seen(pilot, "Stale file handle")
        await pilot.pause(1)
        assert len(tried) <= (time.monotonic() - tried[0]) / 0.3 + 1
        fails.clear()
        assert "Stale" not in await _seen(pilot, "rank 0 [bold]step 9[/bold]")

    _watch(desk, LogPage(desk.reader, desk.item, 0), look)


def test_the_log_of_an_earlier_attempt_is_opened(tmp_path: Path) -> None:
    desk, _ = _given(tmp_path, state="RUNNING")
    write(_attempt(tmp_path, 1).rank_log(0, "out"), "again\n")
    shown = _play(
        desk,
        RunPage(desk.reader, "r"),
        ("2", "2 attempts: ran"),
        ("k enter", "attempt 1"),
        ("", "end ("),
        ("left_curly_bracket", "there is no earlier attempt"),
        ("right_curly_bracket", "following ("),
        ("left_curly_bracket", "step 9"),
        ("escape enter", "attempt 1"),
    )
    assert "rank 0 [bold]step 9[/bold]" in shown[2]
    assert "again" in shown[4]


@pytest.mark.parametrize("page", ["run", "log"])
def test_what_is_read_for_a_page_that_was_left_is_not_shown(tmp_path: Path, page: str) -> None:
    desk = _given(tmp_path)[0]
    desk.opens.clear()

    async def look(pilot: Pilot[None]) -> None:
        await _seen(pilot, "reading ...")
        await pilot.press("escape")
        desk.opens.set()
        await pilot.pause(0.3)
        assert pilot.app._exception is None

    _watch(
        desk,
        RunPage(desk.reader, "r") if page == "run" else LogPage(desk.reader, desk.item, 0),
        look,
    )
