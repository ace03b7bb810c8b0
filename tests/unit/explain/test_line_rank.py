"""Which rank failed, in one log that does not say whose its lines are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.explain.any_job_or_log import explain_logs
from tests.harness import REPO
from tests.unit.explain.test_corpus import explained
from tests.unit.explain.test_line_order import RULES, job, said_of, timed_out
from tests.unit.explain.written import TRACE

NCCL_ERROR = (
    f"{TRACE}RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1191, unhandled system error, "
    "NCCL version 2.12.12\n"
)
WARNED = "{host}:4112:4190 [{device}] proxy.cc:808 NCCL WARN Proxy Call to rank 9 failed (Connect)\n"
# ruff: noqa: E501
LOGS: dict[str, tuple[str, int | None]] = {
    "the only host's device": (
        "n1:4111:4111 [0] NCCL INFO Bootstrap : Using eth0\nn1:4112:4112 [1] NCCL INFO Bootstrap : Using eth0\n"
        + WARNED.format(host="n1", device=1)
        + NCCL_ERROR,
        1,
    ),
    "a device of one of several hosts": (
        "n1:4111:4111 [0] NCCL INFO x\nn2:4112:4112 [0] NCCL INFO x\nn2:4113:4113 [1] NCCL INFO x\n"
        + WARNED.format(host="n2", device=0)
        + NCCL_ERROR,
        None,
    ),
    "a device of the only host in the log, of a job with more GPUs than a node has": (
        "Initializing distributed: GLOBAL_RANK: 5, MEMBER: 6/48\n"
        "n1:4111:4111 [0] NCCL INFO Bootstrap : Using eth0\nn1:4112:4112 [7] NCCL INFO Bootstrap : Using eth0\n"
        + WARNED.format(host="n1", device=7)
        + NCCL_ERROR,
        None,
    ),
    "the watchdog says the same": (
        f"{TRACE}RuntimeError: CUDA error: unknown error\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1.\n\n"
        "[E ProcessGroupNCCL.cpp:916] [Rank 3] NCCL watchdog thread terminated with exception: CUDA error: unknown error\n",
        3,
    ),
    "the store's barrier": (
        f"{TRACE}RuntimeError: Timed out initializing process group in store based barrier on rank: 6, for key: x\n",
        None,
    ),
    "the agent's child": (
        f"{TRACE}KeyError: 'lr'\nERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 3 "
        "(pid: 51121) of binary: /opt/venv/bin/python3\n",
        3,
    ),
    "launch names the last one": (
        f"{TRACE}KeyError: 'lr'\nsubprocess.CalledProcessError: Command '['/bin/python', '-u', 'train.py', "
        "'--local_rank=7']' returned non-zero exit status 1.\n",
        None,
    ),
    "an agent of one of several nodes": (
        f"{TRACE}KeyError: 'lr'\n+ torchrun --nnodes=2 --nproc-per-node=4 train.py\nERROR:torch.distributed.elastic."
        "multiprocessing.api:failed (exitcode: 1) local_rank: 3 (pid: 51121) of binary: /opt/venv/bin/python3\n",
        None,
    ),
    "a process of mp.spawn on one of several nodes": (
        "srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n2: task 1: Exited with exit code 1\n"
        "Traceback (most recent call last):\n"
        '  File "/env/lib/python3.9/site-packages/torch/multiprocessing/spawn.py", line 150, in join\n    raise x\n'
        "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 2 terminated with the following error:\n"
        f"{TRACE}KeyError: 'lr'\n",
        None,
    ),
    "a task of srun in which torchrun starts the ranks": (
        f"{TRACE}KeyError: 'lr'\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "srun: error: n2: task 1: Exited with exit code 1\n",
        None,
    ),
    "srun --label, a task that runs torchrun": (
        '0: step 3\n0: step 4\n1: Traceback (most recent call last):\n1:   File "train.py", line 3, in main\n'
        "1:     step()\n1: KeyError: 'lr'\n1: E1122 10:00:00.1 9 torch/distributed/elastic/multiprocessing/api.py:869] "
        "failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: python\n",
        None,
    ),
    "srun --label, a task that runs torchrun, with its report": (
        "0: step 3\n0: step 4\n1: KeyError: 'lr'\n1: Root Cause (first observed failure):\n1: [0]:\n"
        "1:   time      : 2026-11-21_10:00:00\n1:   host      : n2\n1:   rank      : 6 (local_rank: 2)\n"
        "1:   exitcode  : 1 (pid: 9)\n",
        6,
    ),
    "torchrun's report behind a word": (
        f"{TRACE}KeyError: 'lr'\nstderr: Root Cause (first observed failure):\nstderr: [0]:\n"
        "stderr:   time      : 2026-11-21_10:00:00\nstderr:   host      : n1\nstderr:   rank      : 5 (local_rank: 5)\n"
        "stderr:   exitcode  : 1 (pid: 9)\n",
        5,
    ),
    "torchrun --tee has the local rank": (
        '[default1]:Traceback (most recent call last):\n[default1]:  File "train.py", line 3, in main\n'
        "[default1]:    step()\n[default1]:KeyError: 'lr'\n",
        1,
    ),
    "torchrun --tee has the local rank, on several nodes": (
        "+ torchrun --nnodes 2 --tee 3 train.py\n[default1]:Traceback (most recent call last):\n"
        "[default1]:  File \"train.py\", line 3, in main\n[default1]:    step()\n[default1]:KeyError: 'lr'\n",
        None,
    ),
    "Lightning's child": (
        f"{TRACE}KeyError: 'lr'\n[rank: 2] Child process with PID 71 terminated with code 1. Forcefully terminating all "
        "other processes to avoid zombies\nKilled\n",
        2,
    ),
    "MPICH 1": ("rank 7 in job 2  master_49512   caused collective abort of all ranks\n", 7),
    "aprun": (
        "_pmiu_daemon(SIGCHLD): [NID 00017] [c0-0c0s4n1] PE RANK 2 exit signal Terminated\n"
        "_pmiu_daemon(SIGCHLD): [NID 00021] [c0-0c0s5n1] PE RANK 9 exit signal Killed\n",
        9,
    ),
    "jsrun": ("ERROR:  One or more process (first noticed rank 4) terminated with signal 11 (core dumped)\n", 4),
    "Open MPI 5": (
        "The first process to do so was:\n\n   Process name: [prterun-n1-71231@1,6]\n   Exit code:    1\n",
        6,
    ),
    "JAX": (
        "E0405 18:39:10 coordination_service.cc:962] /job:jax_worker/replica:0/task:37 heartbeat timeout. This indicates "
        "that the remote task has failed\n",
        37,
    ),
    "only a lost peer": (
        "[rank1]:[W1229 22:06:38.1 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=67): TCPStore: Broken pipe\n"
        f"[rank1]: {TRACE.strip()}\n[rank1]: RuntimeError: Broken pipe\n",
        None,
    ),
    "NCCL's first warning, without an exception": (
        "n2:4112:4112 [0] NCCL INFO comm 0x55d9607ee240 rank 5 nranks 8\nn2:4113:4113 [0] NCCL INFO comm 0x55 rank 6 nranks 8\n"
        + WARNED.format(host="n2", device=0),
        5,
    ),
    "a rank of a group of ranks": (
        f"{TRACE}RuntimeError: CUDA error: unknown error\n[E ProcessGroupNCCL.cpp:916] [PG ID 3 PG GUID 9(tp) Rank 1] "
        "[Rank 1] NCCL watchdog thread terminated with exception: CUDA error: unknown error\n",
        None,
    ),
    "sizes that differ": (
        f"{TRACE}RuntimeError: [1]: params[0] in this process with sizes [4] appears not to match\n",
        1,
    ),
    "the program says so above its exception": (
        f"step 3\nRank 3 failed with an exception:\n{TRACE}KeyError: 'lr'\n",
        3,
    ),
    "a local rank above the exception": (f"step 3\nerror in local rank 3:\n{TRACE}KeyError: 'lr'\n", None),
    "launch before torch 1.2": (
        "Traceback (most recent call last):\n"
        '  File "/env/lib/python3.7/site-packages/torch/distributed/launch.py", line 231, in main\n    cmd=process.args)\n'
        "subprocess.CalledProcessError: Command '['/bin/python', '-u', 'train.py', '--local_rank=0']' returned non-zero "
        "exit status 1.\n",
        None,
    ),
    "a failed node with one rank": (
        "0: n1\n1: n2\n0: step 3\n1: step 3\n0: step 4\n1: step 4\nsrun: error: Node failure on n2\n",
        1,
    ),
    "a failed node, by fairseq": (
        "| initialized host n1 as rank 0\n| initialized host n2 as rank 1\nstep 3\nsrun: error: Node failure on n2\n",
        1,
    ),
    "a failed node, by NCCL": (
        "n1:9:9 [0] NCCL INFO comm 0x55 rank 0 nranks 2\nn2:9:9 [0] NCCL INFO comm 0x55 rank 1 nranks 2\nstep 3\n"
        "srun: error: Node failure on n2\n",
        1,
    ),
    "srun --label, a task in which Lightning starts the ranks": (
        "0: Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/8\n1: Initializing distributed: GLOBAL_RANK: 5, MEMBER: 6/8\n"
        "1: Traceback (most recent call last):\n1:   File \"train.py\", line 3, in main\n1:     step()\n1: KeyError: 'lr'\n",
        None,
    ),
    "horovod shuts down a rank because of another one": (
        "".join(
            f"[1,{rank}]<stderr>:{line}\n"
            for rank, said in (
                (1, "RuntimeError: Horovod has been shut down. This was caused by an exception"),
                (0, "KeyError: 'lr'"),
            )
            for line in f"{TRACE}{said}".splitlines()
        ),
        0,
    ),
    "a failed node with several ranks": (
        "0: n1\n1: n2\n2: n2\n1: step 3\n0: step 4\n1: step 4\nsrun: error: Node failure on n2\n",
        None,
    ),
    "vllm, as in vllm-project/vllm#14452": (
        "".join(f"(VllmWorker rank=3 pid=866) {line}\n" for line in f"{TRACE}KeyError: 'lr'".splitlines())
        + "(VllmWorker rank=1 pid=788) INFO 03-15 17:24:17 [pynccl.py:69] vLLM is using nccl==2.25.1\n",
        3,
    ),
    "vllm's tensor-parallel workers": (
        "".join(f"(Worker_TP2 pid=866) {line}\n" for line in f"{TRACE}KeyError: 'lr'".splitlines())
        + "(EngineCore_DP0 pid=701) INFO waiting\n",
        2,
    ),
    "SGLang, as in sgl-project/sglang#12707": (
        f"step 3\n[2025-11-05 17:42:27 TP2] Scheduler hit an exception: {TRACE}"
        "RuntimeError: Triton Error [CUDA]: an error\n",
        2,
    ),
    "ray": (
        "".join(f"(Worker[rank=4] pid=4100) {line}\n" for line in f"{TRACE}KeyError: 'lr'".splitlines())
        + "(Worker[rank=5] pid=4101) step 3\n",
        4,
    ),
}


def of_rank(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in (TRACE + text).splitlines())


def torchruns(*failed: tuple[int, str, int]) -> str:
    """torchrun's report: the rank that it names first is the last one."""
    entries = [
        f"[{place}]:\n  time      : 2026-11-21_20:27:{second}\n  host      : n1\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: {1000 + rank})\n  error_file: <N/A>\n  traceback : <N/A>\n"
        for place, (rank, second, code) in enumerate(failed)
    ]
    ruler = "=" * 60
    return f"Failures:\n{''.join(entries[:-1])}{ruler}\nRoot Cause (first observed failure):\n{entries[-1]}{ruler}\n"


