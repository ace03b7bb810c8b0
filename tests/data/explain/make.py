"""Make the corpus anew: run programs that fail, or that end well, and keep what they leave.

Run in the checkout: ``python tests/data/explain/make.py [--programs FOLDER] [CASE...]``. A case is
a run's folder without its script, and ``case.yaml``: the rule or the words that are right, the rank
to blame (null: none), and how it was made: by a program of its own on the development cluster (as
root, with the cluster up), or, in ``order``, by a public program with a fault typed in, on this
machine. FOLDER has pytorch/examples, optuna/optuna-examples, and the toy program of jax's page on
several processes as ``jax/toy.py``. ``healthy`` makes the logs of ``healthy/programs.yaml``. What
cannot be provoked without GPUs is in tests/unit/explain/written.py.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[2]
MOST_BYTES = 6000
SETUP = (
    "import os\nfrom datetime import timedelta\nTIMEOUT = "
    "timedelta(seconds=int(os.environ.get('WAIT', 15)))\n"
)
WITHOUT_GPUS = {
    '    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n': "",
    'init_process_group(backend="nccl")': 'init_process_group(backend="gloo", timeout=TIMEOUT)',
    "import os\n": SETUP,
    "model.to(self.local_rank)": "model",
    ".to(self.local_rank)": "",
    "DDP(self.model, device_ids=[self.local_rank])": "DDP(self.model)",
    'f"cuda:{self.local_rank}"': '"cpu"',
    "pin_memory=True": "pin_memory=False",
}


def read(path: Path) -> dict[str, Any]:
    """Return what a YAML file holds."""
    return dict(YAML(typ="safe").load(path.read_text("utf-8")))


def general(data: bytes, folders: dict[str, str]) -> bytes:
    """Return a log with general paths instead of those of this machine."""
    import torch

    packages = str(Path(torch.__file__).parents[1])
    installed = {packages: "/opt/venv/lib/python3.11/site-packages", sys.prefix: "/opt/venv"}
    for old, new in {**folders, **installed, str(REPO): "/home/me/hpcrun"}.items():
        data = data.replace(old.encode(), new.encode())
    return data


def write_program(case: dict[str, Any], project: Path, programs: Path) -> list[str]:
    """Write a case's program into its project; return the command that is submitted."""
    if "command" in case:
        return ["bash", "-c", case["command"]]
    if "program" in case:
        (project / "train.py").write_text(case["program"])
        return [str(project / "train.py")]
    source = programs / case["source"]
    for other in source.parent.glob("*.py"):
        shutil.copy(other, project)
    faults = [(edit["old"], edit["new"]) for edit in case["edits"]]
    text = source.read_text()
    for old, new in [*(WITHOUT_GPUS.items() if source.name == "multinode.py" else ()), *faults]:
        assert old in text, (case["source"], old)
        text = text.replace(old, new)
    (project / source.name).write_text(text)
    return [source.name, *shlex.split(case.get("argv", ""))]


