"""The root exception of logs that real programs wrote: Python 3.11 with rich, loguru, IPython, hydra, JAX, torch.

``tests/data/explain/exceptions`` has what each printed, and ``expected.json`` which exception ended it and where.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.explain.any_job_or_log import explain_logs
from hpcrun.explain.diagnosis.launcher import Speaker, speakers_of, without_lead
from hpcrun.explain.diagnosis.root_exception import AFTER_MOST, root_exception
from hpcrun.explain.diagnosis.traceback import tracebacks
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


def test_lines_of_another_process_do_not_end_a_traceback() -> None:
    """pytorch/pytorch#40273, of which one process writes NCCL's lines into the traceback of the other one."""
    log = (REPO / "tests/data/explain/public/build/pytorch-pytorch-40273.yaml").read_text()
    lines = [line.strip(" ") if "NCCL" in line else line.removeprefix("    ") for line in log.splitlines()]
    raised = root_exception(lines, mixed=True)
    assert raised is not None and raised.exception.startswith("RuntimeError: NCCL error in")
    assert [frame.line for frame in raised.frames] == [55, 286, 410]


def test_an_error_that_python_ignores_while_it_ends_is_no_answer_where_anything_else_is() -> None:
    ignored = ["Exception ignored in: <function Loader.__del__ at 0x7f2b>", "Traceback (most recent call last):",
               '  File "/opt/loader.py", line 1328, in __del__', "    self._shutdown()",
               "AttributeError: 'Loader' object has no attribute '_status'"]  # fmt: skip
    assert root_exception(["ERROR: Fused kernels configured but not installed", *ignored]) is None
    own = root_exception([*(LOGS / "assert.log").read_text().splitlines(), *ignored])
    assert own is not None and own.exception.startswith("AssertionError")
    alone = root_exception(ignored)
    assert alone is not None and alone.exception.startswith("AttributeError")


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
        ("[default3]:step", "step", Speaker("local", "3")),
        ("i.finetune/0 [default0]:[rank2]: KeyError: 'x'", "KeyError: 'x'", Speaker("torch", "2")),
        ("18:11:06.680 [rank4]:[E205 18:11:06.3 x.cpp:1] x", "[E205 18:11:06.3 x.cpp:1] x", Speaker("torch", "4")),
        ("2025-10-31 03:11:02,478 - Tuner - INFO - [rank0]:   File \"a.py\"", "  File \"a.py\"", Speaker("torch", "0")),
        ("stderr: [rank1]: KeyError", "KeyError", Speaker("torch", "1")),
        ("[2024-02-27T21:35:28.726901Z] fa88a9df [rank=2] || Traceback", "Traceback", Speaker("said", "2")),
        ("Fri Sep 25 16:52:57 2020[1]<stderr>:step", "step", Speaker("mpi", "1")),
        ("[prterun-n1-7123@1,6]<stderr>: step", " step", Speaker("mpi", "6")),
        ("(pid=2918546) step", "step", Speaker("actor", "pid=2918546")),
        ("172.16.220.18: bash: no", "bash: no", Speaker("host", "172.16.220.18")),
        ("x3102c0s1b0n0.hsn.cm 84: step", "step", Speaker("task", "84")),
        ("Epoch 3: loss 0.5", "Epoch 3: loss 0.5", None),
        ("srun: error: node1: task 0: Killed", "srun: error: node1: task 0: Killed", None),
        ("loss: 0.3", "loss: 0.3", None),
    ],
)  # fmt: skip
def test_who_says_a_line(line: str, words: str, speaker: Speaker | None) -> None:
    assert without_lead(line) == (words, speaker)


def test_a_crash_whose_message_is_a_header_is_one_traceback() -> None:
    found = list(tracebacks(["hello", "Fatal Python error: Traceback (most recent call last)", "bye"]))
    assert [(one.begins, one.exception[:18]) for one in found] == [(1, "Fatal Python error")]


def test_the_frames_of_a_crash_are_those_of_the_thread_in_which_it_happened() -> None:
    stack = """Fatal Python error: Aborted

Thread 0x01 (most recent call first):
  File "/other.py", line 1 in wait

Current thread 0x02 (most recent call first):
  File "/mine.py", line 2 in step
  File "/mine.py", line 9 in main

Extension modules: numpy (total: 1)"""
    found = root_exception(stack.splitlines())
    assert found is not None
    assert [(frame.file, frame.line) for frame in found.frames] == [("/mine.py", 9), ("/mine.py", 2)]