KEY = "KeyError: 'lr'"
LOST = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:544] Connection closed by peer [n1]:9"
# a rank without proof would be a guess: each of these names one that a launcher or a line has in it
UNPROVEN: dict[str, str] = {
    "several ranks that did not come": (
        f"{TRACE}RuntimeError: [Rank 0]: Ranks 4, 5, 6, 7 failed to pass monitoredBarrier in 2000000 ms\n"
    ),
    "a rendezvous for which one rank waited": of_rank(
        6, "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 6/8 clients joined."
    ),
    "the agent's choice among tracebacks that are mixed": (
        "".join(f"{line}\n" * 3 for line in f"{TRACE}{KEY}".splitlines())
        + LOGS["the agent's child"][0].partition("\n")[2][-160:]
    ),
    "a timeout of some ranks, where another one writes on": (
        "[rank7]:[W1121 20:27:21.4 x.cpp:1] a warning\n" + "".join(timed_out(rank) for rank in (0, 1, 3))
    ),
    "several ranks that abort": "".join(
        f"Abort(1) on node {rank} (rank {rank} in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process "
        f"{rank}\n"
        for rank in (2, 0, 1)
    ),
    "two ranks that report the same error": (
        f"{TRACE}RuntimeError: CUDA error: unknown error\n"
        "[E ProcessGroupNCCL.cpp:9] [Rank 3] NCCL watchdog thread terminated with exception: CUDA error: unknown error\n"
        "[E ProcessGroupNCCL.cpp:9] [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: unknown error\n"
    ),
    "more ranks that waited than matches are kept": "".join(timed_out(rank) for rank in range(6)),
}


