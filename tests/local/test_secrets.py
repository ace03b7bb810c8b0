"""Secrets: the real program, its runs and all that it prints."""

from __future__ import annotations

from tests.harness import Hpcrun
from tests.unit.given import write


def test_a_secret_reaches_the_job_by_every_way_and_no_file_or_output_holds_it(hpcrun: Hpcrun) -> None:
    values = {"MYSQL_PWD": "hush-1111", "DATABASE_URL": "postgres://u:hush-2222@h/", "PLAIN_WORD": "hush-3333"}
    write(hpcrun.folder / "job.py", f"import os\nassert {values!r}.items() <= os.environ.items()\n")
    env = {"PLAIN_WORD": values["PLAIN_WORD"]}
    words = [word for name, value in values.items() if name not in env for word in ("--env", f"{name}={value}")]
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


def test_a_profile_that_holds_a_secret_is_refused_with_its_line_and_the_way_out(hpcrun: Hpcrun) -> None:
    profile = hpcrun.home / ".config/hpcrun/profiles/mine.yaml"
    text = 'extends: local\nenv:\n  WANDB_API_KEY: "hush-1"\n  DB: postgres://u:hush-2@h/\n  X: hush-3\nsecrets: [X]\n'
    write(profile, f"{text}setup:\n  - echo\n  - export GH_PAT=hush-4\ndescription: see https://hush-5@github.com/a\n")
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
