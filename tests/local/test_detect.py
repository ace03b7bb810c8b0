"""profile detect as a person sees it, with commands that print what Slurm 22.05 said, or hang, or babble."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.harness import REPO, SYSTEM_PATH, Hpcrun

RECORDED = REPO / "tests/data/22.05"
ANSWERS = {
    "sinfo": f"cat {RECORDED}/sinfo.txt",
    "scontrol": f'for word; do :; done; cat "{RECORDED}/scontrol-$word.txt"',
    "sacctmgr": f"cat {RECORDED}/sacctmgr-assoc.txt",
    "sacct": "true",
    "sbatch": f"cat {RECORDED}/sbatch-test-only-accepted.txt >&2",
}


class Site:
    """A cluster of commands on PATH, each a line of shell; and a person there."""

    def __init__(self, person: Hpcrun) -> None:
        self.person = person
        self.folder = person.folder / "bin"
        self.folder.mkdir()
        self.env = {"PATH": f"{self.folder}:{person.venv}/bin:{SYSTEM_PATH}", "SLURM_CONF": None}
        for name, line in ANSWERS.items():
            self.say(name, line)

    def say(self, name: str, line: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    @property
    def profiles(self) -> Path:
        return self.person.home / ".config/hpcrun/profiles"


@pytest.fixture
def site(hpcrun: Hpcrun) -> Site:
    return Site(hpcrun)


def test_the_text_goes_to_stdout_and_loads(site: Site) -> None:
    done = site.person("profile", "detect", env=site.env)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'description: "dev, Slurm 22.05.8"   # scontrol show config\n' in done.stdout
    assert "account: lab                        # sacctmgr show assoc: your only one\n" in done.stdout
    assert "directive: gres                   # sbatch --test-only: accepted gres, gpus-per-node, gpus\n" in done.stdout
    assert not site.profiles.exists()
    (site.person.folder / "mine.yaml").write_text(done.stdout)
    site.person("profile", "show", "./mine.yaml", check=True)


def test_as_json_with_the_text_the_values_and_what_did_not_answer(site: Site) -> None:
    site.say("sacctmgr", "echo no database >&2; exit 1")
    done = site.person("profile", "detect", "--json", env=site.env, check=True)
    found = json.loads(done.stdout)
    assert (found["kind"], found["path"]) == ("detected", None)
    assert found["profile"]["gpu"]["types"]["h100"]["per_node"] == 8
    assert found["text"] == site.person("profile", "detect", env=site.env, check=True).stdout
    assert found["warnings"] == ["sacctmgr show assoc: no database"]
    written = json.loads(site.person("profile", "detect", "--json", "--write", "dev", env=site.env, check=True).stdout)
    assert written["path"] == f"{site.profiles}/dev.yaml"
    assert (site.profiles / "dev.yaml").read_text() == written["text"]
    again = json.loads(site.person("profile", "detect", "--json", "--write", "dev", env=site.env).stdout)
    assert again["error"]["exit_code"] == 3


def test_it_is_written_and_replaced_only_when_told(site: Site) -> None:
    done = site.person("profile", "detect", "--write", "dev", env=site.env, check=True)
    path = site.profiles / "dev.yaml"
    assert f"written  {path}\n" in done.stdout
    assert path.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in site.profiles.iterdir()] == ["dev.yaml"]
    dry = site.person("submit", "-P", "dev", "--gpus", "l40s:2", "--dry-run", "true", check=True)
    assert "#SBATCH --gres=gpu:l40s:2\n" in dry.stdout

    path.write_text("partition: mine\n")
    refused = site.person("profile", "detect", "--write", "dev", env=site.env)
    assert refused.returncode == 3
    assert (
        refused.stderr
        == f"hpcrun: {path} already exists\nhint: choose another name, or replace the file with --force\n"
    )
    assert path.read_text() == "partition: mine\n"
    site.person("profile", "detect", "--write", "dev", "--force", env=site.env, check=True)
    assert "h100:" in path.read_text()


def test_what_cannot_be_a_name(site: Site) -> None:
    done = site.person("profile", "detect", "--write", "../dev", env=site.env)
    assert done.returncode == 2
    assert "cannot be a profile's name" in done.stderr


def test_a_file_where_the_folder_should_be(site: Site) -> None:
    site.profiles.parent.mkdir(parents=True)
    site.profiles.write_text("")
    done = site.person("profile", "detect", "--write", "dev", env=site.env)
    assert done.returncode == 3
    assert f"{site.profiles}/dev.yaml cannot be saved: " in done.stderr


def test_a_sinfo_that_hangs_is_given_up_and_scontrol_heard(site: Site) -> None:
    site.say("sinfo", "sleep 60")
    start = time.monotonic()
    done = site.person("profile", "detect", env=site.env)
    assert 10 <= time.monotonic() - start < 16
    assert done.returncode == 0
    assert done.stderr == "hpcrun: sinfo: timed out after 10 s\n"
    assert "# No response: sinfo: timed out after 10 s\n" in done.stdout
    assert "partition: gpu" in done.stdout


def test_a_cluster_that_hangs_altogether_costs_ten_seconds(site: Site) -> None:
    for name in ANSWERS:
        site.say(name, "sleep 60")
    start = time.monotonic()
    done = site.person("profile", "detect", "--write", "dev", env=site.env)
    assert 10 <= time.monotonic() - start < 16
    assert done.returncode == 5
    assert "Slurm does not respond" in done.stderr
    assert "sinfo: timed out after 10 s" in done.stderr
    assert not site.profiles.exists()


def test_an_sbatch_that_hangs_is_tried_once(site: Site) -> None:
    site.say("sbatch", "echo x >> tried; sleep 60")
    done = site.person("profile", "detect", env=site.env)
    assert (
        "# directive: gres                 # sbatch --test-only accepted no form: timed out after 10 s" in done.stdout
    )
    assert done.stderr == "hpcrun: sbatch --test-only: timed out after 10 s\n"
    assert (site.person.folder / "tried").read_text() == "x\n"


def test_no_slurm(hpcrun: Hpcrun, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = hpcrun("profile", "detect", env={"PATH": str(tmp_path / "bin")})
    assert done.returncode == 5
    assert "sinfo: No such file or directory" in done.stderr
    assert "hint: run it on a machine where `sinfo` works" in done.stderr


@pytest.mark.parametrize("babble", ["printf 'hello\\n'", "printf '\\377\\000\\033[2J\\n'", "seq 100000", "exit 3"])
def test_a_format_nobody_knows(site: Site, babble: str) -> None:
    for name in ("sinfo", "scontrol", "sacctmgr", "sacct"):
        site.say(name, babble)
    done = site.person("profile", "detect", env=site.env)
    assert done.returncode == 5
    assert "sinfo: its output was not understood" in done.stderr or "sinfo: exit status 3" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_scontrol_sinfo_is_enough(site: Site) -> None:
    site.say("scontrol", "echo 'slurm_load_partitions: Access/permission denied' >&2; exit 1")
    done = site.person("profile", "detect", env=site.env)
    assert done.returncode == 0
    assert "scontrol show node: slurm_load_partitions: Access/permission denied" in done.stderr
    assert "per_node: 8                   # sinfo\n      nodes: 2 " in done.stdout


def test_accounting_that_is_off_is_said(site: Site) -> None:
    for name in ("sacct", "sacctmgr"):
        site.say(name, "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    done = site.person("profile", "detect", env=site.env)
    assert (
        "# account:                          # sacctmgr show assoc: Slurm accounting storage is disabled" in done.stdout
    )
    assert "# Accounting: sacct does not respond: Slurm accounting storage is disabled" in done.stdout


def test_force_without_write(site: Site) -> None:
    assert site.person("profile", "detect", "--force", env=site.env).returncode == 2
