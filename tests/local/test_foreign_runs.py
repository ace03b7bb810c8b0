"""``--runs FOLDER``: another person's folder is shown, whatever is in it, and nothing else happens.

The commands run in this process, where an audit hook notes what they open, start and change.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dev.hostile.fuzz_folders import shown_by, surroundings
from dev.hostile.run_folders import CHAINED, PLAIN, SWEEP, make_runs
from hpcrun.cli.runs_option import READERS
from hpcrun.runs import store
from hpcrun.runs.record import Run, load_run
from hpcrun.runs.store import RunStore
from tests.harness import Completed, Hpcrun, folder_open_to_others
from tests.local.recorded import replace_fields

CANARY = "CANARY-ef19c1"
"""In every file outside of the folder: shown, it tells that a link was followed."""
ATTEMPT = "elements/0/attempts/0"
GOOD = "20260102-030409-good-0a1f"
COMMANDS = (
    ("status", "-a"),
    ("status", "-v", PLAIN, SWEEP, CHAINED),
    ("status", "-a", "-v", "--json"),
    ("logs", PLAIN, "--all-ranks"),
    ("logs", PLAIN, "--batch"),
    ("explain", PLAIN),
    ("explain", SWEEP),
    ("metrics", PLAIN),
    ("sweep", SWEEP),
    ("compare", PLAIN, CHAINED, "--all"),
    ("compare", PLAIN, CHAINED, "--code"),
    ("share", PLAIN, "--out", "-"),
    ("share", SWEEP, "--out", "-"),
)


@dataclass
class Watch:
    """What this process does, while it is watched."""

    outside: str = ""  # a folder that nobody may open
    is_on: bool = False
    seen: list[str] = field(default_factory=list)

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"):
            self.seen.append(f"{event} {args[:2]}")
        elif event in ("socket.connect", "socket.sendto", "os.system"):
            self.seen.append(f"{event} {args}")
        elif event.startswith(("open", "os.listdir", "os.scandir", "sqlite3.connect")):
            path = os.fspath(args[0]) if isinstance(args[0], str | os.PathLike) else ""
            if path.startswith((self.outside, "/home/me")):
                self.seen.append(f"{event} {path}")

    @contextmanager
    def on(self) -> Iterator[None]:
        self.seen.clear()
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False


WATCH = Watch()
sys.addaudithook(WATCH.hook)  # for the life of this process


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """A colleague's folder with a run that failed, a sweep, a chained run and a good run."""
    folder = tmp_path / "theirs"
    make_runs(folder)
    good = Run(GOOD, "good", "local", None, "there", 3000.0, "L5", "local", 1, 0, 1, None)
    RunStore(folder).create(good, "#!/bin/bash\n")
    outside = tmp_path / "outside"
    shutil.copytree(folder / PLAIN, outside / "run")
    for path in outside.rglob("*"):
        if path.is_file():
            path.write_text(path.read_text().replace("no such thing", CANARY).replace("me", CANARY))
    (outside / "key").write_text(f"{CANARY}\nloss=0.5 {CANARY}\n")
    (outside / "chain").mkdir()
    (outside / "chain/stopped").write_text(json.dumps({"reason": CANARY, "job_ids": ["4711"]}))
    (outside / "checkpoints").mkdir()
    WATCH.outside = str(outside)
    (tmp_path / "empty").mkdir()
    with surroundings(tmp_path), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path / "empty"))
        patch.setenv("WEBHOOK", "http://127.0.0.1:9/")
        yield folder


def tree(folder: Path) -> dict[str, tuple[int, ...]]:
    """Everything in a folder: mode, size, time and inode."""
    entries: dict[str, tuple[int, ...]] = {}
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        changed = (status.st_mtime_ns, status.st_ctime_ns)
        entries[str(path)] = (status.st_mode, status.st_size, status.st_ino, *changed)
    return entries


def link(runs: Path, name: str, to: str) -> None:
    """Put a link to a place outside in the place of a file or a folder."""
    path = runs / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(runs.parent / "outside" / to)


def links_at_code(runs: Path) -> None:
    link(runs, f"{PLAIN}/code", "checkpoints")
    (runs / CHAINED / "code").mkdir()
    link(runs, f"{CHAINED}/code/link", "key")
    link(runs, f"{PLAIN}/code.diff", "key")
    link(runs, f"{PLAIN}/script.sh", "key")
    link(runs, f"{PLAIN}/stdin.sbatch", "key")
    replace_fields(
        runs / PLAIN / "run.json",
        code={"files": 1, "bytes": 1, "root": "/", "commit": "a", "changes": "x"},
    )