@pytest.mark.parametrize("name", UNPROVEN)
def test_no_rank_is_named_without_proof(name: str, tmp_path: Path) -> None:
    said = said_of(UNPROVEN[name], tmp_path)
    assert said.rank is None, said.summary


def test_the_rank_that_a_launcher_saw_fail_before_the_others_is_named_among_those_that_failed_alike(
    tmp_path: Path,
) -> None:
    alike = of_rank(3, KEY) + of_rank(1, KEY)
    assert said_of(alike + torchruns((1, "25", 1)), tmp_path).rank == 1
    assert said_of(alike + torchruns((1, "29", 1), (3, "25", 1)), tmp_path).rank == 3
    lost = of_rank(0, LOST) + of_rank(2, LOST)
    assert said_of(lost + torchruns((0, "26", 1), (1, "25", -9)), tmp_path).rank == 1
    assert said_of(lost + torchruns((1, "26", 1), (0, "25", 1)), tmp_path).rank is None
    terminated = "srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n1: tasks 1-3: Terminated\n"
    assert said_of(f"{TRACE}{KEY}\n{terminated}", tmp_path).rank == 0


@pytest.mark.parametrize("name", ["rank-{}.err", "{}/stderr.log"])
def test_of_logs_without_an_exception_none_is_blamed(name: str, tmp_path: Path) -> None:
    paths = []
    for rank, text in ((0, f"{TRACE}{LOST}\n"), (1, "step 3\n")):
        path = tmp_path / name.format(rank)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        paths.append(str(path))
    said = explain_logs(paths, RULES)
    assert (said.rank, "Connection closed by peer" in said.summary) == (None, True)


