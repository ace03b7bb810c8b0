"""wandb, MLflow, Aim and TensorBoard themselves in jobs on this machine, and what hpcrun finds of
them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from hpcrun.features.trackers.tensorboard import _START
from tests.harness import TRACKERS, Hpcrun, wait_for
from tests.local.recorded import STARTED_S, record, replace_fields
from tests.local.wandb_server import KEY, wandb_server

PYTHON = str(TRACKERS / "bin/python")
USES_ALL = """
import json, os
import wandb
rank = int(os.environ["NODE_RANK"])
run = wandb.init(project="p")
run.log({"loss": 0.5})
print(json.dumps({"id": run.id, "tags": run.tags}))
run.finish()
if rank == 0:
    import mlflow
    for _ in range(2):
        with mlflow.start_run() as tracked:
            mlflow.log_metric("loss", 0.5)
    from aim import Run
    aim = Run(system_tracking_interval=None)
    aim.track(0.5, name="loss")
    aim.close()
"""
FAILS_ONCE = """
import os, sys
import wandb
with wandb.init(project="p") as run:
    run.log({"loss": 0.5})
    print("id", run.id)
sys.exit(int(os.environ["HPCRUN_ATTEMPT"]) == 0)
"""


def submit(hpcrun: Hpcrun, text: str, *args: str, **env: str) -> Path:
    """Run a script to its end, with the Python that has the trackers; return the run's folder."""
    hpcrun.write("train.py", text)
    hpcrun(
        "submit",
        "-P",
        "local",
        "--gpus",
        "0",
        "--python",
        PYTHON,
        "--wait",
        *args,
        "train.py",
        env=env,
        check=True,
    )
    return next(hpcrun.runs.glob("2*"))


@pytest.mark.needs("wandb", "mlflow", "aim")
def test_trackers_have_the_run_and_hpcrun_has_theirs(hpcrun: Hpcrun) -> None:
    run = submit(hpcrun, USES_ALL, "--nodes", "2", WANDB_MODE="offline")
    logs = [
        (run / f"elements/0/attempts/0/rank-{rank}.out").read_text().splitlines() for rank in (0, 1)
    ]
    said = [json.loads(next(line for line in lines if line.startswith("{"))) for lines in logs]
    job = json.loads((run / "run.json").read_text())["job_id"]
    assert [each["tags"] for each in said] == [[run.name, f"job-{job}"]] * 2
    assert said[0]["id"] != said[1]["id"]
    found = hpcrun.document("open", check=True)
    of_wandb = [each for each in found["runs"] if each["tracker"] == "wandb"]
    assert [(each["id"], each["rank"], each["offline"]) for each in of_wandb] == [
        (said[0]["id"], 0, True),
        (said[1]["id"], 1, True),
    ]
    names = [each["tracker"] for each in found["runs"]]
    assert names.count("MLflow") == 2
    assert names.count("Aim") == 1
    shown = hpcrun("open", check=True)
    assert f"--backend-store-uri sqlite:///{hpcrun.folder}/mlflow.db" in " ".join(
        shown.stderr.split()
    )
    assert "aim up" in shown.stderr
    assert "hpcrun open --upload last" in shown.stderr
    assert "mlflow.db" in hpcrun("status", "-v", "last", check=True).stdout
    with wandb_server() as sink:
        env = {"WANDB_BASE_URL": sink.url, "WANDB_API_KEY": KEY, "WANDB_MODE": "offline"}
        done = hpcrun("open", "--upload", "--json", env=env, check=True)
        assert set(sink.upserted) == {each["id"] for each in said}
        assert len(json.loads(done.stdout)["runs"][0]["uploaded"]) == 2
        assert (
            hpcrun("open", "--url", check=True).stdout == f"{sink.url}/me/p/runs/{said[0]['id']}\n"
        )
        before = len(sink.upserted)
        assert (
            "2 wandb runs of train uploaded before"
            in hpcrun("open", "--upload", env=env, check=True).stdout
        )
        assert len(sink.upserted) == before


@pytest.mark.needs("wandb")
def test_a_requeued_job_continues_its_wandb_run_and_its_end_uploads_it(hpcrun: Hpcrun) -> None:
    hpcrun.write("home/.config/hpcrun/config.yaml", "wandb_sync: true\n")
    again = ("--requeue", "1", "--retry-on-failure", "--env", "WANDB_RESUME=allow")
    with wandb_server() as sink:
        run = submit(
            hpcrun,
            FAILS_ONCE,
            *again,
            WANDB_MODE="offline",
            WANDB_BASE_URL=sink.url,
            WANDB_API_KEY=KEY,
        )
        ids = [(run / f"elements/0/attempts/{number}/rank-0.out").read_text() for number in (0, 1)]
        assert ids[0] == ids[1] != ""
        name = ids[0].split()[1]
        done = "wandb/offline*/*.wandb.synced"
        wait_for(lambda: len(list(hpcrun.folder.glob(done))) == 2, 60, "the upload of both parts")
        assert set(sink.upserted) == {name}
        url = wait_for(lambda: hpcrun("open", "--url").stdout, 30, "the page of the uploaded run")
        assert url == f"{sink.url}/me/p/runs/{name}\n"


