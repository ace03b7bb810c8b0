"""What explain says of a log alone: programs of other people, in the wording of public threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.explain.any_job_or_log import explain_logs
from hpcrun.explain.diagnosis.rules import load_rules
from hpcrun.explain.ended import Explanation

RULES = load_rules([])
TRACE = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in <module>\n    main()\n'


def said_of(tmp_path: Path, text: str) -> Explanation:
    path = tmp_path / "job.log"
    path.write_text(text)
    return explain_logs([str(path)], RULES)


def summary_of(number: int, rank: int, time: str, exitcode: str, traceback: str) -> str:
    """An entry of torchrun's summary."""
    return (
        f"[{number}]:\n  time      : 2026-11-23_{time}\n  host      : localhost\n"
        f"  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {exitcode}\n  error_file: <N/A>\n  traceback : {traceback}\n"
    )


NO_TRACE = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
KILLED = "Signal 9 (SIGKILL) received by PID 15094"


def torchruns(killed_at: str) -> str:
    """What torchrun says of rank 1, which raised an exception, and of rank 0, which was killed."""
    return (
        "E1123 05:36:05.104000 15089 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) "
        "local_rank: 1 (pid: 15095) of binary: /venv/bin/python\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n"
        + summary_of(1, 0, killed_at, "-9 (pid: 15094)", KILLED)
        + f"{'-' * 60}\nRoot Cause (first observed failure):\n"
        + summary_of(0, 1, "05:35:35", "1 (pid: 15095)", NO_TRACE)
        + f"{'=' * 60}\n"
    )


def test_a_rank_that_torchrun_kills_after_a_failure_is_not_the_failure(tmp_path: Path) -> None:
    own = "".join(f"[rank1]: {line}\n" for line in f"{TRACE}ValueError: label 7 out of range".splitlines())
    said = said_of(tmp_path, own + torchruns("05:36:05"))
    assert (said.rank, said.rule, said.fix) == (1, None, "")
    assert "ValueError: label 7 out of range at train.py:9" in said.summary
    alone = said_of(tmp_path, torchruns("05:36:05"))  # the exception is in a file that nobody has shown
    assert (alone.rank, alone.rule) == (1, None)
    assert alone.summary == "rank 1 on localhost failed first with exit status 1"


def test_a_rank_that_is_killed_in_the_moment_of_the_first_failure_may_be_the_reason(tmp_path: Path) -> None:
    assert said_of(tmp_path, torchruns("05:35:36")).rule == "killed-said"


STAMPS = {
    "kubectl logs --timestamps": "2026-11-22T10:00:{s:02}.2000{s:02}Z ",
    "a time zone": "2026-11-22T10:00:{s:02}.2+01:00 ",
    "ts": "Nov 22 10:00:{s:02} ",
    "ts -s": "00:00:{s:02} ",
    "ts %.s": "1763805{s:03}.123456 ",
    "journalctl": "Nov 22 10:00:{s:02} node1 python[4711]: ",
    "logging": "2026-11-22 10:00:{s:02},200 ",
    "in brackets": "[2026-11-22 10:00:{s:02}] ",
    "Determined": "[2026-11-22T10:00:{s:02}.106313Z] fa88a9df || ",
}


@pytest.mark.parametrize("stamp", STAMPS.values(), ids=STAMPS)
@pytest.mark.parametrize("lead", ["", "[rank2]: "])
def test_a_time_that_differs_in_each_line_hides_no_traceback(tmp_path: Path, stamp: str, lead: str) -> None:
    lines = ["step 1", *(lead + line for line in f"{TRACE}KeyError: 'lr'".splitlines())]
    said = said_of(tmp_path, "".join(f"{stamp.format(s=second)}{line}\n" for second, line in enumerate(lines)))
    assert "KeyError: 'lr' at train.py:9" in said.summary
    assert said.rank == (2 if lead else None)


@pytest.mark.parametrize("turned", [False, True])
def test_a_time_may_stand_before_or_behind_the_task_of_srun(tmp_path: Path, turned: bool) -> None:
    trace = [(1, line) for line in f"{TRACE}KeyError: 'lr'".splitlines()]
    lines = [(0, "step 1"), (1, "step 1"), *trace, (0, "step 2")]
    stamps = [f"2026-11-22T10:00:{second:02}Z " for second in range(len(lines))]
    text = [
        f"{task}: {stamp}{line}\n" if turned else f"{stamp}{task}: {line}\n"
        for stamp, (task, line) in zip(stamps, lines, strict=True)
    ]
    said = said_of(tmp_path, "".join(text))
    assert said.summary == "rank 1: KeyError: 'lr' at train.py:9"


