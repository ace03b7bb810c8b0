"""Make the corpus anew: submit jobs that really fail to the development cluster, and keep what their folders hold.

Run as root from the checkout, with the cluster up: ``python tests/data/explain/make.py [CASE...]``. A case is a run's
folder without its script, and ``case.json``: which rule is right, and how it was made. What cannot be provoked on a
cluster without GPUs is in tests/unit/explain/written.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# ruff: noqa: E501
HERE = Path(__file__).resolve().parent
REPO = HERE.parents[2]
KEPT = ("batch.log", "status.json", "run.json")
MOST_BYTES = 6000
ONE = ("-P", "a100", "--gpus", "0", "-p", "cpu", "--cpus", "1", "--mem", "1G", "-t", "5m")
TWO = ("-P", "l40s", "-N", "2", "-G", "2", "--cpus", "1", "--mem", "1G", "-t", "5m")


@dataclass(frozen=True)
class Case:
    """A job that fails.

    Attributes:
        expect: the rule that is right; None where no rule should claim to know.
        rank: the rank that is to blame, where it is a rank's failure.
        act: what is done to the job while it runs, with its id.
    """

    expect: str | None
    program: str
    where: tuple[str, ...] = ONE
    rank: int | None = None
    act: Callable[[str], None] | None = None
    bash: bool = False


def slurm(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def out_of_time(job: str) -> None:
    slurm("scontrol", "update", f"jobid={job}", "EndTime=now")


def preempt(_: str) -> None:
    slurm(
        "sbatch", "-p", "gpu", "-w", "a100-1", "--exclusive", "--mem=0", "-t", "1", "-o", "/dev/null", "--wrap=sleep 1"
    )


def unplug(_: str) -> None:
    slurm(str(REPO / "dev/cluster.sh"), "unplug", "a40-1")
    time.sleep(35)
    slurm(str(REPO / "dev/cluster.sh"), "plug", "a40-1")


DIST = """
import os, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", timeout=timedelta(seconds=8))
print(f"rank {rank} is ready", flush=True)
"""
LOADER = """
import os, signal, torch
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 3:
            %s
        return torch.zeros(4)
for batch in DataLoader(Images(), batch_size=2, num_workers=1):
    print("batch", batch.shape, flush=True)
"""

CASES = {
    "module-missing": Case("module-missing", "import json\nimport flash_attn\n", rank=0),
    "module-missing-on-one-rank": Case(
        "module-missing", DIST + "if rank == 1:\n    import apex_fused_adam\ndist.all_reduce(torch.ones(1))\n", TWO, 1
    ),
    "import-name": Case("import-name", "from torch.optim import AdamW8bit\n", rank=0),
    "no-script": Case("no-program", "python /home/researcher/no_such_train.py", bash=True),
    "weights-only": Case(
        "weights-only",
        """
import torch
class Settings:
    lr = 0.1
torch.save({"settings": Settings(), "step": 3}, "/tmp/explain-checkpoint.pt")
state = torch.load("/tmp/explain-checkpoint.pt")
""",
        rank=0,
    ),
    "checkpoint-cut": Case(
        "checkpoint-damaged",
        """
import torch
torch.save({"weights": torch.randn(1000)}, "/tmp/explain-cut.pt")
whole = open("/tmp/explain-cut.pt", "rb").read()
open("/tmp/explain-cut.pt", "wb").write(whole[:2000])
def resume(path):
    return torch.load(path)
resume("/tmp/explain-cut.pt")
""",
        rank=0,
    ),
    "checkpoint-empty": Case(
        "checkpoint-damaged",
        """
import torch
open("/tmp/explain-empty.pt", "wb").close()
torch.load("/tmp/explain-empty.pt")
""",
        rank=0,
    ),
    "checkpoint-not-yet": Case(
        "checkpoint-missing",
        DIST
        + """
path = f"/tmp/explain-{os.environ['HPCRUN_JOB_ID']}/checkpoint.pt"
if rank == 0:
    time.sleep(4)
    torch.save({}, path) if os.path.isdir(os.path.dirname(path)) else None
else:
    torch.load(path)
dist.barrier()
""",
        TWO,
        1,
    ),
    "port-in-use": Case(
        "port-in-use",
        """