@pytest.mark.parametrize("name", LOGS)
def test_the_rank_is_named_where_the_lines_tell_it(name: str, tmp_path: Path) -> None:
    log, rank = LOGS[name]
    assert said_of(log, tmp_path).rank == rank


def test_of_the_exceptions_of_several_ranks_that_of_a_lost_peer_is_not_the_first(tmp_path: Path) -> None:
    assert KEY in said_of(f"{TRACE}{LOST}\n{TRACE}{KEY}\n", tmp_path).summary


def test_of_ranks_that_have_all_lost_another_one_none_is_named_and_what_they_say_is_the_answer(tmp_path: Path) -> None:
    said = said_of("saving\n" + of_rank(3, LOST) + of_rank(5, LOST), tmp_path)
    assert (said.rule, said.rank) == (None, None)
    assert said.summary.startswith("another rank had already ended: RuntimeError: Connection closed by peer [n1]:9")
    assert [item.who for item in said.evidence] == ["rank 3", "rank 5"]


def test_nccls_warning_of_one_process_is_shown_with_its_error_in_another(tmp_path: Path) -> None:
    warned = "(pid=8) n1:8:9 [0] transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer access\n"
    said = said_of(warned + "".join(f"(pid=7) {line}\n" for line in NCCL_ERROR.splitlines()), tmp_path)
    assert "NCCL WARN failed to open CUDA IPC handle" in said.evidence[0].lines[0]


@pytest.mark.parametrize(
    "line",
    [
        "(A pid=7) logging.cc:113: Unhandled exception: system_error. what(): thread: Resource temporarily unavailable",
        "libgomp: Thread creation failed: Resource temporarily unavailable",
    ],
)
def test_a_thread_that_could_not_be_started_by_a_library_is_known(line: str, tmp_path: Path) -> None:
    assert said_of(f"step 3\n{line}\n", tmp_path).rule == "no-threads"


