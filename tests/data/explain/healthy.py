"""Make the healthy logs anew: what programs say that end well, warnings, caught errors and awkward words included.

Run in the checkout: ``python tests/data/explain/healthy.py``. No rule may claim to know a failure in any of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# ruff: noqa: E501
HERE = Path(__file__).resolve().parent / "healthy"
REPO = HERE.parents[3]
MOST_BYTES = 5000

DIST = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
"""

PYTHON = {
    "loss-falls": "for s in range(40): print(f'step {s} loss {2.5 / (s + 1):.4f} error {0.5 / (s + 1):.4f}')",
    "loss-nan-first": "print('epoch 0 loss: nan best_loss: nan')\nfor s in range(1, 60): print(f'epoch {s} loss: {1 / s:.3f}')",
    "loss-inf-best": "best = float('inf')\nfor s in range(9):\n    best = min(best, 3 - s / 9)\n    print('best loss', best)\nprint('error rate: 0.031')",
    "nan-skipped": "for s in range(60): print('loss: nan, step skipped, scale halved' if s == 7 else f'loss: {1 + 1 / (s + 1):.3f}')",
    "nan-metrics": "print({'eval_bleu': float('nan'), 'eval_loss': 1.25, 'epoch': 3.0})\nprint('val_auc=nan (one class only)')",
    "progress-bar": "import sys, time\nfor i in range(200): sys.stderr.write(f'\\rEpoch 1: {i / 2:5.1f}%|' + '█' * (i // 8)); sys.stderr.flush()\nprint(file=sys.stderr)",
    "progress-error": "import sys\nfor i in range(99): sys.stderr.write(f'\\rerror={1 / (i + 1):.4f} failed=0 timeouts=0 {i}/99')\nprint(file=sys.stderr)",
    "import-fallback": "try:\n    import flash_attn\nexcept ImportError as error:\n    print(f'{error}: falling back to sdpa')\nfor s in range(50): print('step', s)",
    "import-fallback-traceback": "import traceback\ntry:\n    import apex\nexcept ImportError:\n    traceback.print_exc()\n    import sys; print('apex is not there; using torch', file=sys.stderr)\nfor s in range(80): print('step', s, file=__import__('sys').stderr)",
    "logged-exception": "import logging\nlogging.basicConfig(level='INFO')\ntry:\n    open('/nonexistent/cache.bin')\nexcept OSError:\n    logging.exception('no cache yet')\nfor s in range(80): logging.info('step %d', s)",
    "oom-retried": "import logging\nlogging.basicConfig(level='INFO')\nfor size in (64, 32, 16): logging.info('trying batch size %d', size)\nlogging.warning('CUDA out of memory at batch size 64, going on with 32')\nfor s in range(9): logging.info('step %d', s)",
    "connection-retry": "import logging, socket\nlogging.basicConfig(level='INFO')\nfor n in range(2):\n    try: socket.create_connection(('127.0.0.1', 1))\n    except OSError as e: logging.warning('attempt %d: %s, trying again', n, e)\nlogging.info('connected')",
    "port-retry": "import socket\na = socket.create_server(('127.0.0.1', 0))\ntry: socket.create_server(('127.0.0.1', a.getsockname()[1]))\nexcept OSError as e: print('port taken (', e, '), taking another')\nprint('listening')",
    "permission-skipped": "import os\nfor p in ('/proc/1/environ', '/root/.x'): print('skipping', p, '(Permission denied)')\nprint('scanned 2 files, 0 errors')",
    "warnings": "import warnings\nwarnings.warn('the scheduler was called before the optimizer')\nwarnings.warn('this will raise an error in 3.0', FutureWarning)\nprint('done')",
    "deprecation": "import warnings\nwarnings.simplefilter('always')\nwarnings.warn('ignored timeout argument', DeprecationWarning)\nprint('ok')",
    "error-names": "print('callbacks: EarlyStopping, ErrorLogger, TimeoutGuard, NanChecker')\nprint('mean_squared_error=0.12 max_error=0.9 word_error_rate=0.07')",
    "exit-summary": "print('train finished: 0 errors, 0 failures, 2 warnings')",
    "killed-word": "print('killed 3 stale workers of an earlier epoch')\nprint('Killed processes: none')\nfor s in range(50): print('step', s)",
    "json-log": "import json\nfor s in range(30): print(json.dumps({'step': s, 'loss': 1 / (s + 1), 'error': None, 'failed': False}))",
    "csv": "print('step,train_error,val_error')\nfor s in range(30): print(f'{s},{1 / (s + 1):.3f},{1.1 / (s + 1):.3f}')",
    "binary": "import sys\nsys.stdout.buffer.write(bytes(range(256)) * 4 + b'\\nsaved\\n')",
    "empty": "pass",
    "unicode": "print('Fehler 0, erreurs 0, エラー 0, error 0 ✅')",
    "argparse-help": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--on-error', choices=['raise', 'skip'])\np.add_argument('--timeout')\np.print_help()",
    "config-dump": "for k, v in {'oom_kill': False, 'nccl_timeout': 1800, 'on_error': 'resume', 'quota': None, 'save_total_limit': 3}.items(): print(f'{k}: {v}')",
    "checkpoints": "for s in range(5): print(f'saved checkpoint-{s}.pt (previous checkpoint-{s - 1}.pt not found, nothing to delete)')",
    "faulthandler": "import faulthandler\nfaulthandler.enable()\nprint('segmentation network: 21 classes, fault handler on')",
    "torch-linear": "import torch\nm = torch.nn.Linear(4, 2)\no = torch.optim.SGD(m.parameters(), 0.1)\nfor s in range(20):\n    l = m(torch.ones(8, 4)).pow(2).mean(); o.zero_grad(); l.backward(); o.step(); print(f'step {s} loss {l.item():.5f}')",
    "torch-scheduler-warning": "import torch\nm = torch.nn.Linear(2, 2)\no = torch.optim.SGD(m.parameters(), 0.1)\ns = torch.optim.lr_scheduler.StepLR(o, 1)\ns.step(); o.step(); print('lr', s.get_last_lr())",
    "torch-cuda-absent": "import torch\nprint('cuda', torch.cuda.is_available(), torch.cuda.device_count())",
    "torch-config": "import torch\nprint(torch.__config__.show())\nprint(torch.__config__.parallel_info())",
    "torch-oom-caught": "import torch\nfor n in (10**13, 1000):\n    try: torch.empty(n); print('allocated', n); break\n    except RuntimeError as e: print('caught:', type(e).__name__, 'for', n)\nprint('done')",
    "torch-nan-caught": "import torch\nx = torch.tensor([1.0, float('nan')])\nprint(x, torch.isnan(x).sum().item(), 'nan in the inputs, replaced by 0')\nprint(torch.nan_to_num(x))",
    "torch-loader": "import torch\nfrom torch.utils.data import DataLoader\nfor b in DataLoader(list(range(16)), batch_size=4, num_workers=2): print(b)",
    "torch-loader-warning": "import torch\nfrom torch.utils.data import DataLoader\nfor b in DataLoader(list(range(4)), num_workers=3, prefetch_factor=2, persistent_workers=True): print(b)",
    "torch-grad-scaler": "import torch\ns = torch.amp.GradScaler('cuda', enabled=True)\nprint('scale', s.get_scale(), 'gradient overflow checks on')",
    "torch-profiler": "import torch\nfrom torch.profiler import profile\nwith profile() as p: torch.ones(64, 64) @ torch.ones(64, 64)\nprint(p.key_averages().table(row_limit=5))",
    "torch-anomaly": "import torch\nwith torch.autograd.detect_anomaly():\n    x = torch.ones(1, requires_grad=True); (x * 2).backward(); print(x.grad)",
    "torch-save-load": "import torch\ntorch.save({'w': torch.ones(3)}, '/tmp/explain-healthy.pt')\nprint(torch.load('/tmp/explain-healthy.pt'))",
}
SHELL = {
    "torchrun-two": "torchrun --nproc-per-node 2 --master-port 29871 {dist} 2>&1",
    "torchrun-debug": "TORCH_DISTRIBUTED_DEBUG=INFO TORCH_CPP_LOG_LEVEL=INFO torchrun --nproc-per-node 2 --master-port 29872 {dist} 2>&1",
    "digits": "torchrun --nproc-per-node 1 --master-port 29873 {repo}/examples/digits_ddp.py --epochs 2 2>&1",
    "unittest": "cd {repo} && python -m pytest -q -p no:cacheprovider tests/unit/test_runtime.py tests/unit/job/test_units.py -v 2>&1",
    "ruff": "cd {repo} && ruff check hpcrun/job 2>&1",
    "bash-trace": "set -x; for i in 1 2 3; do echo step $i; done; ls /nonexistent || true; command -v module || echo no modules here",
    "bash-missing": "nosuchtool --version || echo going on without it; for i in $(seq 60); do echo step $i; done",
    "make": "cd {repo} && make help 2>&1; make -n check 2>&1 | head -20",
    "limits": "ulimit -a",
    "gcc": "echo 'int main(void) {{ int unused; return 0; }}' >/tmp/explain.c && cc -Wall -v -o /tmp/explain.out /tmp/explain.c 2>&1 | tail -20",
    "tar": "cd {repo} && tar -cvf /dev/null docs 2>&1",
    "git": "cd {repo} && git log --oneline -n 30",
    "sinfo": "sinfo; sinfo -R; scontrol show config | grep -i -e timeout -e kill",
    "xz": "seq 100000 | xz -v 2>&1 >/dev/null; echo exit $?",
    "python-verbose": "python -X importtime -c 'import json' 2>&1 | tail -20",
}