@pytest.mark.needs("wandb")
def test_the_page_of_an_online_run_is_known_while_it_runs(hpcrun: Hpcrun) -> None:
    with wandb_server() as sink:
        submit(
            hpcrun,
            "import wandb\nwandb.init(project='p').finish()\n",
            WANDB_BASE_URL=sink.url,
            WANDB_API_KEY=KEY,
        )
        shown = hpcrun("open", check=True)
    assert re.fullmatch(rf"wandb  {sink.url}/me/p/runs/\w+\n", shown.stdout)
    port = sink.url.rpartition(":")[2]
    assert f"ssh -N -L {port}:127.0.0.1:{port} " in shown.stderr


def event_file(folder: Path, host: str, began_s: int, number: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{began_s:010d}.{host}.4711.{number}"
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    with path.open("wb") as file:
        writer = RecordWriter(file)
        value = Summary.Value(tag="loss", simple_value=0.5)
        writer.write(Event(wall_time=began_s, file_version="brain.Event:2").SerializeToString())
        writer.write(
            Event(wall_time=began_s, step=1, summary=Summary(value=[value])).SerializeToString()
        )
    return path


@pytest.mark.needs_package("tensorboard")
def test_tensorboard_shows_the_chosen_run_to_this_user_alone(hpcrun: Hpcrun) -> None:
    run = record(hpcrun)
    run.attempt()
    replace_fields(run.folder / "run.json", cwd=str(hpcrun.folder))
    event_file(hpcrun.folder / "runs-of/a b", "here", STARTED_S + 10)
    event_file(hpcrun.folder / "runs-of/other", "here", STARTED_S + 900)  # begun after the run
    event_file(hpcrun.folder / "runs-of/elsewhere", "there", STARTED_S + 10)
    said = hpcrun.folder / "said"
    with said.open("w") as file:
        process = subprocess.Popen(
            hpcrun.argv("open", "--tensorboard", "train"),
            env=hpcrun.environ,
            cwd=hpcrun.folder,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        wait_for(lambda: "Ctrl-C ends TensorBoard" in said.read_text(), 60, "the address")
        counted, url = said.read_text().splitlines()[:2]
        assert counted == "train-0a1b  1 event file"
        listed = wait_for(lambda: runs_at(url), 60, "TensorBoard")
        assert listed == ["train-0a1b/runs-of/a_b"]
        address = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/([\w-]{16})/", url)
        assert address
        origin, secret = address.groups()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{origin}/data/runs", timeout=10)
        assert (
            secret
            not in subprocess.run(
                ["ps", "-ef", "-ww"], capture_output=True, text=True, check=True
            ).stdout
        )
    finally:
        os.killpg(process.pid, signal.SIGINT)
        status = process.wait(30)
    assert "ssh -N -L " in said.read_text()
    assert status == 0
    assert not list(Path("/tmp").glob("hpcrun-tensorboard-*/.tensorboard-info"))


def untrusted_folder(path: Path) -> Path:
    """A folder with modules of its own in the place of Python's, which would note that they ran."""
    for name in ("json", "importlib", "runpy", "tensorboard", "wandb"):
        (path / name).mkdir(parents=True)
        (path / name / "__init__.py").write_text(
            "import sys\nopen('ran', 'a').close()\nsys.exit(9)\n"
        )
    return path


def test_tensorboard_runs_nothing_of_the_current_folder(hpcrun: Hpcrun) -> None:
    here = untrusted_folder(hpcrun.folder / "clone")
    env = {**hpcrun.environ, "HPCRUN_TENSORBOARD": '["--version"]'}
    argv = [sys.executable, "-c", _START]
    done = subprocess.run(argv, cwd=here, env=env, capture_output=True, text=True, check=False)
    assert re.fullmatch(r"[\d.]+\n", done.stdout), done.stderr
    assert not (here / "ran").exists()


def test_sync_uses_nothing_of_the_current_folder_and_of_other_users(hpcrun: Hpcrun) -> None:
    here, modules = untrusted_folder(hpcrun.folder / "clone"), hpcrun.folder / "modules/wandb"
    modules.mkdir(parents=True)
    (modules / "__init__.py").touch()
    (modules / "__main__.py").write_text("import os, sys\nprint(os.getcwd(), *sys.argv[1:])\n")
    own = hpcrun.folder / "w/offline-run-20260102_030405-own"
    own.mkdir(parents=True)
    folders = (
        own,
        hpcrun.folder / "w/offline-run-20260102_030405-gone",
        Path("/w/offline-run-20260102_030405-no"),
    )
    run = record(hpcrun)
    run.log("".join(f"wandb: Run data is saved locally in {folder}\n" for folder in folders))
    program = f"{hpcrun.venv}/bin/hpcrun"  # python -m would itself search the current folder
    hpcrun.run(
        program, "open", "--upload", cwd=here, env={"PYTHONPATH": str(modules.parent)}, check=False
    )
    assert not (here / "ran").exists()
    assert (run.folder / "wandb-sync.log").read_text() == f"{run.folder} sync {own}\n"


def runs_at(url: str) -> list[str] | None:
    with suppress(OSError), urllib.request.urlopen(f"{url}data/runs", timeout=10) as answer:
        return json.loads(answer.read()) or None
    return None


def test_a_run_without_event_files_says_where_it_looked(hpcrun: Hpcrun) -> None:
    record(hpcrun).attempt()
    done = hpcrun("open", "--tensorboard")
    assert done.returncode == 6
    assert "--logdir DIR" in done.stderr
    assert "has no wandb or MLflow page" in hpcrun("open").stderr
