"""Make the runs anew that test what came first: public programs with a fault typed in, on this machine.

``python tests/data/explain/order/make.py FOLDER [CASE...]``; FOLDER has pytorch/examples, optuna/optuna-examples and
the toy program of jax's page on several processes as ``jax/toy.py``. Needs torch, optuna and jax. A case is a run's
folder without its script, and ``case.json``: what the first line has to say, and of which rank.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[3]
sys.path.insert(0, str(REPO))

# ruff: noqa: E501
CPU = (
    ('    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n', ""),
    ('init_process_group(backend="nccl")', 'init_process_group(backend="gloo", timeout=TIMEOUT)'),
    (
        "import os\n",
        "import os\nfrom datetime import timedelta\nTIMEOUT = timedelta(seconds=int(os.environ.get('WAIT', 15)))\n",
    ),
    ("model.to(self.local_rank)", "model"),
    (".to(self.local_rank)", ""),
    ("DDP(self.model, device_ids=[self.local_rank])", "DDP(self.model)"),
    ('f"cuda:{self.local_rank}"', '"cpu"'),
    ("pin_memory=True", "pin_memory=False"),
)
DDP = "distributed/ddp-tutorial-series/multinode.py"
BATCH = "            self._run_batch(source, targets)\n"
GPT = "distributed/minGPT-ddp/mingpt/main.py"
STEP = 'print(f"[GPU{self.global_rank}] Epoch {epoch} | Batchsize: {b_sz} | Steps: {len(self.train_data)}")\n'
FIRST = 'os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"'
HELD = "import threading, time\nif os.environ['RANK'] == '1':\n    threading.Thread(target=time.sleep, args=(%d,)).start()\n"


def fails(when: str, how: str) -> tuple[str, str]:
    """A fault in the training step of the tutorial's program."""
    return BATCH, f"            if {when}:\n                {how}\n{BATCH}"


@dataclass(frozen=True)
class Case:
    """A run.

    Attributes:
        expect: what the first line has to say.
        rank: the rank that it has to name; None if there is none.
        edits: the fault: texts of the program and what replaces them.
        cancel_s: the job is cancelled after so many seconds.
    """

    expect: str
    rank: int | None
    edits: tuple[tuple[str, str], ...]
    program: str = DDP
    argv: tuple[str, ...] = ("6", "1", "--batch_size", "128")
    submit: tuple[str, ...] = ("--gpus", "2")
    cancel_s: float = 0.0
    env: tuple[tuple[str, str], ...] = ()


