"""A person's own batch script on a real Slurm: by hpcrun submit it is what it is by sbatch, and
hpcrun's besides.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.harness import RESEARCHER, wait_for
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
    "setup.sbatch": HEAD + "set -e\nls /nonexistent\nsrun python3 report.py\n",
    # runs until a file lets it end, in its second attempt or later; the last task may fail
    "waits.py": """
import os, sys, time
from pathlib import Path
from hpcrun_runtime import should_stop
print(time.time(), flush=True)
is_last = int(os.environ["SLURM_PROCID"]) + 1 == int(os.environ["SLURM_NTASKS"])
while not (os.environ["HPCRUN_ATTEMPT"] != "0" and Path(sys.argv[1]).exists()):
    time.sleep(0.2)
    if should_stop():
        sys.exit(0)
    if len(sys.argv) > 2 and os.environ["HPCRUN_ATTEMPT"] == "0" and is_last:
        sys.exit(int(sys.argv[2]))
""",
    "waits.sbatch": HEAD
    + """echo begin >>"$1.lines"
srun --ntasks="$SLURM_NNODES" python3 waits.py "$@"
echo "end $?" >>"$1.lines"
""",
    # each line shows what a person's script can notice
    "habits.sbatch": HEAD
    + """#SBATCH --array=3-4:2 --chdir=sub --comment= --mail-user=
exec >"$SLURM_SUBMIT_DIR/$REPORT.txt"
env -0 >"$SLURM_SUBMIT_DIR/$REPORT.env"
module load "$NNODES $MASTER_PORT $SLURM_MINE"
echo "$- ${LC_CTYPE-none} $SLURM_ARRAY_TASK_STEP $SLURM_ARRAY_TASK_MAX ${PWD##*/}"
[ "$SLURM_SUBMIT_DIR" -ef .. ] && echo submitted above
scontrol show job -o "$SLURM_JOB_ID" | grep -oE '(JobName|Comment|MailUser)=[^ ]*'
trap 'echo "trapped in $LINENO: $?"' ERR
check() { grep -q nothing /etc/hostname; true; }
check
text=$(false; echo ok)
false
export SLURM_MPI_TYPE=pmi2
set -x
python3 ../habits.py "two  words" :: <<<input
""",
    "habits.py": """
import os, sys
print(sys.argv[1:], sys.stdin.read(), sorted(name for name in os.environ if "PMI" in name))
print([os.environ.get(name) for name in ("SLURM_PROCID", "SLURM_NTASKS")])
sys.exit(7)
""",
    "fails.sbatch": HEAD
    + """#SBATCH --ntasks=2
srun python3 fails.py
echo "status $?" >>"$REPORT.txt"
""",
    "fails.py": """
import os, sys, time
if os.environ["SLURM_PROCID"] == "1":
    sys.exit(3)
time.sleep(3)
with open(os.environ["REPORT"] + ".txt", "a") as file:
    file.write("the other task has ended\\n")
""",
    # writes down its signals until SIGTERM, or until a file is there
    "hears.py": """
import os, signal, sys, time
from pathlib import Path
def note(number, _):
    with open(sys.argv[1] + ".heard", "a") as file:
        file.write(signal.Signals(number).name + "\\n")
    if number == signal.SIGTERM:
        sys.exit(5)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, note)
print("listens", flush=True)
while not Path(sys.argv[1] + ".over").exists():
    time.sleep(0.1)
""",
    "bare.sbatch": HEAD
    + """#SBATCH --export=NONE
env >bare.env
python3 hears.py bare
""",
    "exec.sbatch": HEAD + "exec srun python3 hears.py exec\n",
    "passes.sbatch": HEAD
    + """trap 'kill -USR1 $step' USR1
