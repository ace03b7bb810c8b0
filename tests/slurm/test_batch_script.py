"""A person's own batch script on a real Slurm: by hpcrun submit it is what it is by sbatch, and
hpcrun's besides.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.harness import wait_for
from tests.slurm.lab import Ended, Lab, Scenarios, attempt, begun

pytestmark = [pytest.mark.slurm, pytest.mark.versions]

HEAD = "#!/bin/bash\n#SBATCH -p cpu --mem=1G -t 10 -c 1\n#SBATCH --output=%x-%j.out\n"
TORCHRUN = """
export REPORTS=$PWD/reports PATH=$PWD/bin:$PATH; mkdir -p reports bin
# pip's own torchrun names the Python where it was installed, which this user may not reach
python=$(command -v python3)
printf '#!%s\\nfrom torch.distributed.run import main\\nmain()\\n' "$python" >bin/torchrun
chmod +x bin/torchrun
"""


SCRIPTS = {
    # writes down what a rank is given
    "report.py": """
import json, os, sys
from pathlib import Path
env = dict(os.environ)
node, task, rank = map(env.get, ("SLURM_NODEID", "SLURM_PROCID", "LOCAL_RANK"))
fields = {"argv": sys.argv, "env": env, "cwd": os.getcwd(), "in": sys.stdin.read()}
Path(env["REPORTS"], f"{env['REPORT']}-{node}-{task}-{rank}.json").write_text(json.dumps(fields))
print("rank", task, flush=True)
""",
    "tasks.sbatch": HEAD
    + """#SBATCH -p gpu -N 2 --ntasks-per-node=2 --gres=gpu:2 --job-name=tasks
set -euo pipefail
shopt -s extglob
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_NNODES))
export REPORTS=$PWD/reports ODD=$'a\\tb\\nc "d" \\\\ %s' PATH="$PWD/none:$PATH"
args=(--lr "1e-3" --text "two  words" '*')
mkdir -p "$REPORTS" sub && cd sub
OPTS="--cpu-bind=none --label"
FLAG=1 srun $OPTS python3 ../report.py "${args[@]}" "$@" <<<input | tee ../"$REPORT.log"
echo "after ${PIPESTATUS[*]}" >>../"$REPORT.log"
""",
    "once.sbatch": HEAD
    + """#SBATCH -p gpu --ntasks=2 --nodes=1 --gres=gpu:2
export REPORTS=$PWD/reports; mkdir -p reports
trap 'echo trapped >>"$REPORT.log"' EXIT
CUDA_VISIBLE_DEVICES=1 python3 report.py --by-hand </dev/null > "$REPORT.log"
""",
    "setup.sbatch": HEAD + "set -e\nload() {\n  ls /nonexistent\n}\nload\nsrun python3 report.py\n",
    # runs until a file lets it end, in its second attempt or later
    "waits.py": """
import os, sys, time
from pathlib import Path
from hpcrun_runtime import should_stop
print(time.time(), flush=True)
while not (os.environ["HPCRUN_ATTEMPT"] != "0" and Path(sys.argv[1]).exists()):
    time.sleep(0.2)
    if should_stop():
        sys.exit(0)
    if len(sys.argv) > 2 and os.environ["HPCRUN_ATTEMPT"] == "0":
        sys.exit(int(sys.argv[2]))
""",
    "waits.sbatch": HEAD
    + """echo begin >>"$1.lines"
srun --ntasks=1 python3 waits.py "$@"
echo "end $?" >>"$1.lines"
""",
    "torchrun.sbatch": HEAD
    + """#SBATCH -p gpu --nodes=2 --ntasks-per-node=1 --gpus-per-node=2"""
    + TORCHRUN
    + """head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes "$SLURM_NNODES" --nproc_per_node=2 --rdzv_backend c10d \\
    --rdzv_endpoint "$head:29511" --rdzv_id $SLURM_JOB_ID report.py --lr 1
""",
}
ADDED = (
    "HPCRUN_",
    "SPT_NOENV",
    "TORCH_",
    "WANDB_TAGS",
    "MLFLOW_RUN_CONTEXT",
    "PYTHONPATH",
    "REPORT",
)
"""What hpcrun gives the ranks besides, and what the test does. With SPT_NOENV setproctitle leaves
the environment in /proc, by whose name a job's processes are found.
"""
OF_THE_JOB = (
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_JOB_SLUID",
    "SLURM_TASK_PID",
    "SLURM_JOB_START",
    "SLURM_JOB_END",
    "SLURM_JOB_NAME",
    "SLURM_LAUNCH_NODE",
    "SLURM_SRUN_COMM",
    "SLURM_STEP_LAUNCHER",
    "SLURM_TOPOLOGY",
    "SLURM_SCRIPT_CONTEXT",
    "SLURM_JOB_NODELIST",
    "SLURM_NODELIST",
    "SLURMD_NODENAME",
    "SLURM_STEP_NODELIST",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_PRIO_PROCESS",
    "TORCHELASTIC_",
    "HOSTNAME",
    "SHLVL",
    "_",
    "OLDPWD",
)
"""What differs between two jobs, and what each shell between sets."""
GPUS = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "GPU_DEVICE_ORDINAL",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
)
"""Which GPUs a job gets is Slurm's choice: their number counts."""


def by_sbatch(lab: Lab, script: str, *args: str, report: str) -> str:
    """Submit a script with sbatch; wait for its end, and return its state."""
    job = lab.person.run(
        "sbatch", "--parsable", "--export=ALL", script, *args, env={"REPORT": report}
    ).stdout.strip()

    def over() -> str:
        squeue = lab.person.run("squeue", "-h", "-j", job, "-o", "%T", check=False).stdout.strip()
        return "" if squeue else job

    wait_for(over, 120, f"job {job} to end")
    return job


