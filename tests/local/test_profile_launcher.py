"""A profile chooses what starts the ranks: of every command that submits jobs, with an sbatch that
accepts them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import Hpcrun
from tests.local.test_detect import Site

BY_SRUN = " rank --task -- "
BY_TORCHRUN = " -m torch.distributed.run "
JOB = ("submit", "--gpus", "2", "--nodes", "2", "--name", "train")
EXECUTOR = "import hpcrun; hpcrun.Executor('mine', gpus=2, nodes=2).submit(abs, -1)"


@pytest.fixture
def site(hpcrun: Hpcrun) -> Site:
    """A cluster where the default profile lets srun start the ranks."""
    hpcrun.write("train.py", "")
    site = Site(hpcrun)
    site.say("sbatch", "echo Submitted batch job $$")
    site.say("squeue", "true")
    site.profiles.mkdir(parents=True)
    (site.profiles / "mine.yaml").write_text(
        "extends: a100\nlauncher: srun\ntorchrun: {numa-binding: node}\n"
    )
    site.env["HPCRUN_PROFILE"] = "mine"
    return site


def submitted(site: Site, *args: str) -> list[str]:
    """Return the scripts of the runs that a command has submitted."""
    before = set(site.person.runs.iterdir())
    site.person(*args, env=site.env, check=True)
    return scripts({*site.person.runs.iterdir()} - before)


def scripts(folders: set[Path]) -> list[str]:
    return [path.read_text() for folder in folders for path in folder.glob("script*")]


@pytest.mark.parametrize(
    ("args", "runs"),
    [
        (JOB, 1),
        ((*JOB, "--sweep", "lr=1,2"), 1),
        ((*JOB, "--chain", "2"), 2),
        (("scale", "run", "--gpus", "1,2"), 2),
    ],
    ids=["submit", "sweep", "chain", "scale run"],
)
def test_the_launcher_of_the_profile_starts_the_ranks(
    site: Site, args: tuple[str, ...], runs: int
) -> None:
    texts = submitted(site, *args, "train.py")
    assert len(texts) == runs
    for text in texts:
        assert BY_SRUN in text
        assert BY_TORCHRUN not in text


def test_a_run_that_is_resubmitted_may_have_another_launcher(site: Site) -> None:
    submitted(site, *JOB, "train.py")
    again = ("resubmit", "train", "--force")
    (text,) = submitted(site, *again)
    assert BY_SRUN in text
    (text,) = submitted(site, *again, "--launcher", "torchrun")
    assert BY_TORCHRUN in text


def test_a_function_has_a_task_of_srun(site: Site) -> None:
    env = {name: value for name, value in site.env.items() if value is not None}
    site.person.python(EXECUTOR, env=env)
    (text,) = scripts({*site.person.runs.iterdir()})
    assert BY_SRUN in text


def test_roles_which_srun_cannot_start_have_torchrun(site: Site) -> None:
    roles = ("--role", "a:1", "train.py", "--role", "b:1", "train.py")
    (text,) = submitted(site, "submit", "--gpus-per-node", "1", *roles)
    assert text.count(BY_TORCHRUN) == 2


def test_a_preflight_starts_its_ranks_itself(site: Site) -> None:
    text = site.person("preflight", *JOB[1:], "--dry-run", env=site.env, check=True).stdout
    assert "programs/preflight/node.py" in text
    assert BY_TORCHRUN not in text


@pytest.mark.parametrize(
    "words",
    [
        ("-P", "a100", "--gpus", "2", "--torchrun", "max-restarts=1"),
        ("-P", "local", "--gpus", "2"),
        ("-P", "a100", "--gpus-per-node", "1", "--role", "a:1", "train.py", "--role", "b:1"),
    ],
    ids=["options of torchrun", "this machine", "roles"],
)
def test_what_srun_lacks_by_the_docs_is_refused(site: Site, words: tuple[str, ...]) -> None:
    """The variables of a rank: tests/slurm/test_both_launchers.py."""
    statuses = []
    for launcher in ("torchrun", "srun"):
        job = ("submit", "--dry-run", "--launcher", launcher, *words, "train.py")
        statuses.append(site.person(*job, env=site.env).returncode)
    assert statuses[0] == 0
    assert statuses[1] in (2, 4)
