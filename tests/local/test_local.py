"""The real program on this machine: jobs in the background, without Slurm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness import REPO, Hpcrun, at_end, processes_with, trust, wait_for

LOCAL = ("submit", "-P", "local")
PYTHON_JOB = (*LOCAL, "--gpus", "0")


def test_nodes_share_out_the_gpus_without_overlap(hpcrun: Hpcrun) -> None:
    show = ("--launcher", "python", "--wait", "printenv", "CUDA_VISIBLE_DEVICES")
    hpcrun(
        *LOCAL,
        "--gpus",
        "4",
        "--nodes",
        "2",
        *show,
        env={"CUDA_VISIBLE_DEVICES": "4,5,6,GPU-7f"},
        check=True,
    )
    assert hpcrun("logs", "--all-ranks").stdout.splitlines() == [
        "[rank 0] 4,5",
        "[rank 1] 6,GPU-7f",
    ]


def test_a_failed_node_ends_the_others_and_keeps_its_status(hpcrun: Hpcrun) -> None:
    job = ("bash", "-c", "[ $NODE_RANK = 0 ] && sleep 300; exit 9")
    done = hpcrun(
        *LOCAL, "--gpus", "2", "--nodes", "2", "--launcher", "python", "--wait", *job, timeout=60
    )
    assert done.returncode == 7
    assert "rank 1 on local-1 failed first with exit status 9" in done.stderr
    assert hpcrun.status()["exit_status"] == 9


def test_cancel_leaves_no_process(hpcrun: Hpcrun) -> None:
    mark = f"3{os.getpid()}"
    # the last one ignores SIGTERM, in a session of its own
    stubborn = f"trap '' TERM; setsid sleep {mark}.1 & sleep {mark}.2 & sleep {mark}.3"
    hpcrun(*PYTHON_JOB, "-J", "stubborn", "bash", "-c", stubborn, check=True)
    wait_for(lambda: len(processes_with(f"sleep {mark}")) >= 3, 20, "the job's processes")
    hpcrun("cancel", "stubborn", check=True)
    assert hpcrun.ended()["state"] == "CANCELLED"
    assert not processes_with(f"sleep {mark}")


@pytest.mark.parametrize("is_closed", [True, False], ids=["a closed window", "Ctrl-C"])
def test_a_job_outlives_the_command_that_follows_it(hpcrun: Hpcrun, is_closed: bool) -> None:
    job = "echo begun; until [ -e go ]; do sleep 0.1; done; echo done"
    terminal = hpcrun.terminal(*PYTHON_JOB, "--follow", "bash", "-c", job)
    terminal.expect("\nbegun")  # and not the command in the plan
    if is_closed:
        terminal.close(force=True)  # SIGHUP
    else:
        terminal.sendintr()
        terminal.expect("stopped waiting; job L")
        terminal.expect("hpcrun logs -f")
        assert at_end(terminal)[0] == 130
    (hpcrun.folder / "go").touch()
    assert hpcrun.ended()["state"] == "COMPLETED"
    assert hpcrun("logs").stdout == "begun\ndone\n"


def test_a_killed_supervisor_is_not_taken_for_a_running_job(hpcrun: Hpcrun) -> None:
    hpcrun(*PYTHON_JOB, "sleep", "300", check=True)
    pid = json.loads((Path(hpcrun.status()["folder"]) / "supervisor.json").read_text())["pid"]
    script = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: hpcrun.status()["state"] == "NODE_FAIL", 20, "status to see it")
    assert "supervisor left no record of its end" in hpcrun("status").stdout
    for child in script:
        os.kill(child, signal.SIGTERM)  # what it left behind


def test_a_failing_set_up_command_says_so_in_eighty_columns(hpcrun: Hpcrun) -> None:
    name = "a-rather-long-name-for-a-run-of-one-s-own"
    done = hpcrun(*PYTHON_JOB, "-J", name, "--setup", "echo oh dear >&2; false", "--wait", "true")
    assert done.returncode == 7
    assert "set-up command 1 failed" in hpcrun("status").stdout
    assert "oh dear" in hpcrun("logs").stdout  # no rank has a log: the batch script's own is shown
    lines = hpcrun.screen("status").splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert any("FAILED" in line for line in lines)
    assert name in hpcrun("status").stdout  # nothing is cut for a pipe


def test_no_torch_in_the_jobs_python(hpcrun: Hpcrun, tmp_path: Path) -> None:
    subprocess.run(
        ["/usr/bin/python3", "-m", "venv", "--without-pip", tmp_path / "empty"], check=True
    )
    (hpcrun.folder / "train.py").write_text("print('never')\n")
    done = hpcrun(
        *LOCAL, "--gpus", "2", "--python", f"{tmp_path}/empty/bin/python", "--wait", "train.py"
    )
    assert done.returncode == 7
    assert "the Python module torch is not installed" in hpcrun("status").stdout


@pytest.mark.parametrize(
    "options", [("--snapshot",), ("--workdir", "gone")], ids=["snapshot", "workdir"]
)
def test_a_folder_that_the_job_cannot_start_in_is_one_line(
    hpcrun: Hpcrun, options: tuple[str, ...]
) -> None:
    (hpcrun.folder / "gone").mkdir()
    script = hpcrun(*LOCAL, "--gpus", "0", "--dry-run", *options, "echo", "here", check=True).stdout
    (hpcrun.folder / "gone").rmdir()
    done = hpcrun.run("bash", "-c", script, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(("hpcrun: there is no copy of the code in ", "hpcrun: cannot start in "))


def test_root_ignores_a_project_of_another_user(hpcrun: Hpcrun) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    project = hpcrun.folder / ".hpcrun"
    project.mkdir()
    (project / "config.yaml").write_text("profile: nonsense\n")
    os.chown(project, 65534, 65534)
    done = hpcrun(*PYTHON_JOB, "--wait", "true", check=True)
    assert "belongs to another user" in done.stderr


def test_a_projects_configuration_is_found_from_below(hpcrun: Hpcrun) -> None:
    project = hpcrun.folder / "project"
    (project / ".hpcrun").mkdir(parents=True)
    (project / ".hpcrun/config.yaml").write_text("profile: local\nruns: ../runs-of-the-project\n")
    trust(hpcrun, project)
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    hpcrun(
        "submit", "--gpus", "0", "--wait", "true", cwd=below, env={"HPCRUN_RUNS": None}, check=True
    )
    assert len(list((project / "runs-of-the-project").glob("2*"))) == 1


def test_a_runs_folder_that_is_none(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    (hpcrun.folder / "file").write_text("")
    for command in (("status",), ("logs",), (*PYTHON_JOB, "true")):
        with subtests.test(command=command):
            done = hpcrun(*command, env={"HPCRUN_RUNS": str(hpcrun.folder / "file")})
            assert done.returncode == 4
            assert "the runs folder" in done.stderr
            assert "hint: HPCRUN_RUNS=/path uses another folder" in done.stderr


def test_plain_checkout_and_module(hpcrun: Hpcrun, tmp_path: Path) -> None:
    """Without any installation of hpcrun itself: the package's folder on the path is enough."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    for part in ("hpcrun", "templates", "cluster_profiles"):
        (copy / part).symlink_to(REPO / part)
    done = hpcrun("profile", "path", env={"PYTHONPATH": str(copy)}, check=True)
    assert "cluster_profiles" in done.stdout
    assert "(not there)" not in done.stdout.splitlines()[-1]


def test_the_folder_of_checkpoints_that_a_job_is_told_of_is_there(hpcrun: Hpcrun) -> None:
    job = 'cd "$HPCRUN_CHECKPOINT_DIR"; [ ! -e step ] || cat step; echo 1 >step'
    hpcrun(*PYTHON_JOB, "-J", "first", "--wait", "sh", "-c", job, check=True)
    hpcrun("resubmit", "first", "-J", "second", check=True)
    wait_for(
        lambda: hpcrun("logs", "second").stdout == "1\n",
        20,
        "the second to read what the first has written",
    )
    gone = hpcrun.folder / "run/elements/0"
    gone.mkdir(parents=True)
    (gone / "checkpoints").symlink_to("/gone/run/checkpoints")
    script = f"{hpcrun.status('first')['folder']}/script.sh"
    done = hpcrun.run(
        "bash", script, env={"HPCRUN_RUN_DIR": str(hpcrun.folder / "run")}, check=False
    )
    assert done.returncode == 1
    assert "hpcrun: there is no folder of checkpoints /gone/run/checkpoints" in done.stderr
    env = {"HPCRUN_RUN_DIR": str(hpcrun.folder / "by-hand")}
    assert hpcrun.run("bash", script, env=env, check=False).returncode == 0
