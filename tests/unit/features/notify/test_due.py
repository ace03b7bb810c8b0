"""Which messages are due, from the records of a run, and what their texts say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.status.run_status import ElementStatus, RunStatus
from hpcrun.features.notify.deliveries import SENT, MessageClaim
from hpcrun.features.notify.due import due_events, notify_of, send_late, status_in_job
from hpcrun.features.notify.message_text import clean_line, message_of
from hpcrun.features.notify.send import Message
from hpcrun.job.request.notify_options import EVENTS, Notify
from hpcrun.job.run_paths import RunFolder
from hpcrun.job.text.patterns import compile_pattern
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run, write

NOW_S = 10_000.0
ALL = Notify(("$A",))
SWEEP = {"sweep": {"indices": "0-2", "first": 0}}


def record(
    folder: Path, *, element: int = 0, number: int = 0, exit_: dict[str, Any] | None = None
) -> Path:
    """An attempt that started 100 s ago, and how it ended, if it has."""
    attempt = folder / f"elements/{element}/attempts/{number}"
    write(
        attempt / "start",
        json.dumps({"job_id": "4711", "host": "n1", "started": NOW_S - 100 + number}),
    )
    write(attempt / "hosts", "n1\nn2\n")
    if exit_ is not None:
        said = {
            "status": 0,
            "signal": "",
            "ended": NOW_S - 1,
            "message": "",
            "reason": "",
            "again": False,
            **exit_,
        }
        write(attempt / "exit", json.dumps(said))
    return attempt


def in_job(folder: Path, **fields: Any) -> RunStatus:
    return status_in_job(run(created_s=NOW_S - 8000, **fields), folder, NOW_S)


def message(folder: Path, event: str, **fields: Any) -> Message:
    return message_of(event, in_job(folder, **fields), NOW_S, lambda _: "", dict)


def test_a_run_tells_of_its_start_its_first_step_and_its_end(tmp_path: Path) -> None:
    attempt = record(tmp_path)
    assert due_events(in_job(tmp_path), ALL, NOW_S) == ["started"]
    write(attempt / "rank-0.metrics", '{"time": 9990, "step": 1, "loss": 2.5}\n')
    assert due_events(in_job(tmp_path), ALL, NOW_S) == ["started", "first-step"]
    record(tmp_path, exit_={"status": 0})
    assert due_events(in_job(tmp_path), ALL, NOW_S) == ["finished"]
    assert due_events(in_job(tmp_path), ALL, NOW_S, "started") == ["started", "finished"]
    assert due_events(in_job(tmp_path), ALL, NOW_S + 2 * 86400) == []
    started, finished = message(tmp_path, "started"), message(tmp_path, "finished")
    assert started.title == "train started after 2 h in the queue"
    assert finished.title == "train completed after 99 s"
    assert finished.kind == "success"
    assert (
        finished.body
        == "step=1 loss=2.5\njob 4711 on n[1-2], cluster alpha, run 20260102-030405-train-0a1b"
    )


def test_an_attempt_that_is_followed_by_another_one_is_a_failure_of_its_own(tmp_path: Path) -> None:
    record(tmp_path, exit_={"reason": "preemption", "again": True, "how": "requeue", "status": 143})
    assert due_events(in_job(tmp_path), ALL, NOW_S) == ["attempt-0"]
    said = message(tmp_path, "attempt-0")
    assert said.title == "train: attempt 1 was preempted, requeued"
    assert said.body.splitlines()[0] == "preempted"
    record(tmp_path, number=1)
    assert due_events(in_job(tmp_path), ALL, NOW_S) == ["attempt-0"]
    record(tmp_path, number=1, exit_={"status": 3})
    assert due_events(in_job(tmp_path), Notify(("$A",), ("failed",)), NOW_S) == ["finished"]
    assert due_events(in_job(tmp_path), Notify(("$A",), ("started",)), NOW_S) == []


@pytest.mark.parametrize(
    ("exit_", "title"),
    [
        ({"reason": "time_limit", "status": 124}, "reached its time limit, requeued"),
        (
            {"reason": "node_failure", "how": "restart"},
            "lost a node, restarted in the same allocation",
        ),
        ({"reason": "requeued", "status": 143}, "ended, requeued"),
        ({"reason": "failure", "status": 3}, "failed, requeued"),
        ({"status": 3, "how": ""}, "failed, the next attempt follows"),
    ],
)
def test_the_message_about_an_attempt_says_how_it_ended(
    tmp_path: Path, exit_: dict[str, Any], title: str
) -> None:
    record(tmp_path, exit_={"again": True, "how": "requeue", **exit_})
    assert message(tmp_path, "attempt-0").title == f"train: attempt 1 {title}"


def test_a_node_that_died_without_a_word_ended_its_attempt(tmp_path: Path) -> None:
    record(tmp_path)
    record(tmp_path, number=1)
    assert due_events(in_job(tmp_path), ALL, NOW_S) == ["attempt-0"]
    sent = message(tmp_path, "attempt-0")
    assert sent.title == "train: attempt 1 ended, the next attempt follows"
    assert sent.body.startswith("no record of its end, cause unknown\n")
    (dead,) = tmp_path.glob("**/attempts/0")
    (dead / "dead-nodes").write_text('{"nodes": ["n1"], "asked": 5.0}')
    sent = message(tmp_path, "attempt-0")
    assert sent.title == "train: attempt 1 lost a node, the next attempt follows"
    assert sent.body.startswith("no heartbeat from n1: a node failed\n")


def test_a_job_that_waits_for_long_is_told_while_it_waits(tmp_path: Path) -> None:
    pending = RunStatus(
        run(created_s=NOW_S - 3601), tmp_path, LastStatus("PENDING", NOW_S, reason="Priority")
    )
    assert due_events(pending, ALL, NOW_S) == ["waiting"]
    assert due_events(pending, ALL, NOW_S - 2) == []
    assert due_events(pending, Notify(("$A",), EVENTS, 7200), NOW_S) == []
    assert (
        message_of("waiting", pending, NOW_S + 3600, lambda _: "", dict).title
        == "train has been pending for 2 h"
    )


def test_idle_gpus_are_told_once_for_each_attempt(tmp_path: Path) -> None:
    write(
        record(tmp_path) / "idle",
        json.dumps({"since": NOW_S - 1500, "warned": NOW_S, "ends": NOW_S + 300}),
    )
    assert due_events(in_job(tmp_path), ALL, NOW_S) == ["started", "idle-0"]
    assert due_events(in_job(tmp_path), Notify(("$A",), ("idle",)), NOW_S) == ["idle-0"]
    said = message(tmp_path, "idle-0")
    assert said.title == "train: its GPUs are idle"
    assert (
        said.body.splitlines()[0]
        == "all of its GPUs have been idle for 25 min; the job ends in 5 min if they stay idle"
    )


def test_a_sweep_has_one_message_for_its_first_failure_and_one_for_its_end(tmp_path: Path) -> None:
    given = {"plan": SWEEP, "request": {"sweep": [[["x", str(x)]] for x in range(3)]}}
    record(tmp_path, element=1, exit_={"status": 3})
    assert due_events(in_job(tmp_path, **given), ALL, NOW_S) == ["first-failure"]
    said = message(tmp_path, "first-failure", **given)
    assert said.title == "train/1 failed, the first element of its sweep"
    for element in (0, 2):
        record(tmp_path, element=element, exit_={"status": 0})
    assert due_events(in_job(tmp_path, **given), ALL, NOW_S) == ["finished"]
    said = message(tmp_path, "finished", **given)
    assert said.title == "train ended: 2 of 3 elements completed"
    assert said.kind == "failure"
    assert said.body.startswith("3 elements: 2 completed, 1 failed\ntrain/1: ")


def test_a_sweep_that_waits_for_long_is_told_until_an_element_starts(tmp_path: Path) -> None:
    sweep = run(created_s=NOW_S - 3601, plan=SWEEP)
    waits = LastStatus("PENDING", NOW_S, reason="Priority")
    elements = tuple(ElementStatus(index, f"4711_{index}", (), waits) for index in range(3))
    counts = LastStatus("PENDING", NOW_S, reason="3 elements: 3 pending")
    pending = RunStatus(sweep, tmp_path, counts, elements=elements)
    assert due_events(pending, ALL, NOW_S) == ["waiting"]
    assert due_events(pending, ALL, NOW_S - 2) == []
    sent = message_of("waiting", pending, NOW_S + 3600, lambda _: "", dict)
    assert sent.title == "train has been pending for 2 h"
    assert sent.body.startswith("reason: Priority\n")
    record(tmp_path, element=1, exit_={"status": 0})
    assert due_events(pending, ALL, NOW_S) == []


def test_a_sweep_has_one_message_about_idle_gpus(tmp_path: Path) -> None:
    given = {"plan": SWEEP, "request": {"sweep": [[["x", str(x)]] for x in range(3)]}}
    idle = {"since": NOW_S - 1500, "warned": NOW_S, "ends": NOW_S + 300}
    record(tmp_path, element=0)
    assert due_events(in_job(tmp_path, **given), ALL, NOW_S) == ["started"]
    for element in (1, 2):
        write(record(tmp_path, element=element) / "idle", json.dumps(idle))
    assert due_events(in_job(tmp_path, **given), ALL, NOW_S) == ["started", "idle-0"]
    sent = message(tmp_path, "idle-0", **given)
    assert sent.title == "train/1: its GPUs are idle, the first element of its sweep"
    assert sent.body.startswith("all of its GPUs have been idle for 25 min; the job ends in 5 min")
    record(tmp_path, element=1, exit_={"status": 0})
    assert message(tmp_path, "idle-0", **given).title.startswith("train/2: ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\x1b[31m\x1b]0;title\x07 b\r\nc", "a b c"),
        ("\u202eevil\u2028", "evil"),
        ("hf_abcdefghijklmnopqrstuv postgres://u:hush@h/", "*** postgres://u:***@h/"),
        (
            "@everyone <!channel> <@U1> me@example.org",
            "@ everyone < !channel> < @ U1> me@example.org",
        ),
        ("**@everyone** _@here_ *@ada*", "**@ everyone** _@ here_ *@ ada*"),
        ("x@everyone x@here.now 7@channel", "x@ everyone x@ here.now 7@ channel"),
        ("root@node1 a@b.org, git@github.com:me/x", "root@ node1 a@b.org, git@github.com:me/x"),
        ("_@ada.b_ ***@ada.b", "_@ ada.b_ ***@ ada.b"),
        ("x" * 999, "x" * 399 + "…"),
        ("see <http://evil.example|the run>", "see < http://evil.example|the run>"),
        ("see <mailto:a@b.org|ok>", "see < mailto:a@b.org|ok>"),
        ("[click](http://evil.example)", "[click] (http://evil.example)"),
        ("![x](http://evil.example/i.png)", "![x] (http://evil.example/i.png)"),
        ("[click]\u200b(http://evil.example)", "[click] (http://evil.example)"),
        ("<\x1b[0mhttp://evil.example|ok>", "< http://evil.example|ok>"),
        ("ValueError in <module>: 1 < 2, x[0] (a)", "ValueError in <module>: 1 < 2, x[0] (a)"),
        ("KeyError: 'a' at https://docs.example/x", "KeyError: 'a' at https://docs.example/x"),
        ("ghp_abcdefghij\u200bklmnopqrstuvwxyz", "***"),
        ("ghp_abcdefghij\x1b[31mklmnopqrstuvwxyz", "***"),
        ("ghp_abcdefghij\u2060\u00adklmnopqrstuvwxyz", "***"),
    ],
)
def test_a_line_from_a_log_can_neither_control_nor_mention_nor_tell_a_secret(
    text: str, line: str
) -> None:
    assert clean_line(text) == line


def test_only_a_record_with_destinations_has_messages() -> None:
    assert notify_of(run()) is None
    assert notify_of(run(plan={"notify": {"to": []}})) is None
    assert notify_of(run(plan={"notify": "x"})) is None
    said = {"to": ["$A", 4], "events": ["failed", "unknown"], "waiting_s": -1}
    assert notify_of(run(plan={"notify": said})) == Notify(("$A",), ("failed",))


def test_the_job_itself_comes_first_and_a_command_tries_once_in_two_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(
        "hpcrun.features.notify.due.leave_running", lambda argv, **_: started.append(list(argv))
    )
    notify: dict[str, Any] = {"to": ["$A", "$B"], "events": list(EVENTS), "waiting_s": 60}
    RunFolder(tmp_path).messages().mkdir()
    record(tmp_path)
    item = in_job(tmp_path, plan={"notify": notify})
    send_late([item], tmp_path, NOW_S - 90)  # it has just started
    for to in notify["to"]:
        MessageClaim(tmp_path, "started", to).close(SENT)
    write(tmp_path / "elements/0/attempts/0/rank-0.metrics", "{}\n")
    send_late([item], tmp_path, NOW_S)  # the job sends: it will send the first step, too
    assert started == []
    record(tmp_path, exit_={"status": 3})
    item = in_job(tmp_path, plan={"notify": notify})
    send_late([replace(item, elsewhere=True)], tmp_path, NOW_S + 40)
    assert started == []
    send_late([item], tmp_path, NOW_S + 40)
    send_late([item], tmp_path, NOW_S + 40)
    assert [argv[3:] for argv in started] == [
        ["-m", "hpcrun", "notify", "--known", item.run.run_id]
    ]


def test_a_job_that_was_cancelled_before_it_started_sends_nothing(tmp_path: Path) -> None:
    cancelled = RunStatus(run(), tmp_path, LastStatus("CANCELLED", NOW_S, final=True))
    assert due_events(cancelled, ALL, NOW_S) == []
    refused = RunStatus(run(), tmp_path, LastStatus("BOOT_FAIL", NOW_S, final=True))
    assert due_events(refused, ALL, NOW_S) == ["finished"]


def test_the_counts_of_a_sweep_that_was_cancelled_are_told_once(tmp_path: Path) -> None:
    status = LastStatus("CANCELLED", NOW_S, final=True, reason="1 cancelled")
    element = ElementStatus(0, "7_0", (), LastStatus("CANCELLED", NOW_S, final=True))
    sweep = RunStatus(run(), tmp_path, status, elements=(element,))
    sent = message_of("finished", sweep, NOW_S, lambda _: "", dict)
    assert sent.body.count("1 cancelled") == 1


def test_a_run_that_did_not_wait_long_started_at_once(tmp_path: Path) -> None:
    record(tmp_path)
    at_once = in_job(tmp_path)
    for before_s, title in ((59, "train started"), (60, "train started after 60 s in the queue")):
        item = replace(at_once, run=replace(at_once.run, created_s=NOW_S - 100 - before_s))
        assert message_of("started", item, NOW_S, lambda _: "", dict).title == title


@pytest.mark.parametrize(
    ("metrics", "title"),
    [('{"time": 9990, "step": 1, "loss": 2.5}\n', "first step"), ("", "first output")],
)
def test_the_first_step_is_told_with_its_metrics(tmp_path: Path, metrics: str, title: str) -> None:
    attempt = record(tmp_path)
    write(attempt / "rank-0.metrics", metrics)
    said = message(tmp_path, "first-step")
    assert said.title == f"train: {title}"
    assert said.kind == "info"
    assert said.body.splitlines()[0] == ("step=1 loss=2.5" if metrics else said.body)


def test_twelve_metrics_are_told(tmp_path: Path) -> None:
    attempt = record(tmp_path)
    for number, more in ((12, ""), (13, " ...")):
        values = {f"m{place}": place for place in range(number)}
        write(attempt / "rank-0.metrics", json.dumps({"time": 9990, **values}) + "\n")
        shown = " ".join(f"m{place}={place}" for place in range(12))
        assert message(tmp_path, "first-step").body.splitlines()[0] == f"{shown}{more}"


def test_metrics_of_a_log_are_told_where_none_were_recorded(tmp_path: Path) -> None:
    attempt = record(tmp_path)
    write(attempt / "rank-0.out", "step 1 loss 2.5\nstep 2 loss 1.25\n")
    write(attempt / "rank-0.metrics", '{"time": 9990, "step": 1, "accuracy": 0.5}\n')
    patterns = {name: compile_pattern(rf"{name} ([\d.]+)") for name in ("loss", "accuracy")}
    said = message_of("first-step", in_job(tmp_path), NOW_S, lambda _: "", lambda: patterns)
    assert said.body.splitlines()[0] == "loss=1.25 step=1 accuracy=0.5"


@pytest.mark.parametrize(
    ("state", "how"),
    [
        ("COMPLETED", "completed"),
        ("FAILED", "failed"),
        ("TIMEOUT", "reached its time limit"),
        ("CANCELLED", "was cancelled"),
        ("PREEMPTED", "was preempted"),
        ("NODE_FAIL", "lost a node"),
        ("OUT_OF_MEMORY", "ran out of memory"),
        ("DEADLINE", "ended as DEADLINE"),
    ],
)
def test_the_end_of_a_run_is_told_in_words(tmp_path: Path, state: str, how: str) -> None:
    record(tmp_path)
    status = LastStatus(state, NOW_S, final=True, reason="by the site", elapsed_s=90)
    item = replace(in_job(tmp_path), status=status)
    said = message_of("finished", item, NOW_S, lambda _: "", dict)
    assert said.title == f"train {how} after 90 s"
    lines = said.body.splitlines()
    assert ("hpcrun explain 4711" in lines) == (state not in ("COMPLETED", "CANCELLED"))
    assert ("by the site" in lines) == (state != "COMPLETED")
    assert said.kind == ("success" if state == "COMPLETED" else "failure")


def test_a_long_line_of_a_message_is_cut() -> None:
    assert clean_line("x" * 400) == "x" * 400
    assert clean_line("x" * 401) == "x" * 399 + "…"