def links_at_checkpoints(runs: Path) -> None:
    for run in (PLAIN, CHAINED):
        link(runs, f"{run}/elements/0/checkpoints", "checkpoints")
        replace_fields(
            runs / run / "run.json",
            checkpoints_of=GOOD,
            chain={"link": 1, "links": 2, "first": PLAIN},
        )
    replace_fields(runs / CHAINED / "status.json", state="CANCELLED", final=True)


def links_at_logs(runs: Path) -> None:
    for name in ("rank-0.out", "rank-1.err", "rank-0.metrics", "node-node1.use", "hosts", "flight"):
        link(runs, f"{PLAIN}/{ATTEMPT}/{name}", "key")
    link(runs, f"{PLAIN}/batch.log", "key")
    link(runs, f"{SWEEP}/batch", "run")
    link(runs, f"{PLAIN}/wandb-sync.log", "key")


def links_at_folders(runs: Path) -> None:
    link(runs, f"{PLAIN}/{ATTEMPT}", f"run/{ATTEMPT}")
    link(runs, f"{SWEEP}/elements", "run/elements")
    link(runs, CHAINED, "run")
    link(runs, "20260102-030410-linked-0a20", "run")
    for name in ("active", "jobs", "studies"):
        link(runs, name, "run")


def links_at_records(runs: Path) -> None:
    for name in ("run.json", "status.json", "supervisor.json", "submit.called", "messages"):
        link(runs, f"{PLAIN}/{name}", f"run/{name}")
    link(runs, f"{SWEEP}/elements.json", "run/status.json")
    link(runs, f"{SWEEP}/elements/1/attempts/0/exit", f"run/{ATTEMPT}/exit")


def fifos(runs: Path) -> None:
    for path in [path for path in (runs / PLAIN).rglob("*") if path.is_file()]:
        path.unlink()
        os.mkfifo(path)
    for name in (f"{SWEEP}/elements.json", f"{SWEEP}/status.json", f"{CHAINED}/run.json"):
        (runs / name).unlink(missing_ok=True)
        os.mkfifo(runs / name)
    for name in ("active", "jobs", "20260102-030410-fifo-0a20"):
        if (runs / name).is_dir():
            shutil.rmtree(runs / name)
        os.mkfifo(runs / name)


def wrong_types(runs: Path) -> None:
    wrong: list[Any] = [5, "x", [], {}, True, None, [[1]], {"a": {"b": 1}}]
    fields = list(json.loads((runs / PLAIN / "run.json").read_text()))
    for number, name in enumerate(fields):
        for place in range(2):
            copy = runs / f"20260103-{number:06d}-wrong-{place:04x}"
            shutil.copytree(runs / PLAIN, copy, symlinks=True)
            value = wrong[(number + place) % len(wrong)]
            replace_fields(copy / "run.json", run_id=copy.name)
            replace_fields(copy / "run.json", **{name: value})
    for number, value in enumerate(wrong):
        copy = runs / f"20260104-{number:06d}-wrong-0000"
        shutil.copytree(runs / PLAIN, copy, symlinks=True)
        request = dict.fromkeys(("args", "script", "module", "gpus", "name", "secrets"), value)
        names = ("shape", "directives", "batch", "srun", "command", "env", "added", "container")
        plan = dict.fromkeys(names, value)
        replace_fields(copy / "run.json", run_id=copy.name, request=request, plan=plan)
    for name in ("start", "exit", "rank-0.exit", "node-node1.start", "code", "idle"):
        (runs / PLAIN / ATTEMPT / name).write_text('{"status": [], "rank": {}, "node": 5}')


def wrong_plan(runs: Path) -> None:
    replace_fields(runs / PLAIN / "run.json", plan={"batch": 5, "env": True})
    replace_fields(runs / CHAINED / "run.json", plan={"command": ["a\0b"]})
    replace_fields(runs / SWEEP / "run.json", request={"script": "x", "setup": ["a\0b"]})


def many_arguments(runs: Path) -> None:
    args = [f"-o{number}" for number in range(50_000)]
    for run in (PLAIN, SWEEP):
        request = json.loads((runs / run / "run.json").read_text())["request"]
        replace_fields(runs / run / "run.json", request={**request, "args": args})


EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202egpj.exe\u2066\u200e\r\bx\nhpcrun: ok <script>"


