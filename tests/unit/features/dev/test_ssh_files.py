"""The files that ssh reads: what another machine answered becomes no further setting, and the
user's file stays.
"""

from __future__ import annotations

import math
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from hpcrun.errors import SchedulerError
from hpcrun.features.dev.hpcrun_dev_watch import parse_time_left
from hpcrun.features.dev.ssh_files import (
    is_included,
    new_key,
    public_key,
    read_address,
    write_config,
)

pytestmark = pytest.mark.needs("ssh-keygen")
ANSWER: dict[str, Any] = {
    "run": "20261126-120000-dev-ab12",
    "job": "4711",
    "user": "me",
    "node": "a100-1",
    "local": "/tmp/hpcrun-dev-x",
    "host_key": f"ssh-ed25519 {'A' * 68}",
    "folder": "/runs/dev",
    "cwd": "/home/me",
    "program": ["python", "x.py"],
    "relay": ["srun", "--jobid=4711", "python", "x.py", "relay", "/runs/it's 100%"],
    "ends_s": 2e9,
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    "field, value",
    [
        ("user", "me\n  ProxyCommand touch hacked"),
        ("node", "-oProxyCommand=x"),
        ("job", "1 *"),
        ("run", "../../x"),
        ("host_key", "ssh-ed25519 AAAA\n* ssh-rsa BBBB"),
        ("local", '/tmp/"x'),
        ("cwd", "/a\nb"),
        ("relay", ["a\nb"]),
        ("ends_s", "soon"),
        ("program", 7),
        ("cwd", "--install-extension=evil.pwn"),
        ("folder", "-x"),
        ("local", "tmp/x"),
        ("local", "/tmp/x:127.0.0.1:22"),
        ("ends_s", math.nan),
        ("ends_s", math.inf),
        ("ends_s", 1e300),
        ("ends_s", -1),
        ("ends_s", "9" * 400),
        ("ends_s", 10**400),
        ("run", "1"),
        ("job", "20261126-120000-dev-ab12"),
    ],
)
def test_an_impossible_answer_is_refused(field: str, value: object) -> None:
    with pytest.raises(SchedulerError):
        read_address({**ANSWER, field: value})


def test_a_configuration_that_ssh_reads(home: Path) -> None:
    address = read_address(ANSWER)
    with new_key() as key:
        public = public_key(key)
        config = write_config(address, key, address.relay, "it's lost")
    text = config.read_text()
    assert "Host hpcrun-4711 hpcrun-20261126-120000-dev-ab12\n" in text
    assert "100%%" in text  # ssh expands a single one
    lines = {line.strip() for line in text.splitlines()}
    assert {
        "ForwardAgent no",
        "ForwardX11 no",
        "PermitLocalCommand no",
        "RemoteCommand none",
    } < lines
    assert config.with_suffix(".known").read_text() == f"hpcrun-{address.run} {address.host_key}\n"
    assert public.startswith("ssh-ed25519 ")
    assert oct(config.with_suffix(".key").stat().st_mode)[-3:] == "600"
    assert sorted(path.suffix for path in config.parent.iterdir()) == [".conf", ".key", ".known"]
    os.utime(config, (0, time.time() - 2 * 86400))  # the run has ended
    with new_key() as key:
        write_config(read_address({**ANSWER, "job": "4712"}), key, address.relay, "")
    assert not config.exists()


def test_clusters_with_the_same_job_number_have_their_own_files(home: Path) -> None:
    configs = []
    for host in ("", "good", "me@bad"):
        address = read_address({**ANSWER, "host": "good"}, host)
        with new_key() as key:
            configs.append(write_config(address, key, address.relay, ""))
    names = ["hpcrun-4711", "hpcrun-good-4711", "hpcrun-me.bad-4711"]
    assert [config.stem for config in configs] == names
    hosts = [config.read_text().split("\n", 1)[0] for config in configs]
    assert hosts == [f"Host {name} {name.replace('4711', str(ANSWER['run']))}" for name in names]


def test_the_user_s_file_gets_one_line_at_its_top(home: Path) -> None:
    (home / ".ssh").mkdir(0o700)
    config = home / ".ssh/config"
    (home / "dotfiles").write_text("Host a\n  Port 1\n")
    config.symlink_to(home / "dotfiles")
    assert not is_included("hpcrun-1", yes=False)  # without a terminal it is only named
    assert is_included("hpcrun-1", yes=True)
    assert is_included("hpcrun-1", yes=True)
    assert config.read_text() == f"Include {home}/.ssh/hpcrun.d/*.conf\n\nHost a\n  Port 1\n"
    assert config.is_symlink()
    config.write_text(f"host a\n  Include {home}/.ssh/hpcrun.d/*.conf\n")  # of that host alone
    assert not is_included("hpcrun-1", yes=False)


def test_ssh_finds_the_files_in_a_home_with_a_blank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "my home"
    (home / ".ssh").mkdir(0o700, parents=True)
    monkeypatch.setenv("HOME", str(home))
    address = read_address(ANSWER)
    with new_key() as key:
        write_config(address, key, address.relay, "")
    config = home / ".ssh/config"
    for _ in range(2):
        assert is_included("hpcrun-1", yes=True)
    assert config.read_text().count("Include") == 1
    command = ["ssh", "-F", str(config), "-G", f"hpcrun-{ANSWER['job']}"]
    settings = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"hostname hpcrun-{address.run}\n" in settings


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("4:05", 245),
        ("1:00:00", 3600),
        ("2-00:00:01", 172801),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_the_time_left(text: str, seconds: float | None) -> None:
    assert parse_time_left(text) == seconds
