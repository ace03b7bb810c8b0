"""The root exception of a log, and what launchers write into it.

``tests/data/explain/exceptions`` has what real programs printed (Python 3.11 with rich, loguru,
IPython, hydra, JAX, Monarch, torch), and ``expected.json`` which exception ended each and where.
"""

from __future__ import annotations

import json

import pytest

from hpcrun.explain.diagnosis.launcher_lines import (
    Speaker,
    first_failure,
    first_task,
    speakers_of,
    without_lead,
)
from hpcrun.explain.diagnosis.root_exception import AFTER_MOST, root_exception
from hpcrun.explain.diagnosis.traceback import tracebacks
from tests.harness import REPO
from tests.unit.explain.written import of_log

LOGS = REPO / "tests/data/explain/exceptions"
HEADER = "Traceback (most recent call last):"
EXPECTED = json.loads((LOGS / "expected.json").read_text())


def of_program(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text().splitlines()


def raised(
    message: str, file: str = "/home/ann/train.py", line: int = 7, code: str = "main()"
) -> list[str]:
    return [HEADER, f'  File "{file}", line {line}, in run', f"    {code}", *message.splitlines()]


@pytest.mark.parametrize("name", sorted(path.stem for path in LOGS.glob("*.log")))
def test_the_exception_that_ended_a_program(name: str) -> None:
    found = root_exception(of_program(name))
    if found is not None and found.followed_by > AFTER_MOST:  # it was caught
        found = None
    frame = found.user_frame if found else None
    place = f"{frame.file.rpartition('/')[2]}:{frame.line}" if frame else None
    assert [found.exception if found else None, place] == EXPECTED[name]


ASSERTED = of_program("assert")
IGNORED = [
    "Exception ignored in: <function Loader.__del__ at 0x7f2b>",
    *raised("AttributeError: 'Loader' has no '_status'"),
]
REPORT = raised(
    "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.",
    "/opt/launch.py",
)
WRITER = [
    "Exception in thread Thread-1:",
    *raised("OSError: handle is closed", "/opt/threading.py"),
]
WAITED = raised("_queue.Empty")
DURING = "During handling of the above exception, another exception occurred:"
CALLS = [
    text
    for number in range(900)
    for text in (f'  File "/a.py", line {number}, in walk', "    walk()")
]
DEEP = [*CALLS, "RecursionError: maximum recursion depth exceeded"]
CRASH = """Fatal Python error: Aborted

Thread 0x01 (most recent call first):
  File "/other.py", line 1 in wait

Current thread 0x02 (most recent call first):
  File "/mine.py", line 2 in step
  File "/mine.py", line 9 in main

Extension modules: numpy (total: 1)""".splitlines()


@pytest.mark.parametrize(
    ("lines", "mixed", "exception", "begins"),
    [
        # the last of several counts, a chain is one, and one that was cut off is none
        ([*WAITED, "step", *WAITED], False, "_queue.Empty", 5),
        ([*WAITED, "", DURING, "", *WAITED], False, "_queue.Empty", 0),
        (WAITED[:3], False, None, 0),
        ([*WAITED, *raised("")], False, "_queue.Empty", 0),
        # of several ranks in one log the first that failed counts
        ([*ASSERTED, "step 3", *of_program("chain-from")], True, "AssertionError", None),
        ([*ASSERTED, "step 3", *of_program("chain-from")], False, "ValueError", None),
        # an error that Python ignores while it ends is no answer where anything else is
        (["ERROR: Fused kernels configured but not installed", *IGNORED], False, None, None),
        ([*ASSERTED, *IGNORED], False, "AssertionError", None),
        (IGNORED, False, "AttributeError", None),
        # what a report follows is the root, and a report alone is better than nothing
        ([*ASSERTED, *REPORT], False, "AssertionError", None),
        (REPORT, False, "subprocess.CalledProcessError", 0),
        # a thread that failed is no root where the program itself raises later, unless it waited
        # for the thread
        (
            [*WRITER, *raised("RuntimeError: the input has 6 dimensions")],
            True,
            "RuntimeError: the input has 6",
            5,
        ),
        ([*WRITER, *WAITED], True, "OSError: handle is closed", None),
        ([*WRITER, *WAITED], False, "OSError: handle is closed", None),
        (WRITER, True, "OSError: handle is closed", None),
        # a traceback in the message of another process is the root
        (
            raised(
                "\n".join(["ValueError: " + HEADER, *raised("OSError: the image is truncated")[1:]])
            ),
            False,
            "OSError: the image is truncated",
            0,
        ),
        # a heading and a C++ exception have their next line
        (
            ["Lmod has detected the following error:", "  The module cuda/99 is unknown"],
            False,
            "Lmod has detected the following error: The module cuda/99 is unknown",
            None,
        ),
        (
            [
                "terminate called after throwing an instance of 'c10::Error'",
                "  what():  CUDA error",
            ],
            False,
            "terminate called after throwing an instance of 'c10::Error' what():  CUDA error",
            None,
        ),
        (["  words", "loss: 0.3"], False, None, None),
    ],
)
def test_which_of_several_exceptions_is_the_root(
    lines: list[str], mixed: bool, exception: str | None, begins: int | None
) -> None:
    root = root_exception(lines, mixed=mixed)
    assert (root is None) == (exception is None)
    if root is not None and exception is not None:
        assert root.exception.startswith(exception)
        assert begins is None or root.begins == begins


@pytest.mark.parametrize(
    ("lines", "places"),
    [
        (CRASH, [("/mine.py", 9), ("/mine.py", 2)]),  # of the thread in which it happened
        (DEEP[1:], [("/a.py", 899)]),  # without a header
        ([HEADER, *DEEP], [("/a.py", 899)]),
    ],
)
def test_the_frames_of_a_root(lines: list[str], places: list[tuple[str, int]]) -> None:
    root = root_exception(lines)
    assert root is not None
    shown = root.frames if len(places) > 1 else [root.user_frame or root.frames[0]]
    assert [(frame.file, frame.line) for frame in shown] == places


def test_of_a_chain_its_origin_and_its_aftermath_are_known() -> None:
    chain, cleanup = (
        root_exception(of_program("chain-from")),
        root_exception(of_program("chain-cleanup")),
    )
    assert chain is not None
    assert chain.origin is not None
    assert chain.origin.exception == "KeyError: 'valid'"
    assert chain.begins == 0
    assert cleanup is not None
    assert cleanup.aftermath is not None
    assert cleanup.aftermath.exception == "AttributeError: 'Run' object has no attribute 'writer'"


def test_lines_of_another_process_do_not_end_a_traceback() -> None:
    """pytorch/pytorch#40273, of which one process writes NCCL's lines into the traceback of the
    other one.
    """
    log = (REPO / "tests/data/explain/public/build/pytorch-pytorch-40273.yaml").read_text()
    lines = [
        line.strip(" ") if "NCCL" in line else line.removeprefix("    ")
        for line in log.splitlines()
    ]
    root = root_exception(lines, mixed=True)
    assert root is not None
    assert root.exception.startswith("RuntimeError: NCCL error in")
    assert [frame.line for frame in root.frames] == [55, 286, 410]


def test_a_crash_whose_message_is_a_header_is_one_traceback() -> None:
    found = list(tracebacks(["hello", f"Fatal Python error: {HEADER[:-1]}", "bye"]))
    assert [(one.begins, one.exception[:18]) for one in found] == [(1, "Fatal Python error")]


def test_a_burst_of_exceptions_that_the_program_survived_ended_nothing() -> None:
    root = root_exception([*ASSERTED, "step", *ASSERTED, *["step"] * 200], mixed=True)
    assert root is not None
    assert root.followed_by > AFTER_MOST


def test_ray_train_quotes_the_exception_of_a_worker_with_its_rank() -> None:
    error = (
        "ray.train.v2.api.exceptions.WorkerGroupError: Training failed due to worker "
        "errors:\n[Rank 3 Error Snippet]:"
    )
    quoted = raised(
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x15 and 16x1)",
        "/home/me/driver.py",
        10,
    )
    lines = [
        *raised(
            error, "/env/lib/python3.11/site-packages/ray/train/v2/api/data_parallel_trainer.py"
        ),
        *quoted,
    ]
    shown = of_log("\n".join([*lines, ""]))
    expected = (
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x15 and 16x1) at driver.py:10"
    )
    assert shown.rank == 3
    assert shown.summary == f"rank 3: {expected}"


