"""Which rank failed, in one log that does not say whose its lines are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.explain.any_job_or_log import explain_logs
from tests.harness import REPO
from tests.unit.explain.written import RULES, TRACE, explained, of_log, raised, timed_out, write_job

KEY = "KeyError: 'lr'"
KEY_ERROR = f"{TRACE}{KEY}\n"
STEPS = "0: step 3\n0: step 4\n"
CUDA_ERROR = f"{TRACE}RuntimeError: CUDA error: unknown error\n"
NCCL_ERROR = (
    f"{TRACE}RuntimeError: NCCL error in: "
    "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1191, unhandled system error, "
    "NCCL version 2.12.12\n"
)
LOST = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:544] Connection "
    "closed "
    "by peer [n1]:9"
)
WATCHDOG = (
    "[E ProcessGroupNCCL.cpp:916] {} NCCL watchdog thread terminated with exception: CUDA "
    "error: unknown error\n"
)
AGENT = (
    "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 3 (pid: "
    "51121) of binary: "
    "/opt/venv/bin/python3\n"
)
DIED = (
    "subprocess.CalledProcessError: Command '['python', '-u', 'a.py', '--local_rank={}']' "
    "returned non-zero exit status 1.\n"
)
NODE_FAILED = "step 3\nsrun: error: Node failure on n2\n"


def nccl(host: str, pid: int, device: int, text: str = "NCCL INFO x") -> str:
    return f"{host}:{pid}:{pid} [{device}] {text}\n"


def warned(host: str, pid: int, device: int) -> str:
    return nccl(host, pid, device, "proxy.cc:808 NCCL WARN Proxy Call to rank 9 failed (Connect)")


def reported(*failed: tuple[int, str, int]) -> str:
    """torchrun's report of ranks, seconds and exit codes: the rank that it names first is the last
    one.
    """
    entries = [
        f"[{place}]:\n  time      : 2026-11-21_20:27:{second}\n  host      : n1\n  rank      : "
        f"{rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: {1000 + rank})\n  error_file: <N/A>\n  traceback : <N/A>\n"
        for place, (rank, second, code) in enumerate(failed)
    ]
    ruler = "=" * 60
    return (
        f"Failures:\n{''.join(entries[:-1])}{ruler}\nRoot Cause (first observed "
        f"failure):\n{entries[-1]}{ruler}\n"
    )


def behind(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


LOGS: dict[str, tuple[int | None, str]] = {
    "the only host's device": (
        1,
        nccl("n1", 11, 0) + nccl("n1", 12, 1) + warned("n1", 12, 1) + NCCL_ERROR,
    ),
    "a device of one of several hosts": (
        None,
        nccl("n1", 11, 0)
        + nccl("n2", 12, 0)
        + nccl("n2", 13, 1)
        + warned("n2", 12, 0)
        + NCCL_ERROR,
    ),
    "a device of the only host in the log, of a job with more GPUs than a node has": (
        None,
        "Initializing distributed: GLOBAL_RANK: 5, MEMBER: 6/48\n"
        + nccl("n1", 11, 0)
        + nccl("n1", 12, 7)
        + warned("n1", 12, 7)
        + NCCL_ERROR,
    ),
    "the watchdog says the same": (
        3,
        f"{CUDA_ERROR}For debugging\n\n{WATCHDOG.format('[Rank 3]')}",
    ),
    "two watchdogs say the same": (
        None,
        CUDA_ERROR + WATCHDOG.format("[Rank 3]") + WATCHDOG.format("[Rank 1]"),
    ),
    "a rank of a group of ranks": (
        None,
        CUDA_ERROR + WATCHDOG.format("[PG ID 3 PG GUID 9(tp) Rank 1] [Rank 1]"),
    ),
    "the watchdog of another rank": (
        None,
        f"{TRACE}RuntimeError: bind failed (errno: 98 - Address already in use).\n"
        "[E ProcessGroupNCCL.cpp:828] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1)\n",
    ),
    "the store's barrier": (
        None,
        f"{TRACE}RuntimeError: Timed out initializing process group in store based barrier on "
        "rank: 6, for key: x\n",
    ),
    "the agent's child": (3, KEY_ERROR + AGENT),
    "the agent's child, of tracebacks that are mixed": (
        None,
        "".join(f"{line}\n" * 3 for line in KEY_ERROR.splitlines()) + AGENT,
    ),
    "two children of an agent": (
        None,
        KEY_ERROR + AGENT + AGENT.replace("local_rank: 3", "local_rank: 1"),
    ),
    "an agent of one of several nodes": (
        None,
        f"{KEY_ERROR}+ torchrun --nnodes=2 --nproc-per-node=4 train.py\n{AGENT}",
    ),
    "launch names the last one": (None, KEY_ERROR + DIED.format(7)),  # torch 1.8, whichever failed
    "launch names the only one of its node": (0, KEY_ERROR + DIED.format(0)),
    "launch before torch 1.2": (
        None,
        "Traceback (most recent call last):\n  File "
        '"/env/lib/python3.7/site-packages/torch/distributed/launch.py", line 231, '
        f"in main\n    cmd=process.args)\n{DIED.format(0)}",
    ),
    "mp.spawn": (3, f"-- Process 3 terminated with the following error:\n{KEY_ERROR}"),
    "mp.spawn on one of several nodes": (
        None,
        "srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n2: task 1: Exited with "
        "exit code 1\n"
        "Traceback (most recent call last):\n  File "
        '"/env/lib/python3.9/site-packages/torch/multiprocessing/spawn.py", line 150, in '
        "join\n    raise x\ntorch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 2 "
        "terminated with the following "
        f"error:\n{KEY_ERROR}",
    ),
    "a task of srun in which torchrun starts the ranks": (
        None,
        f"{KEY_ERROR}torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "srun: error: n2: task 1: Exited with exit code 1\n",
    ),
    "a task of srun after another that was terminated": (
        5,
        "srun: error: n1: task 0: Terminated\nsrun: error: n2: task 5: Killed\n",
    ),
    "the only task of srun, which ended as one that was terminated": (
        None,
        "srun: error: n1: task 0: Exited with exit code 143\n",
    ),
    "two tasks of srun that failed alike": (
        None,
        "srun: error: n1: task 1: Exited with exit code 1\nsrun: error: n2: task 5: Exited with "
        "exit code 1\n",
    ),
    "several tasks of srun": (None, "srun: error: n1: tasks 0-3: Exited with exit code 1\n"),
    "a task of srun beside others that were terminated": (
        0,
        f"{KEY_ERROR}srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n1: tasks 1-3: "
        "Terminated\n",
    ),
    "srun --label, a task that runs torchrun": (
        None,
        STEPS
        + behind(
            "1: ",
            KEY_ERROR
            + "E1122 10:00:00.1 9 torch/distributed/elastic/multiprocessing/api.py:869] failed "
            "(exitcode: 1) local_rank: 0 (pid: 9) of binary: python",
        ),
    ),
    "srun --label, a task that runs torchrun, with its report": (
        6,
        STEPS
        + behind(
            "1: ",
            f"{KEY}\nRoot Cause (first observed failure):\n[0]:\n  time      : "
            "2026-11-21_10:00:00\n"
            "  host      : n2\n  rank      : 6 (local_rank: 2)\n  exitcode  : 1 (pid: 9)\n",
        ),
    ),
    "srun --label, a task in which Lightning starts the ranks": (
        None,
        "0: Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/8\n1: Initializing distributed: "
        "GLOBAL_RANK: 5, MEMBER: 6/8\n" + behind("1: ", KEY_ERROR),
    ),
    "torchrun's report behind a word": (
        5,
        KEY_ERROR
        + behind(
            "stderr: ",
            "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-21_10:00:00\n"
            "  host      : n1\n  rank      : 5 (local_rank: 5)\n  exitcode  : 1 (pid: 9)\n",
        ),
    ),
    "torchrun --tee has the local rank": (1, behind("[default1]:", KEY_ERROR)),
    "torchrun --tee has the local rank, on several nodes": (
        None,
        "+ torchrun --nnodes 2 --tee 3 train.py\n" + behind("[default1]:", KEY_ERROR),
    ),
    "Lightning's child": (
        2,
        f"{KEY_ERROR}[rank: 2] Child process with PID 71 terminated with code 1. Forcefully "
        "terminating all other processes to "
        "avoid zombies\nKilled\n",
    ),
    "MPICH 1": (7, "rank 7 in job 2  master_49512   caused collective abort of all ranks\n"),
    "aprun": (
        9,
        "_pmiu_daemon(SIGCHLD): [NID 00017] [c0-0c0s4n1] PE RANK 2 exit signal Terminated\n"
        "_pmiu_daemon(SIGCHLD): [NID 00021] [c0-0c0s5n1] PE RANK 9 exit signal Killed\n",
    ),
    "jsrun": (
        4,
        "ERROR:  One or more process (first noticed rank 4) terminated with signal 11 (core "
        "dumped)\n",
    ),
    "Open MPI 5": (
        6,
        "The first process to do so was:\n\n   Process name: [prterun-n1-71231@1,6]\n   Exit code: "
        "   1\n",
    ),
    "Open MPI 4": (6, "  Process name: [[41525,1],6]\n  Exit code:    1\n"),
    "composer": (2, "ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.\n"),
    "JAX": (
        37,
        "E0405 18:39:10 coordination_service.cc:962] /job:jax_worker/replica:0/task:37 heartbeat "
        "timeout. This indicates that the "
        "remote task has failed\n",
    ),
    "several ranks that abort": (
        None,
        "".join(
            f"Abort(1) on node {rank} (rank {rank} in comm 0): application called "
            "MPI_Abort(MPI_COMM_WORLD, 1) - process "
            f"{rank}\n"
            for rank in (2, 0, 1)
        ),
    ),
    "only a lost peer": (
        None,
        "[rank1]:[W1229 22:06:38.1 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=67): "
        "TCPStore: Broken pipe\n"
        f"[rank1]: {TRACE.strip()}\n[rank1]: RuntimeError: Broken pipe\n",
    ),
    "horovod shuts down a rank because of another one": (
        0,
        raised(
            "RuntimeError: Horovod has been shut down. This was caused by an exception",
            1,
            "[1,{}]<stderr>:",
        )
        + raised(KEY, 0, "[1,{}]<stderr>:"),
    ),
    "NCCL's first warning, without an exception": (
        5,
        nccl("n2", 12, 0, "NCCL INFO comm 0x55d9607ee240 rank 5 nranks 8")
        + nccl("n2", 13, 0, "NCCL INFO comm 0x55 rank 6 nranks 8")
        + warned("n2", 12, 0),
    ),
    "sizes that differ": (
        1,
        f"{TRACE}RuntimeError: [1]: params[0] in this process with sizes [4] appears not to "
        "match\n",
    ),
    "the program says so above its exception": (
        3,
        f"step 3\nRank 3 failed with an exception:\n{KEY_ERROR}",
    ),
    "a local rank above the exception": (None, f"step 3\nerror in local rank 3:\n{KEY_ERROR}"),
    "a failed node with one rank": (
        1,
        f"0: n1\n1: n2\n0: step 3\n1: step 3\n0: step 4\n1: {NODE_FAILED}",
    ),
    "a failed node with several ranks": (
        None,
        f"0: n1\n1: n2\n2: n2\n1: step 3\n0: step 4\n1: {NODE_FAILED}",
    ),
    "a failed node, by fairseq": (
        1,
        f"| initialized host n1 as rank 0\n| initialized host n2 as rank 1\n{NODE_FAILED}",
    ),
    "a failed node, by NCCL": (
        1,
        nccl("n1", 9, 0, "NCCL INFO comm 0x55 rank 0 nranks 2")
        + nccl("n2", 9, 0, "NCCL INFO comm 0x55 rank 1 nranks 2")
        + NODE_FAILED,
    ),
    "vllm, as in vllm-project/vllm#14452": (
        3,
        behind("(VllmWorker rank=3 pid=866) ", KEY_ERROR)
        + "(VllmWorker rank=1 pid=788) INFO 03-15 17:24:17 [pynccl.py:69] vLLM is using "
        "nccl==2.25.1\n",
    ),
    "vllm's tensor-parallel workers": (
        2,
        behind("(Worker_TP2 pid=866) ", KEY_ERROR) + "(EngineCore_DP0 pid=701) INFO waiting\n",
    ),
    "SGLang, as in sgl-project/sglang#12707": (
        2,
        f"step 3\n[2025-11-05 17:42:27 TP2] Scheduler hit an exception: {TRACE}RuntimeError: "
        "Triton Error [CUDA]: an error\n",
    ),
    "ray": (
        4,
        behind("(Worker[rank=4] pid=4100) ", KEY_ERROR) + "(Worker[rank=5] pid=4101) step 3\n",
    ),
    # --- ranks that wait, and ranks that fail alike ---
    "several ranks that did not come": (
        None,
        f"{TRACE}RuntimeError: [Rank 0]: Ranks 4, 5, 6, 7 failed to pass monitoredBarrier in "
        "2000000 ms\n",
    ),
    "a rendezvous for which one rank waited": (
        None,
        raised(
            "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. "
            "6/8 clients joined.",
            6,
        ),
    ),
    "a timeout of some ranks, where another one writes on": (
        None,
        "[rank7]:[W1121 20:27:21.4 x.cpp:1] a warning\n" + "".join(map(timed_out, (0, 1, 3))),
    ),
    "more ranks that waited than matches are kept": (None, "".join(map(timed_out, range(6)))),
    "the first that torchrun saw, of those that failed alike": (
        1,
        raised(KEY, 3) + raised(KEY, 1) + reported((1, "25", 1)),
    ),
    "the first by its time": (
        3,
        raised(KEY, 3) + raised(KEY, 1) + reported((1, "29", 1), (3, "25", 1)),
    ),
    "a rank that was killed before others lost it": (
        1,
        raised(LOST, 0) + raised(LOST, 2) + reported((0, "26", 1), (1, "25", -9)),
    ),
    "the first that lost another one": (
        None,
        raised(LOST, 0) + raised(LOST, 2) + reported((1, "26", 1), (0, "25", 1)),
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_the_rank_is_named_where_the_lines_tell_it_and_otherwise_none(name: str) -> None:
    rank, log = LOGS[name]
    shown = of_log(log)
    assert shown.rank == rank, shown.summary


JOINING = (
    "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving "
    "ncclUniqueId from [0] via c10d "
    "key-value store by key '0', but store->get('0') got error: Connection reset by peer"
)
ASSERTED = (
    "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1146: indexSelectLargeIndex: block: [12,0,0], "
    "thread: [32,0,0] "
    "Assertion `srcIndex < srcSelectDimSize` failed.\n"
)
CONDA = (
    "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"
)
LIMIT = (
    "slurmstepd: error: *** JOB 42210 ON n1 CANCELLED AT 2022-04-14T16:17:16 DUE TO TIME "
    "LIMIT "
    "***\n"
)
LONG = ", ".join(f"'--option-{number}'" for number in range(40))


@pytest.mark.parametrize(
    ("log", "rule", "rank", "summary"),
    [
        # a rank that failed by itself comes before those that waited for it
        (
            raised(JOINING, 1) + raised("FileNotFoundError: no train.json", 0),
            None,
            0,
            "FileNotFoundError",
        ),
        (raised(JOINING, 1), "nccl-id-missing", 0, ""),
        (
            timed_out(2)
            + raised(NCCL_ERROR.splitlines()[-1], 2)
            + raised("ValueError: not a number", 1),
            None,
            1,
            "not a number",
        ),
        (
            f"{TRACE}RuntimeError: Rank 0 successfully reached monitoredBarrier, but received "
            "errors while waiting for "
            "send/recv from rank 2. Please check rank 2 logs for faulty rank.\n",
            "monitored-barrier",
            2,
            "",
        ),
        (
            f"{TRACE}RuntimeError: [Rank 0]: Ranks 3 failed to pass monitoredBarrier in 1800000 "
            "ms\n",
            "monitored-barrier",
            3,
            "",
        ),
        (
            nccl("g3", 211, 5)
            + nccl("g3", 212, 6)
            + nccl(
                "g3",
                211,
                5,
                "net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.1.2.3<33420> with "
                "error 12",
            )
            + raised(
                "torch.distributed.DistBackendError: remote process exited or there was a network "
                "error",
                13,
            ),
            "nccl-no-answer",
            None,
            "",
        ),
        (f"{TRACE}{LOST}\n{KEY_ERROR}", None, None, KEY),
        # what comes after the failure is not its cause
        (f"{KEY_ERROR}Killed\n", None, None, KEY),
        (
            ASSERTED
            + f"{TRACE}RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling x\n",
            "device-assert",
            None,
            "(srcIndex < srcSelectDimSize)",
        ),
        (
            CONDA + "".join(f"{step}/50 done\n" for step in range(1, 16)) + LIMIT,
            "time-limit",
            None,
            "",
        ),
        (f"{CONDA}{TRACE}ModuleNotFoundError: No module named 'torch'\n", "shell-setup", None, ""),
        # what a launcher or a library says
        (
            "MPICH ERROR [Rank 12] [job id 41.0] [nid006700] - Abort(2695311) (rank 12 in comm 0): "
            "Fatal error in "
            "PMPI_Allreduce: Other MPI error, error stack:\n"
            "PMPI_Allreduce(534)..................: MPI_Allreduce(sbuf=0x7ffd73e91548, count=1) "
            "failed\n"
            "PMPI_Allreduce(519)..................:\n"
            "MPIDI_OFI_handle_cq_error(1075)......: OFI poll failed (Input/output error)\n"
            "srun: error: nid006700: task 12: Exited with exit code 255\n",
            None,
            12,
            "Fatal error in PMPI_Allreduce: OFI poll failed (Input/output error)",
        ),
        (
            "srun: error: Task launch for StepId=12.0 failed on node n3: Communication connection "
            "failure\n",
            "srun-launch",
            None,
            "srun could not start the ranks on n3: Communication connection failure",
        ),
        (
            "step 3\n(A pid=7) logging.cc:113: Unhandled exception: system_error. what(): thread: "
            "Resource temporarily unavailable\n",
            "no-threads",
            None,
            "",
        ),
        (
            "step 3\nlibgomp: Thread creation failed: Resource temporarily unavailable\n",
            "no-threads",
            None,
            "",
        ),
        # a traceback that is a text in one line, and one whose lines srun --label has cut
        (
            "wandb: ERROR Run wy0 errored: ValueError('Caught ValueError in DataLoader worker "
            "process 0.\\nOriginal Traceback "
            "(most recent call last):\\n  File "
            '"/env/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 308, '
            'in _worker_loop\\n    data = fetcher.fetch(index)\\n  File "/work/data.py", line 7, '
            "in __getitem__\\n"
            '    raise ValueError("no image")\\nValueError: no image\\n\')\nkilling sweep.\n',
            None,
            None,
            "ValueError: no image at data.py:7",
        ),
        (
            behind(
                "0: ",
                'Traceback (most recent call last):\n  F\nile "/opt/torch/loader.py", line 12, in '
                "read\n    check()\n"
                '  File "/home/ann\n/train.py", line 9, in check\n    assert '
                "shared\nAssertionError\n: the memory is gone",
            ),
            None,
            None,
            "AssertionError: the memory is gone at train.py:9",
        ),
        # ranks that fail alike
        (
            raised("RuntimeError: CUDA error: out of memory", 2)
            + raised("RuntimeError: CUDA error: out of memory", 1),
            "cuda-memory-taken",
            None,
            "ranks 1-2: ",
        ),
    ],
)
def test_the_cause_and_its_rank(log: str, rule: str | None, rank: int | None, summary: str) -> None:
    shown = of_log(log)
    assert (shown.rule, shown.rank, summary in shown.summary) == (rule, rank, True), shown.summary


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (
            f"{ASSERTED}{TRACE}RuntimeError: CUDA error: device-side assert triggered\n",
            ASSERTED.strip(),
        ),
        (
            "(pid=8) n1:8:9 [0] transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : "
            "217 peer access\n" + behind("(pid=7) ", NCCL_ERROR),
            "n1:8:9 [0] transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer "
            "access",
        ),
        (
            "terminate called after throwing an instance of 'gloo::IoException'\n  what():  "
            "[pair.cc:761] connect "
            "[127.0.1.1]:50933: refused by peer\n./run.sh: line 6: 20117 Aborted   (core dumped) "
            "./bench\n",
            "what():  [pair.cc:761] connect [127.0.1.1]:50933: refused by peer",
        ),
        (
            "step 3\nERROR:root:more shards were requested than there are\n"
            f"{TRACE}RuntimeError: Critical error in pipeline:\nError in thread 3: CUDA allocation "
            "failed\n",
            "ERROR:root:more shards were requested than there are",
        ),
        *(
            (
                f"{TRACE}{exception}\n{line}\nKilling subprocess 5120\nwandb: Synced 5 files\n",
                line.strip(),
            )
            for exception, line in (
                (
                    "RuntimeError: Critical error in pipeline:\nError when executing Decoder:",
                    "Error in thread 3: CUDA allocation failed",
                ),
                (
                    "ResourceExhaustedError: 2 root error(s) found.",
                    "  (0) Resource exhausted: Out of memory",
                ),
                (
                    "XlaRuntimeError: UNKNOWN: no algorithm for:\n%conv = f32[4]\n",
                    "Original error: RESOURCE_EXHAUSTED: 176 MiB",
                ),
                ("ray.exceptions.ActorDiedError: The actor died.", "\tpid: 204471"),
            )
        ),
    ],
)
def test_what_stands_beside_an_exception_is_shown_with_it_up_to_the_next_record(
    log: str, line: str
) -> None:
    shown = of_log(log).evidence[0].lines
    assert line in shown
    assert not any(text.startswith(("Killing", "wandb", "./run.sh")) for text in shown)


def test_what_a_rule_looks_for_is_seen_and_shown_in_a_long_line() -> None:
    shown = of_log(
        f"[2026-01-01 10:00:00,0] [ERROR] [launch.py:321] [{LONG}] exits with return code = -9\n"
    )
    assert shown.rule == "rank-killed"
    assert shown.evidence[0].lines[0].startswith("… '--option")
    assert shown.evidence[0].lines[0].endswith("exits with return code = -9")


@pytest.mark.parametrize("name", ["rank-{}.err", "{}/stderr.log"])
def test_of_logs_without_an_exception_none_is_blamed(name: str, tmp_path: Path) -> None:
    paths = []
    for rank, text in ((0, f"{TRACE}{LOST}\n"), (1, "step 3\n")):
        path = tmp_path / name.format(rank)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        paths.append(str(path))
    shown = explain_logs(paths, RULES)
    assert shown.rank is None
    assert "Connection closed by peer" in shown.summary


def test_of_ranks_that_have_all_lost_another_one_none_is_named_and_their_error_is_shown() -> None:
    shown = of_log("saving\n" + raised(LOST, 3) + raised(LOST, 5))
    assert shown.rule is None
    assert shown.rank is None
    assert shown.summary.startswith(
        "another rank had already ended: RuntimeError: Connection closed by peer [n1]:9"
    )
    assert [item.who for item in shown.evidence] == ["ranks 3, 5"]


def test_of_many_ranks_that_fail_alike_the_first_in_the_log_is_shown() -> None:
    steps = "".join(f"{rank}: step {step}\n" for step in range(3) for rank in range(1500))
    shown = of_log(steps + raised(KEY, 700, "{}: ") + raised(KEY, 300, "{}: "))
    assert shown.summary == "ranks 300, 700: KeyError: 'lr' at train.py:63"
    assert shown.evidence[0].who == "rank 700"


def test_the_rank_that_is_missing_among_those_that_timed_out_is_named() -> None:
    log = "".join(timed_out(rank).partition("]:")[2] for rank in (0, 3, 1))
    shown = of_log(log)
    assert shown.rule == "collective-timeout"
    assert shown.rank == 2
    assert "did not join" in shown.summary
    # nothing tells which of them the others waited for
    for other, ranks in ((2, "ranks 0-3"), (5, "ranks 0-1, 3, 5")):
        shown = of_log(log + timed_out(other).partition("]:")[2])
        assert shown.rank is None
        assert shown.summary.partition(":")[0] == ranks


def test_of_a_checkpoint_that_failed_on_all_ranks_the_one_that_raised_it_is_named(
    tmp_path: Path,
) -> None:
    log = (REPO / "tests/data/explain/order/checkpoint.log").read_text()
    words = "KeyError: 'optimizer is not ready' at dcp.py:11"
    assert of_log(log).summary == f"rank 1: {words}"
    lines = log.splitlines(keepends=True)
    errs = {
        rank: "".join(line for line in lines if line.startswith(f"[rank{rank}]"))
        for rank in range(3)
    }
    folder = write_job(tmp_path / "run", errs, {rank: (1, float(rank == 1)) for rank in range(3)})
    assert explained(folder).summary == f"rank 1 on node01 failed first: {words}"


@pytest.mark.parametrize("name", ["3/stderr.log", "4711_3_log.err", "rank-3.err", "slurm-77.out"])
def test_the_rank_is_known_by_the_prefix_of_a_line_or_by_the_name_of_the_file(name: str) -> None:
    assert of_log(raised(KEY, 1), name).rank == 1
    assert of_log(KEY_ERROR, name).rank == (3 if "3" in name else None)


def test_of_ranks_that_a_command_starts_the_prefix_counts_and_not_the_record_of_the_node(
    tmp_path: Path,
) -> None:
    folder = write_job(tmp_path / "run", {1: raised(KEY, 3)}, {0: (143, 1.0), 1: (1, 0.0)})
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(
        json.dumps({**record, "plan": {"shape": {"launcher": "command"}}})
    )
    assert explained(folder).summary == "rank 3: KeyError: 'lr' at train.py:63"
