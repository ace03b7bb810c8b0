"""Failures that need GPUs, or that Slurm of this version words otherwise: written by hand, in the
words of the sources.

The wordings come from the sources of torch, NCCL and Slurm, from strings in their libraries, and
from public issues. Every case is a job of eight ranks on two nodes; ``failed`` failed by itself,
the others speak of it or were told to end.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.any_job_or_log import explain_logs
from hpcrun.explain.diagnosis.rules import load_rules
from hpcrun.explain.ended import Explanation, explain
from hpcrun.runs.record import run_from_json, run_to_json, status_from_json
from tests.unit.builders import run, write

RULES = load_rules([])
ATTEMPT = "elements/0/attempts/0"
NCCL_GONE = (
    "[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, remote "
    "process exited or there "
    "was a network error, NCCL version 2.27.5\n"
    "[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process "
    "exiting prematurely.\n"
)
TRACE = (
    "Traceback (most recent call last):\n"
    '  File "/home/me/project/train.py", line 71, in <module>\n    main()\n'
    '  File "/home/me/project/train.py", line 63, in main\n    loss = model(batch).loss\n'
    '  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1784, in '
    "_call_impl\n"
    "    return forward_call(*args, **kwargs)\n"
)


@dataclass(frozen=True)
class Written:
    """A case.

    Attributes:
        err: what the rank that failed wrote to stderr.
        others: what rank 0 wrote.
        failed: the rank to blame; None where no rank failed by itself.
    """

    expect: str | None
    err: str = ""
    others: str = NCCL_GONE
    state: str = "FAILED"
    failed: int | None = 5
    status: int = 1
    batch: str = ""


def raised(text: str, rank: int = 5, prefix: str = "[rank{}]: ") -> str:
    """A traceback that ends so, as torch prints it: each line with its rank."""
    return "".join(f"{prefix.format(rank)}{line}\n" for line in (TRACE + text).splitlines())


def timed_out(rank: int, clock: str = "20:27:21") -> str:
    """What torch's watchdog says of a rank that waited in a collective."""
    return (
        f"[rank{rank}]:[E1121 {clock}.426415540 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog "
        "caught collective "
        "operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=131072000, "
        "NumelOut=131072000, "
        "Timeout(ms)=600000) ran for 600081 milliseconds before timing out.\n"
    )


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total "
    "capacity of 79.10 GiB of "
    "which 1.19 GiB is free. Including non-PyTorch memory, this process has 77.90 GiB memory in "
    "use. Of the allocated "
    "memory 70.01 GiB is allocated by PyTorch, and 6.52 GiB is reserved by PyTorch but unallocated."
)
ASYNC = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
)
WATCHDOG = (
    "[rank5]:[E1121 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 5] Watchdog caught "
    "collective operation timeout: "
    "WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=131072000, NumelOut=131072000, "
    "Timeout(ms)=600000) ran for 600081 "
    "milliseconds before timing out.\n"
)
TERMINATE = "terminate called after throwing an instance of 'c10::DistBackendError'\n"
STEPD = "slurmstepd: error: *** JOB 123 ON node01 CANCELLED AT 2026-11-20T10:00:00 {} ***\n"
NOISE = (
    "[W1121 20:00:00.000 socket.cpp:558] [c10d] The client socket has failed to connect to "
    "[head]:29500 "
    "(errno: 111 - Connection refused).\n"
    "huggingface/tokenizers: The current process just got forked, after parallelism has already "
    "been used.\n"
    "gpu07:311:399 [0] NCCL INFO NET/IB : No device found.\n"
)
PEER_CLOSED = (
    "RuntimeError: [/build/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[10.78.0.7]:932. This is typically caused by a remote worker crashing."
)
RENDEZVOUS = "/opt/venv/lib/python3.11/site-packages/torch/distributed/elastic/rendezvous"
AGENT = (
    "W1122 00:21:32.269000 757 torch/distributed/elastic/multiprocessing/api.py:1028] Sending "
    "process 788 closing signal SIGTERM\n"
    "Traceback (most recent call last):\n"
    f'  File "{RENDEZVOUS}/c10d_rendezvous_backend.py", line 118, in _call_store\n'
    "    return getattr(self._store, store_op)(*args, **kwargs)\n"
    "torch.distributed.DistNetworkError: failed to recv, got 0 bytes\n"
    "\nThe above exception was the direct cause of the following exception:\n\n"
    "Traceback (most recent call last):\n"
    f'  File "{RENDEZVOUS}/dynamic_rendezvous.py", line 1226, in num_nodes_waiting\n'
    "    self._state_holder.sync()\n"
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the "
    "C10d store has failed. See inner exception for details.\n"
    "srun: error: node01: task 0: Exited with exit code 1\n"
)
"""What the agent of a node writes when the first node's agent, which holds the store, is gone:
torch 2.15.
"""

