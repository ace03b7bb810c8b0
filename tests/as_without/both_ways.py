"""Runs cases both ways, by sbatch and by ``hpcrun submit``, all at once; returns what was seen.

Each way of a case has a folder, ``CASE/by-sbatch`` and ``CASE/by-hpcrun``, with ``bin``, the
recorders that come first on PATH, ``records``, and ``work``, where the script is submitted. The
script has one more line, before its first command: it records what the script itself was given.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.as_without.cases import CALLER, COMMANDS, FILES, PROGRAMS, Case
from tests.harness import RESEARCHER, Hpcrun, wait_for

RECORDER = Path(__file__).parent / "record.py"
BY_SBATCH = "by-sbatch"
BY_HPCRUN = "by-hpcrun"
WAYS = (BY_SBATCH, BY_HPCRUN)
OVER = """
    BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED TIMEOUT
""".split()

Fields = dict[str, str]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one way of a case.

    Args:
        job: its id; empty if it was not submitted.
        message: what the submission printed.
        jobs: what Slurm shows of the job, or of each task of the array.
        steps: the ``name`` and the ``end`` of each step of the job.
        records: what each program and the script were given, and the signals they got.
        output: all lines that were printed.
        files: what the folder has at the end.
        partitions: those that the script requests, if there are several.
    """

    root: Path
    job: str
    message: str
    jobs: list[Fields] = field(default_factory=list)
    steps: list[Fields] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    output: Counter[str] = field(default_factory=Counter)
    files: list[str] = field(default_factory=list)
    partitions: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Way:
    """One way of a case on its way."""

    case: Case
    root: Path
    job: str = ""
    message: str = ""
    run: Path | None = None
    jobs: dict[str, Fields] = field(default_factory=dict)
    was_signalled: bool = False

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def is_over(self) -> bool:
        states = [fields["JobState"] for fields in self.jobs.values()]
        return not self.job or (bool(states) and set(states) <= set(OVER))


def run_both_ways(person: Hpcrun, cases: Mapping[str, Case]) -> dict[str, dict[str, Seen]]:
    """Run all cases both ways; return what was seen: case → way → that."""
    ways: dict[tuple[str, str], _Way] = {}
    recorder = person.program("recorder.py", RECORDER.read_text())
    for number, (name, case) in enumerate(cases.items()):
        for way in WAYS:
            root = person.folder / f"case-{number:02}" / way
            ways[name, way] = _Way(case, root)
            _prepare(recorder, case, root)
    started = list(ways.values())
    _give_to_researcher(person)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(partial(_submit, person), started))
    _wait(person, started)
    steps = _steps(person, started)
    seen: dict[str, dict[str, Seen]] = {name: {} for name in cases}
    for (name, way), one in ways.items():
        seen[name][way] = _seen(one, steps.get(one.job, []))
    return seen


# --- the folder ----------------------------------------------------------------------------------