srun python3 hears.py passes &
step=$!
wait $step
wait $step
echo "status $?" >>passes.heard
""",
    "torchrun.sbatch": HEAD
    + """#SBATCH -p gpu --nodes=2 --ntasks-per-node=1 --gpus-per-node=2"""
    + TORCHRUN
    + """head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes "$SLURM_NNODES" --nproc_per_node=2 --rdzv_backend c10d \\
    --rdzv_endpoint "$head:29511" --rdzv_id $SLURM_JOB_ID report.py --lr 1
""",
    # its third task fails
    "array.sbatch": HEAD
    + """#SBATCH --array=0-1
env | grep -E "^SLURM_(ARRAY_TASK_|JOB_NAME)" | sort >"$REPORT-$SLURM_ARRAY_TASK_ID"
test "$SLURM_ARRAY_TASK_ID" != 3
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


def by_sbatch(
    lab: Lab, script: str, *args: str, report: str, env: Mapping[str, str | None] | None = None
) -> str:
    """Submit a script with sbatch; wait for its end, and return its state."""
    log = f"--output={lab.person.folder}/{report}.out"
    words = ("sbatch", "--parsable", "--export=ALL", log, script, *args)
    job = lab.person.run(*words, env={**(env or {}), "REPORT": report}).stdout.strip()

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
        begun(folder, 1, ranks=2)
        (lab.person.folder / "restarted").touch()

    options = ("--restarts", "1", "--retry-on-failure", "-p", "gpu", "--nodes", "2")
    return waits(lab, "restarted", *options, args=("3",), then=end)


CALLER = {
    "BASH_FUNC_module%%": '() {  echo "module $*"\n}',
    "NNODES": "4",
    "MASTER_PORT": "31000",
    "SLURM_MINE": "x",
    "SBATCH_QOS": "normal",
    "LANG": None,  # in the C locale Python adds LC_CTYPE
}


def compared(name: str, lab: Lab) -> tuple[Ended, list[str]]:
    """Run a script by sbatch and by hpcrun; return what each has written."""
    folder = lab.person.folder
    (folder / "sub").mkdir(exist_ok=True)
    shutil.chown(folder / "sub", RESEARCHER)
    by_sbatch(lab, f"{name}.sbatch", report=f"{name}-sbatch", env=CALLER)
    env = {**CALLER, "REPORT": f"{name}-hpcrun"}
    ended = lab.ended(lab.person.submit(f"{name}.sbatch", env=env, check=True))
    return ended, [(folder / f"{name}-{way}.txt").read_text() for way in ("sbatch", "hpcrun")]


def signalled(name: str, *options: str, lab: Lab) -> tuple[Ended, str]:
    """Signal a job; return what its program and its script have noted."""
    folder = lab.person.submit("-J", name, f"{name}.sbatch", check=True)
    begun(folder)
    lab.person.run("scancel", *options, lab.job(folder))
    time.sleep(2)
    if name != "exec":
        lab.person.write(f"{name}.over", "")
    ended = lab.ended(folder)
    heard = lab.person.folder / f"{name}.heard"
    return ended, heard.read_text() if heard.exists() else ""


def setup(lab: Lab) -> Ended:
    return lab.ended(lab.person.submit("setup.sbatch", env={"REPORT": "setup"}, check=True))


def array(lab: Lab) -> dict[str, str]:
    """Submit an array by sbatch, and by hpcrun from stdin; return what the tasks wrote."""
    ids = "--array=1-5:2%2"
    by_sbatch(lab, ids, "array.sbatch", report="sbatch")
    words: tuple[str, ...] = ("submit", "--parsable", ids)
    for report in ("hpcrun", "again"):
        script = SCRIPTS["array.sbatch"]
        done = lab.person(*words, stdin=script, env={"REPORT": report}, check=True)
        lab.person.ended(done.stdout.strip())
        words = ("resubmit", "--parsable", "--failed", done.stdout.strip())
    return {path.name: path.read_text() for path in lab.person.folder.glob("*-[135]")}


SCENARIOS: dict[str, Callable[[Lab], Any]] = {
    "tasks": partial(both, "tasks", 4),
    "once": partial(both, "once", 1),
    "torchrun": partial(both, "torchrun", 4),
    "setup": setup,
    "array": array,
    "cancelled": cancelled,
    "warned": warned,
    "restarted": restarted,
    "habits": partial(compared, "habits"),
    "fails": partial(compared, "fails"),
    "bare": lambda lab: signalled("bare", "--signal=USR1", lab=lab),
    "exec": lambda lab: signalled("exec", "--batch", "--signal=TERM", lab=lab),
    "passes": lambda lab: signalled("passes", "--batch", "--signal=USR1", lab=lab),
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
        "setup.sbatch ended with status 2 before its launch: line 5: ls /nonexistent" in ended.table
    )


def test_scancel_reaches_the_ranks(scenarios: Scenarios) -> None:
    ended: Ended = scenarios["cancelled"].result()
    assert ended.state == "CANCELLED", ended.account
    assert ended.rank_exit(0)["told"] == "TERM"
    assert not re.search(r"line \d+: .*Terminated", (ended.folder / "batch.log").read_text())


def test_a_requeued_script_runs_again_from_its_top(scenarios: Scenarios) -> None:
    ended: Ended = scenarios["warned"].result()
    assert (ended.state, ended.starts) == ("COMPLETED", 2), ended.account
    assert (ended.folder.parents[1] / "warned.lines").read_text() == "begin\nbegin\nend 0\n"


def test_a_restart_starts_the_step_below_the_waiting_script(scenarios: Scenarios) -> None:
    ended: Ended = scenarios["restarted"].result()
    assert (ended.state, ended.starts) == ("COMPLETED", 2), ended.account
    assert (ended.folder.parents[1] / "restarted.lines").read_text() == "begin\nend 0\n"


def test_a_script_notices_nothing_of_hpcrun(scenarios: Scenarios) -> None:
    """Its caller's functions and variables, its own trap, folders, names and empty values stay; a
    launch without srun is no task of Slurm.
    """
    ended, (by_slurm, by_hpcrun) = scenarios["habits"].result()
    assert by_slurm == by_hpcrun
    for expected in (
        "module load 4 31000 x",
        "none 2 3 sub\nsubmitted above\nJobName=habits.sbatch\n",
        "trapped in 15: 1",
        "['two  words', '::'] input\n []\n['0', None]",
    ):
        assert expected in by_hpcrun
    assert by_hpcrun.count("trapped") == 2  # also by the last command
    record = json.loads((ended.folder / "elements/3/attempts/0/exit").read_text())
    assert record["status"] == 7
    folder = ended.folder.parents[1]
    of_script = []
    for way in ("sbatch", "hpcrun"):
        items = (folder / f"habits-{way}.env").read_bytes().decode().split("\0")
        env = dict(item.split("=", 1) for item in items if "=" in item)
        of_script.append(
            {
                name: text
                for name, text in env.items()
                if not name.startswith(("HPCRUN_", "REPORT", *OF_THE_JOB[:-4], "SLURM_ARRAY_JOB"))
                and name != "_"
            }
        )
    assert of_script[0] == of_script[1]


def test_the_log_shows_the_words_of_the_script(scenarios: Scenarios) -> None:
    ended, _ = scenarios["habits"].result()
    line = "+ python3 ../habits.py 'two  words' ::"
    log = (ended.folder / "batch" / "3.log").read_text()
    assert line in [text.rstrip() for text in log.splitlines()], log


def test_a_failed_task_ends_no_other(scenarios: Scenarios) -> None:
    ended, (by_slurm, by_hpcrun) = scenarios["fails"].result()
    assert by_slurm == by_hpcrun == "the other task has ended\nstatus 3\n"
    assert ended.state == "COMPLETED", ended.account


def test_a_signal_for_steps_does_not_reach_a_program_without_srun(scenarios: Scenarios) -> None:
    ended, heard = scenarios["bare"].result()
    assert (ended.state, heard) == ("COMPLETED", ""), ended.account
    env = (ended.folder.parents[1] / "bare.env").read_text()
    assert "SLURM_EXPORT_ENV=NONE\n" in env
    assert "HPCRUN_RUNS" not in env  # sbatch keeps the caller's variables from the job


def test_a_signal_for_the_script_reaches_the_step_that_it_has_become(scenarios: Scenarios) -> None:
    ended, _ = scenarios["exec"].result()
    # srun kills its tasks then
    assert ended.exit(0)["status"] == 137, ended.account
    assert ended.exit(0)["signal"] == ""
    assert ended.state == "FAILED", ended.account


def test_a_script_passes_a_signal_on_to_its_step(scenarios: Scenarios) -> None:
    ended, heard = scenarios["passes"].result()
    assert heard == "SIGUSR1\nstatus 0\n", ended.account


def test_an_array_from_stdin_is_sbatch_s_and_its_failed_task_keeps_its_id(
    scenarios: Scenarios,
) -> None:
    written: dict[str, str] = scenarios["array"].result()
    assert len(written) == 7
    for task in (1, 3, 5):
        name = "SLURM_JOB_NAME=array.sbatch\n"  # of a file alone
        assert written[f"hpcrun-{task}"] + name == written[f"sbatch-{task}"]
    assert "SLURM_ARRAY_TASK_STEP=2\n" in written["sbatch-1"]
    assert "SLURM_ARRAY_TASK_ID=3\n" in written["again-3"]