import socket
import torch.distributed as dist
taken = socket.socket()
taken.bind(("", 0))
taken.listen()
port = taken.getsockname()[1]
dist.init_process_group("gloo", init_method=f"tcp://localhost:{port}", rank=0, world_size=1)
""",
        rank=0,
    ),
    "port-in-use-server": Case(
        "port-in-use",
        """
import http.server, socket
taken = socket.create_server(("127.0.0.1", 0))
http.server.HTTPServer(("127.0.0.1", taken.getsockname()[1]), http.server.SimpleHTTPRequestHandler)
""",
        rank=0,
    ),
    "rendezvous-timeout": Case(
        "rendezvous-timeout",
        "torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint localhost:29611 "
        "--rdzv-conf join_timeout=4,last_call_timeout=1 train.py",
        bash=True,
    ),
    "rendezvous-endpoint": Case(
        "rendezvous-endpoint",
        "torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint 'node[01-04]:29500' train.py",
        bash=True,
    ),
    "rendezvous-unreachable": Case(
        "rendezvous-unreachable",
        "torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint a100-1:29777 "
        "--rdzv-conf is_host=0,timeout=3,read_timeout=3 train.py",
        bash=True,
    ),
    "store-unreachable": Case(
        "store-unreachable",
        """
from datetime import timedelta
import torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://a100-1:29778", rank=1, world_size=2, timeout=timedelta(seconds=4))
""",
        rank=0,
    ),
    "name-unknown": Case(
        "name-unknown",
        """
from datetime import timedelta
import torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://node07.ib.invalid:29500", rank=1, world_size=2,
                        timeout=timedelta(seconds=4))
""",
        rank=0,
    ),
    "gloo-timeout": Case(
        "collective-timeout",
        DIST + "if rank == 1:\n    time.sleep(20)\nelse:\n    dist.all_reduce(torch.ones(1))\n",
        TWO,
        0,
    ),
    "gloo-peer-gone": Case(
        None,
        DIST + "if rank == 1:\n    raise ValueError('no such optimizer: adamx')\ndist.all_reduce(torch.ones(1))\n",
        TWO,
        1,
    ),
    "gloo-peer-gone-hard": Case(
        "rank-killed",
        DIST + "if rank == 1:\n    time.sleep(1)\n    os.kill(os.getpid(), 9)\ndist.all_reduce(torch.ones(1))\n",
        TWO,
        1,
    ),
    "oom-on-rank-1": Case(
        "cuda-out-of-memory",
        DIST
        + """
if rank == 1:
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 39.39 GiB of which 512.00 MiB is "
        "free. Including non-PyTorch memory, this process has 38.88 GiB memory in use. Of the allocated memory 30.10 GiB "
        "is allocated by PyTorch, and 7.90 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory "
        "is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
dist.all_reduce(torch.ones(1))
""",
        TWO,
        1,
    ),
    "unused-parameters": Case(
        "ddp-unused-parameters",
        DIST
        + """
class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.a(x)
model = torch.nn.parallel.DistributedDataParallel(Two())
for step in range(2):
    model(torch.ones(1, 2)).sum().backward()
""",
        TWO,
    ),
    "not-built-with-cuda": Case(
        "torch-without-cuda", "import torch\nmodel = torch.nn.Linear(2, 2).to('cuda')\n", rank=0
    ),
    "host-allocation": Case("host-memory-refused", "import torch\nbuffer = torch.empty(10**13)\n", rank=0),
    "memory-error": Case("host-memory-refused", "table = bytearray(10**15)\n", rank=0),
    "host-killed": Case(
        "rank-killed", "import os, signal\nprint('step 1', flush=True)\nos.kill(os.getpid(), 9)\n", rank=0
    ),
    "segfault": Case("crashed", "import ctypes\nprint('step 1', flush=True)\nctypes.string_at(0)\n", rank=0),
    "abort": Case("aborted", "import os\nprint('step 1', flush=True)\nos.abort()\n", rank=0),
    "disk-full": Case(
        "disk-full",
        """
import torch
def save(state, path):
    with open(path, "wb", buffering=0) as file:
        file.write(state)
save(b"x" * 4096, "/dev/full")
""",
        rank=0,
    ),
    "disk-full-torch": Case(
        "disk-full",
        "import torch\nwith open('/dev/full', 'wb') as f:\n    torch.save({'w': torch.randn(99999)}, f)\n",
        rank=0,
    ),
    "permission": Case("permission-denied", "open('/etc/shadow').read()\n", rank=0),
    "too-many-files": Case(
        "too-many-files",
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))\nfiles = [open('/dev/null') for _ in range(99)]\n",
        rank=0,
    ),
    "library-missing": Case("library-missing", "import ctypes\nctypes.CDLL('libcudart.so.12')\n", rank=0),
    "library-symbol": Case(
        "library-mismatch",
        """
