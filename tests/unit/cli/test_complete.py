"""What completion prints is typed into a shell, which expands it: only words that mean
themselves.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import get_args

import pytest

from hpcrun.cli import complete
from hpcrun.cli.commands import COMMANDS
from hpcrun.cli.complete import is_safe_word
from hpcrun.job.request.job_request import Launcher
from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.load import profile_names
from tests.unit.builders import write

HOSTILE = [
    "$(touch x)",
    "`x`",
    "a b",
    "a;b",
    "a\nb",
    "~root",
    "-rf",
    "a'b",
    'a"b',
    "a*",
    "{a,b}",
    "a\\b",
    "a|b",
    "é",
    "",
    "a$IFS",
    "a\x1b[2J",
    "a\u202eb",
    "=x",
    "a!b",
    "a&",
    "a>b",
    "../x",
    "/etc/passwd",
]


def test_only_words_that_a_shell_leaves_alone_are_safe() -> None:
    assert not any(map(is_safe_word, HOSTILE))
    ordinary = (
        "a100 a100-40gb 20261121-093012-train-3f2a last gpu.type gpu.type= gpu,long a_b+c".split()
    )
    shipped = [*profile_names([shipped_folder("cluster_profiles")]), *" ".join(COMMANDS).split()]
    assert all(map(is_safe_word, ordinary + shipped))


def test_no_completion_offers_a_file_name_that_a_shell_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for name in ("$(touch pwned)", "good", "evil;touch x", "-o"):
        write(home / f".config/hpcrun/profiles/{name}.yaml", "scheduler: local\n")
        (home / f"runs/20260102-030405-{name}-0a1b").mkdir(parents=True, mode=0o700)
    sinfo = write(
        home / "bin/sinfo", "#!/bin/sh\nprintf '%s\\n' '$(touch pwned)' good 'a;b' '-x'\n"
    )
    sinfo.chmod(0o755)
    for name, value in {
        "HOME": home,
        "HPCRUN_RUNS": home / "runs",
        "PATH": f"{home}/bin:/usr/bin:/bin",
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert "good" in complete.profile_name("")
    offered = [
        word
        for one in (complete.profile_name, complete.run_name, complete.partition)
        for word in one("")
    ]
    assert "good" in complete.partition("")
    assert all(map(is_safe_word, offered)), offered


def test_accounts_and_qos_are_the_user_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sacctmgr = tmp_path / "sacctmgr"
    sacctmgr.write_text(
        "#!/bin/sh\nprintf '%s\\n' 'proj||normal,high|normal' 'proj|gpu|high|' '$(x)||low|'\n"
    )
    sacctmgr.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert complete.account("") == ["proj"]
    assert complete.qos("") == ["normal", "high", "low"]
    assert complete.qos("h") == ["high"]
    sacctmgr.write_text("#!/bin/sh\nexit 1\n")
    assert complete.account("") == []
    assert complete.qos("") == []
    sacctmgr.write_text("#!/bin/sh\nsleep 60\n")
    started = time.monotonic()
    assert complete.account("") == []
    assert time.monotonic() - started < 10
    monkeypatch.setenv("PATH", "/nowhere")
    assert complete.account("") == []


def test_all_launchers_are_completed() -> None:
    assert complete.launcher("") == list(get_args(Launcher))