@pytest.mark.parametrize(
    ("line", "words", "speaker"),
    [
        ("[rank3]: KeyError: 'x'", "KeyError: 'x'", Speaker("torch", "3")),
        (
            "[rank3]:[E1122 10:00:00 ProcessGroupNCCL.cpp:629] x",
            "[E1122 10:00:00 ProcessGroupNCCL.cpp:629] x",
            Speaker("torch", "3"),
        ),
        ('[1,2]<stderr>:  File "a.py", line 3', '  File "a.py", line 3', Speaker("mpi", "2")),
        ("[5]<stdout>:step", "step", Speaker("mpi", "5")),
        (" 7: step", "step", Speaker("task", "7")),
        ("0: [rank0]: Traceback", "Traceback", Speaker("torch", "0")),
        ('gpu-node07:   File "a.py"', '  File "a.py"', Speaker("host", "gpu-node07")),
        (
            "(Trainer pid=17, ip=10.0.0.3) step",
            "step",
            Speaker("actor", "Trainer pid=17, ip=10.0.0.3"),
        ),
        ("[default3]:step", "step", Speaker("local", "3")),
        ("i.finetune/0 [default0]:[rank2]: KeyError: 'x'", "KeyError: 'x'", Speaker("torch", "2")),
        (
            "18:11:06.680 [rank4]:[E205 18:11:06.3 x.cpp:1] x",
            "[E205 18:11:06.3 x.cpp:1] x",
            Speaker("torch", "4"),
        ),
        (
            '2025-10-31 03:11:02,478 - Tuner - INFO - [rank0]:   File "a.py"',
            '  File "a.py"',
            Speaker("torch", "0"),
        ),
        ("stderr: [rank1]: KeyError", "KeyError", Speaker("torch", "1")),
        (
            "[2024-02-27T21:35:28.726901Z] fa88a9df [rank=2] || Traceback",
            "Traceback",
            Speaker("said", "2"),
        ),
        ("Fri Sep 25 16:52:57 2020[1]<stderr>:step", "step", Speaker("mpi", "1")),
        ("[prterun-n1-7123@1,6]<stderr>: step", " step", Speaker("mpi", "6")),
        ("(pid=2918546) step", "step", Speaker("actor", "pid=2918546")),
        ("172.16.220.18: bash: no", "bash: no", Speaker("host", "172.16.220.18")),
        ("x3102c0s1b0n0.hsn.cm 84: step", "step", Speaker("task", "84")),
        ("Epoch 3: loss 0.5", "Epoch 3: loss 0.5", None),
        ("srun: error: node1: task 0: Killed", "srun: error: node1: task 0: Killed", None),
        ("loss: 0.3", "loss: 0.3", None),
    ],
)
def test_who_says_a_line(line: str, words: str, speaker: Speaker | None) -> None:
    assert without_lead(line) == (words, speaker)


