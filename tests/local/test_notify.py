"""Messages about runs: the real program, jobs of this machine, and servers that receive, refuse,
hang, or are away.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Hpcrun, wait_for
from tests.local.recorded import replace_fields
from tests.receivers import http_server, smtp_server
from tests.unit.builders import write

FAILS_ONCE = """
import time
from hpcrun_runtime import attempt, log_metrics
log_metrics(step=1, loss=2.5)
if attempt() == 0:
    time.sleep(3)
    raise ValueError("bad \\033[31m token ghp_abcdefghijklmnopqrstuvwxyz0123 @everyone")
"""


def submit(hpcrun: Hpcrun, script: str, *options: str, **more: Any) -> Path:
    """Submit a script, and wait for its end; return the run's folder."""
    hpcrun.write("train.py", script)
    return hpcrun.submit("-P", "local", "--gpus", "0", "--wait", *options, "train.py", **more)


def states(folder: Path) -> dict[str, str]:
    """Event and destination → what became of the message."""
    records = [(path.name, json.loads(path.read_text())) for path in folder.glob("messages/*.*")]
    return {f"{name.partition('.')[0]} {said['to']}": said["state"] for name, said in records}


def unused_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def test_each_event_is_told_once_and_no_file_holds_the_secret(hpcrun: Hpcrun) -> None:
    with http_server() as hook:
        secret = f"json://127.0.0.1:{hook.port}/hushhush"
        env = {"HOOK": secret}
        folder = submit(
            hpcrun, FAILS_ONCE, "--notify", "$HOOK", "--requeue", "1", "--retry-on-failure", env=env
        )
        hpcrun("status", "last", env=env)
        again = hpcrun("notify", "last", env=env, check=True).stdout
        titles, bodies = hook.titles(), hook.bodies()
        details = hpcrun("status", "-v", "last").stdout
    assert [title.partition(" after")[0] for title in titles] == [
        "train started",
        "train: first step",
        "train: attempt 1 failed, requeued",
        "train completed",
    ]
    assert {path for path, _ in hook.messages} == {"/hushhush"}
    assert bodies[1].startswith("step=1 loss=2.5\n")
    assert "ValueError: bad token *** @ everyone at train.py:7" in bodies[2]
    assert all("\x1b" not in body and "ghp_" not in body for body in bodies)
    assert "no message is due" in again
    assert "started, first-step, failed, finished sent to $HOOK" in details
    files = [path for path in hpcrun.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"hushhush" in path.read_bytes()]
    assert not (folder / "messages/log").read_text()


def test_a_destination_that_refuses_hangs_or_is_away_delays_no_job_for_long_and_fails_none(
    hpcrun: Hpcrun,
) -> None:
    with http_server() as good, http_server(status=500) as bad, http_server(hangs_s=30) as hangs:
        away = unused_port()
        to = {
            name: f"json://127.0.0.1:{port}/"
            for name, port in (
                ("good", good.port),
                ("bad", bad.port),
                ("hangs", hangs.port),
                ("away", away),
            )
        }
        options = [word for url in to.values() for word in ("--notify", url)]
        folder = submit(hpcrun, "", *options, "--notify-on", "finished", "--name", "train")
        attempt = folder / "elements/0/attempts/0"
        status = hpcrun.status()
        found = states(folder)
        details = hpcrun("status", "-v", "last").stdout
        again = hpcrun("notify", "last")
        tried = (len(good.messages), len(bad.messages), len(hangs.messages))
        with http_server(port=away) as back:
            sent = hpcrun("notify", "last", check=True).stdout
            hpcrun("notify", "last", check=True)
        assert (len(good.messages), len(bad.messages), len(hangs.messages)) == tried == (1, 1, 1)
    assert (status["state"], status["exit_status"]) == ("COMPLETED", 0)
    assert json.loads((attempt / "exit").read_text())["status"] == 0
    hanging = found.pop(f"finished {to['hangs']}")
    # this machine was busy: its sender had no time left to record it
    assert hanging in ("unsure", "claimed")
    assert found == {
        f"finished {to['good']}": "sent",
        f"finished {to['bad']}": "failed",
        f"finished {to['away']}": "unreachable",
    }
    assert f"finished NOT sent to {to['away']}: cannot connect" in " ".join(details.split())
    assert (again.returncode, "NOT sent to" in again.stdout) == (4, True)
    said = " ".join(details.split())
    assert f"finished NOT accepted by {to['bad']}" in said
    assert hanging == "claimed" or f"finished may not have arrived at {to['hangs']}" in said
    assert sent.startswith(f"finished sent to {to['away']}")
    assert [title.partition(" after")[0] for title in back.titles()] == ["train completed"]


