"""Slurm's commands and the programs of batch scripts, as stubs that write down what they get.

A stub is a file with the name of its program that calls ``main``. It has its own list of options,
so that a mistake of hpcrun's reader shows. sbatch writes down the job; srun and torchrun run what
is behind their options, one task after the other.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
from io import TextIOWrapper

# getopt, subprocess and contextlib, which take longer than all else that a stub does, are imported
# where they are needed: most stubs only write down what they get

NAMES = (
    "sbatch srun torchrun python python3 accelerate deepspeed mpirun mpiexec horovodrun conda "
    "mamba pip pip3 "
    "module ml nvidia-smi rocm-smi ray singularity apptainer shifter podman docker enroot wandb "
    "git wget curl "
    "ssh pdsh clush rsync uv poetry composer tune llamafactory-cli axolotl nsys numactl ip "
    "ifconfig lscpu nproc "
    "free df dmesg ibstat make huggingface-cli probe scontrol squeue sinfo sacct sacctmgr scancel "
    "sstat sprio "
    "sleep"
).split()
QUIET = frozenset("squeue sinfo sacct sacctmgr scancel sstat sprio sleep".split())
_SBATCH = (
    "a:A:bB:c:C:d:D:e:F:G:hHi:IJ:kL:m:M:n:N:o:Op:q:QsS:t:uvVw:Wx:",
    (
        "account= array= begin= chdir= clusters= comment= constraint= cpus-per-gpu= "
        "cpus-per-task= "
        "dependency= distribution= error= exclude= exclusive export= export-file= get-user-env "
        "gpus= "
        "gpus-per-node= gpus-per-task= gres= hint= hold input= job-name= kill-on-invalid-dep= "
        "licenses= "
        "mail-type= mail-user= mem= mem-per-cpu= mem-per-gpu= mincpus= nice no-kill no-requeue "
        "nodelist= nodes= "
        "ntasks= ntasks-per-gpu= ntasks-per-node= open-mode= output= oversubscribe parsable "
        "partition= priority= "
        "qos= quiet requeue reservation= segment= signal= tasks-per-node= threads-per-core= time= "
        "time-min= tmp= "
        "verbose wait wckey="
    ).split(),
)
_SRUN = (
    "+A:B:c:C:d:D:e:Eg:G:hHi:IJ:kKlL:m:M:n:N:o:Op:qQr:sS:t:T:uU:vVw:W:x:X",
    (
        "bcast chdir= container-image= cpu-bind= cpus-per-task= distribution= error= exact "
        "exclusive export= "
        "gpu-bind= gpus= gpus-per-node= gpus-per-task= gres= immediate input= job-name= jobid= "
        "kill-on-bad-exit "
        "label mem= mem-per-cpu= mpi= network= no-kill nodelist= nodes= ntasks= ntasks-per-node= "
        "output= overlap "
        "overcommit partition= time= unbuffered verbose wait="
    ).split(),
)
_TORCHRUN_FLAGS = frozenset(("standalone", "no-python", "module", "m", "use-env", "run-path"))
_SHORT = dict(
    zip(
        "a A c C d D e G i J N n o p q t w x H k Q v W K l u O s".split(),
        (
            "array account cpus-per-task constraint dependency chdir error gpus input job-name "
            "nodes ntasks output "
            "partition qos time nodelist exclude hold no-kill quiet verbose wait kill-on-bad-exit "
            "label unbuffered "
            "overcommit oversubscribe"
        ).split(),
        strict=True,
    )
)
_OPTIONAL = ("exclusive", "get-user-env", "nice", "no-kill", "parsable", "kill-on-bad-exit")
"""Options whose value stands behind ``=`` or is left out."""
_OF_ENV = {
    "SBATCH_QOS": "qos",
    "SBATCH_PARTITION": "partition",
    "SBATCH_TIMELIMIT": "time",
    "SLURM_HINT": "hint",
}
_LIMITS = (
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_CORE,
    resource.RLIMIT_STACK,
    resource.RLIMIT_MEMLOCK,
)


def main(root: str) -> None:
    """Be the stub of this name; its records go to a folder."""
    Stub(root, os.path.basename(sys.argv[0]), sys.argv[1:]).run()


def real_environment(process: str = "self") -> dict[str, str]:
    """Return the environment that a process was started with: Python itself changes its own."""
    with open(f"/proc/{process}/environ", "rb") as file:
        items = os.fsdecode(file.read()).split("\0")
    return dict(item.split("=", 1) for item in items if "=" in item)


class Stub:
    """One call of a stub."""

    def __init__(self, root: str, name: str, words: list[str]) -> None:
        self._root = root
        self._name = name
        self._words = words
        self._env = real_environment()

    def run(self) -> None:
        """Do what the program does, as far as scripts see it."""
        name = self._name
        words = self._words
        if name.startswith("python"):
            if any(word.endswith("torchrun_rank.py") for word in words[:3]):
                # what starts the program of a rank with this Python
                os.execve(sys.executable, [sys.argv[0], *words], self._env)
            modules = [word for word in words[:3] if word.startswith("torch.distributed.")]
            if modules:
                self._torchrun(words.index(modules[0]) + 1)
        if name == "sbatch":
            self._sbatch()
        elif name == "srun":
            self._srun()
        elif name == "torchrun":
            self._torchrun(0)
        elif name == "uv":
            self._note(words)
            python = [f"{self._root}/stubs/python"] if words[1].endswith(".py") else []
            sys.exit(_run([*python, *words[1:]], self._env))
        elif name == "scontrol":
            is_list = words[:2] == ["show", "hostnames"]
            print("\n".join(nodes_of(self._env)) if is_list else JOB)
        elif name not in QUIET and not (name.endswith("-smi") and "HPCRUN_NODE" in self._env):
            self._program()

    def _program(self) -> None:
        text = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
        self._note(self._words, stdin_text=text)
        task = self._env.get("SLURM_PROCID", "-") + "/" + self._env.get("RANK", "-")
        print(f"{self._name} {task} {' '.join(self._words)}", flush=True)
        print(f"{self._name} on stderr", file=sys.stderr, flush=True)
        sys.exit(_status_of(self._words))

    def _note(self, words: list[str], **more: object) -> None:
        with open("/proc/self/status") as file:
            ignored = re.search(r"SigIgn:\s*(\w+)", file.read())
        umask = os.umask(0)
        os.umask(umask)
        record = {
            "name": self._name,
            "argv": words,
            "folder": os.getcwd(),
            "env": self._env,
            "umask": umask,
            "nice": os.nice(0),
            "limits": [resource.getrlimit(limit)[0] for limit in _LIMITS],  # srun passes these on
            # Python ignores SIGPIPE and SIGXFSZ itself, and glibc its own two
            "ignored": int(ignored[1], 16) & 0x7FFFFFFF & ~0x1001000 if ignored else 0,
            "stdin": _kind_of(0),
            **more,
        }
        line = json.dumps(record, ensure_ascii=True) + "\n"
        number = os.open(f"{self._root}/events", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(number, line.encode())

    def _sbatch(self) -> None:
        options, rest = _read(self._words, *_SBATCH)
        with open(rest[0], errors="surrogateescape") as file:
            text = file.read()
        of_env = {_OF_ENV[name]: self._env[name] for name in _OF_ENV if name in self._env}
        umask = os.umask(0)
        os.umask(umask)
        job = {
            "options": {
                "job-name": os.path.basename(rest[0]),
                **directives(text),
                **of_env,
                **options,
            },
            "arguments": rest[1:],
            "text": text,
            "env": self._env,
            "folder": os.getcwd(),
            "umask": umask,
        }
        with open(f"{self._root}/job.json", "w") as file:
            json.dump(job, file)
        print("Submitted batch job 7")

    def _srun(self) -> None:
        from contextlib import ExitStack

        options, command = _read(self._words, *_SRUN)
        self._note(self._words[: len(self._words) - len(command)])
        nodes = int(options.get("nodes") or self._env.get("SLURM_NNODES", "1"))
        each = options.get("ntasks-per-node") or self._env.get("SLURM_NTASKS_PER_NODE")
        tasks = int(options.get("ntasks") or 0)
        if not tasks:
            tasks = nodes * int(each) if each else int(self._env.get("SLURM_NTASKS") or nodes)
        nodes = min(nodes, tasks)
        if "chdir" in options:
            os.chdir(options["chdir"])
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)  # no signal is ignored in a task
        statuses = []
        job = self._env.get("SLURM_JOB_ID", "")
        out, err = (options.get(name, "").replace("%j", job) for name in ("output", "error"))
        for task in range(tasks):
            env = {**self._env, **_task_variables(task, tasks, nodes)}
            env |= exported(options.get("export") or env.get("SLURM_EXPORT_ENV", ""))
            with ExitStack() as files:
                streams = [
                    files.enter_context(open(path.replace("%t", str(task)), "a")) if path else None
                    for path in (out, err or out)
                ]
                statuses.append(_run(command, env, *streams))
        sys.exit(max(statuses))

    def _torchrun(self, first: int) -> None:
        words = self._words[first:]
        options = {}
        at = 0
        while at < len(words) and words[at].startswith("-"):
            key, equals, value = words[at].lstrip("-").partition("=")
            key = key.replace("_", "-")
            if not equals and key not in _TORCHRUN_FLAGS:
                at += 1
                value = words[at]
            options[key] = value
            at += 1
        # hpcrun puts -m behind its wrapper; the words of the program show it, too
        self._note([word for word in self._words[: first + at] if word not in ("-m", "--module")])
        env = dict(self._env)
        if "LC_CTYPE" in os.environ:
            env["LC_CTYPE"] = os.environ["LC_CTYPE"]  # by the Python of torchrun
        each = options.get("nproc-per-node", "1")
        number = int(each) if each.isdigit() else 1
        program = words[at:]
        if "no-python" not in options:
            module = ["-m"] if options.keys() & {"m", "module"} else []
            program = [f"{self._root}/stubs/python", "-u", *module, *program]
        status = 0
        node = int(self._env.get("SLURM_NODEID", "0"))
        for rank in range(number):
            ranks = {
                "RANK": str(node * number + rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(number * len(nodes_of(self._env))),
                "LOCAL_WORLD_SIZE": str(number),
                "GROUP_RANK": str(node),
                "MASTER_ADDR": "m",
                "MASTER_PORT": "1",
            }
            status = _run(program, {**env, **ranks}) or status
        sys.exit(1 if status else 0)


JOB = "JobId=7 JobState=RUNNING Reason=None Restarts=0 BatchHost=node1 NodeList=node1"


def directives(text: str) -> dict[str, str]:
    """Return the options in the #SBATCH lines of a script, as sbatch reads them."""
    words: list[str] = []
    for line in text.split("\n"):
        if line.startswith("#SBATCH"):
            words += _words(line.removeprefix("#SBATCH"))
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return _read(words, *_SBATCH)[0]