def both(
    name: str, ranks: int, lab: Lab
) -> tuple[Ended, dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Run a script by sbatch and by hpcrun, and return what its ranks were given."""
    script, stem = f"{name}.sbatch", lab.person.folder
    by_sbatch(lab, script, "x", "y  z", report=f"{name}-sbatch")
    ended = lab.ended(
        lab.person.submit(script, "x", "y  z", env={"REPORT": f"{name}-hpcrun"}, check=True), 240
    )
    found = []
    for way in ("sbatch", "hpcrun"):
        paths = list((stem / "reports").glob(f"{name}-{way}-*.json"))
        assert len(paths) == ranks, (way, paths, ended.account)
        found.append(
            {
                path.stem.removeprefix(f"{name}-{way}"): json.loads(path.read_text())
                for path in paths
            }
        )
    return ended, found[0], found[1]


def waits(
    lab: Lab, name: str, *options: str, args: tuple[str, ...] = (), then: Callable[[Path], None]
) -> Ended:
    """Run the script that waits, and do something when its first attempt has begun."""
    folder = lab.submit(name, *options, "waits.sbatch", name, *args, requeue=0)
    begun(folder)
    then(folder)
    return lab.ended(folder, 240)


def cancelled(lab: Lab) -> Ended:
    def cancel(folder: Path) -> None:
        lab.person.run("scancel", lab.job(folder))

    return waits(lab, "cancelled", then=cancel)


def warned(lab: Lab) -> Ended:
    def warn(folder: Path) -> None:
        lab.warn(folder)
        begun(folder, 1, timeout=240)
        (lab.person.folder / "warned").touch()

    return waits(lab, "warned", "--requeue", "1", then=warn)


def restarted(lab: Lab) -> Ended:
    def end(folder: Path) -> None:
        begun(folder, 1)
        (lab.person.folder / "restarted").touch()

    return waits(lab, "restarted", "--restarts", "1", "--retry-on-failure", args=("3",), then=end)


def setup(lab: Lab) -> Ended:
    return lab.ended(lab.person.submit("setup.sbatch", env={"REPORT": "setup"}, check=True))


SCENARIOS: dict[str, Callable[[Lab], Any]] = {
    "tasks": partial(both, "tasks", 4),
    "once": partial(both, "once", 1),
    "torchrun": partial(both, "torchrun", 4),
    "setup": setup,
    "cancelled": cancelled,
    "warned": warned,
    "restarted": restarted,
}
THREADS = 4


def seen(report: dict[str, Any]) -> dict[str, Any]:
    left_out = (*ADDED, *(name for name in OF_THE_JOB if name != "_"))
    env = {
        name: value
        for name, value in report["env"].items()
        if name != "_" and not name.startswith(left_out)
    }
    if "TORCHELASTIC_RUN_ID" in report["env"]:  # its rendezvous numbers the nodes as they come
        env = {
            name: value
            for name, value in env.items()
            if name not in ("RANK", "GROUP_RANK", "ROLE_RANK")
        }
    for name in GPUS:
        env[name] = len(env.get(name, "").split(","))
    return {**report, "env": env}


def difference(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    flat = [
        {**report["env"], **{key: report[key] for key in ("argv", "cwd", "in")}}
        for report in (one, other)
    ]
    return {
        key: (flat[0].get(key), flat[1].get(key))
        for key in {*flat[0], *flat[1]}
        if flat[0].get(key) != flat[1].get(key)
    }


@pytest.mark.parametrize("name", ["tasks", "once", "torchrun"])
def test_the_ranks_get_what_sbatch_gives_them(scenarios: Scenarios, name: str) -> None:
    ended, by_slurm, by_hpcrun = scenarios[name].result()
    assert ended.state == "COMPLETED", ended.account
    differences = {
        rank: difference(seen(by_slurm[rank]), seen(report)) for rank, report in by_hpcrun.items()
    }
    assert not any(differences.values()), differences
    numbers = [
        sorted(str(one["env"].get("RANK")) for one in each.values())
        for each in (by_slurm, by_hpcrun)
    ]
    assert numbers[0] == numbers[1]
    ranks = len(list(attempt(ended.folder, 0).glob("rank-*.exit")))
    assert ranks == len(by_hpcrun)
    if name != "torchrun":
        logs = [
            (ended.folder.parents[1] / f"{name}-{way}.log").read_text()
            for way in ("sbatch", "hpcrun")
        ]
        lines = [sorted(line.rpartition(": ")[2] for line in log.splitlines()) for log in logs]
        assert lines[0] == lines[1]


def test_a_failed_set_up_is_named(scenarios: Scenarios) -> None:
    ended: Ended = scenarios["setup"].result()
    assert ended.state == "FAILED"
    assert (
        "setup.sbatch ended with status 2 before its launch: line 6: ls /nonexistent" in ended.table
    )


def test_scancel_reaches_the_ranks(scenarios: Scenarios) -> None:
    ended: Ended = scenarios["cancelled"].result()
    assert ended.state == "CANCELLED", ended.account
    assert ended.rank_exit(0)["told"] == "TERM"


def test_a_requeued_script_runs_again_from_its_top(scenarios: Scenarios) -> None:
    ended: Ended = scenarios["warned"].result()
    assert (ended.state, ended.starts) == ("COMPLETED", 2), ended.account
    assert (ended.folder.parents[1] / "warned.lines").read_text() == "begin\nbegin\nend 0\n"


def test_a_restart_starts_the_step_below_the_waiting_script(scenarios: Scenarios) -> None:
    ended: Ended = scenarios["restarted"].result()
    assert (ended.state, ended.starts) == ("COMPLETED", 2), ended.account
    assert (ended.folder.parents[1] / "restarted.lines").read_text() == "begin\nend 0\n"
