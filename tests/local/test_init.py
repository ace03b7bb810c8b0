"""init as a person at a terminal sees it, with commands that print what Slurm 22.05 said; and
without Slurm.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Completed, Hpcrun, answer, at_end
from tests.local.test_detect import Site

GPU, ACCOUNT, LAUNCHER = "\nGPU type", "\naccount", "\nlauncher"
RUNS, TEST = "Folder of the runs", "Submit a test job"
TWO_ACCOUNTS = r"printf 'lab||normal|\nthesis||normal|\n'"


@pytest.fixture
def site(hpcrun: Hpcrun) -> Site:
    site = Site(hpcrun)
    site.env["HPCRUN_RUNS"] = None
    return site


def configuration(site: Site) -> Path:
    return site.person.home / ".config/hpcrun"


def init(site: Site, *args: str) -> Completed:
    return site.person("init", *args, env=site.env)


def terminal(site: Site, *args: str) -> Any:
    return site.person.terminal("init", *args, env=site.env)


def reply(child: Any, question: str, text: str) -> None:
    child.expect_exact(question)
    answer(child, r"(: |\] )$", text)


def test_it_asks_what_slurm_does_not_tell(site: Site) -> None:
    site.say("sacctmgr", TWO_ACCOUNTS)
    child = terminal(site)
    child.expect(r"the account to charge:\s+1  lab\s+2  thesis")
    reply(child, ACCOUNT, "thsis")
    child.expect_exact("Type a number from 1 to 2, or a name.")
    reply(child, ACCOUNT, "thesis")
    reply(child, GPU, "a100")
    reply(child, LAUNCHER, "")
    (site.person.home / "file").touch()
    reply(child, RUNS, "~/file/runs")
    child.expect_exact(f"{site.person.home}/file is not a folder")
    reply(child, RUNS, "~/runs")
    reply(child, TEST, "n")
    status, said = at_end(child)
    assert status == 0
    assert "hpcrun submit --gpus 4 --nodes 2 train.py" in said
    assert (
        configuration(site) / "config.yaml"
    ).read_text() == f"profile: dev\nruns: {site.person.home}/runs\n"
    text = (site.profiles / "dev.yaml").read_text()
    assert (
        "account: thesis                     # your choice; sacctmgr show assoc: lab, thesis\n"
        in text
    )
    assert "  type: a100                        # your choice: the type of --gpus N\n" in text
    assert "launcher" not in text
    dry = site.person("submit", "--gpus", "2", "--dry-run", "true", env=site.env, check=True).stdout
    assert "#SBATCH --gres=gpu:a100:2\n" in dry
    assert "#SBATCH --account=thesis\n" in dry


def test_ctrl_c_at_any_question_leaves_nothing_behind(site: Site) -> None:
    site.say("sacctmgr", TWO_ACCOUNTS)
    asked = ((ACCOUNT, "lab"), (GPU, ""), (LAUNCHER, "srun"), (RUNS, ""))
    for number, (question, _) in enumerate(asked):
        child = terminal(site)
        for earlier, text in asked[:number]:
            reply(child, earlier, text)
        child.expect_exact(question)
        child.sendintr()
        status, said = at_end(child)
        assert status == 130
        assert said.splitlines()[-1] == "hpcrun: interrupted; nothing was written"
        assert not configuration(site).exists()


def test_without_a_terminal_it_names_the_options(site: Site) -> None:
    site.say("sacctmgr", TWO_ACCOUNTS)
    done = init(site)
    assert done.returncode == 2
    assert "hpcrun: choose an account: --account lab, --account thesis\n" in done.stderr
    assert "choose a GPU type: --gpu-type a100, --gpu-type a40, " in done.stderr
    assert done.stderr.endswith("hint: hpcrun init --account lab --gpu-type h100\n")
    assert "did you mean --account thesis" in init(site, "--account", "thesi").stderr
    assert not configuration(site).exists()
    assert init(site, "--account", "lab", "--gpu-type", "h100").returncode == 0


def test_yes_says_what_it_has_chosen_and_what_else_there_is(site: Site) -> None:
    site.say("sacctmgr", TWO_ACCOUNTS)
    done = init(site, "--yes")
    assert done.returncode == 0
    assert "chosen     account lab, by --yes; others: --account thesis\n" in done.stdout
    assert "chosen     GPU type h100, by --yes; others: --gpu-type a100, " in done.stdout
    assert "chosen" not in done.stderr
    assert "chosen" not in init(site, "--account", "lab", "--gpu-type", "h100", "--yes").stdout


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_the_document_has_what_yes_has_chosen(site: Site, options: tuple[str, ...]) -> None:
    site.say("sacctmgr", TWO_ACCOUNTS)
    done = init(site, "--yes", "--json", *options)
    account, gpu_type = json.loads(done.stdout)["chosen"]
    assert account == {"what": "account", "value": "lab", "others": ["--account thesis"]}
    assert (gpu_type["what"], gpu_type["value"]) == ("GPU type", "h100")
    assert "--gpu-type a100" in gpu_type["others"]
    typed = ("--account", "lab", "--gpu-type", "h100")
    assert json.loads(init(site, "--yes", "--json", *typed, *options).stdout)["chosen"] == []


def test_a_dry_run_says_on_stderr_what_yes_has_chosen(site: Site) -> None:
    done = init(site, "--yes", "--dry-run")
    assert "chosen     GPU type h100, by --yes" in done.stderr
    assert "chosen" not in done.stdout


def test_a_second_time_it_changes_what_is_asked_and_nothing_else(site: Site) -> None:
    configuration(site).mkdir(parents=True)
    config = configuration(site) / "config.yaml"
    config.write_text("# mine\nprofile: a100 # for now\ntime: 2h\n")
    done = init(site, "--gpu-type", "a100")
    assert "instead of a100" in done.stdout
    assert config.read_text() == "# mine\nprofile: dev # for now\ntime: 2h\n"
    path = site.profiles / "dev.yaml"
    path.write_text(path.read_text() + "modules: [cuda] # mine\n")
    before = path.read_text()

    assert f"unchanged  {path}" in init(site).stdout
    refused = init(site, "--gpu-type", "h100")
    assert (refused.returncode, path.read_text()) == (3, before)
    assert "-  type: a100" in refused.stderr
    assert "+  type: h100" in refused.stderr
    assert init(site, "--gpu-type", "h100", "--yes").returncode == 0
    assert path.read_text() == before.replace("type: a100  ", "type: h100  ")
    assert init(site, "--gpu-type", "none", "--yes").returncode == 0
    assert "  type: " not in path.read_text()
    assert [entry.name for entry in site.profiles.iterdir()] == ["dev.yaml"]

    child = terminal(site, "--gpu-type", "l40s")
    reply(child, LAUNCHER, "")
    reply(child, RUNS, "")
    reply(child, f"Change {path}?", "")
    status, said = at_end(child)
    assert status == 0
    assert "nothing was written" in said
    assert "l40s:2" not in said
    assert "modules: [cuda] # mine\n" in path.read_text()


def test_it_offers_srun_to_start_the_ranks_and_remembers_the_answer(site: Site) -> None:
    path = site.profiles / "dev.yaml"
    child = terminal(site, "--gpu-type", "a100", "--dry-run")
    child.expect(r"1  torchrun  the default\s+2  srun      starts sooner")
    reply(child, f"{LAUNCHER} [1]", "srun")
    reply(child, RUNS, "")
    status, said = at_end(child)
    assert (status, "launcher: srun" in said) == (0, True)
    assert init(site, "--gpu-type", "a100", "--launcher", "srun").returncode == 0
    job = ("submit", "--gpus", "4", "--dry-run", "train.py")
    site.person.write("train.py", "")
    assert " rank --task -- " in site.person(*job, env=site.env, check=True).stdout
    child = terminal(site, "--gpu-type", "a100")
    child.expect_exact(f"{LAUNCHER} [2]: ")
    child.sendintr()
    at_end(child)
    assert init(site, "--force").returncode == 0
    assert "launcher: srun " in path.read_text()
    assert init(site, "--launcher", "torchrun", "--yes").returncode == 0
    assert "launcher" not in path.read_text()
    path.write_text("extends: base/slurm\nlauncher: python\n")
    assert init(site, "--launcher", "srun", "--yes").returncode == 0
    assert path.read_text() == "extends: base/slurm\nlauncher: srun\n"


def test_it_writes_no_launcher_that_it_does_not_offer(site: Site) -> None:
    done = init(site, "--gpu-type", "a100", "--launcher", "ray")
    assert (done.returncode, configuration(site).exists()) == (2, False)
    assert "--launcher ray: init writes torchrun or srun\n" in done.stderr


def test_force_writes_the_profile_anew_and_keeps_the_old_file(site: Site) -> None:
    site.profiles.mkdir(parents=True)
    path = site.profiles / "dev.yaml"
    path.write_text("partition: [broken\n")
    assert init(site, "--gpu-type", "a100").returncode == 3
    done = init(site, "--gpu-type", "a100", "--force")
    assert done.returncode == 0, done.stderr
    assert f"kept       {path.parent}/dev.old-1" in done.stdout
    assert (path.parent / "dev.old-1").read_text() == "partition: [broken\n"
    assert "  type: a100 " in path.read_text()


def test_a_profile_that_is_not_what_slurm_reports_is_noted(site: Site) -> None:
    init(site, "--gpu-type", "a100")
    path = site.profiles / "dev.yaml"
    path.write_text(path.read_text().replace("per_node: 8  ", "per_node: 4  "))
    done = init(site)
    keys = "gpu.types.h100.per_node, gpu.types.h200.per_node"
    assert f"other values than Slurm reports for {keys}; hpcrun init" in done.stdout


def test_a_dry_run_and_json(site: Site) -> None:
    done = init(site, "--gpu-type", "a100", "--dry-run")
    assert (done.returncode, configuration(site).exists()) == (0, False)
    assert f"# {site.profiles}/dev.yaml:\n" in done.stdout
    assert done.stdout.endswith(f"# {configuration(site)}/config.yaml:\nprofile: dev\n")
    found = json.loads(init(site, "--gpu-type", "a100", "--json", "--name", "mine").stdout)
    assert found["kind"] == "init"
    assert found["profile"] == "mine"
    assert found["written"] is True
    assert found["test"] is None
    files = [f"{site.profiles}/mine.yaml", f"{configuration(site)}/config.yaml"]
    assert [item["path"] for item in found["files"]] == files
    assert found["doctor"]["profile"] == "mine"
    site.env["HPCRUN_PROFILE"] = "a100"
    done = init(site, "--gpu-type", "a100")
    assert "hpcrun: HPCRUN_PROFILE sets the profile a100 here, and takes precedence" in done.stderr


def test_without_slurm_it_sets_up_this_machine(hpcrun: Hpcrun) -> None:
    only = hpcrun.folder / "bin"
    only.mkdir()
    for name in ("python", "python3"):
        (only / name).symlink_to(hpcrun.venv / "bin" / name)
    path = {"PATH": str(only), "HPCRUN_RUNS": None}
    refused = hpcrun("init", "--account", "lab", env=path)
    assert (refused.returncode, "have no effect without Slurm" in refused.stderr) == (2, True)
    done = hpcrun("init", "--runs", "runs here", env=path)
    assert done.returncode == 0, done.stderr
    assert "there is no sbatch on this machine's PATH: jobs will run on this machine" in done.stderr
    assert "default    local" in done.stdout
    text = (hpcrun.home / ".config/hpcrun/config.yaml").read_text()
    assert text == f"profile: local\nruns: {hpcrun.folder}/runs here\n"
    assert "\nnext       hpcrun submit --gpus 4 --nodes 2 train.py" in done.stdout
