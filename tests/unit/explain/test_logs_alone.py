"""What explain says of a log alone: programs of other people, in the wording of public threads."""

from __future__ import annotations

import pytest

from tests.unit.explain.written import TRACE, of_log, raised, timed_out

KEY_ERROR = f"{TRACE}KeyError: 'lr'\n"
CAUGHT = """step 1 loss 3.1
Traceback (most recent call last):
  File "/home/ann/data/reader.py", line 61, in _get
    raise TimeoutError("GET timed out")
TimeoutError: GET timed out
"""
OOM = """step 1/300 loss 3.1
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. \
GPU 0 has a total capacity of 39.39 GiB
"""
MEMORY = OOM.partition("\n")[2]
FULL = "saving: OSError: [Errno 28] No space left on device\n"
PREEMPTED = (
    "slurmstepd: error: *** JOB 4711 ON gpu-3 CANCELLED AT 2026-01-05T10:00:00 DUE TO "
    "PREEMPTION ***\n"
)
LIMIT = PREEMPTED.replace("PREEMPTION", "TIME LIMIT")
CHAIN = (
    f"{KEY_ERROR}\nDuring handling of the above exception, another exception "
    f"occurred:\n\n{TRACE}OSError: no config"
)
NOTHING = "no failure is recognized in this log"
TIMED_OUT = "TimeoutError: GET timed out at reader.py:61"
NOT_A_NUMBER = "the training diverged: a loss or gradient is not finite"
BETWEEN = "".join(f"preparing shard {'abcdefghij'[number % 10]}\n" for number in range(250))


def steps(count: int) -> str:
    return "".join(f"step {step} loss 2.{step}\n" for step in range(count))


PYTHON_ON_WINDOWS = r"C:\Users\me\AppData\Local\Programs\Python\Python310"
WINDOWS = rf"""Traceback (most recent call last):
  File "D:\my\lora\train_lora.py", line 901, in main
    for step, batch in enumerate(loader):
  File "D:\my\venv\lib\site-packages\torch\utils\data\dataloader.py", line 1077, in __init__
    w.start()
  File "{PYTHON_ON_WINDOWS}\lib\multiprocessing\reduction.py", line 60, in dump
    ForkingPickler(file, protocol).dump(obj)
AttributeError: Can't pickle local object 'main.<locals>.collate_fn'
"""
NOTEBOOK = r"""---------------------------------------------------------------------------
KeyError                            Traceback (most recent call last)
D:\work\train.py in main(args)
     51     for epoch_num in iterator:
---> 52         for i_batch, sampled_batch in enumerate(trainloader):

D:\anaconda3\lib\site-packages\torch\utils\data\dataloader.py in __iter__(self)
--> 368             return self._get_iterator()

KeyError: 'image'
"""
AGENT = (
    "E0801 13:23:20.000000 32974 torch/distributed/elastic/multiprocessing/api.py:874] failed "
    "(exitcode: {}) "
    "local_rank: 3 (pid: 33054) of binary: /bin/python3\nTraceback (most recent call last):\n"
    '  File "/bin/torchrun", line 10, in <module>\n    sys.exit(main())\n'
)
BOX = """\
│ /home/me/ppo.py:88 in fit                                       │
│ ❱  88 │   │   p_mask = batch["attention_mask"]                   │
╰─────────────────────────────────────────────────────────────────╯
"""