AT = "self.global_rank == 1 and epoch == 3"
RESTARTS = ("--gpus", "2", "--torchrun", "max-restarts=2")
KEY = fails(AT, 'config = {"lr": 0.1}; targets = targets * config["temperature"]')
CASES = {
    # --- a rank that has failed is held at its exit, and another one ends before it ---
    "held-thread": Case("KeyError: 'temperature'", 1, (*CPU, KEY, ("import os\n", f"import os\n{HELD % 60}"))),
    "held-atexit": Case(
        "KeyError: 'temperature'",
        1,
        (*CPU, KEY, ("import os\n", "import os, atexit\nfrom torch.distributed import barrier\n"),
         ("    dataset, model, optimizer = load", "    atexit.register(barrier)\n    dataset, model, optimizer = load")),
    ),
    "held-finally": Case(
        "KeyError: 'temperature'",
        2,
        (*CPU, (KEY[0], KEY[1].replace("rank == 1", "rank == 2")), ("import os\n", "import os\nfrom torch.distributed import barrier\n"),
         ("    trainer.train(total_epochs)\n    destroy_process_group()\n",
          "    try:\n        trainer.train(total_epochs)\n    finally:\n        barrier()\n        destroy_process_group()\n")),
        submit=("--gpus", "3"),
    ),
    "held-jax": Case(
        "ValueError: schedule has no step 3",
        1,
        (("for step in range(6):\n", 'for step in range(6):\n  if proc_id == 1 and step == 3: raise ValueError("schedule has no step 3")\n'),),
        program="jax/toy.py",
        argv=(),
        submit=("--gpus", "2"),
    ),
    # --- torchrun starts the ranks again, and they fail because of the first failure ---
    "restart-folder": Case(
        "RuntimeError: shape of the batch is wrong",
        1,
        (*CPU, fails(f"{AT} and {FIRST}", 'raise RuntimeError("shape of the batch is wrong")'),
         ("    trainer.train(total_epochs)\n", '    if trainer.global_rank == 0: os.mkdir("samples")\n    trainer.train(total_epochs)\n')),
        submit=RESTARTS,
    ),
    "restart-snapshot": Case(
        "a file system was full",
        0,
        (*CPU, ("        torch.save(snapshot, self.snapshot_path)\n",
                '        torch.save(snapshot, self.snapshot_path)\n        if epoch == 2:\n            os.truncate(self.snapshot_path, 900)\n            raise OSError(28, "No space left on device")\n')),
        submit=RESTARTS,
    ),
    "restart-survived": Case(
        "ValueError: no learning rate for epoch 5",
        0,
        (*CPU, fails(f"{AT} and {FIRST}", 'raise RuntimeError("shape of the batch is wrong")'),
         fails("self.global_rank == 0 and epoch == 5", 'raise ValueError(f"no learning rate for epoch {epoch}")')),
        argv=("8", "1", "--batch_size", "128"),
        submit=RESTARTS,
    ),
    "restart-connection": Case(  # the ranks that are started again do not find each other
        "ConnectionError: lost the data server",
        1,
        (*CPU, fails(f"{AT} and {FIRST}", 'raise ConnectionError("lost the data server")')),
        submit=RESTARTS,
    ),
    "restart-same": Case(
        "RuntimeError: shape of the batch is wrong",
        1,
        (*CPU, fails(AT, 'raise RuntimeError("shape of the batch is wrong")')),
        submit=RESTARTS,
    ),
    # --- jobs that were cancelled while they hung ---
    "cancelled-thread": Case(
        "KeyError: 'temperature'",
        1,
        (*CPU, KEY, ("import os\n", f"import os\n{HELD % 600}")),
        cancel_s=45,
        env=(("WAIT", "900"),),
    ),
    "cancelled-atexit": Case(
        "KeyError: 'temperature'",
        2,
        (*CPU, (KEY[0], KEY[1].replace("rank == 1", "rank == 2")), ("import os\n", "import os, atexit\nfrom torch.distributed import barrier\n"),
         ("    dataset, model, optimizer = load", "    atexit.register(barrier)\n    dataset, model, optimizer = load")),
        submit=("--gpus", "3"),
        cancel_s=45,
        env=(("WAIT", "900"),),
    ),
    "cancelled-skipped": Case(
        "it may have hung",
        None,
        (*CPU, ("    trainer.train(total_epochs)\n", "    trainer.train(total_epochs)\n    torch.distributed.barrier()\n"),
         (BATCH, "            import time; time.sleep(0.2)\n            try:\n    " + BATCH.replace("targets)", 'targets[:7] if self.global_rank == 1 and epoch == 3 else targets)')
          + "            except Exception:\n                import traceback; traceback.print_exc(); print('skipping the batch')\n")),
        cancel_s=45,
        env=(("WAIT", "900"),),
    ),
    "cancelled-healthy": Case(
        "the job was cancelled",
        None,
        (*CPU, fails("True", "import time; time.sleep(0.2)")),
        argv=("400", "1", "--batch_size", "128"),
        cancel_s=40,
    ),
    # --- what a program survived ---
    "survived-batch": Case(
        "AssertionError: loss at epoch 5",
        0,
        (*CPU, (BATCH, "            try:\n                if epoch == 1 and self.global_rank == 1: raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')\n"
                "            except RuntimeError:\n                import traceback; traceback.print_exc(); print('skipping the sample')\n"
                + BATCH + "            assert epoch != 5 or self.global_rank != 0, f'loss at epoch {epoch}'\n")),
    ),
    "survived-cancelled": Case(
        "the job was cancelled",
        None,
        (*CPU, (BATCH, "            try:\n                if epoch == 1 and self.global_rank == 1: raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')\n"
                "            except RuntimeError:\n                import traceback; traceback.print_exc(); print('skipping the sample')\n"
                "            import time; time.sleep(0.2)\n" + BATCH)),
        argv=("400", "1", "--batch_size", "128"),
        cancel_s=40,
    ),
    "survived-snapshot": Case(
        "exit status 3",
        1,
        (*CPU, ("            self._load_snapshot(snapshot_path)\n",
                "            try:\n                self._load_snapshot(snapshot_path)\n            except Exception:\n                import traceback; traceback.print_exc()\n                print('falling back to the older snapshot')\n"),
         ("    ddp_setup()\n", "    open('snapshot.pt', 'wb').write(b'cut')\n    ddp_setup()\n"),
         fails("self.global_rank == 1 and epoch == 5", "import sys; sys.exit(3)")),
    ),
    "survived-import": Case(
        "exit status 3",
        0,
        (*CPU, ("import os\n", "import os\ntry:\n    import flash_attn\nexcept ImportError:\n    import traceback; traceback.print_exc()\n"),
         fails("self.global_rank == 0 and epoch == 5", "import sys; sys.exit(3)")),
    ),
    "survived-trial": Case(
        "ZeroDivisionError",
        0,
        (("return accuracy", "if trial.number == 1: raise RuntimeError('mat1 and mat2 shapes cannot be multiplied (128x784 and 512x10)')\n    return accuracy"),
         ("n_trials=100, timeout=600", "n_trials=6, catch=(RuntimeError,)"),
         ('    print("Study statistics: ")\n', '    print("Study statistics: ", len(complete_trials) / 0)\n'),
         ("from torchvision import datasets\nfrom torchvision import transforms\n", ""),
         ("datasets.FashionMNIST(DIR, train=True, download=True, transform=transforms.ToTensor())", "[(torch.rand(1, 28, 28), i % 10) for i in range(640)]"),
         ("datasets.FashionMNIST(DIR, train=False, transform=transforms.ToTensor())", "[(torch.rand(1, 28, 28), i % 10) for i in range(640)]"),
         ("EPOCHS = 10", "EPOCHS = 2")),
        program="pytorch/pytorch_simple.py",
        argv=(),
        submit=("--gpus", "1"),
    ),
    "survived-trial-killed": Case(
        "killed (SIGKILL)",
        0,
        (("return accuracy", "if trial.number == 1: raise RuntimeError('mat1 and mat2 shapes cannot be multiplied (128x784 and 512x10)')\n    return accuracy"),
         ("n_trials=100, timeout=600", "n_trials=6, catch=(RuntimeError,)"),
         ('    print("Study statistics: ")\n', '    os.kill(os.getpid(), 9)\n'),
         ("from torchvision import datasets\nfrom torchvision import transforms\n", ""),
         ("datasets.FashionMNIST(DIR, train=True, download=True, transform=transforms.ToTensor())", "[(torch.rand(1, 28, 28), i % 10) for i in range(640)]"),
         ("datasets.FashionMNIST(DIR, train=False, transform=transforms.ToTensor())", "[(torch.rand(1, 28, 28), i % 10) for i in range(640)]"),
         ("EPOCHS = 10", "EPOCHS = 2")),
        program="pytorch/pytorch_simple.py",
        argv=(),
        submit=("--gpus", "1"),
    ),
}  # fmt: skip


