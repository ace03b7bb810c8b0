"""The environment of the ranks: what hpcrun adds, what it records, and what a script keeps."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.in_job.launch import rank_environment
from tests.unit.in_job.attempts import Attempt


def came(folder: Path, env: dict[str, str]) -> int:
    """Return a descriptor with the original environment of a job, as its script leaves it."""
    path = folder / "came"
    text = b"".join(os.fsencode(f"{name}={value}\0") for name, value in env.items())
    path.write_bytes(base64.encodebytes(text))
    return os.open(path, os.O_RDONLY)


def current(*names: str) -> dict[str, str | None]:
    """Return variables of this process; None for one that is not set."""
    return {name: os.environ.get(name) for name in names}


# --- the name of the node ------------------------------------------------------------------------


@pytest.fixture
def task(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of srun on node n7."""
    for name in ("HPCRUN_NODE", "HPCRUN_NODE_ADDR", "HPCRUN_NODE_RANK", "HPCRUN_HOST_SUFFIX"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    monkeypatch.setenv("SLURM_NODEID", "2")


NODE = ("HPCRUN_NODE", "HPCRUN_NODE_ADDR", "HPCRUN_NODE_RANK")


@pytest.mark.parametrize("suffix", ["", "-ib"])
@pytest.mark.usefixtures("task")
def test_a_task_is_on_the_node_that_slurm_names(
    monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    if suffix:
        monkeypatch.setenv("HPCRUN_HOST_SUFFIX", suffix)
    rank_environment.be_node()
    assert list(current(*NODE).values()) == ["n7", f"n7{suffix}", "2"]


@pytest.mark.usefixtures("task")
def test_a_node_of_this_machine_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCRUN_NODE", "local-1")
    monkeypatch.setenv("HPCRUN_NODE_ADDR", "127.0.0.1")
    rank_environment.be_node()
    assert list(current(*NODE).values()) == ["local-1", "127.0.0.1", None]


@pytest.mark.parametrize(("status", "left"), [("69", None), ("70", "70")])
@pytest.mark.usefixtures("task")
def test_the_status_of_this_job_s_srun_alone_is_removed(
    monkeypatch: pytest.MonkeyPatch, status: str, left: str | None
) -> None:
    monkeypatch.setenv("SLURM_EXIT_ERROR", status)
    rank_environment.be_node()
    assert os.environ.get("SLURM_EXIT_ERROR") == left


# --- the beginning of a job ----------------------------------------------------------------------


@pytest.fixture
def first(attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    """An attempt in an environment without variables of trackers and of torch."""
    names = ("PYTHONPATH", "WANDB_TAGS", "MASTER_ADDR", "MASTER_PORT", "HPCRUN_STAGE")
    for name in (*names, "HPCRUN_MANAGED", "MLFLOW_RUN_CONTEXT", "TORCH_FR_BUFFER_SIZE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(rank_environment, "_close_log", lambda: None)
    (attempt.folder / "stop").rmdir()
    return attempt


@pytest.mark.parametrize(("managed", "value"), [(True, "1"), (False, None)])
def test_a_job_that_may_be_warned_says_so(
    first: Attempt, monkeypatch: pytest.MonkeyPatch, managed: bool, value: str | None
) -> None:
    monkeypatch.setenv("HPCRUN_MANAGED", "of an enclosing job")
    rank_environment.prepare(None, managed=managed)
    assert current("HPCRUN_MANAGED", "HPCRUN_NODE_ADDR") == {
        "HPCRUN_MANAGED": value,
        "HPCRUN_NODE_ADDR": None,
    }
    assert (first.folder / "stop").is_dir()
    assert (first.folder / "flight").is_dir()


@pytest.mark.parametrize("name", ["HPCRUN_STAGE", "MASTER_ADDR", "MASTER_PORT"])
def test_a_variable_of_an_enclosing_job_goes(
    first: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "outer")
    rank_environment.prepare(came(tmp_path, {name: "outer"}), managed=False)
    assert os.environ.get(name) is None
    monkeypatch.setenv(name, "own")
    rank_environment.prepare(came(tmp_path, {name: "outer"}), managed=False)
    assert os.environ.get(name) == "own"


def test_what_hpcrun_changes_is_recorded_with_the_original(
    first: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAIN_SEED", "2")
    before = {**os.environ, "TRAIN_SEED": "1"}
    rank_environment.prepare(came(tmp_path, before), managed=False)
    assert os.environ["HPCRUN_CAME_TRAIN_SEED"] == "1"
    assert os.environ["HPCRUN_PUT_TRAIN_SEED"] == "2"
    assert os.environ["HPCRUN_PUT_WANDB_TAGS"] == os.environ["WANDB_TAGS"]
    assert "HPCRUN_CAME_WANDB_TAGS" not in os.environ


@pytest.mark.parametrize(
    ("before", "now", "recorded"),
    [
        pytest.param({"A": "1"}, {"A": "1"}, {}, id="the same"),
        pytest.param(
            {"A": "1"}, {"A": "2"}, {"HPCRUN_CAME_A": "1", "HPCRUN_PUT_A": "2"}, id="changed"
        ),
        pytest.param({}, {"A": "2"}, {"HPCRUN_PUT_A": "2"}, id="added"),
        pytest.param({"A": "1"}, {}, {"HPCRUN_CAME_A": "1"}, id="removed"),
        pytest.param({}, {"HPCRUN_A": "2", "SLURM_A": "2"}, {}, id="of hpcrun and Slurm"),
        pytest.param({}, {"PWD": "/", "OLDPWD": "/", "SHLVL": "2", "_": "x"}, {}, id="of bash"),
        pytest.param({}, {"BASH_FUNC_f%%": "() { :; }"}, {}, id="function"),
    ],
)
def test_changes_have_both_values(
    before: dict[str, str], now: dict[str, str], recorded: dict[str, str]
) -> None:
    assert rank_environment.changes(before, now) == recorded


@pytest.mark.parametrize(
    ("path", "expected"),
    [("", "{}"), ("/code:/lib", "/code:/lib:{}")],
    ids=["no other", "behind others"],
)
def test_the_ranks_find_hpcrun_runtime_behind_their_own_modules(
    first: Attempt, monkeypatch: pytest.MonkeyPatch, path: str, expected: str
) -> None:
    if path:
        monkeypatch.setenv("PYTHONPATH", path)
    rank_environment.prepare(None, managed=False)
    assert os.environ.get("PYTHONPATH", "") == path  # there is no runtime in the run's folder
    runtime = first.run / "programs/runtime"
    runtime.mkdir(parents=True)
    (runtime / "hpcrun_runtime.py").touch()
    rank_environment.prepare(None, managed=False)
    assert os.environ["PYTHONPATH"] == expected.format(runtime)


def test_a_launch_gets_variables_that_its_script_has_not_set(
    first: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("NCCL_NET", "")
    monkeypatch.delenv("NCCL_NET")
    rank_environment.equip(["NCCL_DEBUG=WARN", "NCCL_NET=IB=1"])
    assert current("NCCL_DEBUG", "NCCL_NET") == {"NCCL_DEBUG": "INFO", "NCCL_NET": "IB=1"}
    assert os.environ["HPCRUN_PUT_NCCL_NET"] == "IB=1"


SCRIPT = """
import json, os, sys
from hpcrun.in_job.launch import rank_environment
env = rank_environment.prepare_script(int(sys.argv[1]), managed=False)
print(json.dumps([env, dict(os.environ)]))
"""


def test_a_script_gets_the_environment_of_slurm_and_its_owner(
    first: Attempt, tmp_path: Path
) -> None:
    own = {"A": "own", "PWD": "/hpcrun", "SHLVL": "3", "SLURM_EXPORT_ENV": "NONE"}
    before = {"A": "1", "PWD": "/home", "SHLVL": "1", "GONE": "x"}
    descriptor = came(tmp_path, before)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(descriptor)],
        env={**first.env, **own},
        pass_fds=[descriptor],
        stdout=subprocess.PIPE,
        check=True,
    )
    env, ours = json.loads(done.stdout)
    expected = {"A": "own", "PWD": "/home", "SHLVL": "1", "SLURM_EXPORT_ENV": "NONE"}
    assert env == {**expected, "PATH": first.env["PATH"], "RANK": "3"}
    assert "SLURM_EXPORT_ENV" not in ours
    assert ours["HPCRUN_CAME_A"] == "1"
    assert ours["HPCRUN_CAME_GONE"] == "x"


# --- folders and logs ----------------------------------------------------------------------------


def test_the_next_attempt_has_paths_of_its_own(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = f"{attempt.folder.parent}/1"
    monkeypatch.setenv("DUMP", f"{attempt.folder}/flight/rank_")
    monkeypatch.setenv("OTHER", f"{attempt.folder}0/flight")
    rank_environment.renew(after)
    assert os.environ["HPCRUN_ATTEMPT_DIR"] == after
    assert os.environ["DUMP"] == f"{after}/flight/rank_"
    assert os.environ["OTHER"] == f"{attempt.folder}0/flight"
    assert sorted(os.listdir(after)) == ["flight", "stop"]


def test_each_role_has_a_folder_of_dumps(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCRUN_ROLE", "actor")
    assert rank_environment.flight() == f"{attempt.folder}/flight/actor"


CLOSE = """
import sys
sys.path.insert(0, sys.argv[1])
from hpcrun.in_job.launch import rank_environment
rank_environment._close_log()
"""


@pytest.mark.parametrize(
    ("folder", "before", "after"),
    [
        pytest.param("run", 0o666, 0o644, id="log of the job"),
        pytest.param("run", 0o640, 0o640, id="closed already"),
        pytest.param("run-of-another", 0o666, 0o666, id="elsewhere"),
    ],
)
def test_no_other_user_can_write_the_log_of_the_job(
    attempt: Attempt, tmp_path: Path, folder: str, before: int, after: int
) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    log = tmp_path / folder / "slurm.out"
    with log.open("w") as file:
        log.chmod(before)
        argv = [sys.executable, "-IBc", CLOSE, os.getcwd()]
        subprocess.run(argv, env=attempt.env, stdout=file, check=True)
    assert stat.S_IMODE(log.stat().st_mode) == after


# --- what an older torch needs -------------------------------------------------------------------


@pytest.fixture
def python(first: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of packages of the job's Python."""
    packages = tmp_path / "env/lib/python3.12/site-packages"
    packages.mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env/bin/python"))
    return packages


@pytest.mark.parametrize(
    ("torch", "limits"),
    [
        ("2.9.1", "expandable_segments:True"),
        ("2.10.0", "per_process_memory_fraction:0.5,expandable_segments:True"),
        ("2.10.0+cu128", "per_process_memory_fraction:0.5,expandable_segments:True"),
        ("", "per_process_memory_fraction:0.5,expandable_segments:True"),
    ],
)
def test_an_older_torch_gets_no_limit_of_memory(
    python: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    torch: str,
    limits: str,
) -> None:
    given = "per_process_memory_fraction:0.5,expandable_segments:True"
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", given)
    if torch:
        (python / f"torch-{torch}.dist-info").mkdir()
    rank_environment.prepare(None, managed=False)
    assert os.environ["PYTORCH_ALLOC_CONF"] == limits
    message = "hpcrun: --pack-memory has no effect on torch before 2.10\n"
    assert capsys.readouterr().err == (message if limits != given else "")


@pytest.mark.parametrize(("torch", "size"), [("2.7.1", "2000"), ("2.8.0", None)])
def test_an_older_torch_has_another_variable_of_the_flight_recorder(
    python: Path, monkeypatch: pytest.MonkeyPatch, torch: str, size: str | None
) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2000")
    monkeypatch.setenv("TORCH_NCCL_TRACE_BUFFER_SIZE", "")
    monkeypatch.delenv("TORCH_NCCL_TRACE_BUFFER_SIZE")
    (python / f"torch-{torch}.dist-info").mkdir()
    rank_environment.prepare(None, managed=False)
    assert os.environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE") == size


# --- the folder of torch.compile -----------------------------------------------------------------


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize(
    ("variables", "owner", "is_said"),
    [
        pytest.param({"TMPDIR": "{}", "USER": "eve"}, 12, True, id="foreign"),
        pytest.param({"TMPDIR": "{}", "USER": "eve"}, 0, False, id="own"),
        pytest.param({"TMPDIR": "{}", "USER": "bob"}, 12, False, id="missing"),
        pytest.param({"TMP": "{}", "USERNAME": "eve"}, 12, True, id="other names"),
        pytest.param({"TMPDIR": "/x", "TMP": "{}", "USER": "eve"}, 12, False, id="TMPDIR first"),
        pytest.param(
            {"TMPDIR": "{}", "LOGNAME": "bob", "USER": "eve"}, 12, False, id="LOGNAME first"
        ),
        pytest.param(
            {"TMPDIR": "{}", "USER": "eve", "TORCHINDUCTOR_CACHE_DIR": "/x"},
            12,
            False,
            id="another folder",
        ),
    ],
)
def test_a_folder_of_torch_that_another_user_owns_is_said(
    attempt: Attempt,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
    owner: int,
    is_said: bool,
) -> None:
    names = ("TMPDIR", "TEMP", "TMP", "LOGNAME", "USER", "LNAME", "USERNAME")
    for name in (*names, "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    folder = tmp_path / "torchinductor_eve"
    folder.mkdir()
    os.chown(folder, owner, -1)
    rank_environment.warn_of_foreign_folder()
    expected = ""
    if is_said:
        expected = (
            f"hpcrun: n1: {folder} belongs to another user (uid 12), who can run code in this job;"
            " set TORCHINDUCTOR_CACHE_DIR to another folder\n"
        )
    assert capsys.readouterr().err == expected


# --- the end of an attempt -----------------------------------------------------------------------


@pytest.fixture
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that another test has started is a rank of this attempt."""
    monkeypatch.setattr(rank_environment, "_has_children", lambda: False)


def leave_records(attempt: Attempt, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what the ranks of an element have written, and end it."""
    monkeypatch.setenv("HPCRUN_JOB_ID", job_id)
    (attempt.folder / "flight/actor").mkdir(parents=True)
    for name in ("heartbeat", "exit", "hosts", "versions", "node-n1.start", "rank-0.exit"):
        (attempt.folder / name).write_text("{}")
    for name in ("rank-0.use", "rank-0.out", "rank-0.exit.1", "stop-x.exit"):
        (attempt.folder / name).write_text("{}")
    (attempt.folder / "rank-1.exit").touch()
    rank_environment.tidy()


@pytest.mark.usefixtures("no_children")
def test_the_small_files_of_an_element_go_into_its_record(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_records(attempt, "7_1", monkeypatch)
    joined = ["hosts", "node-n1.start", "rank-0.exit", "rank-0.use", "versions"]
    assert sorted(attempt.record("exit")["files"]) == joined
    left = ["exit", "rank-0.exit.1", "rank-0.out", "rank-1.exit", "stop-x.exit"]
    assert sorted(os.listdir(attempt.folder)) == left


@pytest.mark.usefixtures("no_children")
def test_the_small_files_of_a_job_stay(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_records(attempt, "7", monkeypatch)
    assert attempt.record("exit") == {}
    assert (attempt.folder / "rank-0.exit").exists()
    assert not (attempt.folder / "heartbeat").exists()


@pytest.mark.parametrize(
    ("sizes", "joined"),
    [
        pytest.param({"hosts": 32 << 10, "versions": 32 << 10}, ["hosts", "versions"], id="just"),
        pytest.param({"hosts": 32 << 10, "versions": (32 << 10) + 1}, ["hosts"], id="too large"),
        pytest.param({"hosts": 65 << 10, "versions": 5}, ["versions"], id="the small ones first"),
    ],
)
def test_as_many_small_files_are_joined_as_have_room(
    attempt: Attempt, sizes: dict[str, int], joined: list[str]
) -> None:
    for name, size in sizes.items():
        (attempt.folder / name).write_text("x" * size)
    assert sorted(rank_environment._small_files(str(attempt.folder))) == joined


def test_while_ranks_still_write_nothing_is_tidied(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = subprocess.Popen(["sleep", "60"])
    leave_records(attempt, "7_1", monkeypatch)
    child.kill()
    child.wait()
    assert (attempt.folder / "heartbeat").exists()
    assert (attempt.folder / "flight/actor").exists()