def test_words_with_a_colon_are_no_speakers_and_srun_label_has_one_for_each_task() -> None:
    def voices(lines: list[str]) -> list[str]:
        return [one.name for one in speakers_of([without_lead(line)[1] for line in lines])]

    assert voices(["1: one", "2: two", *["words"] * 9]) == []
    assert voices([f"{number % 3}: step" for number in range(9)]) == ["0", "1", "2"]
    assert voices(["7: step"] * 9) == []


# as torch 2.13 prints it, with the traceback of @record
BLOCK = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_10:00:02
  host      : node02
  rank      : 5 (local_rank: 1)
  exitcode  : 1 (pid: 4242)
  error_file: /tmp/torchelastic_x/5/error.json
  traceback : Traceback (most recent call last):
    File "/home/me/train.py", line 7, in main
      model(batch)
  ValueError: shapes differ

============================================================
""".splitlines()


def test_the_earliest_root_cause_of_all_nodes_counts() -> None:
    later = [
        line.replace("10:00:02", "10:00:09").replace("rank      : 5", "rank      : 1")
        for line in BLOCK
    ]
    torn_down = [
        line.replace("10:00:02", "09:00:00").replace(": 1 (pid", ": -15 (pid") for line in BLOCK
    ]
    root = first_failure([*torn_down, *later, *BLOCK])
    assert root is not None
    assert root.host == "node02"
    assert root.rank == 5
    assert root.exitcode == "1"
    assert "  ValueError: shapes differ" in root.message


def test_sruns_first_task_is_one_that_failed_by_itself() -> None:
    lines = [
        "srun: error: n1: task 0: Exited with exit code 143",
        "srun: error: n2: tasks 4-5: Killed",
    ]
    assert first_task(lines) == (1, "n2", lines[1])