def test_what_is_killed_after_an_exception_is_not_the_cause(tmp_path: Path) -> None:
    said = said_of(f"{TRACE}{KEY}\nKilled\n", tmp_path)
    assert (said.rule, KEY in said.summary) == (None, True)


def test_the_rank_that_is_missing_among_those_that_timed_out_is_named(tmp_path: Path) -> None:
    log = "".join(timed_out(rank).partition("]:")[2] for rank in (0, 3, 1))
    said = said_of(log, tmp_path)
    assert (said.rule, said.rank) == ("collective-timeout", 2)
    assert "did not join" in said.summary
    for other, ranks in ((2, "ranks 0-3"), (5, "ranks 0-1, 3, 5")):  # nothing tells which of them the others waited for
        said = said_of(log + timed_out(other).partition("]:")[2], tmp_path)
        assert (said.rank, said.summary.partition(":")[0]) == (None, ranks)


def test_mpichs_innermost_message_is_the_answer(tmp_path: Path) -> None:
    said = said_of(
        "MPICH ERROR [Rank 12] [job id 41.0] [nid006700] - Abort(2695311) (rank 12 in comm 0): Fatal error in "
        "PMPI_Allreduce: Other MPI error, error stack:\n"
        "PMPI_Allreduce(534)..................: MPI_Allreduce(sbuf=0x7ffd73e91548, count=1) failed\n"
        "PMPI_Allreduce(519)..................:\n"
        "MPIDI_OFI_handle_cq_error(1075)......: OFI poll failed (Input/output error)\n"
        "srun: error: nid006700: task 12: Exited with exit code 255\n",
        tmp_path,
    )
    assert said.rank == 12
    assert "Fatal error in PMPI_Allreduce: OFI poll failed (Input/output error)" in said.summary


def test_what_the_program_says_above_its_exception_is_shown_and_the_rest_of_the_message(tmp_path: Path) -> None:
    said = said_of(
        "step 3\nERROR:root:more shards were requested than there are\n"
        f"{TRACE}RuntimeError: Critical error in pipeline:\nError when executing Decoder, encountered:\n"
        "Error in thread 3: CUDA allocation failed\nCurrent pipeline object is no longer valid.\n",
        tmp_path,
    )
    lines = said.evidence[0].lines
    assert lines[0] == "ERROR:root:more shards were requested than there are"
    assert lines[-2:] == ("Error in thread 3: CUDA allocation failed", "Current pipeline object is no longer valid.")


def test_a_traceback_that_is_a_text_in_one_line_is_read(tmp_path: Path) -> None:
    said = said_of(
        "wandb: ERROR Run wy0 errored: ValueError('Caught ValueError in DataLoader worker process 0.\\nOriginal Traceback "
        '(most recent call last):\\n  File "/env/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 308, '
        'in _worker_loop\\n    data = fetcher.fetch(index)\\n  File "/work/data.py", line 7, in __getitem__\\n'
        '    raise ValueError("no image")\\nValueError: no image\\n\')\nkilling sweep.\n',
        tmp_path,
    )
    assert said.summary == "ValueError: no image at data.py:7"


def test_the_words_of_a_rule_are_seen_in_a_long_line(tmp_path: Path) -> None:
    arguments = ", ".join(f"'--option-{number}'" for number in range(40))
    said = said_of(
        f"[2026-01-01 10:00:00,0] [ERROR] [launch.py:321] [{arguments}] exits with return code = -9\n", tmp_path
    )
    assert said.rule == "killed-said"
    assert said.evidence[0].lines[0].endswith("exits with return code = -9")
    assert said.evidence[0].lines[0].startswith("… '--option")


def test_of_a_checkpoint_that_failed_on_all_ranks_the_one_that_raised_it_is_named(tmp_path: Path) -> None:
    log = (REPO / "tests/data/explain/order/checkpoint.log").read_text()
    words = "KeyError: 'optimizer is not ready' at dcp.py:11"
    assert said_of(log, tmp_path).summary == f"rank 1: {words}"
    errs = {
        rank: "".join(line for line in log.splitlines(keepends=True) if line.startswith(f"[rank{rank}]"))
        for rank in range(3)
    }
    ends = {rank: (1, float(rank == 1)) for rank in range(3)}
    assert explained(job(tmp_path / "run", errs, ends)).summary == f"rank 1 on node01 failed first: {words}"