def _words(line: str) -> list[str]:
    """Divide an #SBATCH line as sbatch does.

    A backslash is one in quotes, too, and a word that is empty ends the line.
    """
    words: list[str] = []
    word = None
    quote = ""
    rest = iter(line)
    for letter in rest:
        if letter == "\\":
            word = (word or "") + next(rest, "")
        elif quote:
            if letter == quote:
                quote = ""
            else:
                word = (word or "") + letter
        elif letter in "\"'":
            quote = letter
            word = word or ""
        elif letter == "#":
            break
        elif not letter.isspace():
            word = (word or "") + letter
        elif word == "":
            return words
        elif word is not None:
            words.append(word)
            word = None
    return [*words, word] if word else words


def _read(words: list[str], short: str, names: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options by their long names, and the words behind them."""
    import getopt

    with_value = "-with-value"
    plain: list[str] = []
    for at, word in enumerate(words):
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and equals and name in _OPTIONAL:
            plain.append(f"--{name}{with_value}={value}")
        elif not word.startswith("-") and (not plain or _is_complete(plain, short, names)):
            plain += words[at:]
            break
        else:
            plain.append(word)
    more = [f"{name}{with_value}=" for name in _OPTIONAL]
    pairs, rest = getopt.getopt(plain, short.lstrip("+"), [*names, *more])
    options: dict[str, str] = {}
    for key, value in pairs:
        name = key.lstrip("-").removesuffix(with_value)
        if len(key) == 2:
            name = _SHORT.get(name, name)
        is_more = name == "mail-type" and name in options
        options[name] = f"{options[name]},{value}" if is_more else value
    return options, rest


def _is_complete(words: list[str], short: str, names: list[str]) -> bool:
    """Return whether the last of these options has its value."""
    import getopt

    try:
        getopt.getopt(words[-1:], short.lstrip("+"), names)
    except getopt.GetoptError:
        return False
    return True


def exported(items: str) -> dict[str, str]:
    """Return the variables that ``--export`` sets."""
    pairs = [item.partition("=") for item in items.split(",")]
    return {name: value for name, equals, value in pairs if equals}


def nodes_of(env: dict[str, str]) -> list[str]:
    """Return the names of a job's nodes."""
    return [f"node{number + 1}" for number in range(int(env.get("SLURM_NNODES", "1")))]


def _task_variables(task: int, tasks: int, nodes: int) -> dict[str, str]:
    node = task * nodes // tasks
    return {
        "SLURM_PROCID": str(task),
        "SLURM_LOCALID": str(task - -(-node * tasks // nodes)),
        "SLURM_NODEID": str(node),
        "SLURMD_NODENAME": f"node{node + 1}",
        "SLURM_NTASKS": str(tasks),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(tasks),
    }


def _run(
    command: list[str],
    env: dict[str, str],
    stdout: TextIOWrapper | None = None,
    stderr: TextIOWrapper | None = None,
) -> int:
    import subprocess

    try:
        status = subprocess.run(command, env=env, stdout=stdout, stderr=stderr).returncode
    except OSError as error:
        return 127 if isinstance(error, FileNotFoundError) else 126
    return status if status >= 0 else 128 - status


def _status_of(words: list[str]) -> int:
    """Return the number behind ``--exit``."""
    if any(word.endswith("fails.py") for word in words):
        return 5
    return int(words[words.index("--exit") + 1]) if "--exit" in words else 0


def _kind_of(number: int) -> str:
    try:
        path = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return "closed"
    if path.startswith(("pipe:", "socket:")):
        return "pipe"
    return re.sub(r"sh-thd\.\w+", "heredoc", path)
