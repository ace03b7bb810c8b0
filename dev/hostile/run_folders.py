"""Folders of runs as hpcrun leaves them, and the ways in which they can be damaged."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from hpcrun.features.scaling.studies import Study, StudyPoint, StudyStore
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import RunStore

_GIGABYTE = 1 << 30
PLAIN, SWEEP, CHAINED = (
    "20260102-030405-train-0a1b",
    "20260102-030406-sweep-0a1c",
    "20260102-030407-next-0a1d",
)
STUDY = "20260102-030408-study-0a1e"


# --- folders as runs leave them ------------------------------------------------------------------


def make_runs(root: Path) -> None:
    """Write a runs folder with a run of each kind."""
    store = RunStore(root)
    run = Run(
        PLAIN,
        "train",
        "local",
        None,
        os.uname().nodename,
        1000.0,
        "L999999",
        "local",
        1,
        0,
        2,
        3600,
        cwd=str(root.parent),
        request={"script": "train.py", "args": ["a"], "env": [["A", "b"]]},
        plan={
            "python": {"prefix": None, "variable": "VIRTUAL_ENV"},
            "requeue": {"times": 1},
            "notify": {"to": ["$WEBHOOK"], "events": ["finished"], "waiting_s": 60},
        },
    )
    messages = {
        "messages/finished.e1c97ebf": '{"to": "$WEBHOOK", "state": "sent", "time": 1060.0, '
        '"reason": ""}\n'
    }
    _fill(store.create(run, "#!/bin/bash\n", files=messages))
    rows = [[["lr", "0.1"]], [["lr", "0.2"]]]
    sweep = replace(
        run,
        run_id=SWEEP,
        name="sweep",
        job_id="L999998",
        request={"script": "train.py", "sweep": rows},
        plan={"sweep": {"indices": "0-1", "first": 0, "max_parallel": None}},
    )
    folder = store.create(sweep, "#!/bin/bash\n", files={"batch/0.log": "hpcrun: job L999998_0\n"})
    _attempt(folder / "elements/1/attempts/0", "L999998_1")
    (folder / "elements.json").write_text(
        json.dumps({"0": {"state": "COMPLETED", "asked_s": 2000.0, "final": True}})
    )
    after = [{"run_id": PLAIN, "job_id": "L999999", "condition": "ok", "over": False}]
    code = {
        "files": 3,
        "bytes": 5000,
        "root": "/home/me",
        "commit": "abcdef0123456789",
        "changes": "1 file changed",
    }
    chained = replace(
        run,
        run_id=CHAINED,
        name="next",
        scheduler="slurm",
        cluster="alpha",
        job_id="4711",
        after=after,
        chain={"link": 2, "links": 3, "first": PLAIN},
        code=code,
        resubmitted_from=PLAIN,
    )
    store.create(chained, "#!/bin/bash\n", files={"sbatch.err": "sbatch: a remark\n"})
    store.save_status(CHAINED, LastStatus("PENDING", 2000.0, reason="Dependency"))
    studies = StudyStore(root)
    studies.save(
        Study(
            STUDY,
            "study",
            1000.0,
            "local",
            str(root.parent),
            points=(StudyPoint(2, 1, 1, PLAIN, 32, True),),
        )
    )
    studies.save_measured(STUDY, {"schema": 1, "patterns": {}, "points": {}})


def _fill(folder: Path) -> None:
    (folder / "supervisor.json").write_text(
        json.dumps(
            {
                "job_id": "L999999",
                "pid": 999999,
                "start_ticks": 5,
                "boot_id": "another",
                "host": "here",
                "started": 1000.5,
                "limit_s": 3600,
                "state": "FAILED",
                "status": 1,
                "signal": None,
                "reason": None,
                "ended": 1060.0,
            }
        )
        + "\n"
    )
    (folder / "batch.log").write_text(
        "hpcrun: job L999999\nsrun: error: node1: task 1: Exited with exit code 1\n"
    )
    (folder / "submit.called").write_text(
        json.dumps({"place": "x y z", "pid": 99999, "start_ticks": 5}) + "\n"
    )
    _attempt(folder / "elements/0/attempts/0", "L999999")


def _attempt(folder: Path, job_id: str) -> None:
    folder.mkdir(parents=True)
    error = (
        'Traceback (most recent call last):\n  File "train.py", line 8, in main\n    '
        "f()\nValueError: no such thing\n"
    )
    values = {
        "start": {"job_id": job_id, "host": "node1", "started": 1001.0},
        "exit": {
            "status": 1,
            "signal": "",
            "ended": 1060.0,
            "message": "",
            "reason": "failure",
            "again": False,
        },
        "node-node1.start": {"node": "node1", "first_rank": 0, "ranks": 2, "started": 1001.5},
        "code": {
            "folder": "/home/me",
            "script": "train.py",
            "imports": {"model": "/home/me/model.py"},
        },
        "idle": {"since": 1002.0, "warned": 1040.0, "ends": 1070.0},
        "rank-0.exit": {"rank": 0, "node": "node1", "status": 143, "ended": 1059.0},
        "rank-1.exit": {"rank": 1, "node": "node1", "status": 1, "ended": 1058.0},
    }
    for name, record in values.items():
        (folder / name).write_text(json.dumps(record) + "\n")
    (folder / "heartbeat").write_text("1050.5\n")
    (folder / "hosts").write_text("node1\n")
    gpu = [0, 0.5, 1 << 30, 1 << 34, 250.5]
    use = {
        "time": 1012.0,
        "cpus": 1.5,
        "memory": 1 << 30,
        "network": 5000,
        "rdma": None,
        "gpus": [gpu],
    }
    head = {"started": 1002.0, "cpus": 2, "memory_limit": 1 << 32}
    (folder / "node-node1.use").write_text("".join(f"{json.dumps(line)}\n" for line in (head, use)))
    (folder / "events.out.tfevents.0000001010.node1.1.0").write_bytes(b"")
    (folder / "rank-0.out").write_text(
        "2026-01-02 03:04:05 epoch 1 loss=0.5\nwandb: Run data is saved locally in "
        "/home/me/wandb/offline-run-20260102_030405-abcd\nwandb: View run x at: "
        "https://wandb.ai/me/p/runs/abce\n"
    )
    (folder / "rank-1.err").write_text(error)
    (folder / "rank-0.metrics").write_text(
        '{"time": 1010.0, "step": 1, "loss": 0.5}\n{"time": 1020.0, "loss": NaN}\n'
    )


# --- damage --------------------------------------------------------------------------------------

_NUMBERS: st.SearchStrategy[Any] = st.sampled_from(
    [
        0,
        -1,
        1,
        2**31,
        2**63,
        10**30,
        10**400,
        -0.5,
        1e15,
        1e300,
        float("nan"),
        float("inf"),
        float("-inf"),
        True,
        False,
    ]
)
_TEXTS: st.SearchStrategy[Any] = st.sampled_from(
    [
        "",
        "x",
        "0",
        "../../..",
        "/etc/passwd",
        "\0",
        "\x1b]0;t\x07",
        "\u202egpj.exe",
        "\ud800",
        "\udcff",
        "a\nb\tc",
        "²",
        "--help",
        "0-9999999",
        "RUNNING",
        "COMPLETED",
        "x" * 70_000,
        "=cmd|' /C calc'!A0",
        "9" * 5000,
    ]
) | st.text(max_size=8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | _NUMBERS | _TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["run_id", "times", "indices", "first", "0", "1", "state", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
_CONTENT = st.sampled_from(
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"rank":"x"}',
        b'{"a": 1e999}',
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b"\xff\xfe\0\0",
        b"\0" * 5000,
        b"{" + b'"a":1,' * 300_000 + b'"b":1}',
        b"1e999",
        b"nan",
        b"-1",
        b"9" * 10_000,
        b"\x1b[2J\x1b]0;owned\x07\xc2\x9b31m loss=nan\n",
        "\u202etxt.exe\u2066\n".encode(),
        b"loss=" + b"a" * 100_000,
        b'  File "x", line ' + b"9" * 5000 + b", in f\n",
        b"ValueError" * 10_000 + b"\n",
        b"rank: 99999999999999999999\n",
        b'Traceback (most recent call last):\n  File "x", line '
        + b"9" * 5000
        + b", in f\nValueError: x\n",
        b"Root Cause (first observed failure):\n  rank      : "
        + b"9" * 5000
        + b"\n  exitcode  : 1\n",
        b'{"time": NaN, "step": Infinity, "loss": -Infinity}\n{"time": 1e300, "step": 1e300, '
        b'"loss": 1e999}\n',
        b'{"step": [1], "time": {}, "loss": "=1+1", "\\ud800": "\\ud800", "\\u001b[2J": 1}\n',
        b"9999-99-99 99:99:99 x\n9999999999.5 y\nE9999 99:99:99 z\n0000-01-01 00:00:00 w\n",
        b"RuntimeError: CUDA " * 3000,
    ]
) | st.binary(max_size=40)
_NEW = (
    "elements/0/attempts/²/start",
    "elements/0/attempts/1/start",
    "elements/0/attempts/007/start",
    "cancelled",
    "elements/0/attempts/0/rank-99999999999.exit",
    "elements/0/attempts/0/rank-².out",
    "submit.ready",
    "status.json",
    "elements/0/attempts/0/rank-7.exit",
    "elements/0/attempts/0/rank-1.metrics",
    "elements/0/attempts",
    "elements",
    "elements/0",
    "elements.json",
    "elements/0/attempts/0",
    "",
    "elements/0/checkpoints/x",
    "code",
)


@dataclass(frozen=True, slots=True)
class Damage:
    """What happens to one file: its path below the runs folder, the way, and what comes in its
    place.
    """

    path: str
    way: str
    content: Any = None
    name: str = ""

    def __str__(self) -> str:
        return f"{self.way} {self.path} {self.name} {ascii(self.content)[:200]}"

    def apply(self, root: Path) -> None:
        """Do it; a path that is gone with its folder stays gone."""
        path = root / self.path
        with contextlib.suppress(FileExistsError, NotADirectoryError):
            path.parent.mkdir(parents=True, exist_ok=True)
            _WAYS[self.way](path, self)


def _remove(path: Path, _damage: object = None) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write(path: Path, damage: Damage) -> None:
    _remove(path)
    path.write_bytes(damage.content)


def _hole(path: Path, _damage: Damage) -> None:
    _remove(path)
    with path.open("wb") as file:
        file.truncate(_GIGABYTE)


def _fifo(path: Path, _damage: Damage) -> None:
    _remove(path)
    os.mkfifo(path)


def _folder(path: Path, _damage: Damage) -> None:
    _remove(path)
    path.mkdir()


def _link(path: Path, damage: Damage) -> None:
    _remove(path)
    path.symlink_to(damage.content)


def _field(path: Path, damage: Damage) -> None:
    """Change a field of a record, or one of a field that is a record itself."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return
    if not isinstance(data, dict):
        return
    inside = data
    if damage.name.startswith("."):
        inside = next((value for value in data.values() if isinstance(value, dict) and value), data)
    names = sorted(inside)
    if damage.content == "gone" and names:
        del inside[names[hash(damage.name) % len(names)]]
    else:
        place = (
            names[len(damage.path) * 7 % len(names)]
            if names and damage.name in (".", "")
            else damage.name
        )
        inside[place] = damage.content
    path.write_text(json.dumps(data))