def test_a_sweep_sends_one_message_of_each_kind(hpcrun: Hpcrun) -> None:
    script = "import sys, time\ntime.sleep(0.3)\nsys.exit(int(sys.argv[2]) % 2)\n"
    with http_server() as hook:
        submit(hpcrun, script, "--sweep", "x=1,2,3,4", "--notify", f"json://127.0.0.1:{hook.port}/")
        wait_for(lambda: len(hook.messages) >= 3, 30, "the last message")
        titles, bodies = sorted(hook.titles()), hook.bodies()
    assert titles[0] == "train ended: 2 of 4 elements completed"
    assert titles[1] == "train started"
    assert titles[2] in [f"train/{x} failed, the first element of its sweep" for x in (0, 2)]
    assert len(titles) == 3
    assert any(body.startswith("4 elements: 2 completed, 2 failed\ntrain/0: ") for body in bodies)


def test_what_a_job_without_hpcrun_s_python_cannot_send_comes_with_the_next_status(
    hpcrun: Hpcrun,
) -> None:
    hpcrun.write("train.py", "")
    with http_server() as hook:
        to = f"json://127.0.0.1:{hook.port}/"
        lost = (
            """sed -i 's,"python": "[^"]*","python": "/nowhere/python",' """
            """"$HPCRUN_RUN_DIR/messages/sender\""""
        )
        folder = hpcrun.submit(
            "-P", "local", "--gpus", "0", "--notify", to, "--setup", lost, "train.py"
        )
        wait_for(lambda: (folder / "elements/0/attempts/0/exit").exists(), 20, "its end")
        hpcrun("status", check=True)
        for name, field in (("start", "started"), ("exit", "ended")):  # as if a minute ago
            path = folder / "elements/0/attempts/0" / name
            replace_fields(path, **{field: json.loads(path.read_text())[field] - 60})
        assert hook.messages == []
        wait_for(lambda: hpcrun("status", check=True) and hook.messages, 20, "the late message")
        hpcrun("status", check=True)
        assert [title.partition(" after")[0] for title in hook.titles()] == ["train completed"]


def test_a_late_message_from_a_shell_without_the_secrets_has_no_line_of_the_log(
    hpcrun: Hpcrun,
) -> None:
    script = "import os\nraise ValueError(os.environ['PLAIN_WORD'])\n"
    env, away = {"PLAIN_WORD": "correct horse"}, unused_port()
    to = (
        "--notify",
        f"json://127.0.0.1:{away}/",
        "--notify-on",
        "finished",
        "--secret",
        "PLAIN_WORD",
    )
    submit(hpcrun, script, *to, env=env)
    with http_server(port=away) as back:
        hpcrun("notify", "last", check=True)
        assert "horse" not in back.texts[0]
        assert "hpcrun explain" in back.texts[0]


def test_a_test_message_says_where_it_arrived(hpcrun: Hpcrun) -> None:
    with http_server() as hook, smtp_server() as mail:
        urls = (
            f"ntfy://127.0.0.1:{hook.port}/topic",
            f"mailto://127.0.0.1:{mail.port}?from=ada@example.org&to=bob@example.org",
            f"mmost://127.0.0.1:{hook.port}/$TOKEN",
        )
        env = {"TOKEN": "hush-hush-hush-hush"}
        done = hpcrun("notify", "--test", *urls, env=env, check=True)
        assert done.stdout == "".join(f"test sent to {url}\n" for url in urls)
        private = write(hpcrun.home / "apprise.txt", f"json://127.0.0.1:{hook.port}/private\n")
        private.chmod(0o600)
        hpcrun("notify", "--test", "file:~/apprise.txt", check=True)
        private.chmod(0o640)
        refused = hpcrun("notify", "--test", "file:~/apprise.txt")
    assert {path for path, _ in hook.messages} == {"/", "/hooks/hush-hush-hush-hush", "/private"}
    assert "Subject: Test message from hpcrun on" in mail.texts[0]
    assert "To: bob@example.org" in mail.texts[0]
    assert refused.returncode == 4
    assert "other users can read it" in refused.stdout
    nothing = hpcrun("notify", "--test")
    assert (nothing.returncode, "there is no destination" in nothing.stderr) == (2, True)
    unknown = hpcrun("notify", "--test", "slak://$TOKEN", env=env)
    assert (unknown.returncode, "apprise knows no such destination" in unknown.stdout) == (4, True)
    assert "hush" not in done.stderr + unknown.stdout + unknown.stderr


