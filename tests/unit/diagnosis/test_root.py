"""The root exception of logs that real programs wrote: Python 3.11 with rich, loguru, IPython, hydra, JAX, torch.

``tests/data/explain/exceptions`` has what each printed, and ``expected.json`` which exception ended it and where.
"""

from __future__ import annotations

import json

import pytest

from hpcrun.diagnosis.root import AFTER_MOST, root_exception
from hpcrun.diagnosis.speakers import Speaker, without_lead
from tests.harness import REPO

LOGS = REPO / "tests/data/explain/exceptions"
EXPECTED = json.loads((LOGS / "expected.json").read_text())


@pytest.mark.parametrize("name", sorted(path.stem for path in LOGS.glob("*.log")))
def test_the_exception_that_ended_a_program(name: str) -> None:
    found = root_exception((LOGS / f"{name}.log").read_text().splitlines())
    if found is not None and found.followed_by > AFTER_MOST:  # it was caught
        found = None
    frame = found.user_frame if found else None
    place = f"{frame.file.rpartition('/')[2]}:{frame.line}" if frame else None
    assert [found.exception if found else None, place] == EXPECTED[name]


def test_of_a_chain_its_origin_and_its_aftermath_are_known() -> None:
    chain = root_exception((LOGS / "chain-from.log").read_text().splitlines())
    assert chain is not None and chain.origin is not None
    assert (chain.origin.exception, chain.begins) == ("KeyError: 'valid'", 0)
    cleanup = root_exception((LOGS / "chain-cleanup.log").read_text().splitlines())
    assert cleanup is not None and cleanup.aftermath is not None
    assert cleanup.aftermath.exception == "AttributeError: 'Run' object has no attribute 'writer'"


def test_of_several_ranks_in_one_log_the_first_that_failed_counts() -> None:
    first = (LOGS / "assert.log").read_text().splitlines()
    second = (LOGS / "chain-from.log").read_text().splitlines()
    lines = [*first, "step 3", *second]
    mixed, alone = root_exception(lines, mixed=True), root_exception(lines)
    assert mixed is not None and mixed.exception.startswith("AssertionError")
    assert alone is not None and alone.exception.startswith("ValueError")


def test_what_a_report_follows_is_the_root_and_a_report_alone_is_better_than_nothing() -> None:
    report = ["Traceback (most recent call last):", '  File "/opt/launch.py", line 3, in run',
              "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1."]  # fmt: skip
    both = root_exception([*(LOGS / "assert.log").read_text().splitlines(), *report])
    assert both is not None and both.exception.startswith("AssertionError")
    alone = root_exception(report)
    assert alone is not None and alone.exception.startswith("subprocess.CalledProcessError")


@pytest.mark.parametrize(
    ("line", "words", "speaker"),
    [
        ("[rank3]: KeyError: 'x'", "KeyError: 'x'", Speaker("torch", "3")),
        ("[rank3]:[E1122 10:00:00 ProcessGroupNCCL.cpp:629] x", "[E1122 10:00:00 ProcessGroupNCCL.cpp:629] x",
         Speaker("torch", "3")),
        ("[1,2]<stderr>:  File \"a.py\", line 3", "  File \"a.py\", line 3", Speaker("mpi", "2")),
        ("[5]<stdout>:step", "step", Speaker("mpi", "5")),
        (" 7: step", "step", Speaker("task", "7")),
        ("0: [rank0]: Traceback", "Traceback", Speaker("torch", "0")),
        ("gpu-node07:   File \"a.py\"", "  File \"a.py\"", Speaker("host", "gpu-node07")),
        ("(Trainer pid=17, ip=10.0.0.3) step", "step", Speaker("actor", "Trainer pid=17, ip=10.0.0.3")),
        ("srun: error: node1: task 0: Killed", "srun: error: node1: task 0: Killed", None),
        ("loss: 0.3", "loss: 0.3", None),
    ],
)  # fmt: skip
def test_who_says_a_line(line: str, words: str, speaker: Speaker | None) -> None:
    assert without_lead(line) == (words, speaker)