JOINING = (
    "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
    "key-value store by key '0', but store->get('0') got error: Connection reset by peer"
)


@pytest.mark.parametrize(
    ("log", "rule", "rank"),
    [
        (of_rank(1, JOINING) + of_rank(0, "FileNotFoundError: no train.json"), None, 0),
        (of_rank(1, JOINING), "nccl-id-missing", 0),
        (timed_out(2) + of_rank(2, NCCL_ERROR.splitlines()[-1]) + of_rank(1, "ValueError: not a number"), None, 1),
        (f"{TRACE}RuntimeError: Rank 0 successfully reached monitoredBarrier, but received errors while waiting for "
         "send/recv from rank 2. Please check rank 2 logs for faulty rank.\n", "monitored-barrier", 2),
        (f"{TRACE}RuntimeError: [Rank 0]: Ranks 3 failed to pass monitoredBarrier in 1800000 ms\n",
         "monitored-barrier", 3),
        (
            "gpu-3:211:400 [5] NCCL INFO x\ngpu-3:212:400 [6] NCCL INFO x\n"
            "gpu-3:211:412 [5] net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.1.2.3<33420> with error 12\n"
            + of_rank(13, "torch.distributed.DistBackendError: remote process exited or there was a network error"),
            "nccl-no-answer",
            None,
        ),
    ],
)  # fmt: skip
def test_a_rank_that_failed_by_itself_comes_before_those_that_waited_for_it(
    log: str, rule: str | None, rank: int, tmp_path: Path
) -> None:
    said = said_of(log, tmp_path)
    assert (said.rule, said.rank) == (rule, rank), said.summary


def test_the_assertion_of_a_kernel_is_behind_the_error_that_cuda_reports_later(tmp_path: Path) -> None:
    asserted = (
        "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1146: indexSelectLargeIndex: block: [12,0,0], thread: [32,0,0] "
        "Assertion `srcIndex < srcSelectDimSize` failed.\n"
    )
    said = said_of(
        f"{asserted}{TRACE}RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling x\n", tmp_path
    )
    assert said.rule == "device-assert"
    assert "(srcIndex < srcSelectDimSize)" in said.summary
    direct = said_of(f"{asserted}{TRACE}RuntimeError: CUDA error: device-side assert triggered\n", tmp_path)
    assert direct.rule == "device-assert"
    assert any("srcSelectDimSize" in line for line in direct.evidence[0].lines)


def test_a_step_that_srun_could_not_start_is_known(tmp_path: Path) -> None:
    failed = "srun: error: Task launch for StepId=12.0 failed on node n3: Communication connection failure\n"
    assert said_of(failed, tmp_path).summary == "srun could not start the ranks on n3: Communication connection failure"


def test_the_watchdog_of_another_rank_below_an_exception_does_not_say_whose_it_is(tmp_path: Path) -> None:
    watchdog = (
        "[E ProcessGroupNCCL.cpp:828] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)\n"
    )
    said = said_of(f"{TRACE}RuntimeError: bind failed (errno: 98 - Address already in use).\n{watchdog}", tmp_path)
    assert (said.rule, said.rank) == ("port-in-use", None)


def test_ranks_that_fail_alike_are_all_named_unless_a_launcher_knows_the_first(tmp_path: Path) -> None:
    alike = "".join(f"[rank{rank}]: {line}\n" for rank in (2, 1)
                    for line in f"{TRACE}RuntimeError: CUDA error: out of memory".splitlines())  # fmt: skip
    said = said_of(alike, tmp_path)
    assert (said.rank, said.summary.partition(":")[0]) == (None, "ranks 1-2")
    waited = "".join(f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, "
                     "Timeout(ms)=600000) ran for 600052 milliseconds before timing out.\n" for rank in (0, 1, 2))  # fmt: skip
    assert said_of(waited, tmp_path).rank is None