import subprocess, tempfile, sysconfig, importlib.util
folder = tempfile.mkdtemp()
code = "#include <Python.h>\\nvoid _ZN3c104cuda9SetDeviceEi(int);PyObject*PyInit_ext(void){_ZN3c104cuda9SetDeviceEi(0);return 0;}"
code = code.replace("#include <Python.h>\\n", "typedef void PyObject;")
open(folder + "/ext.c", "w").write(code)
subprocess.run(["cc", "-shared", "-fPIC", "-o", folder + "/ext.so", folder + "/ext.c"], check=True)
spec = importlib.util.spec_from_file_location("ext", folder + "/ext.so")
importlib.util.module_from_spec(spec)
""",
        rank=0,
    ),
    "loader-bus-error": Case("shared-memory", LOADER % "os.kill(os.getpid(), signal.SIGBUS)", rank=0),
    "loader-killed": Case("loader-killed", LOADER % "os.kill(os.getpid(), signal.SIGKILL)", rank=0),
    "loader-exited": Case("loader-died", LOADER % "os._exit(1)", rank=0),
    "loader-raised": Case(None, LOADER % "raise ValueError('image 3 is no JPEG')", rank=0),
    "nan-raised": Case(
        "loss-not-finite",
        """
import math
for step in range(5):
    loss = 1.0 if step < 3 else math.nan
    print(f"step {step} loss: {loss}", flush=True)
    if math.isnan(loss):
        raise ValueError(f"loss is {loss} at step {step}")
""",
        rank=0,
    ),
    "nan-anomaly": Case(
        "loss-not-finite",
        """
import torch
torch.autograd.set_detect_anomaly(True)
x = torch.zeros(1, requires_grad=True)
(torch.sqrt(x) * 0).backward()
""",
        rank=0,
    ),
    "nan-then-exit": Case(
        "loss-nan-at-end",
        "import sys\nfor step in range(9):\n    print(f'step {step} loss: {2.0 if step < 3 else float(\"nan\")}')\nsys.exit(3)\n",
        rank=0,
    ),
    "account": Case("sbatch-refused", "sbatch -A nobodys-account --wrap true || exit 1", bash=True),
    "partition": Case("sbatch-refused", "sbatch -p gpuu --wrap true || exit 1", bash=True),
    "qos": Case("sbatch-refused", "sbatch -q platinum --wrap true || exit 1", bash=True),
    "srun-gres": Case("srun-step-refused", "srun --gres=gpu:99 true", bash=True),
    "command-missing": Case("shell-setup", "set -e; module load cuda/12.8; python train.py", bash=True),
    "time-limit": Case("time-limit", "import time\nprint('step 1', flush=True)\ntime.sleep(300)\n", act=out_of_time),
    "cancelled": Case("cancelled", "import time\ntime.sleep(300)\n", act=lambda job: slurm("scancel", job)),
    "preempted": Case(
        "told-to-end",  # Slurm calls it FAILED, and says nowhere that it was preempted
        "import time\ntime.sleep(300)\n",
        ("-P", "a100", "--gpus", "0", "-p", "preempt", "-w", "a100-1", "--cpus", "1", "--mem", "1G", "-t", "5m"),
        act=preempt,
    ),
    "node-failed": Case(
        "node-failed",
        "import time\nprint('step 1', flush=True)\ntime.sleep(300)\n",
        ("-P", "a40", "--gpus", "0", "-w", "a40-1", "--cpus", "1", "--mem", "1G", "-t", "5m"),
        act=unplug,
    ),
    "key-error": Case(
        None, "config = {'lr': 0.1}\ndef build(config):\n    return config['optimizer']\nbuild(config)\n", rank=0
    ),
    "shape": Case(None, "import torch\ntorch.ones(2, 3) @ torch.ones(2, 3)\n", rank=0),
    "assertion-after-fallback": Case(
        None,
        """
import traceback
try:
    import flash_attn
except ImportError:
    traceback.print_exc()
    print("using the slow attention")
for step in range(30):
    print("step", step)
