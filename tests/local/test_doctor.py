"""hpcrun doctor as a person sees it, on this machine and with commands that print what Slurm 22.05
said.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Completed, Hpcrun, fill, full_disk
from tests.local.test_detect import RECORDED, Site
from tests.unit.builders import write


@pytest.fixture
def site(hpcrun: Hpcrun) -> Site:
    site = Site(hpcrun)
    site.say("sinfo", f"cat '{RECORDED}/sinfo-version.txt'")
    for name in ("squeue", "scancel", "srun"):
        site.say(name, "true")
    # whichever torch the tests have, with CUDA or without
    write(
        hpcrun.folder / "packages/torch/version.py",
        "__version__ = '2.9.1+cpu'\ncuda = None\nhip = None\n",
    )
    write(hpcrun.folder / "packages/torch/__init__.py", "")
    site.env["PYTHONPATH"] = str(hpcrun.folder / "packages")
    return site


def checks_of(done: Completed) -> dict[str, dict[str, Any]]:
    """The checks of ``doctor --json`` by name, the names without a GPU's type or what is named."""
    document = json.loads(done.stdout)
    assert document["kind"] == "doctor"
    assert document["ok"] == (done.returncode == 0)
    return {check["name"]: check for check in document["checks"]}


def doctor(
    site: Site, *args: str, env: dict[str, str | None] | None = None
) -> dict[str, dict[str, Any]]:
    done = site.person("doctor", "--json", *args, env={**site.env, **(env or {})})
    assert done.returncode in (0, 4), done.stderr
    assert done.stderr == ""
    return checks_of(done)


def red(checks: dict[str, dict[str, Any]]) -> list[str]:
    return [name for name, check in checks.items() if check["level"] == "red"]


# --- this machine --------------------------------------------------------------------------------


def test_a_machine_without_slurm_is_checked_for_its_own_jobs(hpcrun: Hpcrun) -> None:
    done = hpcrun("doctor", "-P", "local", check=True)
    assert done.stderr == ""
    headings = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert headings[0] == "Runs folder"
    assert "Slurm" not in headings
    assert "Python" in headings
    assert "  error" not in done.stdout
    assert f"  ok       writable     {hpcrun.runs}\n" in done.stdout
    assert "\x1b" not in done.stdout
    assert list(hpcrun.runs.iterdir()) == []
    document = hpcrun.document("doctor", env={"PATH": "/nowhere"})  # the profile is that of submit
    assert document["profile"] == "local"
    assert document["ok"] is True


def test_a_runs_folder_on_a_disk_of_its_own_or_that_is_something_else(hpcrun: Hpcrun) -> None:
    checks = checks_of(
        hpcrun("doctor", "-P", "a100", "--json", env={"HPCRUN_RUNS": "/dev/shm/not/there"})
    )
    # the tests' own is on another one, which is not shared either
    assert checks["environment"]["level"] == "yellow"
    found = checks["file system"]
    assert found["level"] == "yellow"
    assert found["seen"] == "tmpfs at /dev/shm: possibly local to this machine"
    assert not Path("/dev/shm/not").exists()
    checks = checks_of(hpcrun("doctor", "-P", "local", "--json", env={"HPCRUN_RUNS": "~"}))
    assert red(checks) == ["use"]
    assert checks["use"]["seen"] == "it is a home folder; hpcrun creates no runs in it"
    assert checks["use"]["fix"].endswith(f"HPCRUN_RUNS={hpcrun.home}/hpcrun-runs")


def test_a_full_disk(hpcrun: Hpcrun, tmp_path: Path) -> None:
    with full_disk(tmp_path / "full") as disk:
        fill(disk)
        done = hpcrun("doctor", "-P", "local", "--json", env={"HPCRUN_RUNS": str(disk / "runs")})
        checks = checks_of(done)
        assert done.returncode == 4
        assert red(checks) == ["writable", "space"]
        assert checks["writable"]["seen"] == f"{disk}: No space left on device"
        assert checks["writable"]["fix"].startswith("free some space there")
        assert [path.name for path in disk.iterdir()] == ["filler"]


# --- Slurm ---------------------------------------------------------------------------------------


def test_without_a_profile_the_detected_one_is_checked(site: Site) -> None:
    checks = doctor(site)
    # the cluster has GPUs, and the torch of a test machine may have no CUDA
    assert set(red(checks)) <= {"torch"}
    assert checks["h100 nodes"]["level"] == "green"
    assert checks["controller"]["level"] == "green"


def test_a_controller_that_is_away_is_not_waited_for(site: Site) -> None:
    site.say(
        "scontrol",
        "case $* in ping) echo 'Slurmctld(primary) at head1 is DOWN'; exit 1 ;; *) sleep 60 ;; "
        "esac",
    )
    for name in ("sbatch", "sacct", "sacctmgr"):
        site.say(name, "sleep 60")
    done = site.person("doctor", "-P", "a100", env=site.env, timeout=50)
    assert done.returncode == 4
    assert "error    controller" in done.stdout
    assert "head1 (primary) does not respond" in done.stdout
    assert done.stdout.count("not checked") == 1
    assert "since Slurm does not respond" in done.stdout


def test_sbatch_is_asked_once_and_twice_where_it_refuses(site: Site) -> None:
    asked = site.person.folder / "asked"
    site.say(
        "sbatch",
        f'printf "%s\\n" "$*" >> {asked}; cat "{RECORDED}/sbatch-test-only-accepted.txt" >&2',
    )
    doctor(site, "-P", "a100")
    (line,) = asked.read_text().splitlines()
    assert line.startswith("--test-only ")
    assert "--gres=gpu:a100:4 " in line
    site.say(
        "sbatch", f'printf "%s\\n" "$*" >> {asked}; echo "sbatch: error: no\\nmore" >&2; exit 1'
    )
    found = doctor(site, "-P", "a100")["sbatch"]
    assert found["level"] == "red"
    assert found["seen"] == "--test-only refuses --gres=gpu:a100:4: no; more"
    assert [line.split("--gres=gpu:a100:")[1][0] for line in asked.read_text().splitlines()] == [
        "4",
        "4",
        "1",
    ]


@pytest.mark.parametrize("babble", [r"printf '\377\000\033[2J\n'", "seq 100000"])
def test_a_format_nobody_knows(site: Site, babble: str) -> None:
    site.say(
        "scontrol", f'case $* in ping) cat "{RECORDED}/scontrol-ping.txt" ;; *) {babble} ;; esac'
    )
    for name in ("sinfo", "sacctmgr", "sacct", "sbatch", "quota"):
        site.say(name, babble)
    done = site.person("doctor", "-P", "a100", env=site.env)
    assert (done.returncode, "not checked" in done.stdout) == (4, True)
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout
    assert doctor(site, "-P", "a100")["cluster"]["level"] == "yellow"


def test_modules_are_tried_and_set_up_commands_not_run(site: Site) -> None:
    text = f"extends: a100\nmodules: [gcc/13]\nsetup: ['touch {site.person.folder}/ran']\n"
    write(site.profiles / "mine.yaml", text)
    module = '() { [ "$2" = gcc/13 ]; }'
    assert (
        doctor(site, "-P", "mine", env={"BASH_FUNC_module%%": module})["modules"]["level"]
        == "green"
    )
    found = doctor(
        site, "-P", "mine", env={"BASH_FUNC_module%%": "() { echo unknown: $2; return 1; }"}
    )["modules"]
    assert found["level"] == "red"
    assert found["seen"] == "gcc/13 cannot be loaded: unknown: gcc/13"
    assert not (site.person.folder / "ran").exists()
