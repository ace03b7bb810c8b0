"""Secrets in every place where a job can have one.

Each contains the letters ``hush``; nothing else does.
"""

from __future__ import annotations

from pathlib import Path

from tests.unit.builders import write

TYPED = {"WANDB_API_KEY": "hush-typed-1", "DATABASE_URL": "postgres://u:hush-typed-2@h/"}
"""Variables of ``--env``: one is a secret by its name, the other by its value."""
EXPORTED = {
    "PLAIN_WORD": "hush plain  word",
    "SITE_WORD": "hushs",
    "HF_TOKEN": "a-hush-without-a-form",
}
"""Variables of the shell: declared with ``--secret``, declared in the profile, and with the name of
a secret.
"""
_IN_CODE = [
    "ghp_hushhush00hushhush",
    "aws_secret_access_key = hush/AWS00",
    "client_secret='hush client'",
    "Cookie: sid=hushcookie",
    "curl -u ada:hushcurl https://h/",
    "sshpass -p hushssh ssh h",
    "mysql -phushmysql db",
    "postgres://u:hushurl@h/db",
    "https://h/x?sig=hushsignature",
    "tgram://4711:hushtelegram/1",
    "https://hooks.slack.com/services/T1/B2/hushslack",
    "eyJhushhush.hushhush.hush",
    "Authorization: Bearer hush4711",
    "dckr_pat_hushhushhushhush",
    "ghp_hush\u200bhush11hush\u2060hush",
    "db_pass: hush4711",
]
_KEY = "-----BEGIN PRIVATE KEY-----\nMIIhush\nhush==\n-----END PRIVATE KEY-----"
EACH = 4
"""So many secrets stand in the message of each exception."""
ELEMENTS = len(_IN_CODE) // EACH

_SCRIPT = f"""
import os, sys
from hpcrun_runtime import log_metrics

TEXTS = {_IN_CODE!r}
MINE = TEXTS[int(sys.argv[2]) * {EACH}:][:{EACH}]
for text in [*TEXTS, {_KEY!r}, *map(str, os.environ.items())]:
    print(text, flush=True)
    print(text, file=sys.stderr)
log_metrics(step=1, loss=0.5)
pid = os.getpid()
with open(os.environ["HPCRUN_ATTEMPT_DIR"] + "/ps", "w") as ps:  # what ps shows of this job
    while pid > 1:
        ps.write(open(f"/proc/{{pid}}/cmdline").read() + "\\n")
        pid = int(open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[1])

def connect(api_key):
    declared = [os.environ[name] for name in ("HF_TOKEN", "PLAIN_WORD", "SITE_WORD")]
    raise RuntimeError(" ".join([*declared, *MINE]))

connect(api_key="hush-in-a-traceback")
"""


def job_of_canaries(folder: Path, extends: str) -> list[str]:
    """Write a program with secrets and a profile that declares one; return the options of ``hpcrun
    submit``.
    """
    write(folder / "train.py", _SCRIPT)
    profile = write(folder / "mine.yaml", f"extends: {extends}\nsecrets: [SITE_WORD]\n")
    typed = [word for name, value in TYPED.items() for word in ("--env", f"{name}={value}")]
    numbers = ",".join(map(str, range(ELEMENTS)))
    return [
        "-P",
        str(profile),
        *typed,
        "--secret",
        "PLAIN_WORD",
        "--sweep",
        f"n={numbers}",
        "train.py",
    ]


def files_with_secrets(run: Path) -> list[str]:
    """Return the files of a run that hold a secret, except for the job's own logs and the copy of
    the person's code.
    """
    files = [path.relative_to(run) for path in run.rglob("*") if path.is_file()]
    kept = [path for path in files if path.parts[0] != "code" and path.name != "code.diff"]
    logs = {path for path in kept if path.suffix in (".out", ".err", ".log")}
    return sorted(str(path) for path in {*kept} - logs if b"hush" in (run / path).read_bytes())