assert step == 3, "the schedule is wrong"
""",
        rank=0,
    ),
    "quiet-exit": Case(None, "import sys\nprint('reading data')\nsys.exit(7)\n", rank=0),
}


def submit(name: str, case: Case, project: Path, env: dict[str, str]) -> str:
    """Submit a case's job; return its job id."""
    if case.bash:
        program = ["bash", "-c", case.program]
    else:
        (project / name).mkdir(exist_ok=True)
        (project / name / "train.py").write_text(case.program.lstrip("\n"))
        program = [str(project / name / "train.py")]
    argv = [f"{sys.prefix}/bin/python", "-m", "hpcrun", "submit", "--json", "-J", name, *case.where, *program]
    as_user = ["runuser", "-u", "researcher", "--", "env", *(f"{key}={value}" for key, value in env.items())]
    done = subprocess.run([*as_user, *argv], cwd=project, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stdout}{done.stderr}")
    return str(json.loads(done.stdout)["job_id"])


def statuses(project: Path, env: dict[str, str]) -> list[dict[str, object]]:
    argv = [f"{sys.prefix}/bin/python", "-m", "hpcrun", "status", "--all", "--json"]
    as_user = ["runuser", "-u", "researcher", "--", "env", *(f"{key}={value}" for key, value in env.items())]
    done = subprocess.run([*as_user, *argv], cwd=project, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout)["runs"])


def keep(name: str, case: Case, folder: Path, paths: dict[str, str]) -> None:
    """Copy what a case needs of a run's folder, paths of this machine made general."""
    target = HERE / name
    shutil.rmtree(target, ignore_errors=True)
    files = [folder / item for item in KEPT]
    files += [
        path for glob in ("*", "stop/*") for path in folder.glob(f"elements/*/attempts/*/{glob}") if path.is_file()
    ]
    for path in files:
        if not path.exists() or path.name in ("heartbeat", "hosts") or path.name.startswith("node-"):
            continue
        data = path.read_bytes()
        for old, new in paths.items():
            data = data.replace(old.encode(), new.encode())
        if len(data) > MOST_BYTES and path.name != "run.json":
            data = data[: MOST_BYTES // 2].rpartition(b"\n")[0] + b"\n" + data[-MOST_BYTES // 2 :].partition(b"\n")[2]
        if path.name == "run.json":
            run = json.loads(data)
            data = json.dumps({**run, "request": {}, "plan": {}}).encode() + b"\n"
        (target / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
        (target / path.relative_to(folder)).write_bytes(data)
    made = {"expect": case.expect, "rank": case.rank, "made": "by a job on the development cluster"}
    (target / "case.json").write_text(json.dumps(made) + "\n")


def main(names: list[str]) -> None:
    project = Path(tempfile.mkdtemp(prefix="explain-", dir="/tmp"))
    shutil.chown(project, "researcher")
    project.chmod(0o755)
    env = {
        "HOME": str(project),
        "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": sys.prefix,
        "PYTHONPATH": str(REPO),
        "HPCRUN_RUNS": str(project / "runs"),
        "SLURM_CONF": os.environ["SLURM_CONF"],
    }
    import torch

    packages = str(Path(torch.__file__).parents[1])
    jobs = {}
    chosen = {name: case for name, case in CASES.items() if not names or name in names}
    for name, case in chosen.items():
        jobs[name] = submit(name, case, project, env)
        print(name, jobs[name], flush=True)
    for name, case in chosen.items():
        if case.act:
            while next(run for run in statuses(project, env) if run["name"] == name)["state"] == "PENDING":
                time.sleep(2)
            time.sleep(3)
            case.act(jobs[name])
    deadline = time.monotonic() + 240
    while not all(run["final"] for run in statuses(project, env)) and time.monotonic() < deadline:
        time.sleep(3)
    for run in statuses(project, env):
        name, folder = str(run["name"]), Path(str(run["folder"]))
        print(name, run["state"], run["exit_status"], run["reason"], flush=True)
        paths = {
            str(folder): f"/home/me/runs/{folder.name}",
            packages: "/opt/venv/lib/python3.11/site-packages",
            f"{project}/{name}": "/home/me/project",
            str(project): "/home/me/project",
            sys.prefix: "/opt/venv",
            str(REPO): "/home/me/hpcrun",
        }
        keep(name, chosen[name], folder, paths)
    shutil.rmtree(project, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
