"""Commands in messages, and the environment of a submission without what an enclosing job adds."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.in_job.launch import rank_environment, tracker_environment
from hpcrun.job.script import LAUNCH
from hpcrun.machine import clean_environment
from hpcrun.machine.clean_environment import clean_env, env_for_slurm, env_of_caller
from hpcrun.machine.command_log import _print_on_stderr, log_message, logged_to, timed
from hpcrun.machine.process import Completed, command_text, run_command, user_name
from hpcrun.profiles.folders import shipped_folder
from hpcrun.schedulers.slurm_text import sacct_command, squeue_command


def test_a_message_shows_a_command_to_type_without_separators_and_a_thousand_job_ids() -> None:
    assert (
        command_text(squeue_command(1001))
        == "squeue --user=1001 --states=all --noheader --format=..."
    )
    asked = command_text(sacct_command([str(number) for number in range(8000)]))
    words = (
        "sacct --allocations --duplicates --jobs=... --parsable2 --noheader --delimiter=... "
        "--format="
    )
    assert asked.startswith(words)
    assert command_text(["scancel", *map(str, range(8000))]) == "scancel 0 1 2 3 4 5 6 7 8 9 10 ..."
    assert command_text(["sinfo", "-N", "--format=%N %T"]) == "sinfo -N '--format=%N %T'"
    assert command_text(["git", "log\x1b[2J", "x" * 61]) == "git ... ..."
    assert command_text(["/long" * 20 + "/my python", "-V"]) == "'.../my python' -V"
    argv = ["sh", "-c", "exec sleep 60", "--format=%i\x1f%T"]
    late = run_command(argv, timeout_s=0.05).words()
    assert late == "`sh -c 'exec sleep 60' --format=...`: did not respond\ntimed out after 0.05 s"


def test_what_is_told_meanwhile_is_in_the_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "hpcrun.log"
    log_message("before")
    with logged_to(file, "cancel"):
        run_command(["sh", "-c", "exit 3"], timeout_s=10)
        run_command([str(tmp_path / "none")], timeout_s=10)
        run_command(["sleep", "9"], timeout_s=0.1)
    log_message("after")
    lines = [line.partition(" cancel: ") for line in file.read_text().splitlines()]
    assert all(
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", when) for when, _, _ in lines
    )
    told = [re.sub(r"\d\.\d{3} s$", "N s", what) for _, _, what in lines]
    assert told[0] == "sh -c 'exit 3': exit status 3, N s"
    assert told[1].endswith("none: No such file or directory, N s")
    assert told[2:] == ["sleep 9: timed out after 0.1 s, N s"]


def test_a_full_file_stops_nobody_and_a_command_that_raises_is_told_on_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with logged_to(tmp_path / "no folder" / "hpcrun.log", "submit"):
        assert run_command(["true"], timeout_s=10).ok
    with logged_to(Path("/dev/full"), "submit"):
        assert run_command(["true"], timeout_s=10).ok
    assert capfd.readouterr() == ("", "")
    file = tmp_path / "hpcrun.log"
    with logged_to(file, "submit"), pytest.raises(RuntimeError), timed("sbatch"):
        raise RuntimeError("refused:\n\x1b[2Jno such partition")
    assert " submit: sbatch: RuntimeError refused: ?[2Jno such partition, 0.0" in file.read_text()


_OF_ENCLOSING_JOB = """
SLURM_JOB_ID SLURM_NTASKS SBATCH_PARTITION SQUEUE_STATES RANK MASTER_ADDR LOCAL_RANK
TORCHELASTIC_RUN_ID HPCRUN_RUN_DIR SUBMITIT_EXECUTOR PMI_RANK HPCRUN_NODE_DIR HPCRUN_MANAGED
SCANCEL_STATE SCONTROL_ALL SALLOC_PARTITION SPRIO_FORMAT SSHARE_X SSTAT_X SREPORT_CLUSTER SDIAG_X
SATTACH_X SBCAST_FORCE STRIGGER_X SCRONTAB_X SACCT_FORMAT SINFO_FORMAT SRUN_X SLURM_CLUSTERS
"""
_KEPT = """
SLURM_CONF SLURM_CONF_SERVER SLURM_JWT SLURM_SACK_SOCKET HPCRUN_RUNS HPCRUN_PROFILE HPCRUN_SITE
HF_TOKEN CUDA_VISIBLE_DEVICES PATH
"""


def test_what_describes_an_enclosing_job_or_torchrun_sets_is_left_out_and_all_else_is_kept() -> (
    None
):
    kept = dict.fromkeys(_KEPT.split(), "x")
    assert clean_env(dict.fromkeys(_OF_ENCLOSING_JOB.split(), "x") | kept) == kept
    inside = {"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert clean_env(inside) == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert env_for_slurm({**inside, "OLDPWD": "/x"}) == {}
    assert env_for_slurm({"CUDA_VISIBLE_DEVICES": "0,1"}) == {"CUDA_VISIBLE_DEVICES": "0,1"}
    by_itself = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "ROLE_NAME": "default"}
    assert clean_env({"TORCHELASTIC_RUN_ID": "x", **by_itself}) == {}
    assert clean_env(by_itself) == by_itself
    other = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3", "ROLE_NAME": "mine"}
    assert clean_env({"TORCHELASTIC_RUN_ID": "x", **other}) == other


def test_a_person_s_script_gets_all_but_what_sbatch_itself_reads() -> None:
    names = ("NNODES", "MASTER_PORT", "SLURM_X", "SLURM_JWT", "RANK", "f%%", "SBATCH_API_TOKEN")
    kept = dict.fromkeys(names, "x")
    read = dict.fromkeys(("SBATCH_QOS", "SLURM_HINT", "SLURM_CLUSTERS", "SLURM_UMASK"), "x")
    assert env_of_caller(kept | read) == kept


def test_submission_and_job_use_the_same_names_of_variables() -> None:
    assert clean_environment.CAME == rank_environment.CAME
    assert clean_environment.PUT == tracker_environment.PUT
    assert {*rank_environment.GPUS} == clean_environment.GPUS


START = [sys.executable, "-ISB", str(LAUNCH)]
CHANGE = r"""
export ADDED=1 CHANGED="new 'value'" LINES_="$LINES_"$'\n'more
export PATH="/venv/bin:$PATH" PYTHONPATH=/run/runtime
unset TAKEN
"""


@pytest.mark.parametrize(
    ("came", "value", "goes_on"),
    [
        (False, "/tmp/torchinductor_ada", False),  # as torch names it
        (False, "/scratch/compiled", True),  # by the person's program
        (True, "/tmp/torchinductor_ada", True),  # from the person's shell
    ],
)
def test_a_folder_that_torch_has_chosen_in_this_process_is_no_person_s_choice(
    *, came: bool, value: str, goes_on: bool
) -> None:
    set_and_clean = (
        "import os, sys; from hpcrun.machine.clean_environment import clean_env\n"
        "os.environ['TORCHINDUCTOR_CACHE_DIR'] = sys.argv[1]\n"
        "print(clean_env(os.environ).get('TORCHINDUCTOR_CACHE_DIR', ''))"
    )
    env = {"PATH": "/usr/bin", **({"TORCHINDUCTOR_CACHE_DIR": "/x"} if came else {})}
    argv = [sys.executable, "-c", set_and_clean, value]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (value if goes_on else "")


def of_job(folder: Path) -> dict[str, str]:
    """What the script of a job sets before it starts the ranks."""
    numbers = {"HPCRUN_JOB_ID": "L1", "HPCRUN_ELEMENT": "0", "HPCRUN_ATTEMPT": "0"}
    return {"HPCRUN_RUN_DIR": str(folder), "HPCRUN_ATTEMPT_DIR": str(folder), **numbers}


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("", {}),
        ("export OWN=x", {"OWN": "x"}),
        ("export CHANGED=mine ADDED=mine", {"CHANGED": "mine", "ADDED": "mine"}),
        (
            "export PATH=/own:$PATH PYTHONPATH=/own:$PYTHONPATH",
            {"PATH": "/own:/usr/bin:/bin", "PYTHONPATH": "/own"},
        ),
        ("unset CHANGED; export TAKEN=again", {"CHANGED": None, "TAKEN": "again"}),
    ],
)
def test_what_a_job_changes_is_handed_on_as_it_came(
    program: str, expected: dict[str, str | None], tmp_path: Path
) -> None:
    (tmp_path / "programs/runtime").mkdir(parents=True)
    (tmp_path / "programs/runtime/hpcrun_runtime.py").touch()  # its folder is added to PYTHONPATH
    came = {
        "PATH": "/usr/bin:/bin",
        "CHANGED": "",
        "TAKEN": "a b",
        "LINES_": "one\ntwo",
        "KEPT": "\udcff",
    }
    came |= {f"LONG_{number}": "x" * 1000 for number in range(100)}  # more than fits into a pipe
    lines = (shipped_folder("templates") / "job.sh.j2").read_text().splitlines()
    (keep,) = [line for line in lines if line.startswith("exec {came}<")]
    launch = f'exec {shlex.join(START)} job --nodes 1 --came "$came" -- bash -euc "$1"'
    print_it = shlex.join(
        [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    )
    command = [
        "bash",
        "-euc",
        "\n".join([keep, CHANGE, launch]),
        "script",
        f"{program}\n{print_it}",
    ]
    done = subprocess.run(
        command, env={**came, **of_job(tmp_path)}, capture_output=True, text=True, check=True
    )
    inside = json.loads(done.stdout)
    assert inside.get("ADDED", "1") in ("1", "mine")
    handed_on = clean_env(inside)
    own = {name for name in handed_on if name in ("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE")}
    assert {name: value for name, value in handed_on.items() if name not in own} == {
        name: value for name, value in {**came, **expected}.items() if value is not None
    }


def test_a_script_that_is_submitted_by_hand_inside_a_job_is_a_job_of_its_own(
    tmp_path: Path,
) -> None:
    """sbatch hands the whole environment of the enclosing job on."""
    enclosing = {
        "HPCRUN_NODE": "n7",
        "HPCRUN_NODE_ADDR": "n7",
        "HPCRUN_NODE_RANK": "3",
        "HPCRUN_MANAGED": "1",
    }
    slurm = {
        "SLURM_JOB_ID": "5",
        "SLURM_JOB_NODELIST": "n1",
        "SLURMD_NODENAME": "n1",
        "SLURM_NODEID": "0",
    }
    show = 'echo "$HPCRUN_NODE $HPCRUN_NODE_ADDR $HPCRUN_NODE_RANK" managed=${HPCRUN_MANAGED-}'
    command = [*START, "job", "--", *START, "node", "--", "bash", "-c", show]
    env = {"PATH": "/usr/bin:/bin", **enclosing, **slurm, **of_job(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "n1 n1 0 managed="


def test_what_torchrun_alone_is_to_know_is_not_for_the_ranks(tmp_path: Path) -> None:
    """A program may start a torchrun of its own; what a person has set is left as it is."""
    show = (
        """case $1 in agent) env | grep ^PET_ | sort; shift; RANK=0 exec "$@";; """
        "*) env | grep ^PET_;; esac"
    )
    rank = [*START, "rank", "--", "bash", "-c", show, "bash", "rank"]
    command = [*START, "job", "--nodes", "1", "--", *START, "node", "--torchrun", "--"]
    env = {"PATH": "/usr/bin:/bin", "PET_RDZV_ID": "mine", "PET_LOG_DIR": "x", **of_job(tmp_path)}
    done = subprocess.run(
        [*command, "bash", "-c", show, "bash", "agent", *rank],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [line.partition("=")[0] for line in done.stdout.splitlines()]
    assert names == [
        "PET_LOCAL_ADDR",
        "PET_LOG_DIR",
        "PET_RDZV_CONF",
        "PET_RDZV_ENDPOINT",
        "PET_RDZV_ID",
    ]
    assert "PET_RDZV_ID=mine\n" in done.stdout
    assert sorted((tmp_path / "rank-0.out").read_text().split()) == [
        "PET_LOG_DIR=x",
        "PET_RDZV_ID=mine",
    ]


def test_an_output_without_end_is_one_message() -> None:
    for script in ("yes", "yes >&2"):
        done = run_command(["sh", "-c", script], timeout_s=60, most=1 << 20)
        assert (done.status, done.stdout, done.stderr) == (
            None,
            "",
            "sh: it printed more than 1 MiB",
        )
    done = run_command(
        ["sh", "-c", "cat; echo out; echo err >&2; exit 3"], timeout_s=60, most=1 << 20
    )
    assert (done.status, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert run_command(["sleep", "60"], timeout_s=0.1, most=9).stderr == "timed out after 0.1 s"


def test_a_command_reads_what_it_is_given_and_nothing_else() -> None:
    assert run_command(["cat"], timeout_s=60, stdin="a\udcff").stdout == "a\udcff"
    assert run_command(["cat"], timeout_s=60).stdout == ""


def test_a_command_runs_in_its_folder_and_environment(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "WORD": "hello"}
    done = run_command(["sh", "-c", "pwd; echo $WORD"], timeout_s=60, env=env, cwd=tmp_path)
    assert done.stdout == f"{tmp_path}\nhello\n"


def test_a_program_that_is_not_there_has_no_status() -> None:
    done = run_command(["no-such-program"], timeout_s=60)
    assert done == Completed(
        "no-such-program", None, "", "no-such-program: No such file or directory"
    )


def test_the_log_on_stderr_begins_with_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    _print_on_stderr("sinfo: exit status 0, 0.1 s")
    line = capsys.readouterr().err
    assert re.fullmatch(r"hpcrun: \d\d:\d\d:\d\d sinfo: exit status 0, 0\.1 s\n", line)


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcrun.machine.process.os.getuid", lambda: 2**31 - 5)
    assert user_name() == str(2**31 - 5)