def run(name: str, case: Case, programs: Path) -> Path:
    """Run a case; return the run's folder."""
    project = Path(tempfile.mkdtemp(prefix=f"{name}-", dir="/tmp"))
    source = programs / case.program
    for other in source.parent.glob("*.py"):
        (project / other.name).write_text(other.read_text())
    text = source.read_text()
    for old, new in case.edits:
        assert old in text, (name, old)
        text = text.replace(old, new)
    (project / source.name).write_text(text)
    env = {**os.environ, "HPCRUN_RUNS": str(project / "runs"), "OMP_NUM_THREADS": "1", **dict(case.env)}
    hpcrun = [sys.executable, "-m", "hpcrun"]
    argv = [*hpcrun, "submit", "--json", "-J", name, "-P", "local", *case.submit, source.name, *case.argv]
    done = subprocess.run(argv, cwd=project, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    job = str(json.loads(done.stdout)["job_id"])
    began = time.monotonic()
    while True:
        shown = subprocess.run(
            [*hpcrun, "status", "--all", "--json"], cwd=project, env=env, capture_output=True, text=True, check=True
        )
        (item,) = json.loads(shown.stdout)["runs"]
        if item["final"] or time.monotonic() - began > 240:
            break
        if case.cancel_s and time.monotonic() - began > case.cancel_s:
            subprocess.run([*hpcrun, "cancel", "-y", job], cwd=project, env=env, capture_output=True, check=False)
        time.sleep(3)
    print(name, item["state"], item["exit_status"], item["reason"], flush=True)
    return Path(item["folder"])


def main(programs: Path, names: list[str]) -> None:
    """Run the cases and keep their folders."""
    import torch

    from tests.data.explain.make import Case as Kept
    from tests.data.explain.make import keep

    packages = str(Path(torch.__file__).parents[1])
    for name, case in CASES.items():
        if names and name not in names:
            continue
        folder = run(name, case, programs)
        paths = {
            str(folder): f"/home/me/runs/{folder.name}",
            packages: "/opt/venv/lib/python3.11/site-packages",
            str(folder.parents[1]): "/home/me/project",
            f"{sys.prefix}/": "/opt/venv/",
            str(REPO): "/home/me/hpcrun",
        }
        keep(f"order/{name}", Kept(case.expect, ""), folder, paths)
        logs = list(folder.glob("elements/*/attempts/*/rank-*.[eo][ru][rt]"))
        written = {str(path.relative_to(folder)): path.stat().st_mtime for path in logs}
        said = {"expect": case.expect, "rank": case.rank, "written": written}
        (HERE / name / "case.json").write_text(json.dumps(said) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