def escapes(runs: Path) -> None:
    def evil(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: evil(item) for name, item in value.items()}
        if isinstance(value, list):
            return [evil(item) for item in value]
        return f"{value}{EVIL}" if isinstance(value, str) else value

    kept = ("run_id", "scheduler", "job_id", "state", "resubmitted_from", "after", "condition")
    for path in [path for path in runs.rglob("*") if path.is_file() and path.stat().st_size]:
        text = path.read_text("utf-8", "replace")
        try:
            record = json.loads(text)
        except ValueError:
            path.write_text(text.replace("epoch", f"{EVIL} epoch").replace("thing", EVIL))
            continue
        if not isinstance(record, dict):
            continue
        damaged = {}
        for name, value in record.items():
            damaged[name] = value if name in kept else evil(value)
        for plain in ("sweep", "python"):
            if isinstance(record.get("plan"), dict) and plain in record["plan"]:
                damaged["plan"][plain] = record["plan"][plain]
        path.write_text(json.dumps(damaged))


def job_of_another(runs: Path) -> None:
    for job_id in ("1", "4711_3", "--me", "L1"):
        folder = runs / CHAINED
        copy = runs / f"20260103-00000{len(job_id)}-job-0000"
        shutil.copytree(folder, copy, symlinks=True)
        replace_fields(copy / "run.json", run_id=copy.name, job_id=job_id)
    replace_fields(runs / PLAIN / "supervisor.json", pid=os.getpid(), state=None)


def huge_files(runs: Path) -> None:
    for run, element in ((PLAIN, 0), (SWEEP, 1)):
        attempt = runs / run / f"elements/{element}/attempts/0"
        for name in ("rank-0.out", "rank-0.err", "rank-0.metrics", "rank-1.err", "exit", "hosts"):
            with (attempt / name).open("wb") as file:
                file.truncate(1 << 40)
    for name in (f"{PLAIN}/status.json", f"{PLAIN}/batch.log", f"{CHAINED}/run.json"):
        with (runs / name).open("wb") as file:
            file.truncate(1 << 40)


def deep_json(runs: Path) -> None:
    for path in [path for path in (runs / PLAIN).rglob("*") if path.is_file()]:
        path.write_text('{"a":' * 100_000)
    (runs / SWEEP / "elements.json").write_text('{"0":' + "[" * 100_000)
    plan = json.loads('{"x":' * 30 + "1" + "}" * 30)
    replace_fields(runs / CHAINED / "run.json", plan=plan)


def late_message(runs: Path) -> None:
    """The job has ended, and its messages were not sent; its claim may be revoked."""
    shutil.rmtree(runs / PLAIN / "messages")
    (runs / PLAIN / "status.json").unlink(missing_ok=True)
    (runs / PLAIN / "submit.called").rename(runs / PLAIN / "submit.ready")
    notify = {"to": ["$WEBHOOK"], "events": ["finished", "failed"], "waiting_s": 1}
    record = json.loads((runs / PLAIN / "run.json").read_text())
    replace_fields(
        runs / PLAIN / "run.json", plan={**record["plan"], "notify": notify}, job_id=None
    )
    replace_fields(runs / CHAINED / "run.json", plan={"notify": notify}, job_id=None)
    (runs / CHAINED / "submit.ready").write_text('{"place": "x", "pid": 1, "start_ticks": 1}')


def open_to_all(runs: Path) -> None:
    for path in (runs, *runs.rglob("*")):
        path.chmod(0o777)


def strange_names(runs: Path) -> None:
    for name in ("x\ny", "a\x1b[2Jb", "last", "20260102-030411-\u202egpj-0a21", "-v", "\udcff"):
        folder = runs / name
        shutil.copytree(runs / PLAIN, folder, symlinks=True)
    attempt = runs / PLAIN / ATTEMPT
    start = json.dumps({"node": f"n\n{EVIL}", "first_rank": 0, "ranks": 2})
    (attempt / f"node-n\n{EVIL.replace('/', '')}.start").write_text(start)
    (runs / SWEEP / "elements/1\n").mkdir()


