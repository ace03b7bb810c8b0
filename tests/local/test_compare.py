"""Runs side by side, as the command shows them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Hpcrun
from tests.local.recorded import Recorded, record, replace_fields

GIT = ("git", "-c", "user.name=me", "-c", "user.email=me@example.org")
CODE = {"files": 1, "bytes": 1, "root": "/src", "commit": None, "changes": ""}


def recorded(hpcrun: Hpcrun, name: str, *arguments: str, **fields: Any) -> Recorded:
    """A completed run of fit.py, with a snapshot, of which the job id is its name behind an L."""
    made = record(hpcrun, name)
    request = {"script": "fit.py", "args": list(arguments), "snapshot": True}
    fields = {"job_id": f"L{name}", "request": request, "code": CODE, **fields}
    replace_fields(made.folder / "run.json", **fields)
    (made.folder / "code").mkdir()
    (made.folder / "code/fit.py").write_text(f"# {name}\n")
    made.log("".join(f"step {step} loss {step * float(arguments[1])}\n" for step in range(1, 4)))
    return made


@pytest.fixture
def two(hpcrun: Hpcrun) -> list[Recorded]:
    """Two runs whose arguments and code differ; the second failed, and continued another."""
    first = recorded(hpcrun, "1", "--lr", "0.5", "--seed", "1")
    more = {"checkpoints_of": first.folder.name, "note": "#paper"}
    second = recorded(hpcrun, "2", "--lr", "2", "--seed", "1", **more)
    (second.attempt() / "versions").write_text('{"torch": "2.4.0"}')
    second.ended(1_700_000_100, 3)
    return [first, second]


def rows(text: str) -> dict[str, list[str]]:
    """The cells of a table by the name of the fact."""
    split = [line.split("  ") for line in text.splitlines() if line.startswith("  ")]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in split]
    return {name: values for name, *values in cells}


def test_what_differs_is_shown_and_what_is_the_same_is_counted(
    hpcrun: Hpcrun, two: list[Recorded]
) -> None:
    done = hpcrun("compare", "L1", "L2", check=True)
    shown = rows(done.stdout)
    assert done.stdout.split("\n", 1)[0].split() == ["L1", "L2"]
    assert shown["state"] == ["COMPLETED", "FAILED"]
    assert shown["note"] == ["-", "#paper"]
    assert shown["checkpoints of"] == ["-", two[0].folder.name]
    assert shown["lr"] == ["0.5", "2"]
    assert shown["fit.py"] == ["first", "+1 -1"]
    assert shown["loss, last"] == ["1.5 at 3", "6 at 3"]
    assert not {"seed", "--snapshot", "torch"} & {*shown}
    assert "not known of L1: versions" in done.stderr
    assert "the same: arguments (2), options (2), nodes (3), code (1); --all shows" in done.stderr
    every = rows(hpcrun("compare", "--all", "L1", "L2", check=True).stdout)
    assert (every["seed"], every["torch"]) == (["1", "1"], ["-", "2.4.0"])


def test_a_program_gets_numbers_and_null_for_what_is_unknown(
    hpcrun: Hpcrun, two: list[Recorded]
) -> None:
    document = json.loads(hpcrun("compare", "L1", "L2", "--json", check=True).stdout)
    assert [run["label"] for run in document["runs"]] == ["L1", "L2"]
    facts = {fact["name"]: fact for of in document["sections"].values() for fact in of}
    assert facts["lr"] == {"name": "lr", "values": ["0.5", "2"], "differs": True}
    assert facts["torch"] == {"name": "torch", "values": [None, "2.4.0"], "differs": None}
    points = [{"value": 1.5, "step": 3}, {"value": 6, "step": 3}]
    assert facts["loss, last"] == {"name": "loss, last", "values": points, "differs": True}
    assert "not known of L1: versions" in document["remarks"]


def test_the_code_is_compared_by_snapshots_or_by_commits(
    hpcrun: Hpcrun, two: list[Recorded], tmp_path: Path
) -> None:
    text = hpcrun("compare", "--code", "L1", "L2", check=True).stdout
    assert text == "--- L1/fit.py\n+++ L2/fit.py\n@@ -1 +1 @@\n-# 1\n+# 2\n"
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run([*GIT, "init", "-q", project], check=True)
    for made in two:
        (made.folder / "code").rename(made.folder / "away")
        (project / "fit.py").write_text(f"\x1b[2J{made.folder.name}\n")
        git = [*GIT, "-C", str(project)]
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", "x"], check=True)
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
        code = {**CODE, "root": str(project), "commit": head, "copied": False, "changed": 1}
        replace_fields(made.folder / "run.json", code={**code, "changes": "1 changed file"})
    done = hpcrun("compare", "--code", "L1", "L2", check=True)
    assert f"-?[2J{two[0].folder.name}\n+?[2J{two[1].folder.name}\n" in done.stdout
    assert "commits at submission; the files that L1, L2 ran may differ" in done.stderr
    for made, digest in zip(two, ("0badc0de", "c0ffee00"), strict=True):
        changed = {"changes": "1 changed file", "digests": [["fit.py", digest]], "commit": head}
        replace_fields(made.folder / "run.json", code={**code, **changed})
    done = hpcrun("compare", "--code", "L1", "L2", check=True)
    differ = "the commits are the same; files changed since, and not kept: "
    assert done.stdout == f"{differ}L1: fit.py (0badc0de); L2: fit.py (c0ffee00)\n"
    shown = hpcrun("compare", "L1", "L2", check=True)
    assert rows(shown.stdout)["changes"] == ["fit.py (0badc0de)", "fit.py (c0ffee00)"]
    assert "--code prints" not in shown.stderr
    replace_fields(two[1].folder / "run.json", code={**code, "changes": "1 changed file"})
    known_of_one = hpcrun("compare", "L1", "L2", check=True)
    assert "not known without a snapshot: the files of L2" in known_of_one.stderr
    replace_fields(two[0].folder / "run.json", code={**code, "changes": "1 changed file"})
    unknown = hpcrun("compare", "L1", "L2", check=True)
    assert "code (2)" in unknown.stderr  # the folder and the commit; the files may differ
    replace_fields(two[1].folder / "run.json", code={**CODE, "commit": "--output=/x"})
    failed = hpcrun("compare", "--code", "L1", "L2")
    assert (failed.returncode, "L2 has neither a snapshot" in failed.stderr) == (4, True)


def test_curves_are_drawn(hpcrun: Hpcrun, two: list[Recorded], tmp_path: Path) -> None:
    lines = hpcrun("compare", "L1", "L2", "--plot", check=True).stdout.splitlines()
    assert lines[0] == "loss by step"
    assert (lines[1].split()[-1], lines[-2].split()[0]) == ("L2", "0.5")
    assert (
        "no run has values of 'los'" in hpcrun("compare", "L1", "L2", "--plot", "-m", "los").stderr
    )
    done = hpcrun("compare", "L1", "L2", "--png", str(tmp_path / "c.png"), check=True)
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert done.stdout == f"written  {tmp_path / 'c.png'}\n"


def test_what_is_not_two_runs_is_refused(hpcrun: Hpcrun, two: list[Recorded]) -> None:
    assert "Missing argument 'RUN'" in hpcrun("compare").stderr
    assert "compare takes 2 to 8 runs; these are 1" in hpcrun("compare", "L1", "L1").stderr
    sweep = {"indices": "0-1", "first": 0}
    request = {"script": "fit.py", "sweep": [[["lr", "1"]], [["lr", "2"]]]}
    replace_fields(two[1].folder / "run.json", plan={"sweep": sweep}, request=request)
    refused = hpcrun("compare", "L1", "L2").stderr
    assert "L2 is a sweep of 2 elements, not one run\nhint: hpcrun sweep L2" in refused
    element = rows(hpcrun("compare", "L1", "L2/1", check=True).stdout)
    assert element["lr"] == ["0.5", "2"]
    assert "hint: hpcrun compare L1 L2 " in hpcrun("sweep", "L1", "L2").stderr
    assert "hint: hpcrun compare RUN RUN " in hpcrun("metrics", "L1", "L2").stderr


def test_a_hostile_record_only_fills_cells(hpcrun: Hpcrun, two: list[Recorded]) -> None:
    request = {"script": "f\x1b[2J", "args": ["x" * 10_000, *map(str, range(20_000))]}
    env = [["NAME\n", "\x1b]0;x\x07"], 3, ["A", ["x"]]]
    plan = {"env": env, "modules": 3, "python": {"executable": ["x"]}, "shape": 7}
    replace_fields(two[1].folder / "run.json", request=request, plan=plan)
    (two[1].folder / "code/a\x1b[2J").write_text("x")
    done = hpcrun("compare", "--all", "L1", "L2", check=True)
    assert "\x1b" not in done.stdout + done.stderr
    assert len(done.stdout) < 100_000
    assert "and 19944 more: --json" in done.stdout
    replace_fields(two[0].folder / "run.json", request={"script": ["x"]})
    refused = hpcrun("compare", two[0].folder.name, "L2")
    assert "its field script is not text" in refused.stderr
