"""hpcrun resubmit, with real jobs in the background of this machine."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness import Hpcrun, at_end, trust

JOB = ("submit", "-P", "local", "--gpus", "0", "--wait")
TRAIN = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["HPCRUN_CHECKPOINT_DIR"])
folder.mkdir(parents=True, exist_ok=True)
steps = folder / "steps"
steps.write_text((steps.read_text() if steps.exists() else "") + ".")
print(steps.read_text(), os.getcwd(), os.environ.get("MODE"), *sys.argv[1:])
"""


def again(
    hpcrun: Hpcrun, *args: str, cwd: Path | None = None, env: dict[str, str | None] | None = None
) -> str:
    """Resubmit, wait for the end, and return what it printed."""
    run_id = json.loads(hpcrun("resubmit", "--json", *args, check=True, cwd=cwd, env=env).stdout)[
        "run_id"
    ]
    hpcrun.ended(run_id)
    return hpcrun("logs", run_id, check=True).stdout.strip()


def test_the_same_again_goes_on_from_its_checkpoints(hpcrun: Hpcrun, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    hpcrun(*JOB, "--env", "MODE=a", "train.py", "--lr", "1", check=True)
    first = hpcrun.status()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert again(hpcrun, "train", cwd=elsewhere) == f".. {tmp_path} a --lr 1"
    assert hpcrun.status()["resubmitted_from"] == first["run_id"]
    # of the newest, which has its checkpoints from the first
    assert (
        again(hpcrun, "train", "--env", "MODE=b", "--", "--lr", "2") == f"... {tmp_path} b --lr 2"
    )
    # a -- before the run
    assert "--lr 2" in hpcrun("resubmit", "--dry-run", "--", "last", check=True).stderr
    assert again(hpcrun, "last", "--") == f".... {tmp_path} b"
    assert again(hpcrun, first["run_id"], "--fresh") == f". {tmp_path} a --lr 1"
    verbose = hpcrun("status", "-v", "last", check=True).stdout
    assert f"again        of {first['run_id']}" in verbose
    for options, checkpoints in (
        ((), f"checkpoints of {first['run_id']}"),
        (("--fresh",), "new checkpoints"),
    ):
        plan = hpcrun(
            "resubmit", *options, "--dry-run", first["run_id"], cwd=elsewhere, check=True
        ).stderr
        assert f"again of {first['run_id']}, {checkpoints}, in {tmp_path} " in " ".join(
            plan.split()
        )
    # instead of --gpus 0
    sizes = ("--gpus-per-node", "1", "--nodes", "2", "--time", "4h", "--dry-run")
    plan = hpcrun("resubmit", "last", *sizes, check=True).stderr
    assert "2 nodes" in plan
    assert "04:00:00" in plan


def test_a_run_that_is_submitted_again_can_be_waited_for_and_one_that_is_not_over_is_refused(
    hpcrun: Hpcrun,
) -> None:
    hpcrun(*JOB, "sh", "-c", "exit 3")
    assert hpcrun("resubmit", "last", "--wait").returncode == 7
    refused = hpcrun("resubmit", "last", "--follow", "--json")
    assert "--follow and --json cannot be combined" in refused.stdout
    hpcrun("submit", "-P", "local", "--gpus", "0", "-J", "busy", "sleep", "60", check=True)
    refused = hpcrun("resubmit", "busy")
    assert (refused.returncode, "has not ended: RUNNING" in refused.stderr) == (4, True)
    waits = hpcrun("resubmit", hpcrun.status("busy")["run_id"], "--after", "busy")  # by its name
    assert (waits.returncode, "--after needs Slurm" in waits.stderr) == (4, True)
    hpcrun("resubmit", "busy", "--force", check=True)
    assert len(list(hpcrun.runs.glob("2*-busy-*"))) == 2
    hpcrun("cancel", "--yes", "--state", "running,pending")


def test_of_several_resubmissions_of_a_run_one_is_submitted(hpcrun: Hpcrun) -> None:
    hpcrun(*JOB, "-J", "first", "sh", "-c", "sleep $0", "0", check=True)
    run_id = hpcrun.status("first")["run_id"]
    again = ("resubmit", run_id, "--", "20")
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: hpcrun(*again), range(3)))
    refused = [item for item in done if "which uses the same checkpoints as" in item.stderr]
    assert (hpcrun.status()["resubmitted_from"], len(refused)) == (run_id, 2), done
    hpcrun("cancel", "--yes", "last", check=True)


def test_a_secret_is_taken_from_the_environment_again(hpcrun: Hpcrun) -> None:
    hpcrun(*JOB, "-J", "secret", "--env", "HF_TOKEN=hush", "printenv", "HF_TOKEN", check=True)
    refused = hpcrun("resubmit", "secret")
    assert refused.returncode == 2
    assert "HF_TOKEN is a secret" in refused.stderr
    assert "hint: export HF_TOKEN, or add --env HF_TOKEN=VALUE" in refused.stderr
    assert again(hpcrun, "secret", env={"HF_TOKEN": "new"}) == "new"
    assert again(hpcrun, "secret", "--env", "HF_TOKEN=typed") == "typed"
    assert not [path for path in hpcrun.runs.glob("*/run.json") if "typed" in path.read_text()]