_WAYS: dict[str, Callable[[Path, Damage], None]] = {
    "write": _write,
    "remove": _remove,
    "hole": _hole,
    "fifo": _fifo,
    "folder": _folder,
    "link": _link,
    "field": _field,
}


def _paths() -> list[str]:
    with tempfile.TemporaryDirectory() as there:
        root = Path(there) / "runs"
        make_runs(root)
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


_ALL = _paths()
_FIELDS = (
    "run_id",
    "name",
    "scheduler",
    "cluster",
    "host",
    "created_s",
    "job_id",
    "profile",
    "nodes",
    "gpus_per_node",
    "world_size",
    "walltime_s",
    "request",
    "plan",
    "cwd",
    "after",
    "chain",
    "code",
    "schema",
    "colour",
    "state",
    "final",
    "asked_s",
    "elapsed_s",
    "reason",
    "exit_status",
    "attempt",
    "rank",
    "node",
    "status",
    "ended",
    "started",
    "pid",
    "start_ticks",
    "limit_s",
    "points",
    "imports",
    "0",
    ".sweep",
    ".env",
    ".indices",
    ".x",
    ".",
    "",
)
_path = st.sampled_from(_ALL) | st.builds(
    lambda run, name: f"{run}/{name}".rstrip("/"),
    st.sampled_from([PLAIN, SWEEP, CHAINED]),
    st.sampled_from(_NEW),
)
_LINKS = ("/dev/zero", "/dev/tty", ".", "/", "gone", "start", "/etc/passwd", "..")
_record = st.sampled_from(
    [path for path in _ALL if path.endswith((".json", ".exit", "start", "exit", "code"))]
)
DAMAGE = st.one_of(
    st.builds(Damage, _record, st.just("field"), VALUES, st.sampled_from(_FIELDS)),
    st.builds(
        Damage, _record, st.just("field"), VALUES | st.just("gone"), st.sampled_from(_FIELDS)
    ),
    st.builds(Damage, _path, st.just("write"), _CONTENT),
    st.builds(Damage, _path, st.sampled_from(["remove", "fifo", "folder", "hole"])),
    st.builds(Damage, _path, st.just("link"), st.sampled_from(_LINKS)),
)