@pytest.mark.parametrize(
    ("log", "summary"),
    [
        # what a program went on after is no failure
        (CAUGHT + "[INFO] retry succeeded\n", NOTHING),
        (CAUGHT + "epoch 0 step 20 loss 2.1\nsaved ckpt-30.pt\n[INFO] done\n", NOTHING),
        (CAUGHT + steps(61), NOTHING),
        (
            OOM
            + "step 100/300 loss 2.1\nstep 200/300 loss 2.0\nTraining completed successfully.\n",
            NOTHING,
        ),
        ("step 3 loss nan\nstep 4 loss 1.9\nstep 5 loss 1.8\ntraining finished\n", NOTHING),
        (
            "step 20: loss nan detected in 0 of 20 batches\nkilled 3 dead workers from previous "
            "run\n",
            NOTHING,
        ),
        ("grad_norm=nan_to_num applied\nloss nan: 0\nfinished\n", NOTHING),
        (
            'sample: "RuntimeError: CUDA error: device-side assert triggered"\nperplexity 8.21\n',
            NOTHING,
        ),
        (f"{steps(40)}{PREEMPTED}{steps(120)}done in 300 s\n", NOTHING),
        # what ended it stays one, also where another rank takes a step, or the batch script says
        # its last words
        (CAUGHT, TIMED_OUT),
        (CAUGHT + "step 2 loss 3.0\n", TIMED_OUT),
        (CAUGHT + "job finished\n", TIMED_OUT),
        (
            OOM + "step 2/300 loss 3.0\n",
            "the GPU ran out of memory: 2.00 GiB requested, of 39.39 GiB",
        ),
        ("step 1\nAssertionError\n", "AssertionError"),
        ("step 3 loss nan\n", NOT_A_NUMBER),
        ("step 3 loss=nan, lr=0.1\n", NOT_A_NUMBER),
        (
            "step 110 loss 0.9\nKilled\n",
            "killed (SIGKILL) from outside, often because the node or the job ran out of memory",
        ),
        (f"{steps(120)}{PREEMPTED}step 120 loss 1.9\n", "the job was preempted…"),
        (f"step 3\n{LIMIT}", "the job reached its time limit…"),
        (f"step 3\n{KEY_ERROR}{LIMIT}", "KeyError: 'lr' at train.py:63"),
        # of two failures far from one another the last ended the program
        (FULL + MEMORY, "a file system was full…"),
        (FULL + BETWEEN + MEMORY, "the GPU ran out of memory: 2.00 GiB requested, of 39.39 GiB"),
        # a time in front of each line hides no chain, no rule and no last message
        (
            "".join(
                f"2026-11-22T10:00:{second:02}Z {line}\n"
                for second, line in enumerate(CHAIN.splitlines())
            ),
            "KeyError: 'lr' at train.py:63; then OSError: no config at train.py:63",
        ),
        (
            "2026-11-22T10:00:02Z step\n2026-11-22T10:00:09Z Killed\n",
            "killed (SIGKILL) from outside…",
        ),
        (
            "2026-11-22T10:00:02Z train.py: error: unrecognized arguments: --lrr\n",
            "unrecognized arguments: --lrr",
        ),
        # tracebacks of Windows, of notebooks, and in a box, whose top was cut off
        (
            WINDOWS,
            "AttributeError: Can't pickle local object 'main.<locals>.collate_fn' at "
            "train_lora.py:901",
        ),
        (NOTEBOOK, "KeyError: 'image' at train.py:52"),
        (
            f"{BOX}KeyError: 'attention_mask'\n{AGENT.format(1)}",
            "rank 3: KeyError: 'attention_mask' at ppo.py:88",
        ),
        (f"{BOX.partition(chr(10))[2]}KeyError: 'attention_mask'\n", "KeyError: 'attention_mask'"),
        ("│ epochs: 3 │\n╰───────────╯\nValueError: 3 batches were skipped\nstep 1\n", NOTHING),
        (f"step 3\n{AGENT.format(1)}", "rank 3 failed first with exit status 1"),
    ],
)
def test_what_ended_a_program(log: str, summary: str) -> None:
    shown = of_log(log).summary
    assert shown == summary or (summary.endswith("…") and shown.startswith(summary[:-1])), shown


NO_FILE = f"{TRACE}FileNotFoundError: [Errno 2] No such file or directory: "
USAGE = "usage: train.py [-h] [--config CONFIG]\ntrain.py: error: "
NO_STORE = (
    f"{TRACE}torch.distributed.DistNetworkError: The client socket has timed out after 25000ms "
    "while trying to "
    "connect to "
)


