"""A command without a profile on a cluster: what is detected, asked, kept; with commands that print
what Slurm said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness import Hpcrun, answer, at_end
from tests.local.test_detect import ANSWERS, Site


class Bare(Site):
    """A cluster whose commands note how they were called."""

    def __init__(self, person: Hpcrun) -> None:
        super().__init__(person)
        self.log, self.conf = person.folder / "calls", person.folder / "slurm.conf"
        self.env["SLURM_CONF"] = str(self.conf)
        self.conf.write_text("ClusterName=dev\n")
        (person.folder / "train.py").touch()
        for name, line in ANSWERS.items():
            self.say(name, f'echo "{name} $*" >> {self.log}; {line}')

    def calls(self) -> list[str]:
        """The commands since the last call."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [line.split()[0] for line in lines]

    def submit(self, *args: str, **more: Any) -> Any:
        return self.person("submit", "--dry-run", *args, "train.py", env={**self.env, **more})


@pytest.fixture
def bare(hpcrun: Hpcrun) -> Bare:
    return Bare(hpcrun)


def test_the_cluster_is_detected_once(bare: Bare) -> None:
    done = bare.submit("--gpus", "h100:4", "--nodes", "2")
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --partition=gpu\n#SBATCH --account=lab\n" in done.stdout
    (note,) = [line for line in done.stderr.splitlines() if line.startswith("note")]
    assert note.split("  ")[-1].strip() == (
        "detected the cluster dev: partition gpu (the default), account lab; keep or change it "
        "with hpcrun init"
    )
    # and no job id is used up by sbatch
    assert set(bare.calls()) == {"scontrol", "sacctmgr", "sacct"}
    assert bare.submit("--gpus", "h100:4", "--nodes", "2").stdout == done.stdout
    assert bare.calls() == []


def test_commands_take_the_same_default(bare: Bare) -> None:
    person, env = bare.person, bare.env
    for command in ("submit --dry-run --gpus h100:2 train.py", "preflight --gpus h100:2 --dry-run"):
        assert "(profile detected)" in person(*command.split(), env=env, check=True).stderr
    forecast = (
        "scale",
        "plan",
        "--samples",
        "1000",
        "--batch-size",
        "100",
        "--epoch-time",
        "60s",
        "--gpus",
    )
    plan = person(*forecast, "h100:1,2,4", env=env, check=True).stdout
    assert "NVIDIA H100 80 GB SXM5" in plan
    assert "choose a GPU type: --gpus a100:1,2,4, " in person(*forecast, "1,2,4", env=env).stderr
    study = person(
        "scale", "run", "--gpus", "h100:1,2,4", "--dry-run", "train.py", env=env, check=True
    )
    assert "detected the cluster dev" in study.stderr
    open_ = person("scale", "run", "--gpus", "1,2,4", "--dry-run", "train.py", env=env)
    assert (open_.returncode, "--gpus h100:1,2,4" in open_.stderr) == (2, True)
    listed = person("profile", "list", env=env, check=True).stdout
    assert any(line.split()[:2] == ["*", "detected"] for line in listed.splitlines())
    assert person("profile", "env", "detected", env=env).returncode == 0


def test_the_type_is_named_or_set_for_all_jobs(bare: Bare) -> None:
    refused = bare.submit("--gpus", "4", "--nodes", "2")
    assert refused.returncode == 2
    message, hint = refused.stderr.splitlines()
    assert (
        message
        == "hpcrun: choose a GPU type: --gpus a100:4, --gpus h100:4, --gpus l40s:4, --gpus v100:4"
    )
    assert hint == "hint: for all your jobs: hpcrun init"
    bare.person("profile", "set", "detected", "gpu.type=h100", env=bare.env, check=True)
    kept = bare.submit("--gpus", "4", "--nodes", "2")
    assert "#SBATCH --gres=gpu:h100:2\n" in kept.stdout
    assert "note" not in kept.stderr


TYPE = r"GPU type \[\d\]: "


def asked_on_terminal(bare: Bare, *args: str) -> Any:
    return bare.person.terminal("submit", *args, "train.py", env=bare.env, size=(50, 160))


def test_on_a_terminal_it_asks(bare: Bare) -> None:
    terminal = asked_on_terminal(bare, "--gpus", "4", "--nodes", "2", "--dry-run")
    terminal.expect(TYPE)
    assert "several GPU types have 4 GPUs on 2 nodes:\r\n" in terminal.before
    assert "  1  a100  2 nodes × 4, 80 GB each, partition gpu\r\n" in terminal.before
    terminal.sendline("9")
    terminal.expect("Type a number from 1 to 4, or a name.")
    answer(terminal, TYPE, "l40s")
    _, shown = at_end(terminal)
    assert "--gres=gpu:l40s:2" in shown
    assert "; keep or change it with hpcrun init" in shown
    offered = asked_on_terminal(bare, "--gpus", "4", "--dry-run")
    answer(offered, TYPE, "")
    offered.expect("--gres=gpu:h100:4")
    interrupted = asked_on_terminal(bare, "--gpus", "4")
    interrupted.expect(TYPE)
    interrupted.sendintr()
    status, shown = at_end(interrupted)
    assert status == 130
    assert "nothing was submitted" in shown
    assert (
        "choose a GPU type"
        in at_end(asked_on_terminal(bare, "--gpus", "4", "--dry-run", "--json"))[1]
    )


def test_without_an_answer_of_slurm_it_is_said(bare: Bare) -> None:
    for name in ANSWERS:
        bare.say(name, "echo 'Unable to contact slurm controller' >&2; exit 1")
    done = bare.submit("--gpus", "4")
    assert done.returncode == 5
    assert "Slurm does not respond:\n" in done.stderr
    assert "choose a profile with -P" in done.stderr
    listed = bare.person("profile", "list", env=bare.env, check=True)
    assert "Slurm does not respond" in listed.stderr
    doctor = bare.person.document("doctor", env=bare.env)
    (profile,) = [check for check in doctor["checks"] if check["name"] == "profile"]
    assert "the cluster cannot be detected now" in profile["seen"]
    chosen = bare.submit("-P", "h100", "--gpus", "4")
    assert chosen.returncode == 0, chosen.stderr


def test_after_a_refusal_the_cluster_is_asked_again(bare: Bare) -> None:
    facts = bare.person.home / ".cache/hpcrun/facts-dev"
    bare.say("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1")
    refused = bare.person("submit", "--gpus", "h100:4", "train.py", env=bare.env)
    assert (refused.returncode, facts.exists()) == (5, False)
    bare.submit("--gpus", "h100:4")
    bare.person("submit", "-P", "h100", "--gpus", "4", "train.py", env=bare.env)
    assert facts.exists()


def test_the_cache_is_the_persons_own(bare: Bare) -> None:
    bare.submit("--gpus", "h100:4")
    cache = Path(bare.person.home / ".cache/hpcrun")
    assert (cache / "facts-dev").stat().st_mode & 0o777 == 0o600
    assert (
        (cache / "detected/detected.yaml").read_text().startswith("# Detected by hpcrun for user ")
    )
    bare.calls()
    (cache / "facts-dev").write_text("broken")
    (cache / "detected/detected.yaml").write_text("partition: theirs\n")
    assert "#SBATCH --partition=gpu\n" in bare.submit("--gpus", "h100:4").stdout
    assert bare.calls() != []