def test_what_cannot_be_meant_is_refused(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    hpcrun(*JOB, "true", check=True)
    for args, words in (
        (("true", "false"), "resubmit takes one run; unexpected: 'false'"),
        (("tru",), "did you mean 'true'?"),
        (("true", "--tme", "4"), "No such option: --tme"),
    ):
        with subtests.test(args=args):
            done = hpcrun("resubmit", *args)
            assert (done.returncode in (2, 6), words in done.stderr) == (True, True)
    for option in (("--after", "true"), ("--chain", "2")):
        done = hpcrun("submit", "-P", "local", "--gpus", "0", *option, "true")
        assert (done.returncode, f"{option[0]} needs Slurm" in done.stderr) == (4, True)
    both = hpcrun("submit", "-P", "local", "--gpus", "0", "--chain", "2", "--follow", "true")
    assert (both.returncode, both.stdout) == (2, "")


def test_the_folder_and_the_profile_of_the_run_are_used(hpcrun: Hpcrun, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".hpcrun/profiles").mkdir(parents=True)
    (project / ".hpcrun/profiles/mine.yaml").write_text(
        "extends: local\nenv: {MODE: from-project}\n"
    )
    trust(hpcrun, project)
    (project / "files").mkdir()
    (project / "files/mine.yaml").write_text("extends: local\nenv: {MODE: from-file}\n")
    for name, profile in (("by-name", "mine"), ("by-file", "files/mine.yaml")):
        job = ("-P", profile, "--gpus", "0", "-J", name, "--wait", "printenv", "MODE")
        hpcrun("submit", *job, check=True, cwd=project)
    assert again(hpcrun, "by-name") == "from-project"
    assert again(hpcrun, "by-file") == "from-file"
    project.rename(tmp_path / "moved")
    gone = hpcrun("resubmit", "by-name")
    assert gone.returncode == 4
    assert (
        f"the folder that {hpcrun.status('by-name')['run_id']} was submitted from no longer exists"
        in gone.stderr
    )


def editor(hpcrun: Hpcrun, text: str) -> dict[str, str | None]:
    """An environment with an editor: a shell script that is called with the file."""
    path = hpcrun.program("editor.sh", text)
    return {"EDITOR": str(path), "VISUAL": None, "TMPDIR": str(hpcrun.folder), "HF_TOKEN": "hush"}


def test_the_command_can_be_edited(hpcrun: Hpcrun) -> None:
    command = ("sh", "-c", 'echo "$A $HF_TOKEN $1"', "sh", "it's")
    hpcrun(*JOB, "-J", "edit", "--env", "HF_TOKEN=hush", "--env", "A=1", *command, check=True)
    run_id = hpcrun.status()["run_id"]
    change = editor(hpcrun, 'cp "$1" seen; sed -i "s/A=1/A=2/" "$1"')
    assert again(hpcrun, "edit", "--edit", env=change) == "2 hush it's"
    seen = (hpcrun.folder / "seen").read_text()
    assert "hush" not in seen
    assert "HF_TOKEN=***" in seen
    assert f"# It runs in {hpcrun.folder}, without checkpoints.\n" in seen
    assert "\nhpcrun submit\n  --profile local\n  --gpus 0\n  --env A=1\n" in seen.replace(
        "  --env 'HF_TOKEN=***'\n", ""
    )
    assert hpcrun.status()["resubmitted_from"] == run_id
    assert not list(hpcrun.folder.glob("hpcrun-edit-*"))


def test_what_cannot_be_submitted_is_not_and_a_mistake_keeps_the_text(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    hpcrun(*JOB, "true", check=True)
    for edit, words in (
        ("true", "nothing was changed, and nothing was submitted"),
        ('echo "# only this" >"$1"', "the command is empty, and nothing was submitted"),
        ('sed -i "s/--gpus 0/--gpus 0 --tme 4/" "$1"', "No such option: --tme"),
        ('sed -i "s/--gpus 0/--gpus 0 --wait/" "$1"', "--wait is no part of the job"),
    ):
        with subtests.test(edit=edit):
            done = hpcrun("resubmit", "true", "--edit", env=editor(hpcrun, edit))
            assert (done.returncode, words in done.stderr) == (2, True), done.stderr
            kept = list(hpcrun.folder.glob("hpcrun-edit-*"))
            assert len(kept) == ("sed" in edit)
            for path in kept:
                assert f"your text is kept in {path}" in done.stderr
                path.unlink()
            assert len(list(hpcrun.runs.glob("2*"))) == 1


def test_on_a_terminal_a_mistake_leads_back_to_the_editor(hpcrun: Hpcrun) -> None:
    hpcrun(*JOB, "true", check=True)
    text = 'grep -q ERROR "$1" && { cp "$1" seen; sed -i s/--tme/--time/ "$1"; exit; }\n'
    text += 'sed -i "s/--gpus 0/& --tme 5m/" "$1"'
    terminal = hpcrun.terminal(
        "resubmit", "true", "--edit", env=editor(hpcrun, text), size=(24, 80)
    )
    terminal.expect(re.escape("Edit it again? [Y/n] "))
    assert "No such option: --tme" in str(terminal.before)
    terminal.sendline("")
    terminal.expect("submitted  job")
    at_end(terminal)
    assert (hpcrun.folder / "seen").read_text().startswith("# ERROR: No such option: --tme")
    assert hpcrun.ended()["limit_s"] == 300
