"""Secrets: the real program, its runs and all that it prints."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.canaries import EACH, ELEMENTS, EXPORTED, TYPED, files_with_secrets, job_of_canaries
from tests.harness import Hpcrun, wait_for
from tests.receivers import http_server
from tests.unit.builders import write


def test_a_secret_reaches_the_job_by_every_way_and_no_file_or_output_holds_it(
    hpcrun: Hpcrun,
) -> None:
    values = {
        "MYSQL_PWD": "hush-1111",
        "DATABASE_URL": "postgres://u:hush-2222@h/",
        "PLAIN_WORD": "hush-3333",
    }
    write(hpcrun.folder / "job.py", f"import os\nassert {values!r}.items() <= os.environ.items()\n")
    env = {"PLAIN_WORD": values["PLAIN_WORD"]}
    words = [
        word
        for name, value in values.items()
        if name not in env
        for word in ("--env", f"{name}={value}")
    ]
    job = ("submit", "-P", "local", "--gpus", "0", *words, "--secret", "PLAIN_WORD", "job.py")
    unset = hpcrun(*job)
    assert unset.returncode == 2
    assert "PLAIN_WORD is not set" in unset.stderr
    outputs = [
        hpcrun(*job, env=env, check=True),
        hpcrun(*job[:1], "--dry-run", *job[1:], check=True),
        hpcrun("status", "--json", "-v", "last"),
        hpcrun("resubmit", "last", "--dry-run", env={**env, **values}, check=True),
        hpcrun("submit", "--wait", *job[1:], env=env, check=True),
        hpcrun("submit", "--wait", "--json", *job[1:], env=env, check=True),
    ]
    assert all("hush-" not in done.stdout + done.stderr for done in outputs)
    files = [path for path in hpcrun.folder.rglob("*") if path.is_file() and path.name != "job.py"]
    assert files
    assert not [path for path in files if b"hush-" in path.read_bytes()]


def test_a_profile_that_holds_a_secret_is_refused_with_its_line_and_the_way_out(
    hpcrun: Hpcrun,
) -> None:
    profile = hpcrun.home / ".config/hpcrun/profiles/mine.yaml"
    text = (
        'extends: local\nenv:\n  WANDB_API_KEY: "hush-1"\n  DB: postgres://u:hush-2@h/\n  X: '
        "hush-3\nsecrets: [X]\n"
    )
    write(
        profile,
        f"{text}setup:\n  - echo\n  - export GH_PAT=hush-4\ndescription: see "
        "https://hush-5@github.com/a\n",
    )
    commands = (
        ("submit", "-P", "mine", "true"),
        ("profile", "show", "mine", "--origin"),
        ("profile", "validate", "mine"),
        ("profile", "set", "mine", "time.default=1h"),
    )
    for command in commands:
        refused = hpcrun(*command)
        assert refused.returncode == 3, command
        said = refused.stdout + refused.stderr
        assert "hush-" not in said, command
        assert [f"mine.yaml:{line}: " in said for line in (3, 4, 5, 9, 10)] == [True] * 5, said
        assert "list the name under 'secrets', and export the variable where you submit" in said
    write(profile, "extends: local\nsecrets: [WANDB_API_KEY]\n")
    job = ("submit", "-P", "mine", "--gpus", "0", "--wait", "printenv", "WANDB_API_KEY")
    assert "WANDB_API_KEY is not set" in hpcrun(*job).stderr
    hpcrun(*job, env={"WANDB_API_KEY": "hush"}, check=True)
    assert hpcrun("logs", check=True).stdout == "hush\n"


def test_no_secret_of_a_job_leaves_by_any_way(hpcrun: Hpcrun) -> None:
    for command in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "one")):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *command],
            cwd=hpcrun.folder,
            check=True,
        )
    write(hpcrun.folder / ".gitignore", "home\nruns\n")
    job = job_of_canaries(hpcrun.folder, "local")
    with http_server() as hook:
        env = {**EXPORTED, "HOOK": f"json://127.0.0.1:{hook.port}/hush/hook"}
        job = ["--gpus", "0", "--notify", "$HOOK", "--snapshot", *job]
        planned = [
            hpcrun("submit", "--dry-run", *more, *job, env=env, check=True)
            for more in ([], ["--json"])
        ]
        done = hpcrun("submit", "--wait", "--json", *job, env=env)
        run = Path(json.loads(done.stdout)["folder"])
        wait_for(lambda: len(hook.messages) >= 3, 30, "the last message")
        shown = hpcrun("status", "-v", "--json", "last", env=env, check=True)
        causes = [element["cause"] for element in json.loads(shown.stdout)["runs"][0]["elements"]]
        outputs = [
            *planned,
            done,
            shown,
            *(
                hpcrun(*command, env={**env, **TYPED})
                for command in (
                    ("status",),
                    ("status", "-v", "last"),
                    ("explain",),
                    ("explain", "--json", "last/1"),
                    ("share", "--json"),
                    ("share", "-o", "-", "last/2"),
                    ("metrics", "--json"),
                    ("sweep", "--json"),
                    ("notify", "--json"),
                    ("resubmit", "last", "--dry-run", "--json"),
                    ("history", "--json"),
                )
            ),
        ]
        bodies = hook.bodies()
    assert [cause.count("***") >= EACH for cause in causes] == [True] * ELEMENTS, causes
    assert any("RuntimeError: *** *** ***" in body for body in bodies)
    page = (hpcrun.folder / f"{run.name}.html").read_text()
    assert [text for text in (*bodies, page) if "hush" in text] == []
    assert [done.args for done in outputs if "hush" in done.stdout + done.stderr] == []
    assert files_with_secrets(run) == []
    # the person's own log is shown as it is
    assert hpcrun("logs", "last/0", env=env).stdout.count("hush") > 20


def test_a_secret_on_the_command_line_is_refused_and_not_repeated(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    hpcrun.write("train.py", "")
    hpcrun.write("sweep.csv", "password\nhush-hush\n")
    for words in (
        ("train.py", "--api-key", "hush-hush"),
        ("train.py", "hush plain"),
        ("curl", "-u", "ada:hush-hush", "h"),
        ("--sweep", "token=hush1hush,b", "train.py"),
        ("--setup", "export A_TOKEN=hush-hush", "train.py"),
        ("--sbatch", "comment=hush plain", "train.py"),
        ("--env", "OTHER=x hush plain", "train.py"),
        ("--sweep-file", "sweep.csv", "train.py"),
    ):
        with subtests.test(words=words):
            job = ("submit", "-P", "local", "--gpus", "0", "--secret", "PLAIN_WORD", *words)
            refused = hpcrun(*job, env={"PLAIN_WORD": "hush plain"})
            assert (refused.returncode, "hush" in refused.stdout + refused.stderr) == (2, False), (
                words
            )
            assert "add --secret NAME" in refused.stderr
            assert not [*hpcrun.runs.iterdir()]