def test_a_time_in_front_hides_no_chain_no_rule_and_no_last_message(tmp_path: Path) -> None:
    during = "During handling of the above exception, another exception occurred:"
    lines = [*f"{TRACE}KeyError: 'lr'\n\n{during}\n\n{TRACE}OSError: no config".splitlines()]
    said = said_of(tmp_path, "".join(f"2026-11-22T10:00:{second:02}Z {line}\n" for second, line in enumerate(lines)))
    assert "KeyError: 'lr' at train.py:9; then OSError: no config" in said.summary
    said = said_of(tmp_path, "2026-11-22T10:00:02Z step 3\n2026-11-22T10:00:09Z Killed\n")
    assert said.rule == "killed-at-end"
    said = said_of(tmp_path, "2026-11-22T10:00:02Z train.py: error: unrecognized arguments: --lrr\n")
    assert said.summary == "unrecognized arguments: --lrr"


def test_the_times_of_lines_still_tell_which_rank_was_first(tmp_path: Path) -> None:
    stamp = "2026-11-22T10:{minute:02}:00.5Z "
    waited = (
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, "
        "Timeout(ms)=600000) ran for 600020 milliseconds before timing out."
    )
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    trace = "\n".join(f"[rank1]: {line}" for line in f"{TRACE}{oom}".splitlines())

    def order(waited_at: int, oom_at: int) -> str | None:
        one = [(waited_at, f"[rank0]:[E1122 ProcessGroupNCCL.cpp:616] {waited}")]
        other = [(oom_at, line) for line in trace.splitlines()]
        lines = sorted(one + other, key=lambda item: item[0])
        return said_of(tmp_path, "".join(f"{stamp.format(minute=at)}{line}\n" for at, line in lines)).rule

    assert order(20, 30) != order(20, 10) == "cuda-out-of-memory"


def test_the_time_of_a_programs_own_logger_stays_in_its_line(tmp_path: Path) -> None:
    line = "2026-11-22 10:00:02,200 ERROR train: cannot read /data/a.tar"
    said = said_of(tmp_path, f"2026-11-22 10:00:01,100 INFO train: start\n{line}\n")
    assert any(line in shown for item in said.evidence for shown in item.lines)


def test_a_temporary_file_that_another_rank_has_renamed_is_no_missing_checkpoint(tmp_path: Path) -> None:
    gone = "FileNotFoundError: [Errno 2] No such file or directory: "
    trace = "\n".join(f"[rank1]: {line}" for line in f"{TRACE}{gone}'same_last.pt.tmp' -> 'same_last.pt'".splitlines())
    said = said_of(tmp_path, trace)
    assert (said.rule, said.rank) == ("rename-race", 1)
    assert "same_last.pt.tmp was gone before it was renamed to same_last.pt" in said.summary
    assert "on rank 0 only" in said.fix
    assert said_of(tmp_path, f"{TRACE}{gone}'ckpt/.tmp_step_5' -> 'ckpt/step_5'\n").rule == "rename-race"
    assert said_of(tmp_path, f"{TRACE}{gone}'/tmp/run/vocab.txt' -> '/data/vocab.txt'\n").rule is None
    source = said_of(tmp_path, f"{TRACE}{gone}'epoch_5.pt' -> 'best.pt'\n")
    assert source.rule == "checkpoint-missing"
    assert ("epoch_5.pt" in source.summary, "best.pt" in source.summary) == (True, False)
    assert said_of(tmp_path, f"{TRACE}{gone}'ckpt/last.pt'\n").rule == "checkpoint-missing"