def test_a_deep_recursion_is_known_without_its_header() -> None:
    calls = [text for number in range(900) for text in (f'  File "/a.py", line {number}, in walk', "    walk()")]
    lines = [*calls, "RecursionError: maximum recursion depth exceeded"]
    for seen in (lines[1:], ["Traceback (most recent call last):", *lines]):
        found = root_exception(seen)
        assert found is not None and found.user_frame is not None
        assert (found.exception.partition(":")[0], found.user_frame.line) == ("RecursionError", 899)
    assert root_exception(["  words", "loss: 0.3"]) is None


def test_a_burst_of_exceptions_that_the_program_survived_ended_nothing() -> None:
    own = (LOGS / "assert.log").read_text().splitlines()
    found = root_exception([*own, "step", *own, *["step"] * 200], mixed=True)
    assert found is not None and found.followed_by > AFTER_MOST


def test_a_heading_and_a_cpp_exception_have_their_next_line() -> None:
    said = root_exception(["Lmod has detected the following error:", "  The module cuda/99 is unknown"])
    assert said is not None and said.exception.endswith("error: The module cuda/99 is unknown")
    thrown = root_exception(["terminate called after throwing an instance of 'c10::Error'", "  what():  CUDA error"])
    assert thrown is not None and thrown.exception.endswith("what():  CUDA error")


def test_words_with_a_colon_are_no_speakers_and_srun_label_has_one_for_each_task() -> None:
    def voices(lines: list[str]) -> list[str]:
        return [one.name for one in speakers_of([without_lead(line)[1] for line in lines])]

    assert voices(["1: one", "2: two", *["words"] * 9]) == []
    assert voices([f"{number % 3}: step" for number in range(9)]) == ["0", "1", "2"]
    assert voices(["7: step"] * 9) == []


def test_a_thread_that_failed_is_no_root_where_the_program_itself_raises_later() -> None:
    writer = ["Exception in thread Thread-1:", "Traceback (most recent call last):",
              '  File "/opt/threading.py", line 1016, in run', "OSError: handle is closed"]  # fmt: skip
    raised = ["Traceback (most recent call last):", '  File "/home/ann/train.py", line 74, in <module>',
              "    main()", "RuntimeError: the input has 6 dimensions"]  # fmt: skip
    root = root_exception([*writer, *raised], mixed=True)
    assert root is not None and root.exception == "RuntimeError: the input has 6 dimensions"
    empty = [*raised[:-1], "_queue.Empty"]
    for mixed in (False, True):
        waited = root_exception([*writer, *empty], mixed=mixed)  # the program waited for what the thread was to bring
        assert waited is not None and waited.exception == "OSError: handle is closed"
    alone = root_exception(writer, mixed=True)
    assert alone is not None and alone.exception == "OSError: handle is closed"


def test_a_traceback_in_the_message_of_another_process_is_the_root() -> None:
    lines = ["Traceback (most recent call last):", '  File "/home/ann/train.py", line 171, in <module>', "    main()",
             "ValueError: Traceback (most recent call last):", '  File "/opt/PIL/ImageFile.py", line 249, in load',
             "    raise OSError()", "OSError: the image is truncated"]  # fmt: skip
    root = root_exception(lines)
    assert root is not None and (root.exception, root.begins) == ("OSError: the image is truncated", 0)


def test_ray_train_quotes_the_exception_of_a_worker_with_its_rank(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    log.write_text(
        """Traceback (most recent call last):
  File "/home/me/driver.py", line 14, in <module>
    trainer.fit()
  File "/env/lib/python3.11/site-packages/ray/train/v2/api/data_parallel_trainer.py", line 158, in fit
    raise result.error
ray.train.v2.api.exceptions.WorkerGroupError: Training failed due to worker errors:
[Rank 3 Error Snippet]:
Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/ray/train/v2/_internal/execution/thread_runner.py", line 46, in _run_target
    result = target()
  File "/home/me/driver.py", line 10, in train
    return x @ w
RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x15 and 16x1)
"""
    )
    said = explain_logs([str(log)], [])
    expected = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x15 and 16x1) at driver.py:10"
    assert (said.rank, said.summary) == (3, f"rank 3: {expected}")
