"""A batch script and what hpcrun makes of it, side by side, on a machine of stubs: what do the
programs of both get?

srun, torchrun, python, module, conda and others are stubs that write down their words, folder and
environment. The script runs as sbatch would run it, and as the job that ``hpcrun submit --dry-run``
prints.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcrun.job.batch.batch_script import BatchScript, read_batch_script
from tests.harness import Hpcrun

STUBS = (
    "python python3 accelerate deepspeed mpirun mpiexec horovodrun conda mamba pip pip3 module ml "
    "nvidia-smi rocm-smi "
    "ray singularity apptainer shifter podman docker enroot wandb git wget curl ssh pdsh clush "
    "rsync uv poetry "
    "composer tune llamafactory-cli axolotl nsys numactl hostname ip ifconfig lscpu nproc free df "
    "dmesg ibstat "
    "make huggingface-cli"
).split()
# srun and torchrun are written down, and what is behind their options is run. The stub has its own
# list of options, so that a mistake of hpcrun's reader shows.
_STUB = r"""#!@PYTHON@ -IS
import json, os, sys
name, argv = os.path.basename(sys.argv[0]), sys.argv[1:]
env, stubs = dict(os.environ), os.environ["STUBS"]
real = "@PYTHON@"
FLAGS = set('''
    -l --label -u --unbuffered -K --overlap --exclusive --exact --verbose -v --kill-on-bad-exit
    --no-kill -Q --standalone --no-python --no_python -m --module --use_env --use-env
'''.split())

def split(words):
    at = 0
    while at < len(words) and words[at].startswith("-"):
        one = words[at]
        more = "=" not in one and one not in FLAGS and (one.startswith("--") or len(one) == 2)
        at += 2 if more else 1
    return words[:at], words[at:]

def note(words, **more):
    kept = {key: value for key, value in env.items() if not key.startswith("STUB")}
    fields = {"name": name, "argv": words, "cwd": os.getcwd(), "env": kept, **more}
    with open(env["STUB_EVENTS"], "a") as file:
        file.write(json.dumps(fields) + "\n")

def run(command):
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)

own = ("torchrun_rank.py", "__main__.py")
if name.startswith("python") and any(os.path.basename(word) in own for word in argv[:3]):
    os.execv(real, [sys.argv[0], *argv])
starts_ranks = (["-m", "torch.distributed.run"], ["-m", "torch.distributed.launch"])
if name.startswith("python") and argv[:2] in starts_ranks:
    name, argv = "torchrun", argv[2:]
elif name.startswith("python") and argv[:3] == ["-u", "-m", "torch.distributed.run"]:
    name, argv = "torchrun", argv[3:]
if name == "scontrol":
    if argv[:2] == ["show", "hostnames"]:
        print("\n".join(f"node{number + 1}" for number in range(int(env["STUB_NODES"]))))
    else:
        print("JobId=7 JobState=RUNNING Reason=None Restarts=0 BatchHost=node1 NodeList=node1")
elif name == "srun":
    options, program = split(argv)
    by_hpcrun = "HPCRUN_BATCH_SLURM" in env
    if not by_hpcrun:
        own = "/attempts/0/rank-%t."  # the logs of tasks in a container
        added = ("--wait=0", "--kill-on-bad-exit=1")
        note([word for word in options if word not in added and own not in word])
    env.update(SLURM_PROCID="0", SLURM_LOCALID="0", SLURM_NODEID="0", SLURM_STEP_ID="0")
    if program:
        run(program)
elif name == "torchrun":
    options, program = split(argv)
    note(options)
    env.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1")
    env.update(MASTER_ADDR="m", MASTER_PORT="1")
    bare = {"--no-python", "--no_python"} & set(options)
    if program:
        module = ["-m"] if {"-m", "--module"} & set(options) else []
        run(program if bare else [f"{stubs}/python", "-u", *module, *program])
elif not (name.endswith("-smi") and "HPCRUN_NODE" in env):  # hpcrun's own samples
    note(argv, stdin=sys.stdin.read() if not sys.stdin.isatty() else "")
    if name in ("nproc",):
        print(8)
    if name in ("hostname", "ip"):
        print("10.0.0.1")