@pytest.mark.parametrize(
    ("log", "rule", "rank", "summary", "fix"),
    [
        (
            raised(
                "FileNotFoundError: [Errno 2] No such file or directory: 'same_last.pt.tmp' -> "
                "'same_last.pt'",
                1,
            ),
            "rename-race",
            1,
            "same_last.pt.tmp was gone before it was renamed to same_last.pt",
            "on rank 0 only",
        ),
        (f"{NO_FILE}'ckpt/.tmp_step_5' -> 'ckpt/step_5'\n", "rename-race", None, "", ""),
        (f"{NO_FILE}'/tmp/run/vocab.txt' -> '/data/vocab.txt'\n", None, None, "", ""),
        (f"{NO_FILE}'epoch_5.pt' -> 'best.pt'\n", "checkpoint-missing", None, "epoch_5.pt", ""),
        (f"{NO_FILE}'ckpt/last.pt'\n", "checkpoint-missing", None, "", ""),
        (f"step 3\n{AGENT.format(-11)}", "crashed", 3, "", ""),
        *(
            (f"{NO_STORE}{where}.\n", "store-localhost", None, "", "MASTER_ADDR")
            for where in ("(localhost, 29500)", "(127.0.0.1, 29500)", "localhost:29500")
        ),
        (f"{NO_STORE}(n1, 29500).\n", "store-unreachable", None, "", "preflight"),
        (
            f"{USAGE}unrecognized arguments: --local-rank=0\n",
            "local-rank-unknown",
            None,
            "",
            "LOCAL_RANK",
        ),
        (
            f"{USAGE}unrecognized arguments: --local_rank=3 --fast\n",
            "local-rank-unknown",
            None,
            "",
            "LOCAL_RANK",
        ),
        (
            f"{USAGE}the following arguments are required: --config, --local_rank\n",
            "local-rank-required",
            None,
            "",
            "LOCAL_RANK",
        ),
        (f"{USAGE}unrecognized arguments: --local-batch=0\n", None, None, "", ""),
        (f"{USAGE}the following arguments are required: --config\n", None, None, "", ""),
    ],
)
def test_the_rule_that_knows_a_log_and_its_advice(
    log: str, rule: str | None, rank: int | None, summary: str, fix: str
) -> None:
    shown = of_log(log)
    assert (shown.rule, shown.rank) == (rule, rank), shown.summary
    assert summary in shown.summary
    assert "best.pt" not in shown.summary
    assert fix in shown.fix
    assert rule != "store-localhost" or "preflight" not in shown.fix
    assert rule or "LOCAL_RANK" not in shown.fix


def torchruns(killed_at: str) -> str:
    """What torchrun says of rank 1, which raised an exception, and of rank 0, which was killed."""
    entries = (
        f"[{place}]:\n  time      : 2026-11-23_{time}\n  host      : localhost\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code}\n"
        f"  error_file: <N/A>\n  traceback : {message}\n"
        for place, rank, time, code, message in (
            (1, 0, killed_at, "-9 (pid: 15094)", "Signal 9 (SIGKILL) received by PID 15094"),
            (
                0,
                1,
                "05:35:35",
                "1 (pid: 15095)",
                "To enable traceback see: https://pytorch.org/errors.html",
            ),
        )
    )
    return (
        "E1123 05:36:05.104000 15089 torch/distributed/elastic/multiprocessing/api.py:1002] failed "
        "(exitcode: 1) "
        "local_rank: 1 (pid: 15095) of binary: /venv/bin/python\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n{next(entries)}{'-' * 60}\n"
        f"Root Cause (first observed failure):\n{next(entries)}{'=' * 60}\n"
    )


def test_a_rank_that_torchrun_kills_after_a_failure_is_not_the_failure() -> None:
    shown = of_log(raised("ValueError: label 7 out of range", 1) + torchruns("05:36:05"))
    assert shown.rank == 1
    assert shown.rule is None
    assert shown.fix == ""
    assert "ValueError: label 7 out of range at train.py:63" in shown.summary
    alone = of_log(torchruns("05:36:05"))  # the exception is in a file that nobody has shown
    assert alone.rank == 1
    assert alone.rule is None
    assert alone.summary == "rank 1 on localhost failed first with exit status 1"
    # in the same moment it may be the reason
    assert of_log(torchruns("05:35:36")).rule == "rank-killed"


@pytest.mark.parametrize(
    "stamp",
    [
        "2026-11-22T10:00:{s:02}.2000{s:02}Z ",  # kubectl logs --timestamps
        "2026-11-22T10:00:{s:02}.2+01:00 ",
        "Nov 22 10:00:{s:02} ",  # ts
        "00:00:{s:02} ",  # ts -s
        "1763805{s:03}.123456 ",  # ts %.s
        "Nov 22 10:00:{s:02} node1 python[4711]: ",  # journalctl
        "2026-11-22 10:00:{s:02},200 ",  # logging
        "[2026-11-22 10:00:{s:02}] ",
        "[2026-11-22T10:00:{s:02}.106313Z] fa88a9df || ",  # Determined
    ],
)
@pytest.mark.parametrize("lead", ["", "[rank2]: "])
def test_a_time_that_differs_in_each_line_hides_no_traceback(stamp: str, lead: str) -> None:
    lines = ["step 1", *(lead + line for line in KEY_ERROR.splitlines())]
    shown = of_log(
        "".join(f"{stamp.format(s=second)}{line}\n" for second, line in enumerate(lines))
    )
    assert "KeyError: 'lr' at train.py:63" in shown.summary
    assert shown.rank == (2 if lead else None)


