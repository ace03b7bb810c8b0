"""A batch script by sbatch and by hpcrun submit, on a machine of stubs: what differs?

Both ways start in the same folder with the same environment, and end in the same stub of sbatch. It
writes the job down, and ``Machine`` runs it as Slurm would: with Slurm's variables, in the job's
folder, as a copy in a spool.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import slurm_stub
from tests.harness import Hpcrun

NAME = "train.sbatch"
_STUB = """#!{python} -IS
import sys
sys.path.append({tests!r})
import slurm_stub
slurm_stub.main({root!r})
"""
_WORK = {
    "train.py": "#!/usr/bin/env python\n",
    "my train.py": "",
    "pkg/train.py": "",
    "run.sh": '#!/bin/bash\nexec python train.py "$@"\n',
    "env.sh": "export FROM_ENV_SH=1\nfrom_env_sh() { echo from_env_sh; }\n",
    "venv/bin/activate": 'export OF_VENV=1\nPATH="$PWD/venv/bin:$PATH"\n',
    "sub/keep": "",
    "a b/keep": "",
    "input.txt": "one\ntwo",
}
_HOME = {".bash_profile": 'PATH="{root}/stubs:$PATH"\nexport OF_PROFILE=1\n'}
_ADDED = re.compile(
    r"TORCH_(FR|NCCL)_\w+|WANDB_TAGS|WANDB_RUN_GROUP|MLFLOW_RUN_CONTEXT|SPT_NOENV|SLURM_EXIT_ERROR"
)
"""The variables that the ranks get besides."""
_LAUNCHED = re.compile(r"train|torch\.|evaluate|fails")
_TRAP = re.compile(r"trap -- '[^\n]*HPCRUN_SCRIPT_ERRORS[^\n]* ERR\n?")
_TRACED = re.compile(r"'?SPOOL/hpcrun_launch'? |(?<= ):::? ")
_PLAIN = (
    (_TRAP, ""),
    (re.compile(r"\S*/spool/slurm_script"), "SCRIPT"),
    (re.compile(r"\S*/attempts/0/[\w-]+\.sbatch"), "SCRIPT"),
    (re.compile(r"/[^\s:=]*/spool\b|/[^\s:=]*/elements/\d+/attempts/0"), "SPOOL"),
    (re.compile(r"^hpcrun: cannot start (?:.*/)?(.*)"), r"\1"),
    (re.compile(r"^SCRIPT: line \d+: (.*): command not found"), r"\1: No such file or directory"),
    (re.compile(r"^SCRIPT: line \d+: (?:.*/)?(.*: (No such file|Permission))"), r"\1"),
    (re.compile(r"^(real|user|sys)\s.*|.*(elapsed|pagefaults) .*"), "TIME"),
    (re.compile(r"(?<=[= ])\d{3,}$"), "PID"),
)
"""Texts that two runs by sbatch do not have in common either, and where hpcrun says something
itself.
"""
_SAID = (
    (r"srun --error is left out", r"file .* on stderr'"),
    (r"srun --(\S+) is left out", r"srun argv|file [^:]*srun"),
    (r"line \d+: --(\S+) is left out", "option {}"),
)
"""What hpcrun says, and the difference that it thereby announces."""
_OF_HPCRUN = ("output", "open-mode", "chdir", "export")
"""Options of sbatch that hpcrun sets itself; the job's folder and environment are compared."""