fails = name.startswith("python") and any(word.endswith("fails.py") for word in argv)
sys.exit(int(env.get("STUB_STATUS", "0")) if fails else 0)
"""
_OURS = re.compile(
    r"HPCRUN_|SPT_NOENV|TORCH_(NCCL|FR)_|WANDB_TAGS|MLFLOW_RUN_CONTEXT|"
    r"SLURM_(STEP|PROCID|LOCALID|NODEID|EXIT_ERROR)|SRUN_"
)
_OF_SHELL = ("_", "SHLVL", "OLDPWD", "PYTHONPATH", "BASH_ENV")
_PLACES = re.compile(r"/[^\s:'\"]*/(?:by-sbatch|by-sbatch-too|by-hpcrun|spoiled-\d)(?=[/\s:'\"]|$)")
_COPY = "hpcrun-7/elements/0/attempts/0"
"""Where hpcrun puts the script, as Slurm puts it into its spool: import says so of a script that
uses $0.
"""


@dataclass(frozen=True)
class Seen:
    """What a run of a script did.

    Attributes:
        events: the calls of the stubs in their order.
    """

    status: int
    events: list[dict[str, Any]]

    def comparable(self, left_out: tuple[str, ...], *, in_order: bool) -> dict[str, Any]:
        """Return what must be the same.

        Args:
            left_out: options of srun that hpcrun leaves out and says so.
        """
        events = [_plain(event) for event in self.events]
        for event in events:
            if event["name"] == "srun" and left_out:
                event["argv"] = [word for word in event["argv"] if not word.startswith(left_out)]
        events = (
            events if in_order else sorted(events, key=lambda event: (event["name"], event["argv"]))
        )
        return {"status": self.status, "events": events}


def _plain(event: dict[str, Any]) -> dict[str, Any]:
    env = {
        name: _without_place(value)
        for name, value in event["env"].items()
        if not _OURS.match(name) and name not in _OF_SHELL
    }
    rest = {name: value for name, value in event.items() if name != "env"}
    argv = [_without_place(word) for word in event["argv"]]
    return {**rest, "argv": argv, "cwd": _without_place(event["cwd"]), "env": env}


def _without_place(text: str) -> str:
    return _PLACES.sub("HERE", text)


def make_stubs(folder: Path) -> Path:
    """Write the stubs; return their folder."""
    stubs = folder / "stubs"
    stubs.mkdir()
    for name in (*STUBS, "srun", "torchrun", "scontrol"):
        (stubs / name).write_text(_STUB.replace("@PYTHON@", sys.executable))
        (stubs / name).chmod(0o755)
    (stubs / "sleep").write_text("#!/bin/sh\n")
    (stubs / "sleep").chmod(0o755)
    return stubs


def environment(script: BatchScript, stubs: Path, place: Path, status: int) -> dict[str, str]:
    """Return the environment of the job, as Slurm would set it."""
    sizes = script.sizes
    nodelist = ",".join(f"node{number + 1}" for number in range(sizes.nodes))
    numbers = {
        "SLURM_NNODES": sizes.nodes,
        "SLURM_JOB_NUM_NODES": sizes.nodes,
        "SLURM_NTASKS": sizes.nodes * sizes.tasks,
        "SLURM_CPUS_ON_NODE": 8,
        "SLURM_JOB_ID": 7,
        "SLURM_JOBID": 7,
        "SLURM_CPUS_PER_TASK": 2,
        "SLURM_NODEID": 0,
        "SLURM_GPUS_ON_NODE": sizes.gpus,
        "SLURM_GPUS_PER_NODE": sizes.gpus,
        "STUB_NODES": sizes.nodes,
        "STUB_STATUS": status,
        "SLURM_ARRAY_TASK_ID": (script.options.array or ((0,), 0))[0][0],
        "SLURM_NTASKS_PER_NODE": sizes.tasks,
        "SLURM_PROCID": 0,
        "SLURM_LOCALID": 0,
    }
    return {
        **{name: str(number) for name, number in numbers.items()},
        "SLURM_JOB_NODELIST": nodelist,
        "SLURM_NODELIST": nodelist,
        "SLURMD_NODENAME": "node1",
        "SLURM_SUBMIT_DIR": str(place),
        "SLURM_JOB_NAME": "job",
        "SLURM_JOB_PARTITION": "gpu",
        "HOME": str(place),
        "USER": "me",
        "PATH": f"{stubs}:/usr/bin:/bin",
        "STUBS": str(stubs),
        "STUB_EVENTS": str(place / "events.jsonl"),
        "LANG": "C.UTF-8",
    }


@dataclass
class Runs:
    """The runs of one script, each in a folder of its own below the person's.

    Attributes:
        status: of every program that is named fails.py.
    """

    person: Hpcrun
    path: Path
    arguments: Sequence[str]
    status: int

    def __post_init__(self) -> None:
        self._stubs = make_stubs(self.person.folder)
        self.script = read_batch_script(self.path.name, self.path.read_text(), self.arguments)

    def by_sbatch(self, name: str = "by-sbatch") -> Seen:
        """Run the script as sbatch does."""
        copy = self._place(name) / _COPY / self.path.name
        copy.parent.mkdir(parents=True)
        shutil.copy(self.path, copy)
        return self._seen([*self.script.interpreter, str(copy), *self.arguments], name)

    def by_hpcrun(
        self, change: Callable[[str], str] = lambda text: text, name: str = "by-hpcrun"
    ) -> Seen:
        """Run the job that hpcrun writes, whose text ``change`` may spoil."""
        place = self._place(name)
        shutil.copy(self.path, place)
        words = ["submit", "--dry-run", "--profile", "a100", self.path.name, *self.arguments]
        made = self.person(*words, cwd=place, check=True)
        (place / "of-hpcrun.sh").write_text(change(made.stdout))
        (place / self.path.name).unlink()
        return self._seen(["bash", "of-hpcrun.sh"], name, **dict(self.script.secrets))

    def differences(self, by_sbatch: Seen, by_hpcrun: Seen) -> list[str]:
        """Return what two runs do not have in common, but for what two runs by sbatch do not have
        in common either.
        """
        different = self._differences(by_sbatch, by_hpcrun)
        noise = self._differences(by_sbatch, self._again) if different else []
        names = {line.partition(":: ")[0] for line in noise}
        return [line for line in different if line.partition(":: ")[0] not in names]

    @cached_property
    def _again(self) -> Seen:
        return self.by_sbatch("by-sbatch-too")

    def _differences(self, one: Seen, other: Seen) -> list[str]:
        remarks = self.script.remarks
        options = [
            f"--{name}="
            for name in ("output", "error")
            if any(f"srun --{name} is" in one for one in remarks)
        ]
        # their order is not always the same
        beside = re.search(r"&\s*$", self.script.text, re.MULTILINE) is not None
        seen = [each.comparable(tuple(options), in_order=not beside) for each in (one, other)]
        return list(_differences(*seen))

    def _place(self, name: str) -> Path:
        place = self.person.folder / name
        place.mkdir()
        # of a script that begins with #!/bin/bash -l
        (place / ".bash_profile").write_text('PATH="$STUBS:$PATH"\n')
        return place

    def _seen(self, command: list[str], name: str, **more: str) -> Seen:
        place = self.person.folder / name
        env = {**environment(self.script, self._stubs, place, self.status), **more}
        done = subprocess.run(
            command,
            cwd=place,
            env=env,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        events = place / "events.jsonl"
        lines = events.read_text().splitlines() if events.exists() else []
        return Seen(done.returncode, [json.loads(line) for line in lines])


def _differences(left: dict[str, Any], right: dict[str, Any]) -> Iterator[str]:
    if left["status"] != right["status"]:
        yield f"status:: {left['status']} / {right['status']}"
    mine, theirs = left["events"], right["events"]
    if [event["name"] for event in mine] != [event["name"] for event in theirs]:
        names = ["/".join(event["name"] for event in events) for events in (mine, theirs)]
        yield f"calls:: {names[0]} | {names[1]}"
        return
    for number, (event, twin) in enumerate(zip(mine, theirs, strict=True)):
        flat = [
            {**one, **{f"${name}": value for name, value in one["env"].items()}}
            for one in (event, twin)
        ]
        for key in sorted({*flat[0], *flat[1]} - {"env"}):
            if flat[0].get(key) != flat[1].get(key):
                yield f"{number} {event['name']} {key}:: {flat[0].get(key)} / {flat[1].get(key)}"