@pytest.mark.parametrize("line", ["{task}: {stamp}{text}\n", "{stamp}{task}: {text}\n"])
def test_a_time_may_stand_before_or_behind_the_task_of_srun(line: str) -> None:
    lines = [
        (0, "step 1"),
        (1, "step 1"),
        *((1, text) for text in KEY_ERROR.splitlines()),
        (0, "step 2"),
    ]
    stamps = (f"2026-11-22T10:00:{second:02}Z " for second in range(len(lines)))
    log = "".join(
        line.format(task=task, stamp=stamp, text=text)
        for stamp, (task, text) in zip(stamps, lines, strict=True)
    )
    assert of_log(log).summary == "rank 1: KeyError: 'lr' at train.py:63"


def test_the_times_of_lines_still_tell_which_rank_was_first() -> None:
    waited = (
        "[rank0]:[E1122 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation "
        "timeout: "
        "WorkNCCL(SeqNum=8, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600020 milliseconds "
        "before timing out."
    )
    oom = raised(MEMORY, 1).splitlines()

    def first(*lines: str) -> str | None:
        return of_log(
            "".join(
                f"2026-11-22T10:{minute}:00.5Z {line}\n" for minute, line in enumerate(lines, 10)
            )
        ).rule

    assert first(waited, *oom) != first(*oom, waited) == "cuda-out-of-memory"


def test_the_time_of_a_programs_own_logger_stays_in_its_line() -> None:
    line = "2026-11-22 10:00:02,200 ERROR train: cannot read /data/a.tar"
    shown = of_log(f"2026-11-22 10:00:01,100 INFO train: start\n{line}\n")
    assert any(line in text for item in shown.evidence for text in item.lines)


def waits(rank: int, call: str, line: int) -> str:
    """The traceback of a rank that waited in a collective, as gloo ends it."""
    lines = [
        "Traceback (most recent call last):",
        f'  File "/home/b/ddp.py", line {line}, in <module>',
        f"    dist.{call}(t)",
        '  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line '
        f"2810, in {call}",
        "    work.wait()",
        "RuntimeError: [gloo/unbound_buffer.cc:81] Timed out waiting 20000ms for recv operation to "
        "complete",
    ]
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("others", "rule", "odd"),
    [
        (waits(2, "all_reduce", 95) + waits(1, "broadcast", 91), "collective-mismatch", 1),
        (waits(1, "broadcast", 91), "collective-mismatch", None),
        (waits(1, "all_reduce", 95), "collective-timeout", None),
        (waits(1, "all_reduce", 99), "collective-timeout", None),
    ],
)
def test_different_collectives_are_the_cause_and_the_odd_rank_is_named(
    others: str, rule: str, odd: int | None
) -> None:
    shown = of_log(waits(0, "all_reduce", 95) + others)
    assert shown.rule == rule
    assert shown.rank == odd
    assert odd != 1 or shown.summary == (
        "the ranks timed out in different collectives: ranks 0, 2 in all_reduce (ddp.py:95); rank "
        "1 in broadcast "
        "(ddp.py:91)"
    )


def test_what_torch_logs_of_each_rank_is_no_step() -> None:
    """The date in front of its lines has three digits before October."""
    ended = "".join(
        f"{timed_out(rank)}[rank{rank}]:[E726 20:27:21.4 ProcessGroupNCCL.cpp:684] [Rank {rank}] "
        "To avoid data inconsistency, we are taking the entire process down.\n"
        for rank in range(1, 6)
    )
    explanation = of_log(raised("FileExistsError: step_69 exists", rank=0) + ended)
    assert explanation.summary == "rank 0: FileExistsError: step_69 exists at train.py:63"


@pytest.mark.parametrize("before", [(), ("[rank0]: step 1 loss 2.1", "[rank8]: step 1 loss 2.1")])
def test_late_steps_of_another_rank_do_not_show_that_this_one_went_on(
    before: tuple[str, ...],
) -> None:
    late = [f"[rank8]: step {step} loss 2.0" for step in range(2, 8)]
    ended = raised("FileExistsError: step_69 exists", rank=0)
    explanation = of_log("\n".join((*before, ended, *late)))
    assert explanation.summary == "rank 0: FileExistsError: step_69 exists at train.py:63"