FOLDERS: dict[str, Callable[[Path], None]] = {
    each.__name__: each
    for each in (
        links_at_code,
        links_at_checkpoints,
        links_at_logs,
        links_at_folders,
        links_at_records,
        fifos,
        wrong_types,
        wrong_plan,
        many_arguments,
        escapes,
        job_of_another,
        huge_files,
        deep_json,
        late_message,
        open_to_all,
        strange_names,
    )
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_hostile_folder_is_shown_and_nothing_else_happens(
    name: str, runs: Path, subtests: pytest.Subtests
) -> None:
    FOLDERS[name](runs)
    before = tree(runs.parent)
    for command in COMMANDS:
        with subtests.test(command=command):
            with WATCH.on():
                shown = shown_by((*command, "--runs", str(runs)), tty=True)
            assert shown.problem is None
            assert CANARY not in shown.text
            assert WATCH.seen == []
            if command[:2] == ("status", "-a"):
                assert "good" in shown.text
    assert tree(runs.parent) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_colleague_reads_what_the_owner_has_made_readable(hpcrun: Hpcrun) -> None:
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    with folder_open_to_others() as place:
        runs = place / "runs"
        make_runs(runs)
        os.chmod(runs, 0o700)
        home = place / "home"
        home.mkdir()
        os.chown(home, 65534, 65534)

        def as_nobody(*words: str, **variables: str) -> Completed:
            env = {"HOME": str(home), "HPCRUN_SITE": str(place / "site"), **variables}
            return hpcrun.run(*nobody, *hpcrun.argv(*words), cwd=place, env=env, check=False)

        if as_nobody("--version").returncode != 0:
            pytest.skip("another user cannot run hpcrun here")
        refused = as_nobody("status", "--runs", "runs")
        assert refused.returncode == 4
        assert f"chmod -R g+rX {runs}" in refused.stderr
        for path in (runs, *runs.rglob("*")):
            os.chown(path, 65533, 65534, follow_symlinks=False)
        subprocess.run(["chmod", "-R", "g+rX", runs], check=True)
        (runs / SWEEP).chmod(0o700)
        before = tree(runs)
        shown = as_nobody("status", "-a", "--runs", "runs")
        assert shown.returncode == 0, shown.stderr
        assert "ValueError: no such thing" in shown.stdout
        assert f"run {SWEEP} is ignored: you may not read it" in shown.stderr
        page = as_nobody("share", PLAIN, "--runs", str(runs), "--out", "-", "--publish-unhidden")
        assert "ValueError: no such thing" in page.stdout
        own = as_nobody("status", HPCRUN_RUNS=str(runs))
        assert own.returncode == 4
        assert "belongs to another user (uid 65533)" in own.stderr
        assert tree(runs) == before


def test_other_commands_refuse_the_option(runs: Path, subtests: pytest.Subtests) -> None:
    before = tree(runs)
    for line in (
        "cancel good",
        "hold good",
        "release good",
        "shell good",
        "dev good",
        "resubmit good",
        "notify good",
        "open good",
        "clean --yes",
        "top",
        "history",
        "submit --gpus 0 train.py",
        "scale report",
        "nodes",
    ):
        with subtests.test(line=line):
            name, *words = line.split()
            if name == "scale":
                name, words = "scale report", []
            shown = shown_by((*name.split(), "--runs", str(runs), *words), tty=False)
            assert shown.text == (
                f"hpcrun: hpcrun {name} has no --runs: other runs are only read\n"
                f"hint: --runs FOLDER is for {', '.join(READERS)}\n"
            )
    assert tree(runs) == before


def test_what_would_reach_into_a_job_is_refused(runs: Path) -> None:
    for command in (("status", "--gpus"), ("explain", "--stacks"), ("explain", "--log", "x")):
        shown = shown_by((*command, "--runs", str(runs)), tty=False)
        assert "--runs" in shown.text
        assert "cannot be combined" in shown.text


def test_a_proposed_command_has_the_folder(runs: Path) -> None:
    shown = shown_by(("explain", PLAIN, "--runs", "theirs"), tty=False)
    assert "next  hpcrun logs --runs theirs L999999 --rank 1" in shown.text


def test_a_folder_that_is_not_there(runs: Path) -> None:
    shown = shown_by(("status", "--runs", "gone"), tty=False)
    assert f"hpcrun: --runs {runs.parent}/gone: No such file or directory" in shown.text


def test_a_run_elsewhere_is_named_and_not_followed(runs: Path) -> None:
    link(runs, CHAINED, "run")
    shown = shown_by(("status", "-a", "--runs", "theirs"), tty=False)
    assert f"run {CHAINED} is ignored: it is a link" in shown.text


def test_a_folder_that_disappears_while_it_is_read(
    runs: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    kept = runs.with_name("kept")
    shutil.copytree(runs, kept, symlinks=True)

    def load_once(path: Path) -> Run:
        run = load_run(path)
        shutil.rmtree(runs, ignore_errors=True)
        return run

    monkeypatch.setattr(store, "load_run", load_once)
    for command in COMMANDS:
        with subtests.test(command=command):
            shown = shown_by((*command, "--runs", str(runs)), tty=False)
            assert shown.problem is None
            assert not runs.exists()
        shutil.copytree(kept, runs, symlinks=True)