def test_the_configuration_names_destinations_and_a_project_s_only_if_it_is_trusted(
    hpcrun: Hpcrun,
) -> None:
    config = write(
        hpcrun.home / ".config/hpcrun/config.yaml", "notify: ['$HOOK']\nnotify_on: [failed]\n"
    )
    project = hpcrun.folder / "clone"
    write(project / ".hpcrun/config.yaml", "notify: ['json://evil.example.org/']\n")
    write(project / "train.py", "")
    job = ("submit", "-P", "local", "--gpus", "0", "--dry-run", "--json", "train.py")
    done = hpcrun(*job, cwd=project, check=True)
    plan = json.loads(done.stdout)["plan"]
    assert plan["notify"] == {"to": ["$HOOK"], "events": ["failed"], "waiting_s": 3600}
    assert "no messages to $HOOK: HOOK is not set" in plan["notes"]
    assert "you have not trusted it" in done.stderr
    removed = hpcrun(*job[:1], "--notify", "none", *job[1:], cwd=project, check=True)
    assert json.loads(removed.stdout)["plan"]["notify"] is None
    typed = hpcrun(*job[:1], "--notify", "$MISSING", *job[1:], cwd=project)
    assert (typed.returncode, "MISSING is not set" in typed.stdout) == (2, True)
    unknown = hpcrun(
        *job[:1], "--notify", "slak://$TOKEN", *job[1:], cwd=project, env={"TOKEN": "hush"}
    )
    assert (
        unknown.returncode,
        "slak://$TOKEN: apprise knows no such destination" in unknown.stdout,
    ) == (2, True)
    mail = hpcrun(*job[:1], "--notify", "mailto:ada@example.org", *job[1:], cwd=project)
    assert (mail.returncode, "Slurm sends this mail" in mail.stdout) == (2, True)
    slurm = (
        "submit",
        "-P",
        "a100",
        "--gpus",
        "0",
        "--dry-run",
        "--notify",
        "mailto:ada@example.org",
    )
    script = hpcrun(*slurm, "--notify-on", "failed", "train.py", cwd=project, check=True).stdout
    assert "#SBATCH --mail-user=ada@example.org\n#SBATCH --mail-type=FAIL,REQUEUE\n" in script
    assert "does the same, without its messages." in script.splitlines()[2]
    write(
        config,
        "notify:\n  - mailto:ada@example.org\n  - "
        "https://hooks.slack.com/services/T1/B2/hushhushhush\n",
    )
    refused = hpcrun(*job)
    assert refused.returncode == 3
    assert "config.yaml:3: notify.1: " in refused.stdout
    assert "hush" not in refused.stdout + refused.stderr


def test_nothing_new_is_imported_without_messages(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    heavy = (
        "apprise requests smtplib hpcrun.features.notify.deliveries hpcrun.features.notify.command"
    ).split()
    code = (
        "import sys, runpy\nsys.argv = ['hpcrun', *sys.argv[1:]]\n"
        "try:\n    runpy.run_module('hpcrun', run_name='__main__')\nexcept SystemExit: pass\n"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)\n"
    )
    for command in (
        ("submit", "-P", "local", "--gpus", "0", "--wait", "true"),
        ("status",),
        ("--help",),
    ):
        with subtests.test(command=command):
            done = hpcrun.run(f"{hpcrun.venv}/bin/python", "-c", code, *command)
            assert done.stderr.rstrip().endswith("[]"), done.stderr
    assert not list(hpcrun.runs.glob("2*/messages"))