@dataclass(frozen=True, slots=True)
class Case:
    """A script, its arguments, and the variables of the shell that submits it."""

    text: str
    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    name: str = NAME


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of a script.

    Attributes:
        messages: what the command that submitted it printed.
        status: the exit status of the job, None if there is no job.
        options: what sbatch was told.
        folder: where the job started.
        events: the calls of the stubs in their order.
        is_ordered: nothing runs beside the script.
        output: the lines of the job's log.
        of_ranks: the lines of the logs of the ranks.
        files: path → mode and content, of what the work folder holds at the end.
    """

    messages: str
    status: int | None = None
    options: dict[str, str] = field(default_factory=dict)
    folder: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    is_ordered: bool = True
    output: list[str] = field(default_factory=list)
    of_ranks: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)


class Machine:
    """A machine of stubs, on which a person submits."""

    def __init__(self, person: Hpcrun) -> None:
        self._person = person
        self._root = person.folder
        self._stubs = self._root / "stubs"
        self._stubs.mkdir()
        # a line of #! cannot have a blank, which the path of the tests' own Python may have
        python = self._root / "python"
        python.symlink_to(Path(sys.executable).resolve())
        stub = _STUB.format(python=python, tests=str(Path(__file__).parent), root=str(self._root))
        for name in slurm_stub.NAMES:
            person.program(f"stubs/{name}", stub)
        for name, text in _HOME.items():
            (person.home / name).write_text(text.format(root=self._root))

    def by_sbatch(self, case: Case) -> Seen:
        """Submit a script with sbatch, and run the job."""
        self._prepare(case)
        done = self._person.run(
            "sbatch", case.name, *case.arguments, env=self._env(case), cwd=self._work, check=False
        )
        return self._seen(done.stdout + done.stderr)

    def by_hpcrun(
        self,
        case: Case,
        change: Callable[[str], str] = lambda text: text,
        *,
        by_server: bool = True,
    ) -> Seen:
        """Submit a script with hpcrun, and run the job, whose script ``change`` may spoil."""
        self._prepare(case)
        words = ("submit", "-P", "a100", case.name, *case.arguments)
        env = self._env(case)
        if by_server:
            done = self._person(*words, env=env, cwd=self._work)
        else:
            argv = self._person.argv(*words)
            done = self._person.run(*argv, env=env, cwd=self._work, check=False)
        return self._seen(done.stdout + done.stderr, change)

    @property
    def _work(self) -> Path:
        return self._root / "work"

    def _env(self, case: Case) -> dict[str, str | None]:
        return {"PATH": f"{self._stubs}:/usr/bin:/bin", "SHLVL": "1", **case.env}

    def _prepare(self, case: Case) -> None:
        # hpcrun's programs stay, which are compiled
        of_runs = [path for path in self._person.runs.iterdir() if path.name != ".programs"]
        names = ("work", "spool", "job.json", "events", "log")
        for path in (*of_runs, *(self._root / name for name in names)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for name, text in {**_WORK, case.name: case.text}.items():
            path = self._work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, errors="surrogateescape")
            path.chmod(0o755)

    def _seen(self, messages: str, change: Callable[[str], str] = lambda text: text) -> Seen:
        job_file = self._root / "job.json"
        if not job_file.exists():
            return Seen(messages)
        job = json.loads(job_file.read_text())
        folder = Path(job["folder"], job["options"].get("chdir", ""))
        status = self._run({**job, "text": change(job["text"])}, folder)
        events = self._root / "events"
        calls = events.read_text().splitlines() if events.exists() else []
        files = {}
        for path in sorted(self._work.rglob("*")):
            lines = self._lines([path]) if path.is_file() else []
            # set -x into a file of the person's own shows the call of hpcrun_launch
            content = sorted(re.sub(_TRACED, "", line) for line in lines)
            name = str(path.relative_to(self._work))
            files[name] = f"{path.stat().st_mode:o} {' '.join(content)}"
        return Seen(
            messages=messages,
            status=status,
            options=job["options"],
            folder=str(folder),
            events=[_plain_event(json.loads(call)) for call in calls],
            is_ordered=not re.search(r"[^&>]&(?![&>\d])", job["text"]),
            output=list(self._lines([self._log(job)])),
            of_ranks=list(
                self._lines(self._person.runs.glob("*/elements/*/attempts/*/rank-*.???"))
            ),
            files=files,
        )

    def _log(self, job: dict[str, Any]) -> Path:
        path = str(job["options"].get("output", ""))
        is_of_hpcrun = path.startswith(str(self._person.runs))
        return Path(path.replace("%a", "0")) if is_of_hpcrun else self._root / "log"

    def _run(self, job: dict[str, Any], folder: Path) -> int:
        spool = self._root / "spool"
        spool.mkdir()
        script = spool / "slurm_script"
        script.write_text(job["text"], errors="surrogateescape")
        script.chmod(0o700)
        with open(self._log(job), "a") as log:
            done = subprocess.run(
                [script, *job["arguments"]],
                cwd=folder,
                env=_job_environment(job),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                umask=job["umask"],
                start_new_session=True,
                preexec_fn=_as_slurm_starts_it,
                timeout=20,
                check=False,
            )
        return done.returncode

    @staticmethod
    def _lines(logs: Iterable[Path]) -> Iterator[str]:
        for path in logs:
            for line in path.read_text(errors="replace").splitlines():
                text = _plain(line.rstrip())
                if not text.startswith("hpcrun: "):
                    yield text


def _as_slurm_starts_it() -> None:
    """Ignore no signal: these tests may run under nohup, and slurmstepd does not."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)


def _plain_event(event: dict[str, Any]) -> dict[str, Any]:
    return {
        **event,
        "argv": [_plain(word) for word in event["argv"]],
        "folder": _plain(event["folder"]),
    }


def _plain(text: str) -> str:
    for form, plain in _PLAIN:
        text = form.sub(plain, text)
    return text


