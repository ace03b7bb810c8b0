"""The order of events across ranks decides the cause: by records, by times in the logs, by lines of one log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.explain.any_job_or_log import explain_logs
from hpcrun.explain.diagnosis.rules import load_rules
from hpcrun.explain.ended import Explanation
from hpcrun.runs.log_times import second_of_year, seconds_between
from tests.harness import REPO
from tests.unit.explain.test_corpus import explained
from tests.unit.explain.written import OOM, TERMINATE, TRACE, Written, write_run

RULES = load_rules([])
ATTEMPT = "elements/0/attempts/0"
SKIPPED = "2026-11-21 20:17:20,101 WARNING train: rank 5: out of memory in step 40, skipping the batch\n"


def timed_out(rank: int, clock: str = "20:27:21") -> str:
    return (
        f"[rank{rank}]:[E1121 {clock}.426415540 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=131072000, NumelOut=131072000, "
        "Timeout(ms)=600000) ran for 600081 milliseconds before timing out.\n"
    )


def job(folder: Path, errs: dict[int, str], ends: dict[int, tuple[int, float]], batch: str = "") -> Path:
    """A job of the ranks in ``ends``: exit status, and seconds after the first end."""
    write_run(Written(None, failed=None, batch=batch), folder)
    for rank in range(8):
        (folder / ATTEMPT / f"rank-{rank}.err").write_text(errs.get(rank, ""))
        record = folder / ATTEMPT / f"rank-{rank}.exit"
        record.unlink()
        if rank in ends:
            status, after_s = ends[rank]
            end = {"rank": rank, "node": f"node0{1 + rank // 4}", "status": status, "ended": 1590.0 + after_s}
            record.write_text(json.dumps(end))
    return folder


def said_of(log: str, tmp_path: Path) -> Explanation:
    path = tmp_path / "job.log"
    path.write_text(log)
    return explain_logs([str(path)], RULES)


@pytest.mark.parametrize(
    ("line", "other", "between_s"),
    [
        ("[E1122 16:29:32.123 ProcessGroupNCCL.cpp:629] [Rank 3]", "2026-11-22 16:29:33,123 INFO x", 1.0),
        ("[E707 08:21:44.5 ProcessGroupNCCL.cpp:2090] x", "2026-07-07T08:21:45.500+01:00 | x", 1.0),
        ("W1122 00:21:32.269000 757 torch/distributed/x.py:1] x", "2026-11-22 00:21:30.269 | ERROR | a:b:1 - x", -2.0),
        ("slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-12-31T23:59:59 ***", "[W101 00:00:01.0 x.cpp:1] x", 2.0),
        ("[2026-11-22 10:00:00] n1:1:1 [0] x.cc:1 NCCL WARN x", "11/22/2026 10:00:05 - INFO - __main__ - x", 5.0),
    ],
)  # fmt: skip
def test_the_times_of_all_kinds_of_lines_are_compared(line: str, other: str, between_s: float) -> None:
    one_s, other_s = second_of_year(line), second_of_year(other)
    assert one_s is not None
    assert other_s is not None
    assert seconds_between(one_s, other_s) == pytest.approx(between_s, abs=1e-6)


@pytest.mark.parametrize("line", ["step 1122 16:29:32 loss", "[E1399 16:29:32.1 x.cpp:1]", "took 00:01:02", ""])
def test_a_line_without_a_date_has_no_time(line: str) -> None:
    assert second_of_year(line) is None


def test_a_rank_that_skipped_a_batch_is_the_cause_and_not_the_timeout_of_the_others(tmp_path: Path) -> None:
    waiting = {rank: timed_out(rank) + TERMINATE for rank in range(8) if rank != 5}
    ends = {rank: (134, rank / 10) for rank in waiting} | {5: (143, 3.0)}
    said = explained(job(tmp_path / "run", {**waiting, 5: SKIPPED}, ends))
    assert (said.rule, said.rank) == ("memory-skipped", 5)
    assert "other ranks then waited for it" in said.summary
    assert said.evidence[0].who == "rank 5 on node02"
    assert any("Watchdog caught" in line for item in said.evidence for line in item.lines)


def test_a_batch_that_was_skipped_long_before_or_by_all_ranks_is_no_cause(tmp_path: Path) -> None:
    waiting = {rank: timed_out(rank) + TERMINATE for rank in range(8) if rank != 5}
    ends = {rank: (134, rank / 10) for rank in waiting} | {5: (143, 3.0)}
    early = {**waiting, 5: SKIPPED.replace("20:17", "11:17")}
    said = explained(job(tmp_path / "early", early, ends))
    assert (said.rule, said.rank) == ("collective-timeout", 5)
    assert "rank 5 on node02 did not join the other ranks" in said.summary
    everywhere = {rank: SKIPPED + text for rank, text in {**waiting, 5: ""}.items()}
    assert explained(job(tmp_path / "everywhere", everywhere, ends)).rule == "collective-timeout"


def test_a_traceback_that_was_printed_and_survived_is_the_cause_where_the_others_then_waited(tmp_path: Path) -> None:
    waiting = {rank: timed_out(rank) + TERMINATE for rank in range(8) if rank != 5}
    ends = {rank: (134, rank / 10) for rank in waiting} | {5: (137, 33.0)}
    steps = "".join(f"batch {step} was not used, trying a smaller one\n" for step in range(70))
    begun = "[W1121 20:17:21.000 socket.cpp:1] x\n"
    said = explained(job(tmp_path / "run", {**waiting, 5: f"{begun}{TRACE}{OOM}\n{steps}"}, ends))
    assert (said.rule, said.rank) == ("cuda-out-of-memory", 5)
    assert "which the program caught" in said.summary


def test_a_timeout_is_the_cause_of_what_its_clean_up_raises(tmp_path: Path) -> None:
    cleanup = timed_out(5) + TRACE + OOM + "\n"
    ends = dict.fromkeys(range(8), (143, 40.0)) | {5: (1, 0.0), 0: (134, 5.5)}
    said = explained(job(tmp_path / "run", {0: timed_out(0) + TERMINATE, 5: cleanup}, ends))
    assert said.rule == "collective-timeout"
    assert "ran out of memory" not in said.summary
    said = said_of("step 40\n" + cleanup.replace("[rank5]:", ""), tmp_path)
    assert said.rule == "collective-timeout"
    earlier = explained(job(tmp_path / "earlier", {0: timed_out(0), 5: TRACE + OOM + "\n" + timed_out(5)}, ends))
    assert (earlier.rule, earlier.rank) == ("cuda-out-of-memory", 5)


def test_a_failure_of_another_rank_after_the_timeout_is_its_consequence_where_the_times_show_it(tmp_path: Path) -> None:
    ends = dict.fromkeys(range(8), (143, 40.0)) | {0: (134, 0.0), 5: (1, 2.0)}
    raised = f"[W1121 20:28:00.000 socket.cpp:1] x\n{TRACE}{OOM}\n"
    said = explained(job(tmp_path / "late", {0: timed_out(0), 5: raised}, ends))
    assert said.rule == "collective-timeout"
    unknown = explained(job(tmp_path / "unknown", {0: timed_out(0), 5: f"{TRACE}{OOM}\n"}, ends))
    assert (unknown.rule, unknown.rank) == ("cuda-out-of-memory", 5)


def test_the_rank_for_which_all_others_waited_is_named(tmp_path: Path) -> None:
    waiting = {rank: timed_out(rank) for rank in range(8) if rank != 3}
    ends = {rank: (134, rank / 10) for rank in waiting} | {3: (143, 2.0)}
    said = explained(job(tmp_path / "run", waiting, ends))
    assert (said.rule, said.rank) == ("collective-timeout", 3)
    assert said.summary.startswith("rank 3 on node01 did not join the other ranks: a collective timed out")
    ends[4] = (143, 2.0)
    two = explained(job(tmp_path / "two", {rank: text for rank, text in waiting.items() if rank != 4}, ends))
    assert two.rank == 0  # two ranks said nothing: which of them was missing is not known
    assert "did not join" not in two.summary


NO_ANSWER = (
    "gpu07:311:399 [0] transport/net_ib.cc:2025 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<54862> with "
    "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129  hca mlx5_0\n"
)
CLOSED = (
    f"{TRACE}RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[10.78.0.7]:932. This is typically caused by a remote worker crashing.\n"
)
NODE_FAILED = "srun: error: Node failure on node02\nsrun: Job step aborted: Waiting up to 32 seconds.\n"


@pytest.mark.parametrize("symptom", [NO_ANSWER, CLOSED, timed_out(0)], ids=["ib", "gloo", "timeout"])
def test_a_node_that_failed_is_the_cause_of_what_ranks_on_other_nodes_say(tmp_path: Path, symptom: str) -> None:
    ends = {0: (1, 0.0), 1: (143, 2.0), 2: (143, 2.0), 3: (143, 2.0)}
    said = explained(job(tmp_path / "run", {0: symptom}, ends, batch=NODE_FAILED))
    assert said.rule == "node-failed", said.summary
    assert "node02" in said.summary
    for order in (symptom + NODE_FAILED, NODE_FAILED + symptom):
        alone = said_of(order, tmp_path)
        assert (alone.rule, alone.rank) == ("node-failed", None)


CRASHES = {
    "srun": "srun: error: node02: task 5: Segmentation fault (core dumped)\n",
    "mpirun": "mpirun noticed that process rank 5 with PID 4940 on node02 exited on signal 11 (Segmentation fault).\n",
}


@pytest.mark.parametrize("launcher", CRASHES)
@pytest.mark.parametrize("symptom", [CLOSED, NO_ANSWER, "[rank0]: " + CLOSED.splitlines()[-1] + "\n"])
def test_a_crash_of_one_rank_is_the_cause_of_the_connections_that_others_lost(
    tmp_path: Path, launcher: str, symptom: str
) -> None:
    for order in (symptom + CRASHES[launcher], CRASHES[launcher] + symptom):
        said = said_of(order, tmp_path)
        assert (said.rule, said.rank) == ("crash-said", 5), said.summary


HUNG = "".join(
    f"w1:51{rank}:56{rank} [{rank}] include/socket.h:344 WARN Socket creation failed : Address family not supported\n"
    for rank in range(4)
)
STEPS = "".join(f"step {step} loss 2.3\n" for step in range(30))
RETRIED = (
    f"{TRACE}OSError: [Errno 37] No locks available\n\n"
    f"During handling of the above exception, another exception occurred:\n\n{TRACE}KeyboardInterrupt\n"
)


@pytest.mark.parametrize(
    ("state", "log", "rule"),
    [
        ("TIMEOUT", HUNG, "nccl-socket"),
        ("TIMEOUT", HUNG + STEPS, "time-limit"),
        ("CANCELLED", RETRIED, "io-error"),
        ("CANCELLED", f"{TRACE}KeyboardInterrupt\n", "cancelled"),
    ],
)
def test_a_job_that_hung_or_tried_again_until_it_was_ended_failed_before(
    tmp_path: Path, state: str, log: str, rule: str
) -> None:
    limit = "slurmstepd: error: *** JOB 40 ON w1 CANCELLED AT 2019-04-20T14:10:22 DUE TO TIME LIMIT ***\n"
    batch = log + (limit if state == "TIMEOUT" else "")
    write_run(Written(None, others="", failed=None, state=state, batch=batch), tmp_path / "run")
    for path in (tmp_path / "run" / ATTEMPT).glob("rank-*"):
        path.unlink()
    assert explained(tmp_path / "run").rule == rule


@pytest.mark.parametrize("prefixed", ["", "-tee"])
@pytest.mark.parametrize(
    ("job", "rule", "rank"),
    [("skip", "memory-skipped", 1), ("cleanup", "collective-timeout", 1), ("crash", "crash-said", 1)],
)
def test_real_logs_of_three_ranks_of_which_one_made_the_others_fail(
    job: str, rule: str, rank: int, prefixed: str
) -> None:
    said = explain_logs([str(REPO / f"tests/data/explain/order/{job}{prefixed}.log")], RULES)
    assert (said.rule, said.rank) == (rule, rank), said.summary
    assert "Connection reset" not in said.summary
    assert "could not allocate" not in said.summary


@pytest.mark.parametrize(
    ("line", "raised", "rule"),
    [
        ("conda: command not found", "KeyError: 'lr'", None),
        ("conda: command not found", "ModuleNotFoundError: No module named 'torch'", "shell-setup"),
        ("n1: Cuda failure 'out of memory'", "ValueError: no batch", None),
        ("n1: Cuda failure 'out of memory'", "RuntimeError: NCCL error in: x.cpp:1, internal error",
         "nccl-out-of-memory"),
    ],
)  # fmt: skip
def test_what_was_complained_of_before_an_exception_of_the_program_is_not_its_cause(
    tmp_path: Path, line: str, raised: str, rule: str | None
) -> None:
    said = said_of(f"{line}\n{STEPS}{TRACE}{raised}\n", tmp_path)
    assert said.rule == rule
    assert raised.partition(":")[0] in said.summary or rule


@pytest.mark.parametrize("job", ["spawn", "mpspawn"])
def test_a_script_that_starts_processes_while_it_is_imported_is_known(job: str) -> None:
    said = explain_logs([str(REPO / f"tests/data/explain/order/no-guard-{job}.log")], RULES)
    assert said.rule == "main-guard", said.summary


def test_of_two_ranks_the_one_that_did_not_time_out_is_named_too(tmp_path: Path) -> None:
    folder = job(tmp_path / "run", {0: timed_out(0)}, {0: (1, 0.0), 1: (143, 1.0)})
    said = explained(folder).summary
    assert said.startswith("rank 0 on node01 failed first: a collective timed out")
    assert said.endswith("; rank 1 on node01 reported no timeout")
    both = job(tmp_path / "both", {0: timed_out(0), 1: timed_out(1)}, {0: (1, 0.0), 1: (1, 1.0)})
    assert "reported no timeout" not in explained(both).summary


def test_of_several_ranks_those_that_did_not_time_out_are_named_if_they_are_few(tmp_path: Path) -> None:
    waited = {rank: timed_out(rank) for rank in (0, 1, 2)}
    folder = job(tmp_path / "few", waited, {rank: (1 if rank in waited else 143, rank) for rank in range(5)})
    assert explained(folder).summary.endswith("; ranks 3-4 reported no timeout")
    alone = job(tmp_path / "many", {0: timed_out(0)}, {rank: (143 if rank else 1, rank) for rank in range(5)})
    assert "reported no timeout" not in explained(alone).summary  # the launcher ended them before