def test_of_many_ranks_that_fail_alike_the_first_in_the_log_is_shown(tmp_path: Path) -> None:
    lines = [f"{rank}: step {step}\n" for step in range(3) for rank in range(1500)]
    raised = [f"{rank}: {line}\n" for rank in (700, 300) for line in f"{TRACE}{KEY}".splitlines()]
    said = said_of("".join([*lines, *raised]), tmp_path)
    assert said.summary == "ranks 300, 700: KeyError: 'lr' at train.py:63"
    assert said.evidence[0].who == "rank 700"


@pytest.mark.parametrize("name", ["3/stderr.log", "4711_3_log.err", "rank-3.err", "slurm-77.out"])
def test_the_rank_is_known_by_the_prefix_of_a_line_or_by_the_name_of_the_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(of_rank(1, KEY))
    assert explain_logs([str(path)], RULES).rank == 1
    path.write_text(f"{TRACE}{KEY}\n")
    assert explain_logs([str(path)], RULES).rank == (3 if "3" in name else None)


def test_of_ranks_that_a_command_starts_the_prefix_counts_and_not_the_record_of_the_node(tmp_path: Path) -> None:
    folder = job(tmp_path / "run", {1: of_rank(3, KEY)}, {0: (143, 1.0), 1: (1, 0.0)})
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "plan": {"shape": {"launcher": "command"}}}))
    assert explained(folder).summary == "rank 3: KeyError: 'lr' at train.py:63"


@pytest.mark.parametrize(
    ("exception", "line"),
    [
        ("ResourceExhaustedError: 2 root error(s) found.", "  (0) Resource exhausted: Out of memory"),
        (
            "XlaRuntimeError: UNKNOWN: no algorithm for:\n%conv = f32[4]\n",
            "Original error: RESOURCE_EXHAUSTED: 176 MiB",
        ),
        ("ray.exceptions.ActorDiedError: The actor died.", "\tpid: 204471"),
    ],
)
def test_the_further_lines_of_a_message_are_shown_up_to_the_next_record(
    exception: str, line: str, tmp_path: Path
) -> None:
    said = said_of(f"{TRACE}{exception}\n{line}\nKilling subprocess 5120\nwandb: Synced 5 files\n", tmp_path)
    assert line.strip() in said.evidence[0].lines
    assert not any("Killing" in shown or "wandb" in shown for shown in said.evidence[0].lines)


def test_what_a_shell_says_of_its_child_is_not_the_reason_for_its_end(tmp_path: Path) -> None:
    said = said_of("terminate called after throwing an instance of 'gloo::IoException'\n  what():  [pair.cc:761] connect "
                   "[127.0.1.1]:50933: refused by peer\n./run.sh: line 6: 20117 Aborted   (core dumped) ./bench\n", tmp_path)  # fmt: skip
    assert "gloo::IoException" in said.summary
    assert any("what():  [pair.cc:761]" in line for line in said.evidence[0].lines)


def test_the_process_that_mp_spawn_names_directly_above_an_exception_has_raised_it(tmp_path: Path) -> None:
    said = said_of(f"-- Process 3 terminated with the following error:\n{TRACE}KeyError: 'lr'\n", tmp_path)
    assert (said.rank, "KeyError: 'lr'" in said.summary) == (3, True)


def test_lines_that_srun_label_has_cut_are_read_as_one(tmp_path: Path) -> None:
    lines = ["Traceback (most recent call last):", "  F", 'ile "/opt/torch/loader.py", line 12, in read',
             "    check()", '  File "/home/ann', '/train.py", line 9, in check', "    assert shared", "AssertionError",
             ": the memory is gone"]  # fmt: skip
    said = said_of("".join(f"0: {line}\n" for line in lines), tmp_path)
    assert "AssertionError: the memory is gone at train.py:9" in said.summary


def test_a_job_that_ran_to_its_time_limit_did_not_fail_of_what_its_shell_complained_of(tmp_path: Path) -> None:
    complaint = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"
    limit = "slurmstepd: error: *** JOB 42210 ON n1 CANCELLED AT 2022-04-14T16:17:16 DUE TO TIME LIMIT ***\n"
    steps = "".join(f"{step}/50 done\n" for step in range(1, 16))
    assert said_of(f"{complaint}{steps}{limit}", tmp_path).rule == "time-limit"
    assert said_of(f"{complaint}{TRACE}ModuleNotFoundError: No module named 'torch'\n", tmp_path).rule == "shell-setup"