def run(command: list[str], env: dict[str, str]) -> bytes:
    """Return what a program says; it must end well."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/tmp", env=env, timeout=120)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout.decode(errors='replace')}")
    return done.stdout


def main() -> None:
    HERE.mkdir(exist_ok=True)
    dist = Path("/tmp/explain-dist.py")
    dist.write_text(
        DIST + "dist.all_reduce(torch.ones(1))\nprint('rank', rank, 'done')\ndist.destroy_process_group()\n"
    )
    env = {**os.environ, "OMP_NUM_THREADS": ""} | {"PYTHONPATH": str(REPO)}
    env.pop("OMP_NUM_THREADS")
    commands = {name: [sys.executable, "-c", text] for name, text in PYTHON.items()}
    commands |= {name: ["bash", "-c", text.format(repo=REPO, dist=dist)] for name, text in SHELL.items()}
    import torch

    packages = str(Path(torch.__file__).parents[1])
    for old in HERE.glob("*.log"):
        old.unlink()
    for name, command in commands.items():
        said = run(command, env)
        for path, general in (
            (packages, "/opt/venv/lib/python3.11/site-packages"),
            (str(Path(sys.prefix).resolve()), "/opt/venv"),
            (str(REPO), "/home/me/hpcrun"),
        ):
            said = said.replace(path.encode(), general.encode())
        (HERE / f"{name}.log").write_bytes(said[:MOST_BYTES])
        print(f"{len(said):8} {name}", flush=True)


if __name__ == "__main__":
    main()