def run(name: str, case: dict[str, Any], project: Path, programs: Path) -> Path:
    """Run a case's job to its end; return the run's folder."""
    env = {"HPCRUN_RUNS": str(project / "runs"), "OMP_NUM_THREADS": "1", **case.get("env", {})}
    hpcrun = [
        "env",
        *(f"{key}={value}" for key, value in env.items()),
        sys.executable,
        "-m",
        "hpcrun",
    ]
    if "source" not in case:
        shutil.chown(project, "researcher")
        home = [
            "env",
            f"HOME={project}",
            f"PATH={sys.prefix}/bin:/usr/bin:/bin",
            f"PYTHONPATH={REPO}",
        ]
        hpcrun = ["runuser", "-u", "researcher", "--", *home, *hpcrun]

    def answer(*argv: str) -> dict[str, Any]:
        done = subprocess.run(
            [*hpcrun, *argv, "--json"], cwd=project, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout))

    program = write_program(case, project, programs)
    submit = [*hpcrun, "submit", "--json", "-J", name, *shlex.split(case["submit"]), *program]
    done = subprocess.run(submit, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    act = case.get("act", "").format(
        hpcrun=shlex.join(hpcrun), job=json.loads(done.stdout)["job_id"]
    )
    deadline, began = time.monotonic() + 240, 0.0
    while time.monotonic() < deadline:
        (item,) = answer("status", "--all")["runs"]
        if item["final"]:
            break
        if item["state"] != "PENDING":
            began = began or time.monotonic()
            if act and time.monotonic() - began > case["after_s"]:
                subprocess.run(["bash", "-c", act], cwd=REPO, check=True)
                act = ""
        time.sleep(2)
    print(name, item["state"], item["exit_status"], item["reason"], flush=True)
    return Path(item["folder"])


def keep(folder: Path, target: Path, project: Path) -> None:
    """Copy what a case needs of a run's folder, and note when its logs were written."""
    for path in target.iterdir():
        if path.name != "case.yaml":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    attempts = (
        item for glob in ("*", "stop/*") for item in folder.glob(f"elements/*/attempts/*/{glob}")
    )
    for path in [*(folder / name for name in ("batch.log", "status.json", "run.json")), *attempts]:
        if (
            not path.is_file()
            or path.name in ("heartbeat", "hosts")
            or path.name.startswith("node-")
        ):
            continue
        data = general(
            path.read_bytes(),
            {str(folder): f"/home/me/runs/{folder.name}", str(project): "/home/me/project"},
        )
        if path.name == "run.json":
            data = json.dumps({**json.loads(data), "request": {}, "plan": {}}).encode() + b"\n"
        elif len(data) > MOST_BYTES:
            data = (
                data[: MOST_BYTES // 2].rpartition(b"\n")[0]
                + b"\n"
                + data[-MOST_BYTES // 2 :].partition(b"\n")[2]
            )
        copy = target / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
    if target.parent.name == "order":
        logs = folder.glob("elements/*/attempts/*/rank-*.[eo][ru][rt]")
        written = {str(path.relative_to(folder)): path.stat().st_mtime for path in logs}
        (target / "written.json").write_text(json.dumps(written) + "\n")


def make_healthy(folder: Path) -> None:
    """Keep what programs say that end well: no rule may claim to know a failure in any of them."""
    dist = folder / "dist.py"
    dist.write_text(
        "import torch, torch.distributed as "
        'dist\ndist.init_process_group("gloo")\ndist.all_reduce(torch.ones(1))\n'
        "print('rank', dist.get_rank(), 'done')\ndist.destroy_process_group()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(REPO), "REPO": str(REPO), "DIST": str(dist)}
    env.pop("OMP_NUM_THREADS", None)
    for kind, texts in read(HERE / "healthy/programs.yaml").items():
        for name, text in texts.items():
            command = [sys.executable if kind == "python" else kind, "-c", text]
            done = subprocess.run(
                command, stdout=-1, stderr=-2, cwd=folder, env=env, timeout=120, check=False
            )
            assert done.returncode == 0, done.stdout.decode(errors="replace")
            (HERE / f"healthy/{name}.log").write_bytes(general(done.stdout, {})[:5000])
            print(f"{len(done.stdout):8} {name}", flush=True)


def main() -> None:
    """Make the cases that are named, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=Path, default=Path("programs"))
    parser.add_argument("cases", nargs="*")
    typed = parser.parse_args()
    kept = sorted(str(path.parent.relative_to(HERE)) for path in HERE.rglob("case.yaml"))
    for name in typed.cases or ["healthy", *kept]:
        with tempfile.TemporaryDirectory(prefix="explain-") as folder:
            project = Path(folder)
            project.chmod(0o755)
            if name == "healthy":
                make_healthy(project)
            else:
                case = read(HERE / name / "case.yaml")
                keep(run(Path(name).name, case, project, typed.programs), HERE / name, project)


if __name__ == "__main__":
    main()