def _prepare(recorder: Path, case: Case, root: Path) -> None:
    for folder in ("bin", "records", "work"):
        (root / folder).mkdir(parents=True)
    for name in PROGRAMS:
        (root / "bin" / name).symlink_to(recorder)
    for name, line in COMMANDS.items():
        (root / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (root / "bin" / name).chmod(0o755)
    behaviour = {
        "seconds": case.around.seconds,
        "fails": dict(case.around.fails),
        "waits": case.around.signal is not None,
        "endless": case.around.endless,
    }
    (root / "behaviour.json").write_text(json.dumps(behaviour))
    for name in case.programs:
        path = root / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(recorder)
    for name, text in {**FILES, **case.around.files}.items():
        path = root / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    script = root / "work" / case.path.name
    script.write_text(with_probe(case.text, root / "bin/probe"))
    script.chmod(0o755)


def with_probe(text: str, probe: Path) -> str:
    """Return a script that first records what it was given, and whose RANDOM is always the same."""
    lines = text.split("\n")
    is_command = (bool(line.strip()) and not line.lstrip().startswith("#") for line in lines)
    first = next(number for number, found in enumerate(is_command) if found)
    if "python" in lines[0]:
        line = f"__import__('subprocess').run([{str(probe)!r}, '', '', __file__])"
    else:
        line = f'{shlex.quote(str(probe))} "$-" "$(trap)" "$0" "$@"; RANDOM=37'
    return "\n".join([*lines[:first], line, *lines[first:]])


def _give_to_researcher(person: Hpcrun) -> None:
    if not person.become:
        return
    for path in person.folder.glob("case-*/**/*"):
        if not path.is_symlink():
            shutil.chown(path, RESEARCHER)
    for path in person.folder.glob("case-*"):
        shutil.chown(path, RESEARCHER)


# --- the submission ------------------------------------------------------------------------------


def _submit(person: Hpcrun, way: _Way) -> None:
    script = [way.case.path.name, *way.case.around.arguments]
    path = f"{way.root}/bin:{person.environ['PATH']}"
    env = {**CALLER, "PATH": path, "OLDPWD": str(way.root), **way.case.around.variables}
    if way.root.name == BY_SBATCH:
        log = f"{way.root}/log-%A_%a"
        words = ("sbatch", "--parsable", f"--output={log}", f"--error={log}", *script)
        done = person.run(*words, env=env, cwd=way.work, check=False)
        way.job = done.stdout.strip()
    else:
        options = ("--json", *way.case.options)
        done = person("submit", *options, *script, env=env, cwd=way.work)
        if done.returncode == 0:
            way.run = Path(json.loads(done.stdout)["folder"])
            way.job = str(json.loads((way.run / "run.json").read_text())["job_id"])
    way.message = done.stdout + done.stderr


def _wait(person: Hpcrun, ways: Sequence[_Way]) -> None:
    """Wait until all jobs are over, with one question to Slurm each second."""

    def all_are_over() -> bool:
        jobs = _jobs(person)
        for way in ways:
            way.jobs.update({one["JobId"]: one for one in jobs if way.job in _ids(one)})
            _send_signal(person, way)
        return all(way.is_over for way in ways)

    wait_for(all_are_over, 240, "the jobs of all cases to end")


def _jobs(person: Hpcrun) -> list[Fields]:
    shown = person.run("scontrol", "show", "job", "--oneliner").stdout
    jobs = []
    for line in shown.splitlines():
        words = re.findall(r"(?:^| )([A-Z][\w/:]*)=(.*?)(?= [A-Z][\w/:]*=|$)", line)
        if words:
            jobs.append({name: value.strip() for name, value in words})
    return jobs


def _ids(fields: Fields) -> tuple[str, str]:
    return fields["JobId"], fields.get("ArrayJobId", "")


def _send_signal(person: Hpcrun, way: _Way) -> None:
    """Send what the case sends, when its programs work."""
    options = way.case.around.signal
    if options is None or way.was_signalled or not way.job:
        return
    records = [path for path in (way.root / "records").iterdir() if _is_at_work(path)]
    if records:
        way.was_signalled = True
        person.run("scancel", *options, way.job)
        (way.root / "signalled").touch()


def _is_at_work(record: Path) -> bool:
    text = record.read_text()
    return text.endswith("\n") and json.loads(text.splitlines()[0])["kind"] == "program"


def _steps(person: Hpcrun, ways: Sequence[_Way]) -> dict[str, list[Fields]]:
    """Return what is accounted of the steps of all jobs: job's id → lines."""
    jobs = ",".join(way.job for way in ways if way.job)
    form = "--format=JobID,JobName%40,State%30,ExitCode"
    steps: dict[str, list[Fields]] = {}

    def all_are_accounted() -> bool:
        shown = person.run("sacct", "--noheader", "--parsable2", "--jobs", jobs, form).stdout
        steps.clear()
        for line in shown.splitlines():
            step, name, state, status = line.split("|")
            job, _, number = step.partition(".")
            if number:
                of_job = steps.setdefault(job.partition("_")[0], [])
                of_job.append({"name": name, "end": f"{state} {status}"})
        return not re.search(r"\|(RUNNING|PENDING|COMPLETING)\|", shown)

    wait_for(all_are_accounted, 60, "the steps of all cases to be accounted")
    return steps


# --- what was seen -------------------------------------------------------------------------------


def _seen(way: _Way, steps: list[Fields]) -> Seen:
    if not way.job:
        return Seen(way.root, "", way.message)
    files = [path for path in way.work.rglob("*") if path.is_file()]
    return Seen(
        way.root,
        way.job,
        way.message,
        jobs=sorted(way.jobs.values(), key=_task_and_id),
        steps=steps,
        records=[_record(path) for path in sorted((way.root / "records").iterdir())],
        output=Counter(_lines(way)),
        files=sorted(str(path.relative_to(way.work)) for path in files),
        partitions=way.case.partitions,
    )


def _task_and_id(fields: Fields) -> tuple[str, int]:
    return fields.get("ArrayTaskId", ""), int(fields["JobId"])


def _record(path: Path) -> dict[str, Any]:
    first, *others = path.read_text().splitlines()
    return {**json.loads(first), "received": [json.loads(line)["signal"] for line in others]}


def _lines(way: _Way) -> Iterator[str]:
    logs = list(way.root.glob("log-*"))
    if way.run is not None:
        logs = [way.run / "batch.log", *way.run.glob("batch/*")]
        logs += way.run.glob("elements/*/attempts/*/rank-*.out")
        logs += way.run.glob("elements/*/attempts/*/rank-*.err")
    for log in logs:
        if log.is_file():
            yield from log.read_text(errors="replace").splitlines()