WINDOWS = r"""Traceback (most recent call last):
  File "D:\my\lora\train_lora.py", line 1095, in <module>
    main(args)
  File "D:\my\lora\train_lora.py", line 901, in main
    for step, batch in enumerate(loader):
  File "D:\my\venv\lib\site-packages\torch\utils\data\dataloader.py", line 1077, in __init__
    w.start()
  File "C:\Users\me\AppData\Local\Programs\Python\Python310\lib\multiprocessing\reduction.py", line 60, in dump
    ForkingPickler(file, protocol).dump(obj)
AttributeError: Can't pickle local object 'main.<locals>.collate_fn'
"""
NOTEBOOK = r"""---------------------------------------------------------------------------
KeyError                            Traceback (most recent call last)
D:\work\train.py in main(args)
     51     for epoch_num in iterator:
---> 52         for i_batch, sampled_batch in enumerate(trainloader):
     53             image_batch = sampled_batch['image']

D:\anaconda3\lib\site-packages\torch\utils\data\dataloader.py in __iter__(self)
    367         else:
--> 368             return self._get_iterator()

KeyError: 'image'
"""


def test_the_place_of_an_exception_on_windows_is_the_users_own_line(tmp_path: Path) -> None:
    said = said_of(tmp_path, WINDOWS).summary
    assert said == "AttributeError: Can't pickle local object 'main.<locals>.collate_fn' at train_lora.py:901"
    assert said_of(tmp_path, NOTEBOOK).summary == "KeyError: 'image' at train.py:52"


AGENT = (
    "E0801 13:23:20.000000 32974 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code}) "
    "local_rank: 3 (pid: 33054) of binary: /bin/python3\nTraceback (most recent call last):\n"
    '  File "/bin/torchrun", line 10, in <module>\n    sys.exit(main())\n'
)
BOX = """\
│ /home/me/ppo.py:88 in fit                                       │
│    87 │   │   prompt_ids = batch["input_ids"]                    │
│ ❱  88 │   │   p_mask = batch["attention_mask"]                   │
│    89 │   │   labels = batch["labels"]                           │
╰─────────────────────────────────────────────────────────────────╯
"""


def test_an_exception_below_a_box_whose_top_was_cut_off_is_the_answer(tmp_path: Path) -> None:
    said = said_of(tmp_path, f"{BOX}KeyError: 'attention_mask'\n{AGENT.format(code=1)}")
    assert said.summary == "rank 3: KeyError: 'attention_mask' at ppo.py:88"
    rest = "".join(BOX.splitlines(keepends=True)[1:])
    assert said_of(tmp_path, f"{rest}KeyError: 'attention_mask'\n").summary == "KeyError: 'attention_mask'"
    panel = "│ epochs: 3 │\n╰───────────╯\nValueError: 3 batches were skipped\nstep 1\n"
    assert said_of(tmp_path, panel).summary == "no failure is recognized in this log"


@pytest.mark.parametrize(("code", "how"), [("1", "exit status 1"), ("-11", "exit status -11")])
def test_the_exit_status_of_a_rank_is_named_where_its_log_shows_no_more(tmp_path: Path, code: str, how: str) -> None:
    said = said_of(tmp_path, f"step 3\n{AGENT.format(code=code)}")
    assert said.rank == 3
    assert said.summary == f"rank 3 failed first with {how}" or said.rule == "crash-said"


@pytest.mark.parametrize("where", ["(localhost, 29500)", "(127.0.0.1, 29500)", "localhost:29500"])
def test_a_rank_that_looks_for_rank_0_on_its_own_node_is_told_so(tmp_path: Path, where: str) -> None:
    words = f"The client socket has timed out after 25000ms while trying to connect to {where}."
    said = said_of(tmp_path, f"{TRACE}torch.distributed.DistNetworkError: {words}\n")
    assert (said.rule, "preflight" in said.fix, "MASTER_ADDR" in said.fix) == ("store-localhost", False, True)
    other = said_of(tmp_path, f"{TRACE}torch.distributed.DistNetworkError: {words.replace(where, '(n1, 29500)')}\n")
    assert other.rule == "store-unreachable"


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("unrecognized arguments: --local-rank=0", "local-rank-unknown"),
        ("unrecognized arguments: --local_rank=3 --fast", "local-rank-unknown"),
        ("the following arguments are required: --config, --local_rank", "local-rank-required"),
        ("unrecognized arguments: --local-batch=0", None),
        ("the following arguments are required: --config", None),
    ],
)
def test_a_script_that_does_not_fit_its_launchers_local_rank_gets_advice(
    tmp_path: Path, said: str, rule: str | None
) -> None:
    found = said_of(tmp_path, f"usage: train.py [-h] [--config CONFIG]\ntrain.py: error: {said}\n")
    assert found.rule == rule
    assert ("LOCAL_RANK" in found.fix) == (rule is not None)