def _job_environment(job: dict[str, Any]) -> dict[str, str]:
    """Return the environment in which Slurm starts a job."""
    options = job["options"]
    env = dict(job["env"])
    export = options.get("export", "ALL")
    kept = {*export.split(","), "PATH", "HOME", "SHLVL"}
    if "ALL" not in kept:
        env = {
            name: value for name, value in env.items() if name in kept or name.startswith("SLURM_")
        }
    if export != "ALL":
        env.setdefault("SLURM_EXPORT_ENV", export)
    env |= slurm_stub.exported(export)
    nodes = options.get("nodes", "1").partition("-")[0]
    env |= {
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_CPUS_ON_NODE": "8",
        "SLURM_JOB_ID": "7",
        "SLURM_JOBID": "7",
        "SLURM_JOB_NAME": options["job-name"],
        "SLURM_JOB_PARTITION": options.get("partition", "gpu"),
        "SLURM_SUBMIT_DIR": job["folder"],
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURMD_NODENAME": "node1",
        "ENVIRONMENT": "BATCH",
    }
    nodelist = ",".join(slurm_stub.nodes_of(env))
    env |= {"SLURM_JOB_NODELIST": nodelist, "SLURM_NODELIST": nodelist}
    for option, names in _VARIABLES.items():
        if option in options:
            env |= dict.fromkeys(names.split(), options[option])
    if options.get("array"):
        first = re.split(r"\D", options["array"])[0]
        env |= {"SLURM_ARRAY_TASK_ID": first, "SLURM_ARRAY_JOB_ID": "7"}
    return env


_VARIABLES = {
    "ntasks": "SLURM_NTASKS SLURM_NPROCS",
    "ntasks-per-node": "SLURM_NTASKS_PER_NODE",
    "tasks-per-node": "SLURM_NTASKS_PER_NODE",
    "cpus-per-task": "SLURM_CPUS_PER_TASK",
    "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "gpus": "SLURM_GPUS",
    "mem": "SLURM_MEM_PER_NODE",
    "open-mode": "SLURM_OPEN_MODE",
}
"""Variables of a job that its options set."""


def differences(by_sbatch: Seen, by_hpcrun: Seen) -> list[str]:
    """Return what differs between two ways, but for what hpcrun says itself."""
    said = []
    for note, form in _SAID:
        said += [form.format(*match.groups()) for match in re.finditer(note, by_hpcrun.messages)]
    if by_sbatch.status is None or by_hpcrun.status is None:
        return []  # sbatch, or hpcrun with a message, takes no such script
    lines = _differences(by_sbatch, by_hpcrun)
    return [line for line in lines if not any(re.match(form, line) for form in said)]


def _differences(one: Seen, other: Seen) -> Iterator[str]:
    yield from _changed("status", one.status, other.status)
    yield from _changed("folder", one.folder, other.folder)
    for name in sorted({*one.options, *other.options} - {*_OF_HPCRUN}):
        yield from _changed(f"option {name}", one.options.get(name), other.options.get(name))
    for name in sorted({*one.files, *other.files}):
        yield from _changed(f"file {name}", one.files.get(name), other.files.get(name))
    lines = Counter(one.output)
    for line in lines - Counter(other.output + other.of_ranks):
        # bash complains twice about exec
        if line not in other.output or not line.endswith("No such file or directory"):
            yield f"output only by sbatch: {line}"
    for line in Counter(other.output) - lines:
        yield f"output only by hpcrun: {line}"
    events, twins = list(one.events), list(other.events)
    if not one.is_ordered:
        for calls in (events, twins):
            calls.sort(
                key=lambda event: (event["name"], event["argv"], event["env"].get("RANK", ""))
            )
    names = [[event["name"] for event in calls] for calls in (events, twins)]
    yield from _changed("calls", *names)
    if names[0] == names[1]:
        equipped = [twin for twin in twins if "SPT_NOENV" in twin["env"]]
        is_preparation = not any(map(_is_launched, equipped))
        for event, twin in zip(events, twins, strict=True):
            # a script whose training is hidden in eval has only its preparation to take over
            is_launched = _is_launched(event) or (is_preparation and twin in equipped)
            yield from _of_event(event, twin, is_launched=is_launched)


def _is_launched(event: dict[str, Any]) -> bool:
    return event["name"] in ("srun", "torchrun") or any(map(_LAUNCHED.search, event["argv"]))


def _of_event(event: dict[str, Any], twin: dict[str, Any], *, is_launched: bool) -> Iterator[str]:
    name = event["name"]
    # Slurm signals the tasks, and not srun
    left_out = {"env", "ignored"} if name == "srun" else {"env"}
    for key in sorted({*event, *twin} - left_out):
        yield from _changed(f"{name} {key}", event.get(key), twin.get(key))
    env, other = event["env"], twin["env"]
    # with hpcrun's trap, bash forks for the last command of $(...), and counts one shell more
    for key in sorted({*env, *other} - {"_", "SHLVL", "pid"}):
        if key.startswith("HPCRUN_"):
            continue
        value = other.get(key)
        if is_launched and key not in env and _ADDED.fullmatch(key):
            continue
        if is_launched and key == "PYTHONPATH" and value:
            value = re.sub(r":?/[^:]*/programs/runtime$", "", value) or env.get(key)
        yield from _changed(f"{name} ${key}", _plain(env.get(key, "")), _plain(value or ""))


def _changed(what: str, one: object, other: object) -> Iterator[str]:
    if one != other:
        yield f"{what}: {one!r} / {other!r}"