CASES = {
    "no-rank-key": Written("no-launcher", raised("KeyError: 'RANK'")),
    "no-rank-torch": Written(
        "no-launcher",
        raised(
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
            "variable RANK expected, but not set"
        ),
    ),
    "no-master-port": Written(
        "no-launcher",
        raised(
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
            "variable MASTER_PORT expected, but not set"
        ),
    ),
    "another-key": Written(None, raised("KeyError: 'RANKING'")),
    "no-nccl": Written(
        "torch-without-nccl", raised("RuntimeError: Distributed package doesn't have NCCL built in")
    ),
    "no-nccl-torch-1": Written(
        "torch-without-nccl", raised("RuntimeError: Distributed package doesn't have NCCL ")
    ),
    "cuda-oom": Written("cuda-out-of-memory", NOISE + raised(OOM)),
    "cuda-oom-torch-1": Written(
        "cuda-out-of-memory",
        raised(
            "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 15.90 GiB "
            "total capacity)"
        ),
    ),
    "cuda-oom-and-watchdog": Written(
        "cuda-out-of-memory", raised(OOM), WATCHDOG.replace("5", "0") + TERMINATE
    ),
    "cuda-oom-at-time-limit": Written(
        "cuda-out-of-memory",
        raised(OOM),
        "",
        state="TIMEOUT",
        batch=STEPD.format("DUE TO TIME LIMIT"),
    ),
    "cuda-oom-then-error": Written(
        "cuda-out-of-memory",
        raised(OOM)
        + "\n[rank5]: During handling of the above exception, another exception occurred:\n\n"
        + raised("ValueError: no batch was finished"),
    ),
    "cuda-memory-taken": Written(
        "cuda-memory-taken", raised("RuntimeError: CUDA error: out of memory" + ASYNC)
    ),
    "invalid-ordinal": Written(
        "invalid-device",
        raised("torch.AcceleratorError: CUDA error: invalid device ordinal" + ASYNC),
    ),
    "invalid-ordinal-nccl": Written(
        "invalid-device",
        "gpu07:1:1 [0] transport/p2p.cc:275 NCCL WARN Cuda failure 101 'invalid device ordinal'\n"
        + raised(
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:93, unhandled cuda error "
            "(run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5"
        ),
    ),
    "no-kernel-image": Written(
        "no-kernel-image",
        "/opt/venv/lib/python3.11/site-packages/torch/cuda/__init__.py:309: UserWarning: \n    "
        "Tesla V100-SXM2-32GB with CUDA capability sm_70 is not compatible with the current "
        "PyTorch installation.\n"
        + raised(
            "RuntimeError: CUDA error: no kernel image is available for execution on the device"
            + ASYNC
        ),
    ),
    "driver-insufficient": Written(
        "driver-too-old",
        raised("RuntimeError: CUDA driver version is insufficient for CUDA runtime version"),
    ),
    "driver-old": Written(
        "driver-too-old",
        raised(
            "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). "
            "Please update your GPU driver"
        ),
    ),
    "no-driver": Written(
        "no-gpu",
        raised(
            "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an "
            "NVIDIA GPU"
        ),
    ),
    "no-device": Written("no-gpu", raised("RuntimeError: No CUDA GPUs are available")),
    "fabric": Written(
        "fabric-manager", raised("RuntimeError: CUDA error: system not yet initialized" + ASYNC)
    ),
    "busy": Written(
        "gpu-busy",
        raised(
            "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable" + ASYNC
        ),
    ),
    "assert": Written(
        "device-assert",
        "/pytorch/aten/src/ATen/native/cuda/Loss.cu:245: nll_loss: block: [0,0,0], thread: [3,0,0] "
        "Assertion `t >= 0 && t < n_classes` failed.\n"
        + raised("torch.AcceleratorError: CUDA error: device-side assert triggered" + ASYNC),
    ),
    "illegal": Written(
        "illegal-access",
        raised("RuntimeError: CUDA error: an illegal memory access was encountered" + ASYNC),
        WATCHDOG.replace("5", "0"),
    ),
    "ecc": Written(
        "ecc", raised("RuntimeError: CUDA error: uncorrectable ECC error encountered" + ASYNC)
    ),
    "xid-79": Written(
        "xid-79",
        raised("RuntimeError: CUDA error: unknown error"),
        batch="kernel: NVRM: Xid (PCI:0000:b4:00): 79, GPU has fallen off the bus.\n",
    ),
    "xid-94": Written(
        "xid-94",
        raised("RuntimeError: CUDA error: unknown error"),
        batch="kernel: NVRM: Xid (PCI:0000:b4:00): 94, Contained: SM (0x1). RST: No\n",
    ),
    "xid-31": Written(
        "xid-31",
        raised("RuntimeError: CUDA error: unknown error"),
        batch="kernel: NVRM: Xid (PCI:0000:b4:00): 31, pid=1896, MMU Fault\n",
    ),
    "off-bus": Written(
        "off-the-bus",
        raised("RuntimeError: CUDA error: unknown error"),
        batch="Unable to determine the device handle for GPU 0000:41:00.0: GPU is lost.  Reboot "
        "the system to recover this GPU\n",
    ),
    "nccl-system": Written(
        "nccl-system-error",
        raised(
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:93, unhandled system error "
            "(run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5"
        )
        + "[rank5]: ncclSystemError: System call (e.g. socket, malloc) or external library call "
        "failed or device error. \n",
    ),
    "nccl-cuda": Written(
        "nccl-cuda-error",
        raised(
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:93, unhandled cuda error "
            "(run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5"
        )
        + "[rank5]: ncclUnhandledCudaError: Call to CUDA function failed.\n",
    ),
    "nccl-shm": Written(
        "nccl-shared-memory",
        "gpu07:1:1 [0] include/shmutils.h NCCL WARN Error: failed to extend /dev/shm/nccl-03v824 "
        "to 4194660 bytes, error: No space left on device (28)\n"
        + raised(
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:93, unhandled system error "
            "(run with NCCL_DEBUG=INFO for details)"
        ),
    ),
    "nccl-nvls": Written(
        "nccl-nvls",
        "gpu07:1:1 [0] transport/nvls.cc:254 NCCL WARN Cuda failure 401 'the operation cannot be "
        "performed in the present state'\n"
        + raised(
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:93, unhandled cuda error "
            "(run with NCCL_DEBUG=INFO for details)"
        ),
    ),
    "nccl-ib-12": Written(
        "nccl-no-answer",
        "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<54862> with status=12 opcode=0 len=0 "
        "vendor err 129 (Recv)\n" + WATCHDOG,
    ),
    "nccl-ib-12-new": Written(
        "nccl-no-answer",
        "NCCL WARN NET/IB: Got completion from peer 10.0.0.2<54862> with "
        "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129  hca mlx5_0\n"
        + raised(
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:93, remote process exited or "
            "there was a network error"
        ),
    ),
    "nccl-ib-12-old": Written(
        "nccl-no-answer",
        "NCCL WARN NET/IB : Got completion from peer 192.168.17.147<38560> with error 12, opcode "
        "0, len 0, vendor err 129\n" + WATCHDOG,
    ),
    "nccl-ib-card": Written(
        "nccl-network-card",
        "NCCL WARN NET/IB : mlx5_3:1 async fatal event: local catastrophic error\n" + WATCHDOG,
    ),
    "nccl-memlock": Written(
        "nccl-locked-memory",
        "misc/ibvwrap.cc:68 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate "
        "memory errno 12\n"
        + raised(
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:93, unhandled system error "
            "(run with NCCL_DEBUG=INFO for details)"
        ),
    ),
    "nccl-duplicate": Written(
        "nccl-duplicate-gpu",
        "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a000\n"
        + raised(
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:93, invalid usage (run with "
            "NCCL_DEBUG=WARN for details)"
        ),
    ),
    "nccl-duplicate-new": Written(
        "nccl-duplicate-gpu",
        "NCCL WARN Multiple Ranks are using the same GPU/Partition. Set "
        "NCCL_MULTI_RANK_GPU_ENABLE=1\n"
        + raised("RuntimeError: Failed to initialize NCCL communicator: invalid usage"),
    ),
    "nccl-versions": Written(
        "nccl-versions",
        "NCCL WARN Mismatched NCCL version detected : rank 0 version 22705 rank 8 version 22602\n"
        + raised("torch.distributed.DistBackendError: NCCL error in: x.cpp:93, internal error"),
    ),
    "nccl-init": Written(
        "nccl-start", raised("RuntimeError: Failed to initialize NCCL communicator: invalid usage")
    ),
    "watchdog": Written("collective-timeout", WATCHDOG + TERMINATE, status=134),
    "watchdog-nccl2": Written(
        "collective-timeout",
        raised(
            "RuntimeError: Watchdog caught collective operation timeout: NCCL operation timed out"
        ),
    ),
    "watchdog-abort": Written(
        "collective-timeout",
        "Aborting process on rank 5 due to timeout - timeout watchdog detected operation timeout\n",
        status=134,
    ),
    "watchdog-stuck": Written(
        "watchdog-stuck",
        "[E1121 ProcessGroupNCCL.cpp:1460] [PG ID 0 Rank 5] ProcessGroupNCCL's watchdog got stuck "
        "for 480 seconds without making progress in monitoring enqueued collectives.\n" + TERMINATE,
        status=134,
    ),
    "killed-behind-watchdog": Written(
        "rank-killed", "", WATCHDOG.replace("5", "0") + TERMINATE, status=137
    ),
    "gloo-terminate": Written(
        None,
        raised("ValueError: the data is not sorted"),
        "terminate called without an active exception\n",
    ),
    "host-oom-new": Written(
        "host-out-of-memory",
        "",
        "",
        state="OUT_OF_MEMORY",
        status=137,
        batch="slurmstepd: error: Detected 1 oom_kill event in StepId=370626.batch. Some of the "
        "step tasks have been OOM Killed.\n",
    ),
    "host-oom-old": Written(
        "host-out-of-memory",
        "",
        "",
        status=137,
        batch="slurmstepd: error: Detected 1 oom-kill event(s) in step 370626.batch cgroup. Some "
        "of your processes may have been killed by the cgroup out-of-memory handler.\n",
    ),
    "host-oom-srun": Written(
        "host-out-of-memory",
        "",
        "",
        status=137,
        batch="srun: error: node02: task 5: Out Of Memory\n",
    ),
    "host-oom-loader": Written(
        "host-out-of-memory",
        raised("RuntimeError: DataLoader worker (pid 55) is killed by signal: Killed. "),
        "",
        state="OUT_OF_MEMORY",
    ),
    "loader-bus": Written(
        "shared-memory",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
        "shared memory (shm).\n"
        + raised(
            "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Bus error. It is "
            "possible that dataloader's workers are out of shared memory."
        ),
    ),
    "quota": Written(
        "disk-quota", raised("OSError: [Errno 122] Disk quota exceeded: '/home/u/checkpoint.pt'")
    ),
    "space": Written("disk-full", raised("OSError: [Errno 28] No space left on device: '/tmp/x'")),
    "glibc": Written(
        "library-version",
        "/home/me/tool: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by "
        "/home/me/tool)\n",
    ),
    "glibc-import": Written(
        "library-version",
        raised(
            "ImportError: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by "
            "/home/me/x.so)"
        ),
    ),
    "undefined-symbol": Written(
        "library-mismatch",
        raised(
            "ImportError: /opt/flash_attn_2_cuda.so: undefined symbol: "
            "_ZN3c105ErrorC2ENS_14SourceLocationE"
        ),
    ),
    "safetensors": Written(
        "checkpoint-damaged",
        raised(
            "safetensors_rust.SafetensorError: Error while deserializing header: "
            "MetadataIncompleteBuffer, incomplete metadata"
        ),
    ),
    "checkpoint-not-there": Written(
        "checkpoint-missing",
        raised(
            "FileNotFoundError: [Errno 2] No such file or directory: "
            "'/scratch/x/checkpoint-100/model.safetensors'"
        ),
    ),
    "state-dict": Written(
        "state-dict",
        raised(
            "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in "
            'state_dict: "a.weight".'
        ),
    ),
    "stale": Written(
        "io-error", raised("OSError: [Errno 116] Stale file handle: '/home/me/data/x.tar'")
    ),
    "nan": Written(
        "loss-not-finite",
        raised(
            "FloatingPointError: Minimum loss scale reached (0.0001). Loss is probably exploding: "
            "loss is nan"
        ),
    ),
    "time-limit-new": Written(
        "time-limit", "", "", "TIMEOUT", None, 143, STEPD.format("DUE TO TIME LIMIT")
    ),
    "preempted": Written(
        "preempted",
        "",
        "",
        "PREEMPTED",
        None,
        143,
        STEPD.replace("JOB", "STEP").format("DUE TO PREEMPTION"),
    ),
    "node-failed": Written(
        "node-failed",
        "",
        NCCL_GONE,
        "NODE_FAIL",
        None,
        143,
        "srun: error: Node failure on node02\n",
    ),
    "node-failed-said": Written(
        "node-failed",
        "",
        NCCL_GONE,
        "FAILED",
        None,
        143,
        STEPD.format("DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"),
    ),
    "cancelled-new": Written(
        "cancelled", "", "", "CANCELLED", None, 143, STEPD.format("DUE to SIGNAL Terminated")
    ),
    "deadline": Written("deadline", "", "", "DEADLINE", None, 143),
    "warning-signal": Written("user-signal", "", "", status=138),
    "execve": Written(
        "permission-denied",
        "",
        "",
        "FAILED",
        None,
        126,
        "slurmstepd: error: execve(): ./run.sh: Permission denied\n",
    ),
    "controller": Written(
        "controller-away",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
        "",
    ),
    "no-libuv": Written(
        "torch-without-libuv",
        "",
        "",
        failed=None,
        batch=AGENT.replace(
            "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
            "RuntimeError: use_libuv was requested but PyTorch was build without libuv support",
        ),
    ),
    "no-libuv-new": Written(
        "torch-without-libuv",
        "",
        "",
        failed=None,
        batch=AGENT.replace(
            "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
            "torch.distributed.DistStoreError: use_libuv was requested but PyTorch was built "
            "without libuv support, run with USE_LIBUV=0 to disable it.",
        ),
    ),
    "rendezvous-incomplete": Written(
        "rendezvous-incomplete",
        "",
        "",
        failed=None,
        batch=AGENT.replace(
            "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
            "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. "
            "1/2 clients joined.",
        ),
    ),
    "rendezvous-lost-after-a-rank": Written(
        None, raised("KeyError: 'lr'"), raised(PEER_CLOSED), batch=AGENT
    ),
    "rendezvous-lost-after-rank-0": Written(None, raised("KeyError: 'lr'"), failed=0, batch=AGENT),
    "rendezvous-lost-after-exit": Written(None, "", raised(PEER_CLOSED), status=3, batch=AGENT),
    "rendezvous-lost-after-crash": Written(
        "crashed", "", raised(PEER_CLOSED), status=139, batch=AGENT
    ),
    "unknown-error": Written(None, raised("KeyError: 'layers.3'")),
    "unknown-exit": Written(None, "", "", status=3),
}


def write_records(
    folder: Path,
    state: str,
    *,
    nodes: int = 2,
    per_node: int = 4,
    status: int = 143,
    ended_s: float = 1600.0,
    node: str = "node0{}",
) -> Path:
    """Write the records of a job that has ended; return the folder of its attempt."""
    size = {"nodes": nodes, "gpus_per_node": per_node, "world_size": nodes * per_node}
    write(
        folder / "run.json",
        run_to_json(run(folder.name, name="train", request={}, plan={}, **size)),
    )
    hosts = f"node[{node.format(1)[4:]}-{node.format(nodes)[4:]}]"
    last = {"state": state, "asked_s": 2000.0, "final": True, "hosts": hosts, "exit_status": status}
    write(folder / "status.json", json.dumps(last))
    write(
        folder / ATTEMPT / "start",
        json.dumps({"job_id": "4711", "host": node.format(1), "started": 1500.0}),
    )
    end = {"status": status, "signal": "", "ended": ended_s, "message": ""}
    write(folder / ATTEMPT / "exit", json.dumps(end))
    return folder / ATTEMPT


def record_end(folder: Path, rank: int, status: int, ended_s: float) -> None:
    """Write how a rank ended."""
    end = {"rank": rank, "node": f"node0{1 + rank // 4}", "status": status, "ended": ended_s}
    (folder / ATTEMPT / f"rank-{rank}.exit").write_text(json.dumps(end))


def write_run(case: Written, folder: Path) -> Path:
    """Write the folder of a case's run; return it."""
    attempt = write_records(folder, case.state)
    (folder / "batch.log").write_text(
        "hpcrun: job 4711 on node01, rendezvous node01:24711\n" + case.batch
    )
    for rank in range(8):
        err = ""
        status = 143
        if rank == case.failed:
            err = case.err
            status = case.status
        elif rank == 0:
            err = case.others
            status = 1 if err else 143
        (attempt / f"rank-{rank}.out").write_text("step 1 loss 2.3\n")
        (attempt / f"rank-{rank}.err").write_text(err)
        # rank 0 is down first: its abort takes no time, and the other writes a traceback
        ended_s = 1590.0 if rank == 0 else 1591.0
        record_end(folder, rank, status, ended_s)
    return folder


def write_job(
    folder: Path, errs: dict[int, str], ends: dict[int, tuple[int, float]], batch: str = ""
) -> Path:
    """Write a job of the ranks in ``ends``: exit status, and seconds after the first end; return
    its folder.
    """
    write_run(Written(None, failed=None, batch=batch), folder)
    for rank in range(8):
        (folder / ATTEMPT / f"rank-{rank}.err").write_text(errs.get(rank, ""))
        (folder / ATTEMPT / f"rank-{rank}.exit").unlink()
    for rank, (status, after_s) in ends.items():
        record_end(folder, rank, status, 1590.0 + after_s)
    return folder


def status_of(folder: Path) -> RunStatus:
    """Return the run of a folder."""
    last = status_from_json((folder / "status.json").read_text())
    return RunStatus(run_from_json((folder / "run.json").read_text()), folder, last)


def explained(folder: Path, *, quick: bool = False) -> Explanation:
    """Explain the run of a folder."""
    return explain(status_of(folder), RULES, quick=quick)


def of_log(text: str, name: str = "job.log") -> Explanation:
    """Explain a log alone."""
    with tempfile.TemporaryDirectory() as folder:
        return explain_logs([str(write(Path(folder, name), text))], RULES)
