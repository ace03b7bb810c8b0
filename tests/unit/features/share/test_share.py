"""The page of a run: what it says, what it hides, and that nobody's text is more than text on
it.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, settings
from hypothesis import given as given_by
from hypothesis import strategies as st

from hpcrun.actions.jobs.git import WorkTree
from hpcrun.features.share.drawings import Bar, line_chart, time_line
from hpcrun.features.share.gather_page import AttemptSpan, SharedRun, gather
from hpcrun.features.share.page import MOST_BYTES, share_page
from hpcrun.features.share.page_rows import command_text, ended
from hpcrun.job.run_paths import AttemptFolder, RunFolder
from hpcrun.job.text.hide_secrets import SecretHider
from hpcrun.runs.attempt import RESTART, Attempt, ExitRecord
from hpcrun.runs.record import LastStatus, run_to_json, status_to_json
from hpcrun.runs.store import RunStore
from tests.unit.builders import Takes, ports, run, write

RUN_ID = "20260102-030405-train-0a1b"
TOKEN = "a1B2" * 12
NOW_S = 2000.0
FAILED = LastStatus("FAILED", 1900.0, final=True, elapsed_s=90, exit_status=1)
REQUEST: dict[str, Any] = {
    "script": "train.py",
    "args": ["--lr", "1e-3"],
    "gpus": {"count": 4, "type": None},
    "env": [["HF_TOKEN", "***"]],
}


class Page(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = self.style = ""
        self.open: list[str] = []
        self.feed(content.decode())
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.text += data


def made(folder: Path, status: LastStatus = FAILED, **fields: Any) -> RunFolder:
    """The folder of a run without attempts."""
    run_folder = RunFolder(folder / RUN_ID)
    write(run_folder.record, run_to_json(run(RUN_ID, **{"request": REQUEST, "plan": {}, **fields})))
    write(run_folder.status, status_to_json(status))
    return run_folder


def attempt(
    folder: RunFolder, *, number: int = 0, element: int = 0, status: int = 1, **end: Any
) -> Path:
    """The folder of an attempt of two nodes that has ended."""
    place = folder.element(element).attempt(number)
    started_s = 1010 + 100 * number
    write(place.start, json.dumps({"job_id": "4711", "host": "n0", "started": started_s}))
    write(
        place.exit,
        json.dumps({"status": status, "signal": "", "ended": started_s + 50, "message": "", **end}),
    )
    write(place.hosts, "n0 n1\n")
    return place.path


def write_rank(
    place: Path, rank: int, text: str = "", *, status: int = 1, ended_s: float = 1050.0, **end: Any
) -> None:
    """How a rank of an attempt ended, and the end of its stderr."""
    record = {"rank": rank, "node": f"n{rank}", "status": status, "ended": ended_s, **end}
    write(place / f"rank-{rank}.exit", json.dumps(record))
    write(place / f"rank-{rank}.err", text)


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    write(path, "".join(json.dumps(row) + "\n" for row in rows))


class Away(Takes):
    """A scheduler that knows no job: all runs are over."""

    def poll(self, _refs: object) -> dict[str, object]:
        """Answer."""
        return {}


def gathered(folder: Path, **choice: Any) -> SharedRun:
    store = RunStore(folder)
    return gather(store.load(RUN_ID), ports(store, Away(), NOW_S), **choice)


def page(folder: Path, *shown: str, **choice: Any) -> Page:
    """The page of the run in a folder, on which these texts are."""
    content = share_page(gathered(folder, **choice), SecretHider({}), "/home/me")
    assert len(content) < MOST_BYTES
    made_page = Page(content)
    assert [words for words in shown if words not in made_page.text] == []
    return made_page


def elements(number: int) -> dict[str, Any]:
    return {
        "request": {**REQUEST, "sweep": [[["lr", f"{index}"]] for index in range(number)]},
        "plan": {"sweep": {"indices": f"0-{number - 1}", "first": 0}},
    }


def test_a_failed_run_that_was_requeued(tmp_path: Path) -> None:
    plan = {
        "shape": {"gpu_type": "a100", "launcher": "torchrun"},
        "directives": [["partition", "gpu"], ["requeue", None]],
        "command": ["/venv/bin/python", "-u", "train.py"],
        "env": [["A", "b"], ["HF_TOKEN", None]],
        "memory_mb": 2048,
        "requeue": {"times": 3, "restarts": 0},
    }
    folder = made(tmp_path, plan=plan, cwd="/home/me/project")
    first = attempt(folder, status=143, reason="preemption", again=True)
    last = attempt(folder, number=1)
    trace = "Traceback (most recent call last):\n  File \"train.py\", line 3\nKeyError: 'lr'\n"
    write_rank(last, 1, trace, ended_s=1150.0)
    write_rank(last, 0, status=143, ended_s=1151.0, told="cleared")
    write(last / "rank-0.out", "epoch 1\n")
    for number, place in enumerate((first, last)):
        rows = (
            {"time": 1010.0 + step, "step": step + 10 * number, "loss": 1 / (step + 1)}
            for step in range(10)
        )
        write_rows(place / "rank-0.metrics", rows)
    pages = ("https://wandb.ai/me/p/runs/x1", "http://localhost:5000/#/runs/2")
    write(first / "rank-0.err", "".join(f"wandb: View run train at: {url}\n" for url in pages))
    shown = page(
        tmp_path,
        "wandbhttps://wandb.ai/me/p/runs/x1",
        "train",
        "FAILED",
        "rank 1 on n1 failed first",
        "KeyError: 'lr'",
        "partition gpu",
        "2 nodes × 2 a100 GPUs",
        "hpcrun submit --profile big --gpus 4 --secret HF_TOKEN train.py --lr 1e-3",
        "~/project",
        "preempted, requeued",
        "attempt 2, 0:50: exit status 1",
        "pending for 0:50",
        "last 0.1 at step 19",
        "--partition=gpu",
        "HF_TOKEN=***",
        "rank 0 on n0, stdout, exit status 143, terminated",
        "epoch 1",
        "requeued up to 3 times",
        "none: the job ran",
    )
    assert pages[1] not in shown.text.partition("Ends of the logs")[0]
    assert shown.text.index("rank 1 on n1, stderr") < shown.text.index("rank 0 on n0, stdout")


def test_runs_without_an_attempt_and_without_an_end(tmp_path: Path) -> None:
    folder = made(tmp_path, LastStatus("COMPLETED", 1900.0, final=True))
    shown = page(tmp_path)
    assert "Ends of the logs" not in shown.text
    assert "svg" not in shown.tags
    write(
        folder.element(0).attempt(0).start,
        json.dumps({"job_id": "4711", "host": "n0", "started": 1010}),
    )
    write(folder.element(0).attempt(0).heartbeat, "1700\n")
    page(tmp_path, "killed without a record of its end")
    write(folder.status, status_to_json(LastStatus("CANCELLED", 1900.0, final=True)))
    attempt(folder, status=143, signal="TERM")
    page(tmp_path, "attempt 1, 0:50: cancelled")


def test_the_use_of_the_hardware(tmp_path: Path) -> None:
    folder = made(tmp_path)
    place = attempt(folder)
    attempt(folder, number=1)  # too short for a sample
    for node, busy in (("n0", 0.25), ("n1", 0.75)):
        gpus = [[0, busy, 20 << 30, 80 << 30, 300.0], [1, busy, 40 << 30, 80 << 30, None]]
        head = {"started": 1010, "cpus": 8, "memory_limit": 64 << 30}
        sample = {"cpus": 2.5, "memory": 16 << 30, "network": 2_000_000, "rdma": None, "gpus": gpus}
        write_rows(
            place / f"node-{node}.use",
            [head, *({"time": 1020 + 10 * step, **sample} for step in range(3))],
        )
    shown = page(
        tmp_path,
        "n02 GPUs, 25% busy, memory 50% full at most, 300 W2.5 of 8 busy",
        "16.0 GB of 64.0 GB (25%)",
        "2.00 MB/s",
        "n1: 2 MB/s at min 0.5",
        "n1: 75 % at min 0.5",
    )
    assert "RDMA" not in shown.text
    write(place / "node-n0.use", "")
    write(place / "node-n1.use", "")
    assert "Use of the hardware" not in page(tmp_path).text


def test_an_attempt_of_a_sweep_without_an_end_ended_with_its_heartbeat_while_other_elements_run(
    tmp_path: Path,
) -> None:
    attempt_folder = made(tmp_path, **elements(2)).element(0).attempt(0)
    write(attempt_folder.start, json.dumps({"job_id": "4711", "host": "n0", "started": 1010}))
    write(attempt_folder.heartbeat, "1700\n")
    assert [span.ended_s for span in gathered(tmp_path).attempts] == [1700]


def test_the_end_of_a_long_log_says_how_much_is_left_out(tmp_path: Path) -> None:
    lines = [f"line {number:094}\n" for number in range(250)]
    write(attempt(made(tmp_path)) / "rank-0.err", "".join(lines))
    # 100 lines of 100 bytes
    shown = page(tmp_path, "10 kB before these lines are not shown.", lines[100])
    assert lines[99] not in shown.text


def test_a_thinned_curve_keeps_its_peaks() -> None:
    flat = [(float(step), 0.0) for step in range(10_000)]
    peaks = {1234: 8.0, 1235: -4.0, 7777: 5.0}
    drawn = line_chart("loss", [("", [(x, peaks.get(int(x), y)) for x, y in flat])])
    tops = [float(point.partition(",")[2]) for point in drawn["curves"][0][1].split()]
    assert len(tops) < 500
    highest, middle, lowest = min(tops), tops[0], max(tops)
    assert (middle - highest) / (lowest - middle) == pytest.approx(2, abs=0.1)
    assert any(top == pytest.approx(middle - (middle - highest) * 5 / 8, abs=0.2) for top in tops)


def test_logs_and_code_are_left_out_on_request(tmp_path: Path) -> None:
    folder = made(
        tmp_path,
        code={
            "files": 1,
            "bytes": 9,
            "root": "/home/me/p",
            "commit": "c0ffee" * 7,
            "changes": "1 file",
        },
    )
    write(attempt(folder) / "rank-0.err", "said by rank 0\n")
    write(folder.script, "#!/bin/bash\nset -e\n")
    write(folder.code_diff, "diff --git a/t.py b/t.py\n@@ -1 +1 @@\n-old\n+new\n")
    page(tmp_path, "said by rank 0", "set -e", "+new", "1 file, 1 lines added", "~/p")
    less = page(tmp_path, "c0ffee", logs=False, code=False)
    assert [words for words in ("Ends of the logs", "set -e", "+new") if words in less.text] == []


def test_a_sweep_and_one_of_its_elements(tmp_path: Path) -> None:
    folder = made(tmp_path, **elements(3))
    for index in range(3):
        place = attempt(folder, element=index, status=int(index == 1))
        write_rows(
            place / "rank-0.metrics",
            ({"step": step, "val_loss": (index + 1) / (step + 1)} for step in range(5)),
        )
        write(place / "rank-0.err", f"element {index} speaks\n")
    states = enumerate(("COMPLETED", "FAILED", "COMPLETED"))
    ends = {
        str(index): {"state": word, "final": True, "exit_status": int(index == 1)}
        for index, word in states
    }
    write(folder.element_statuses, json.dumps(ends))
    page(
        tmp_path,
        "3 elements: 2 completed, 1 failed",
        "By val_loss, smallest first.",
        "0: lr=0",
        "--sweep lr=0,1,2",
        "FAILED (1)",
        "element 1: rank 0, stderr",
    )
    one = (
        "train/2",
        f"{RUN_ID}, element 2",
        "lr=2",
        "--lr 1e-3 --lr 2",
        "last 0.6 at step 4",
        "COMPLETED",
    )
    page(tmp_path, *one, element=2)


def test_a_sweep_says_of_each_element_that_failed_what_happened_to_it(tmp_path: Path) -> None:
    folder = made(tmp_path, **elements(4))
    raised = {0: "KeyError: 'labels'", 1: "", 2: "ValueError: too many", 3: ""}
    for index, text in raised.items():
        trace = (
            f'Traceback (most recent call last):\n  File "train.py", line 3, in f\n{text}\n'
            if text
            else ""
        )
        status = int(bool(text))
        write_rank(
            attempt(folder, element=index, status=status), 0, trace, status=status, ended_s=1150.0
        )
    states = {0: "FAILED", 1: "COMPLETED", 2: "FAILED", 3: "CANCELLED"}
    said = {str(index): {"state": word, "final": True} for index, word in states.items()}
    write(folder.element_statuses, json.dumps(said))
    shown = page(tmp_path).text
    section = shown[shown.index("Failed elements") : shown.index("Command")]
    assert "0: lr=0rank 0 on n0 failed first: KeyError: 'labels' at train.py:3" in section
    assert "2: lr=2rank 0 on n0 failed first: ValueError: too many at train.py:3" in section
    assert "1 more did not complete" in section
    said["2"]["state"] = "COMPLETED"  # then the explanation above it says all
    write(folder.element_statuses, json.dumps(said))
    assert "Failed elements" not in page(tmp_path).text


HOSTILE = (
    "</pre></style><script>alert(1)</script><img src=x onerror=alert(1)>\" ' &amp; {{ 7 * 7 }}"
)
MARKS = "\x1b]0;title\x07\x1b[2J\u202egnp\u2066\x08"
NOT_UTF8 = b"\xff\xfe\xc0\x80\x00 broken\n"


def hostile(folder: Path) -> None:
    """A run all of whose texts want to be markup."""
    said = HOSTILE + MARKS
    plan = {
        "shape": {"gpu_type": said, "launcher": said},
        "directives": [[said, said]],
        "command": [said],
        "notes": [said],
        "env": [[said, said]],
        "setup": [said],
        "python": {"executable": said, "kind": said},
        "memory_mb": said,
    }
    run_folder = made(
        folder,
        LastStatus(
            "FAILED", 1900.0, final=True, exit_status=1, reason=said, cause=said, hosts=said
        ),
        plan=plan,
        **dict.fromkeys(("name", "host", "cluster", "profile", "cwd"), said),
        job_id="4711",
        resubmitted_from="<script>",
        request={"script": said, "args": [said], "env": [[said, said]]},
        code={"files": 1, "bytes": 9, "root": said, "commit": said, "changes": said},
    )
    place = attempt(run_folder, message=said, reason=said, nodes=[said])
    write(place / "hosts", "<b>n0</b> n1\n")
    write_rank(place, 0, node=said)
    (place / "rank-0.err").write_bytes(said.encode() + b"\n" + NOT_UTF8)
    (place / "rank-0.out").write_bytes(b"10%\r20%\r" + said.encode() + b"\n")
    values = (
        {said: step, "note": said, "nan": float("nan"), "big": 1e308 * (-1) ** step}
        for step in range(3)
    )
    write_rows(
        place / "rank-0.metrics", ({"step": step, **each} for step, each in enumerate(values))
    )
    write(run_folder.script, said)
    binary = "GIT binary patch\nliteral 9\nzcmX\n\ndiff --git a/y b/y\n"
    write(run_folder.code_diff, f"diff --git a/{said} b/x\n+{said}\n-{said}\n{binary}")


def test_hostile_text_is_text_and_the_page_may_load_nothing(tmp_path: Path) -> None:
    hostile(tmp_path)
    shown = page(tmp_path, "{{ 7 * 7 }}", "broken")
    allowed = set(
        """
        html head meta title style body header main section footer div span h1 h2 p b i ul li dl dt
        dd pre code details summary figure figcaption table tr th td svg line text polyline g circle
        rect
        """.split()
    )
    assert shown.tags <= allowed
    names = {name for _, name, _ in shown.attributes}
    assert not {name for name in names if name.startswith("on")} | names & {
        "style",
        "src",
        "href",
        "xlink:href",
    }
    assert shown.text.count(HOSTILE) > 20
    assert "zcmX" not in shown.text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", shown.text)
    policy = next(
        value for tag, name, value in shown.attributes if tag == "meta" and "default-src" in value
    )
    digest = b64encode(sha256(shown.style.encode()).digest()).decode()
    assert (
        policy
        == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert not re.search("url\\(|@import", shown.style)


def test_no_secret_is_on_the_page(tmp_path: Path, subtests: pytest.Subtests) -> None:
    known = "correct-horse-battery-9"
    secret = [
        f"hf_{TOKEN}",
        f"ghp_{TOKEN}",
        f"sk-{TOKEN}",
        "AKIAABCDEFGHIJKLMNOP",
        "s3cr3tpassw0rd",
        f"{TOKEN}.jwt",
        known,
    ]
    lines = [
        f"login with {secret[0]}",
        f"git clone https://me:{secret[4]}@host/x.git",
        f"Authorization: Bearer {secret[5]}",
        f"\x1b[31mhf_\x1b[0m{TOKEN}",
        f"hf_\u200b{TOKEN}",
        f"WANDB_API_KEY={secret[4]}",
        f"--api-key {secret[4]}",
        "-----BEGIN RSA PRIVATE KEY-----",
        "MIIEowIBAAKCAQEA7",
        "-----END RSA PRIVATE KEY-----",
        f"key is {known}",
    ]
    text = "\n".join(lines)
    plan = {
        "command": ["python", "--password", secret[4]],
        "setup": [f"export HF_TOKEN={secret[0]}"],
        "notes": [text],
        "env": [["MY_PASSWORD", secret[4]]],
        "directives": [["comment", secret[1]]],
    }
    args = ["--token", secret[2], "--api-key", secret[4], secret[3]]
    folder = made(
        tmp_path,
        LastStatus("FAILED", 1900.0, final=True, exit_status=1, cause=text, reason=text),
        plan=plan,
        cwd=f"/x/{secret[1]}",
        request={**REQUEST, "args": args, "script": f"{secret[0]}.py"},
        code={
            "files": 1,
            "bytes": 9,
            "root": f"/x/{secret[1]}",
            "commit": None,
            "changes": secret[0],
        },
    )
    place = attempt(folder, message=text)
    for stream in ("out", "err"):
        write(place / f"rank-0.{stream}", f"{text}\n")
    write(
        place / "rank-0.metrics", json.dumps({"step": 1, "note": secret[0], secret[1]: 1.0}) + "\n"
    )
    write(folder.script, f"{text}\nexport API_KEY='{secret[4]}'\n")
    write(
        folder.code_diff, "".join(f"+{line}\n" for line in lines) + f'+password = "{secret[4]}"\n'
    )
    hider = SecretHider({"THE_TOKEN": known, "HOME": "/home/me"})
    shown = share_page(gathered(tmp_path), hider, "/home/me").decode()
    for value in (*secret, TOKEN, "MIIEowIBAAKCAQEA7"):
        with subtests.test(value=value):
            assert value not in shown
    assert hider.count >= 8
    assert f"{hider.count} values look like secrets and are hidden" in shown


def test_the_page_is_small_whatever_the_run_wrote(tmp_path: Path) -> None:
    folder = made(tmp_path, **elements(3000))
    for index in range(4):
        place = attempt(folder, element=index)
        for rank in range(6):
            write_rank(
                place, rank, '"' * 3_000_000 if rank else "<\n" * 1_000_000, ended_s=1050.0 + rank
            )
        row = {f"m{number}": 1.0 for number in range(500)}
        write_rows(place / "rank-0.metrics", ({"step": step, **row} for step in range(50)))
    write(folder.script, "'\n" * 500_000)
    write(folder.code_diff, "+\n-\n" * 500_000)
    page(tmp_path, "more elements are left out")


def test_the_page_is_small_where_a_sweep_has_many_wide_columns(tmp_path: Path) -> None:
    wide = [[[f"{name}{'x' * 150}", '"' * 150] for name in range(30)] for _ in range(320)]
    folder = made(
        tmp_path,
        request={**REQUEST, "sweep": wide},
        plan={"sweep": {"indices": "0-319", "first": 0}},
    )
    write(folder.script, "set -e\n")
    page(tmp_path, "elements are left out")


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given_by(
    st.lists(
        st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=500), min_size=1, max_size=3
    )
)
@example([[(0.0, sys.float_info.max)], [(0.0, -sys.float_info.max)]])
@example([[(0.0, sys.float_info.max)]])
@settings(max_examples=60, deadline=None)
def test_any_finite_numbers_can_be_drawn(curves: list[list[tuple[float, float]]]) -> None:
    drawn = json.dumps(line_chart("x", [("a", sorted(points)) for points in curves], unit="%"))
    assert not re.search("NaN|nan|[Ii]nf", drawn)
    assert len(drawn) < 200_000


def test_a_time_line_of_an_instant() -> None:
    (lane,) = time_line([("a", [Bar(5.0, 5.0, "ok", "b")])])["lanes"]
    assert lane == (0, "a", [(120, 4, "ok", "b")])


def test_a_long_command_keeps_an_option_and_its_value_together() -> None:
    options = [("--env", f"NAME_{number}=a b") for number in range(6)]
    long = command_text([("hpcrun", "submit"), *options, ("train.py",)])
    assert long.startswith("hpcrun submit --env 'NAME_0=a b' ")
    assert all(len(line) < 100 for line in long.split(" \\\n    "))
    assert long.count("\\\n") == 1


def test_a_record_of_another_version(tmp_path: Path) -> None:
    plan = {
        "shape": 3,
        "directives": "x",
        "command": "y",
        "env": [["A"], 4],
        "container": [],
        "requeue": None,
    }
    made(tmp_path, plan={**plan, "memory_mb": [], "notes": {}})
    page(tmp_path, "2 nodes × 2 GPUs")


def test_a_damaged_request_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    made(tmp_path, request={**REQUEST, "nodes": "many"})
    shared = gathered(tmp_path)
    assert shared.command == ()
    assert "request in the run's record is damaged" in shared.missing[0]
    page(tmp_path, RUN_ID, "Not complete: the request", "damaged")


def test_the_commit_of_code_that_was_not_copied_is_said(tmp_path: Path) -> None:
    tree = WorkTree(Path("/src"), "0123456789abcdef", 2)
    made(tmp_path, code=tree.record())
    commit = "commit 0123456789ab of /src and 2 changed files"
    page(tmp_path, "the job ran the files themselves", commit)


def test_an_attempt_that_was_restarted_in_place_was_not_requeued() -> None:
    record = ExitRecord(1, "", 2.0, "message", "node_failure", again=True, how=RESTART)
    attempt = Attempt(AttemptFolder(Path("/nowhere")), 0, "1", "n0", 1.0, record, 2.0)
    words = ended(AttemptSpan(attempt, 0, ("n0",), 2.0))[1]
    assert words.endswith("restarted in place: message")


def test_the_words_of_a_chart_name_its_last_lowest_and_highest_value(tmp_path: Path) -> None:
    place = attempt(made(tmp_path))
    write_rows(
        place / "rank-0.metrics",
        [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 1.0}, {"step": 3, "loss": 2.0}],
    )
    page(tmp_path, "last 2 at step 3, lowest 1 at step 2, highest 3 at step 1")
