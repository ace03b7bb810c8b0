"""profile detect as a person sees it, with commands that print what Slurm 22.05 said, or hang, or
babble.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.harness import REPO, Completed, Hpcrun

RECORDED = REPO / "tests/data/22.05"
ANSWERS = {
    "scontrol": f'for word; do :; done; cat "{RECORDED}/scontrol-$word.txt"',
    "sacctmgr": f"cat '{RECORDED}/sacctmgr-assoc.txt'",
    "sacct": "true",
    "sbatch": f"cat '{RECORDED}/sbatch-test-only-accepted.txt' >&2",
}


class Site:
    """A cluster of commands on PATH, each a line of shell; and a person there."""

    def __init__(self, person: Hpcrun) -> None:
        self.person = person
        self.env = {**person.shims(**ANSWERS), "SLURM_CONF": None}

    def say(self, name: str, line: str) -> None:
        self.person.program(f"bin/{name}", line)

    def detect(self, *args: str) -> Completed:
        return self.person("profile", "detect", *args, env=self.env)

    def json(self, *args: str) -> dict[str, Any]:
        return self.person.document("profile", "detect", *args, env=self.env)

    @property
    def profiles(self) -> Path:
        return self.person.home / ".config/hpcrun/profiles"


@pytest.fixture
def site(hpcrun: Hpcrun) -> Site:
    return Site(hpcrun)


def test_the_text_goes_to_stdout_and_loads(site: Site) -> None:
    done = site.detect()
    assert (done.returncode, done.stderr) == (0, "")
    assert 'description: "dev, Slurm 22.05.8"   # scontrol show config\n' in done.stdout
    assert (
        "account: lab                        # sacctmgr show assoc: your only one\n" in done.stdout
    )
    assert not site.profiles.exists()
    (site.person.folder / "mine.yaml").write_text(done.stdout)
    site.person("profile", "show", "./mine.yaml", check=True)


def test_as_json_with_the_text_the_values_and_what_did_not_answer(site: Site) -> None:
    site.say("sacctmgr", "echo no database >&2; exit 1")
    found = site.json()
    assert found["kind"] == "detected"
    assert found["path"] is None
    assert found["profile"]["gpu"]["types"]["h100"]["per_node"] == 8
    assert found["text"] == site.detect().stdout
    assert found["warnings"] == ["sacctmgr show assoc: no database"]
    written = site.json("--write", "dev")
    assert written["path"] == f"{site.profiles}/dev.yaml"
    assert (site.profiles / "dev.yaml").read_text() == written["text"]
    assert site.json("--write", "dev")["error"]["exit_code"] == 3


def test_it_is_written_and_replaced_only_when_told(site: Site) -> None:
    done = site.detect("--write", "dev")
    path = site.profiles / "dev.yaml"
    assert f"written  {path}\n" in done.stdout
    assert path.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in site.profiles.iterdir()] == ["dev.yaml"]
    dry = site.person("submit", "-P", "dev", "--gpus", "l40s:2", "--dry-run", "true", check=True)
    assert "#SBATCH --gres=gpu:l40s:2\n" in dry.stdout

    path.write_text("partition: mine\n")
    refused = site.detect("--write", "dev")
    assert refused.returncode == 3
    hint = "hint: choose another name, or replace the file with --force"
    assert refused.stderr == f"hpcrun: {path} already exists\n{hint}\n"
    assert path.read_text() == "partition: mine\n"
    assert site.detect("--write", "dev", "--force").returncode == 0
    assert "h100:" in path.read_text()


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (("--write", "../dev"), 2, "cannot be a profile's name"),
        (("--force",), 2, "--force"),
        # a file is where the folder should be
        (("--write", "dev"), 3, "profiles/dev.yaml cannot be saved: "),
    ],
)
def test_what_cannot_be_written(
    site: Site, args: tuple[str, ...], status: int, message: str
) -> None:
    site.profiles.parent.mkdir(parents=True)
    site.profiles.write_text("")
    done = site.detect(*args)
    assert (done.returncode, message in done.stderr) == (status, True)


def test_commands_that_hang_are_given_up_after_ten_seconds_and_the_rest_is_read(site: Site) -> None:
    site.say("sbatch", "echo x >> tried")
    site.person.shims("all", **dict.fromkeys(ANSWERS, "sleep 60"))
    site.person.shims("one", sacctmgr="sleep 60")
    start = time.monotonic()
    with ThreadPoolExecutor() as pool:
        tries = [
            pool.submit(
                site.person,
                "profile",
                "detect",
                "--write",
                name,
                env={**site.env, "PATH": f"{site.person.folder}/{name}:{site.env['PATH']}"},
            )
            for name in ("all", "one")
        ]
    away, partly = (each.result() for each in tries)
    assert 10 <= time.monotonic() - start < 50
    assert away.returncode == 5
    assert "Slurm does not respond" in away.stderr
    assert "scontrol show node: timed out after 10 s" in away.stderr
    assert [path.name for path in site.profiles.iterdir()] == ["one.yaml"]
    assert (partly.returncode, partly.stderr) == (
        0,
        "hpcrun: sacctmgr show assoc: timed out after 10 s\n",
    )
    text = (site.profiles / "one.yaml").read_text()
    assert "# No response: sacctmgr show assoc: timed out after 10 s\n" in text
    assert "partition: gpu" in text
    assert not (site.person.folder / "tried").exists()  # no job id is used up


def test_no_slurm(hpcrun: Hpcrun, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = hpcrun("profile", "detect", env={"PATH": str(tmp_path / "bin")})
    assert done.returncode == 5
    assert "scontrol show node: scontrol: No such file or directory" in done.stderr
    assert "hint: run it on a machine where `sinfo` works" in done.stderr


@pytest.mark.parametrize("babble", ["printf '\\377\\000\\033[2J\\n'", "exit 3"])
def test_a_format_nobody_knows(site: Site, babble: str) -> None:
    for name in ("scontrol", "sacctmgr", "sacct"):
        site.say(name, babble)
    done = site.detect()
    assert done.returncode == 5
    assert (
        "scontrol show node: "
        f"{'exit status 3' if babble == 'exit 3' else 'its output was not understood'}"
        in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_without_accounting_scontrol_is_enough(site: Site) -> None:
    for name in ("sacct", "sacctmgr"):
        site.say(name, "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    done = site.detect()
    assert done.returncode == 0
    assert "per_node: 8                   # scontrol show node\n      nodes: 2 " in done.stdout
    disabled = "Slurm accounting storage is disabled"
    assert f"# account:                          # sacctmgr show assoc: {disabled}" in done.stdout
    assert f"# No response: sacct: {disabled}" in done.stdout
