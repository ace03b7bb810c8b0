"""logs: which rank of a failed run is shown, and why there is no log."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcrun.actions.runs.log_choice import LogChoice
from hpcrun.actions.status.run_status import RunStatus, StatusResult
from hpcrun.cli import logs
from hpcrun.explain.first_line import Ending
from hpcrun.job.run_paths import RoleRanks
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run

SERVER = RoleRanks("server", 0, 1, 0, 1, "end")
TRAINER = RoleRanks("trainer", 1, 4, 1, 1, "end")


def failed_rank(
    monkeypatch: pytest.MonkeyPatch, end: Ending, *, choice: LogChoice, state: str = "FAILED"
) -> tuple[LogChoice, str | None]:
    """Return the choice and the remark for a run that ended in this way and whose logs exist."""
    item = RunStatus(run(), Path(), LastStatus(state, 500.0, final=True))
    context: Any = SimpleNamespace(store=None, rules=None, now_s=lambda: 600.0)
    monkeypatch.setattr(logs, "last_known", lambda *_, **__: StatusResult((item,)))
    monkeypatch.setattr(logs, "ending", lambda *_: end)
    monkeypatch.setattr(logs, "finished_logs", lambda *_: ["rank.out"])
    return logs._with_failed_rank(choice, logs._LogSource(Path("runs/train")), context)


@pytest.mark.parametrize(
    ("end", "ranks", "remark"),
    [
        (
            Ending("", rank=3),
            (3,),
            "hpcrun: showing rank 3, which failed first; others: --role server, or --all-ranks",
        ),
        (
            Ending("", rank=2, role=TRAINER),
            (3,),
            "hpcrun: showing trainer rank 2, which failed first; others: --role server, or "
            "--all-ranks",
        ),
        (
            Ending("", role=TRAINER),
            (1,),
            "hpcrun: showing trainer rank 0; others: --role server, or --all-ranks",
        ),
    ],
    ids=["a rank", "a rank of a role", "a role"],
)
def test_the_rank_that_failed_first_is_shown_as_the_job_counts_it(
    monkeypatch: pytest.MonkeyPatch, end: Ending, ranks: tuple[int, ...], remark: str
) -> None:
    choice = LogChoice((0,), (SERVER, TRAINER))
    first, text = failed_rank(monkeypatch, end, choice=choice)
    assert first.ranks == ranks
    assert text == remark


def test_the_choice_stays_without_a_failure_or_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = LogChoice((0,))
    kept = (choice, None)
    assert failed_rank(monkeypatch, Ending(""), choice=choice) == kept
    assert failed_rank(monkeypatch, Ending("", rank=0), choice=choice) == kept
    assert failed_rank(monkeypatch, Ending("", rank=3), choice=choice, state="COMPLETED") == kept


@pytest.mark.parametrize(
    ("status", "roles", "text"),
    [
        (
            LastStatus("PENDING", 500.0, reason="Priority"),
            (),
            "no output yet: the job is PENDING (Priority)",
        ),
        (
            LastStatus("RUNNING", 500.0),
            (SERVER,),
            "no output yet: the job is RUNNING; --all-ranks shows all roles",
        ),
        (LastStatus("CANCELLED", 500.0, final=True), (), "no output: the job is CANCELLED"),
    ],
    ids=["pending", "roles", "ended"],
)
def test_why_there_is_no_log(
    tmp_path: Path, status: LastStatus, roles: tuple[RoleRanks, ...], text: str
) -> None:
    waiter: Any = SimpleNamespace(current=lambda: RunStatus(run(), tmp_path, status))
    source = logs._LogSource(tmp_path, waiter=waiter)
    assert logs._nothing(source, LogChoice(roles=roles)) == text
