"""Runs of several programs, as people see them: whose a line is, what each role does, and who
failed first.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Hpcrun
from tests.local.recorded import STARTED_S, Recorded, record, replace_fields

SERVER = {
    "name": "server",
    "first_rank": 0,
    "ranks": 1,
    "first_node": 0,
    "nodes": 1,
    "on_exit": "fail",
    "launcher": "command",
    "ready": "tcp:{port}",
    "after": [],
}
TRAINER = {
    "name": "trainer",
    "first_rank": 1,
    "ranks": 3,
    "first_node": 1,
    "nodes": 3,
    "on_exit": "end",
    "launcher": "torchrun",
    "ready": "",
    "after": ["server"],
}
ERROR = (
    'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in <module>\n    '
    'lr = config["lr"]\n'
)


def roles(hpcrun: Hpcrun, name: str = "serve", **more: Any) -> Recorded:
    run = record(hpcrun, name)
    replace_fields(run.folder / "run.json", nodes=4, plan={"roles": [SERVER, TRAINER]}, **more)
    (run.attempt() / "hosts").write_text("n1\nn2\nn3\nn4\n")
    run.log("listening\n", 0)
    for rank in (1, 2, 3):
        run.log(f"{rank}\n", rank)
        node = {"node": f"n{rank + 1}", "first_rank": rank, "ranks": 1, "started": STARTED_S}
        (run.attempt() / f"node-n{rank + 1}.start").write_text(json.dumps(node))
    return run


def ended(run: Recorded, rank: int, status: int, after_s: float = 10.0, **more: Any) -> None:
    end = {
        "rank": rank,
        "node": f"n{rank + 1}",
        "status": status,
        "ended": STARTED_S + after_s,
        **more,
    }
    (run.attempt() / f"rank-{rank}.exit").write_text(json.dumps(end))


def test_logs_name_the_role_and_count_its_own_ranks(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    roles(hpcrun)
    record(hpcrun, "alone")
    for words, status, shown, message in (
        ("serve", 0, "1\n", ""),  # the deciding role's
        ("serve --role server", 0, "listening\n", ""),
        ("serve --role trainer", 0, "[trainer 0] 1\n[trainer 1] 2\n[trainer 2] 3\n", ""),
        ("serve --role trainer --rank 1-2", 0, "[trainer 1] 2\n[trainer 2] 3\n", ""),
        ("serve --role trainer --merge --grep 2", 0, "[trainer 1] 2\n", ""),
        ("serve -f --role trainer --rank 2", 0, "3\n", ""),
        (
            "serve --all-ranks",
            0,
            "[server] listening\n[trainer 0] 1\n[trainer 1] 2\n[trainer 2] 3\n",
            "",
        ),
        ("serve --node n3", 0, "[trainer 1] 2\n", ""),
        ("serve --rank 0,3", 0, "[server] listening\n[trainer 2] 3\n", ""),
        (
            "serve --role trainer --rank 3",
            6,
            "",
            "role trainer has no rank 3\nhint: its ranks are 0 to 2\n",
        ),
        (
            "serve --role trianer",
            6,
            "",
            "serve has no role 'trianer'\nhint: did you mean 'trainer'?\n",
        ),
        (
            "alone --role trainer",
            6,
            "",
            "alone has no role 'trainer'\nhint: it is a job of one program\n",
        ),
        ("serve --role trainer --batch", 2, "", "--role and --batch cannot be combined"),
    ):
        with subtests.test(words=words):
            done = hpcrun("logs", *words.split())
            assert (done.returncode, done.stdout, message in done.stderr) == (
                status,
                shown,
                True,
            ), (
                words,
                done.stderr,
            )


def test_metrics_are_those_of_the_deciding_role(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    run = roles(hpcrun)
    for rank in range(4):
        (run.attempt() / f"rank-{rank}.metrics").write_text(
            f'{{"time": 1.0, "step": 1, "loss": {rank}}}\n'
        )
    for words, losses in (
        ("", [1]),
        ("--all-ranks", [1, 2, 3]),
        ("--role server", [0]),
        ("--rank 2", [3]),
    ):
        with subtests.test(words=words):
            rows = json.loads(hpcrun("metrics", *words.split(), "--json").stdout)["rows"]
            assert [row["values"]["loss"] for row in rows] == losses, words
    assert "did you mean 'server'?" in hpcrun("metrics", "--role", "sever").stderr


def test_explain_blames_the_role_that_failed_first_and_no_terminated_one(hpcrun: Hpcrun) -> None:
    run = roles(hpcrun)
    run.log(f"{ERROR}KeyError: 'lr'\n", 3, "err")
    ended(run, 3, 1)
    for rank in (1, 2):
        ended(run, rank, 143, 11.0, told="cleared")
    ended(run, 0, 1, 12.0, told="TERM")  # a server that reports SIGTERM as an error of its own
    run.log("ERROR: Connection reset by peer\n", 0, "err")
    run.ended(STARTED_S + 20, 1)
    done = hpcrun("explain")
    assert done.stdout.startswith(
        "trainer rank 2 on n4 failed first: KeyError: 'lr' at train.py:9\n"
    ), done.stdout
    assert "rank-3.err" in done.stdout
    assert done.stdout.rstrip().endswith("hpcrun logs L1 --role trainer --rank 2")
    shown = json.loads(hpcrun("explain", "--json").stdout)
    assert shown["role"] == "trainer"
    assert shown["rank"] == 2
    assert shown["node"] == "n4"
    assert "KeyError: 'lr' at train.py:9 (trainer rank 2, n4)" in hpcrun.screen(
        "status", columns=160
    )
    logs = hpcrun("logs", "--err")
    assert logs.stdout.endswith("KeyError: 'lr'\n")
    assert (
        "showing trainer rank 2, which failed first; others: --role server, or --all-ranks"
        in logs.stderr
    )


def test_explain_of_a_server_that_died(hpcrun: Hpcrun) -> None:
    """Of a role without which the job fails any end counts; what the others say of it is a
    consequence.
    """
    for status, says in (
        (1, "KeyError: 'port' at"),
        (0, "server on n1 ended with exit status 0, but the job"),
    ):
        run = roles(hpcrun, f"dead{status}")
        run.log(f"{ERROR}KeyError: 'port'\n" if status else "bye\n", 0, "err")
        ended(run, 0, status)
        run.log("ConnectionRefusedError: [Errno 111] Connection refused\n", 1, "err")
        ended(run, 1, 1, 11.0)
        run.ended(STARTED_S + 20, 1)
        replace_fields(
            run.attempt(over=False) / "exit", message="role trainer on n2 ended with status 1"
        )
        done = hpcrun("explain", f"dead{status}")
        assert done.stdout.startswith("server on n1 failed first: KeyError" if status else says), (
            done.stdout
        )
        assert "--role server" in done.stdout.splitlines()[-1], done.stdout


def test_the_end_of_a_role_that_does_not_matter_is_no_failure(hpcrun: Hpcrun) -> None:
    run = roles(hpcrun)
    plan = {"roles": [{**SERVER, "on_exit": "ignore"}, TRAINER]}
    replace_fields(run.folder / "run.json", plan=plan)
    ended(run, 0, 1)
    run.log(f"{ERROR}KeyError: 'lr'\n", 2, "err")
    ended(run, 2, 1, 11.0)
    run.ended(STARTED_S + 20, 1)
    assert hpcrun("explain").stdout.startswith("trainer rank 1 on n3 failed first: KeyError: 'lr'")


def test_explain_of_a_killed_launcher(hpcrun: Hpcrun) -> None:
    """Its ranks are terminated as those of the other role are; it may have had none yet."""
    run = roles(hpcrun)
    for rank in range(4):
        ended(run, rank, 143, 12.0, told="cleared")
    run.log("hpcrun: the launcher of this rank on n2 was killed\n", 1, "err")
    run.ended(STARTED_S + 20, 137)
    lost = "role trainer on n2 has lost its process of hpcrun, which was killed (SIGKILL)"
    replace_fields(run.attempt(over=False) / "exit", message=lost)
    assert hpcrun("explain").stdout.startswith(f"{lost}\n")
    for rank in range(4):
        (run.attempt(over=False) / f"rank-{rank}.exit").unlink()
        (run.attempt(over=False) / f"rank-{rank}.out").unlink()
    replace_fields(
        run.attempt(over=False) / "exit", message="role trainer on n2 ended with status 137"
    )
    done = hpcrun("explain").stdout
    assert done.startswith("role trainer on n2 ended with status 137 (killed, SIGKILL)\n"), done


def test_explain_of_a_role_that_was_not_ready(hpcrun: Hpcrun) -> None:
    run = roles(hpcrun)
    for rank in (1, 2, 3):
        (run.attempt() / f"rank-{rank}.out").unlink()
    ended(run, 0, 143, told="cleared")
    run.ended(STARTED_S + 20, 1)
    message = (
        "role server on n1 was not ready after 600 s: tcp:8000; the last line of its log: listening"
    )
    replace_fields(run.attempt(over=False) / "exit", message=message)
    lines = hpcrun("explain").stdout.splitlines()
    assert lines[0] == message
    assert "listening" in "".join(lines[1:])
    assert lines[-1] == "next  hpcrun logs L1 --role server"
    assert (
        hpcrun("logs", "L1").stderr
        == "hpcrun: showing server; others: --role trainer, or --all-ranks\n"
    )
    shown = hpcrun.screen("status", "-v")
    assert "role         server: terminated with exit status 143, on n1" in shown, shown
    assert "role         trainer: not started, on n[2-4]" in shown, shown


# --- of a job that runs --------------------------------------------------------------------------


def running(hpcrun: Hpcrun, *silent_s: float, ready: bool = True) -> Path:
    """A job that runs elsewhere; so many seconds ago each of its first ranks has written, the
    others not at all.
    """
    run = roles(hpcrun)
    attempt, now_s = run.attempt(), time.time()
    (attempt / "exit").unlink()
    (attempt / "heartbeat").write_text(f"{int(now_s)}\n")
    replace_fields(attempt / "start", started=now_s - 4000)
    replace_fields(
        run.folder / "run.json", scheduler="slurm", cluster="elsewhere", created_s=now_s - 4000
    )
    replace_fields(
        run.folder / "status.json", state="RUNNING", asked_s=now_s, final=False, elapsed_s=4000
    )
    if ready:
        (attempt / "roles").mkdir()
        for name in ("server", "trainer")[: 1 + (len(silent_s) > 1)]:
            (attempt / f"roles/{name}.ready").write_text(json.dumps({"time": now_s - 3900}))
    for rank in range(4):
        path = attempt / f"rank-{rank}.out"
        if rank < len(silent_s):
            os.utime(path, (now_s - silent_s[rank],) * 2)
        else:
            path.unlink()
    return attempt


def test_a_server_that_waits_for_requests_does_not_hang(hpcrun: Hpcrun) -> None:
    attempt = running(hpcrun, 3800, 2, 2, 2)
    done = hpcrun("explain").stdout
    assert done.startswith("trainer: all 3 ranks wrote in the last 20 s: nothing looks stuck\n"), (
        done
    )
    assert re.search(
        r"^    server: ready since \d\d:\d\d:\d\d, on n1\n    trainer: running since [\d:]{8}, on "
        r"n\[2-4\]$",
        done,
        re.M,
    ), done
    os.utime(attempt / "rank-0.out")  # the server writes, and its clients do not
    for rank in (1, 2, 3):
        os.utime(attempt / f"rank-{rank}.out", (time.time() - 1900,) * 2)
    assert hpcrun("explain").stdout.startswith("trainer: no rank has written for 31 min")


def test_while_a_role_waits_the_one_that_starts_is_explained(hpcrun: Hpcrun) -> None:
    running(hpcrun, 300, ready=False)
    done = hpcrun("explain").stdout
    assert done.startswith("server: the job has written nothing for 5 min"), done
    assert "    server: starting, on n1\n    trainer: waiting for server, on n[2-4]\n" in done, done


def test_status_shows_what_each_role_does(hpcrun: Hpcrun) -> None:
    attempt = running(hpcrun, 2, 2, 2, 2)
    (attempt / "rank-1.metrics").write_text('{"time": 1.0, "step": 7, "loss": 0.5}\n')
    (attempt / "rank-0.metrics").write_text('{"time": 1.0, "requests": 9}\n')
    shown = hpcrun.screen("status", "-v")
    assert re.search(
        r"role +server: ready since \d\d:\d\d:\d\d, on n1\s+role +trainer: running since [\d:]{8}, "
        r"on n\[2-4\]",
        shown,
    )
    assert "step=7 loss=0.5" in shown and re.search(r"last line +1\b", shown), shown
    server, trainer = hpcrun.document("status")["runs"][0]["roles"]
    assert (server["state"], server["exit_status"], server["nodes"]) == ("ready", None, ["n1"])
    assert trainer["state"] == "running"
    assert trainer["first_rank"] == 1
    assert trainer["ranks"] == 3
    assert trainer["nodes"] == ["n2", "n3", "n4"]
