"""Which node is bad: decided from what the nodes wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.new_run import job_programs
from hpcrun.in_job.preflight.judge import judge, message, parse_srun, table_lines
from hpcrun.job.run_paths import RunFolder
from tests.unit.builders import write

H100 = {"bf16-tflops": 989.0, "fp16-tflops": 989.0, "nvlink-gb-s": 900.0, "fabric-gbit-s": 400.0}


def gpu(tflops: float = 700.0, **said: Any) -> dict[str, Any]:
    """What the rank of a GPU finds."""
    card = {"device": "cuda", "gpu": "NVIDIA H100", "free_gb": 84.0, "total_gb": 85.0}
    speed = {"right": True, "tflops": tflops, "dtype": "bf16", "within": 300.0, "across": 45.0}
    return {"doing": "done", "torch": "2.8.0", **card, **speed, **said}


def cpu(**said: Any) -> dict[str, Any]:
    """What a rank without a GPU finds."""
    return {
        "doing": "done",
        "device": "cpu",
        "no_gpu": "torch 2.8.0+cpu has no CUDA",
        "asked": 0,
        "right": True,
    } | said


def node(
    name: str, hosts: list[str], ranks: list[dict[str, Any]] | None = None, **said: Any
) -> dict[str, Any]:
    """What a node writes where all is well."""
    found: dict[str, Any] = {
        "node": name,
        "port": 20001,
        "names": {host: [f"10.0.0.{number}"] for number, host in enumerate(hosts)},
        "reach": {host: {"ms": 0.2, "clock_s": 0.001} for host in hosts if host != name},
        "shm": {"free_mb": 50000, "total_mb": 50000},
        "errors": {"ecc": [0], "rows": [["No", "No"]], "xids": None},
        "ranks": ranks or [gpu(), gpu()],
        "ended": 1.0,
    }
    return found | said


def cluster(
    count: int = 2, **changed: dict[str, Any]
) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Nodes n0, n1 ... and their reports, some of them with other findings."""
    hosts = [f"n{number}" for number in range(count)]
    return hosts, {host: node(host, hosts, **changed.get(host, {})) for host in hosts}


def cut(reports: dict[str, dict[str, Any]], *paths: tuple[str, str]) -> None:
    """Let connections from one node to another fail."""
    for source, target in paths:
        reports[source]["reach"] = {**reports[source]["reach"], target: {"error": "timed out"}}


def bad(verdict: dict[str, Any]) -> dict[str, str]:
    return {item["node"]: item["why"] for item in verdict["bad"]}


def checks(verdict: dict[str, Any], host: str, check: str) -> tuple[str, str]:
    (found,) = (item["checks"][check] for item in verdict["nodes"] if item["node"] == host)
    return found["mark"], found["text"]


def test_good_nodes_are_fine_and_what_is_not_known_fails_nothing() -> None:
    verdict = judge(*cluster(), rates=H100)
    assert verdict["ok"]
    assert message(verdict) == "preflight: all nodes are ok"
    assert {check["mark"] for row in verdict["nodes"] for check in row["checks"].values()} == {"ok"}
    assert "2 × 700 TFLOPS" in table_lines(verdict)[1]
    ranks = [gpu(30), gpu(31)]
    assert (
        message(judge(*cluster(n0={"ranks": ranks}, n1={"ranks": ranks})))
        == "preflight: all nodes are ok"
    )
    nothing = {"errors": {"ecc": None, "rows": None, "xids": None}}
    verdict = judge(*cluster(n0=nothing, n1=nothing))
    assert verdict["ok"]
    assert checks(verdict, "n0", "errors") == ("-", "cannot be read")


def test_where_none_answered_only_those_that_slurm_finds_silent_are_bad() -> None:
    for errors, named, problems in (
        ({"n0": "it is down"}, {"n0": "did not respond: it is down"}, []),
        ({}, {}, ["no node answered"]),
    ):
        verdict = judge(["n0", "n1"], {}, srun_errors=errors)
        assert verdict["ok"] is False
        assert bad(verdict) == named
        assert verdict["problems"] == problems
        assert checks(verdict, "n1", "port") == ("-", "")


def test_a_node_without_a_report_did_not_answer() -> None:
    hosts, reports = cluster()
    del reports["n1"]
    reports["n0"] |= {"reach": {"n1": {"error": "timed out"}}}
    verdict = judge(hosts, reports, srun_errors={"n1": "Communication connection failure"})
    assert bad(verdict) == {"n1": "did not respond: Communication connection failure"}
    assert message(verdict).endswith("add --exclude=n1")


def test_the_node_that_explains_the_failed_connections_is_bad(subtests: pytest.Subtests) -> None:
    for count, paths, named, why in (
        (2, [("n0", "n1")], "n1", "no node reaches its port 20001 (timed out)"),
        (2, [("n1", "n0")], "n0", "no node reaches its port 20001 (timed out)"),
        (2, [("n0", "n1"), ("n1", "n0")], "n1", "no node reaches its port 20001 (timed out)"),
        (3, [("n1", "n0"), ("n2", "n0")], "n0", "no node reaches its port 20001 (timed out)"),
        (3, [("n1", "n0"), ("n1", "n2")], "n1", "reaches no other node (timed out)"),
        (4, [("n0", "n3"), ("n1", "n3")], "n3", "n0, n1 cannot reach its port 20001 (timed out)"),
        (5, [("n1", "n3"), ("n1", "n4")], "n1", "does not reach n3, n4 (timed out)"),
        (
            4,
            [("n0", "n3"), ("n1", "n3"), ("n2", "n3"), ("n3", "n0"), ("n3", "n1"), ("n3", "n2")],
            "n3",
            "no node reaches its port 20001 (timed out)",
        ),
    ):
        with subtests.test(count=count):
            hosts, reports = cluster(count)
            cut(reports, *paths)
            verdict = judge(hosts, reports)
            assert bad(verdict) == {named: why}
            assert verdict["exclude"] == named


def test_two_blocked_nodes_are_both_named() -> None:
    for count in (4, 5):
        hosts, reports = cluster(count)
        cut(
            reports,
            *((source, target) for target in ("n1", "n3") for source in hosts if source != target),
        )
        assert bad(judge(hosts, reports)).keys() == {"n1", "n3"}


def test_a_blocked_path_between_good_nodes_is_no_bad_node() -> None:
    hosts, reports = cluster(4)
    for source, target in (("n1", "n2"), ("n2", "n1")):  # one way, then both
        cut(reports, (source, target))
        verdict = judge(hosts, reports)
        assert bad(verdict) == {}
        assert verdict["problems"] == ["n1 does not reach n2 (timed out); other nodes do"]
        assert verdict["ok"] is False
        assert verdict["exclude"] == "n2"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"ranks": [gpu(), gpu(150)]}, "GPU 1: 150 TFLOPS, the others 700"),
        ({"ranks": [gpu(), gpu(right=False)]}, "GPU 1 computes wrong results"),
        (
            {"ranks": [gpu(), {"doing": "device", "error": "CUDA error: out of memory"}]},
            "rank 1: CUDA error: out of memory",
        ),
        ({"ranks": [gpu(), {"doing": "gemm", "gpu": "H100", "for_s": 9.0}]}, "GPU 1 hangs"),
        (
            {"ranks": [gpu(), {"doing": "gemm", "gpu": "H100", "status": -11}]},
            "GPU 1 ended with status -11",
        ),
        (
            {"ranks": [cpu(expected=True, no_gpu="torch sees 0 of 8 GPUs")] * 2},
            "torch sees 0 of 8 GPUs",
        ),
        ({"ranks": [gpu(within=90.0), gpu()]}, "intra-node all-reduce: 90 GB/s, the others 300"),
        (
            {"ranks": [gpu(doing="within", error="NCCL error", within=None), gpu()]},
            "intra-node all-reduce: GPU 0: NCCL error",
        ),
        ({"shm": {"free_mb": 64, "total_mb": 64}}, "/dev/shm: 64 MB free"),
        (
            {"names": {"n0": "Name or service not known", "n1": ["10.0.0.1"], "n2": ["10.0.0.2"]}},
            "cannot resolve n0",
        ),
        (
            {"errors": {"ecc": [0], "rows": [["No", "Yes"]], "xids": None}},
            "errors: a memory row could not be remapped",
        ),
        (
            {"errors": {"ecc": None, "rows": None, "xids": [13, 31, 79]}},
            "errors: Xid 79 (the GPU has fallen off the bus)",
        ),
        ({"bind": "Address already in use"}, "cannot listen on 20001: Address already in use"),
        ({"failed": 127, "ranks": None}, "its Python ends with status 127"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_fails_on_one_node_names_it(said: dict[str, Any], why: str) -> None:
    hosts, reports = cluster(3)
    reports["n1"] |= said
    verdict = judge(hosts, reports, rates=H100)
    assert bad(verdict) == {"n1": why}


def test_a_node_that_cannot_listen_is_named_for_that_alone() -> None:
    for said in ({"failed": 3, "ranks": None}, {"bind": "Address already in use"}):
        hosts, reports = cluster(3)
        cut(reports, ("n0", "n1"), ("n2", "n1"))
        reports["n1"] |= said
        (why,) = bad(judge(hosts, reports)).values()
        assert "reaches" not in why


def test_a_clock_that_is_wrong_is_seen_from_the_first_node_whose_own_is_its_own() -> None:
    hosts, reports = cluster(3)
    reports["n0"]["reach"]["n1"]["clock_s"] = -90.0
    assert bad(judge(hosts, reports)) == {"n1": "clock: -90 s"}
    reports["n0"]["reach"]["n1"]["clock_s"] = 2.0
    verdict = judge(hosts, reports)
    assert verdict["ok"]
    assert checks(verdict, "n1", "clock") == ("slow", "+1999 ms")
    hosts, reports = cluster(3)
    reports["n0"]["reach"] = {host: {"ms": 0.2, "clock_s": -90.0} for host in ("n1", "n2")}
    assert bad(judge(hosts, reports)) == {"n0": "clock: +90 s"}


def test_what_fails_alike_on_every_node_is_no_node_s_fault() -> None:
    ranks = [cpu(expected=True, no_gpu="torch 2.8.0+cpu has no CUDA")]
    verdict = judge(*cluster(n0={"ranks": ranks}, n1={"ranks": ranks}))
    assert bad(verdict) == {}
    assert verdict["problems"] == ["GEMM: torch 2.8.0+cpu has no CUDA, on every node"]
    assert message(verdict) == "preflight: GEMM: torch 2.8.0+cpu has no CUDA, on every node"
    hosts, reports = cluster(3)
    for report in reports.values():
        report["names"] = {**report["names"], "n2": "Name or service not known"}
    assert message(judge(hosts, reports)) == "preflight: DNS: cannot resolve n2, on every node"


def test_a_single_node_is_blamed_for_its_gpu_and_not_for_the_job_s_python() -> None:
    ranks = [{"doing": "import torch", "error": "ModuleNotFoundError: No module named 'torch'"}]
    verdict = judge(*cluster(1, n0={"ranks": ranks}))
    assert bad(verdict) == {}
    assert verdict["exclude"] == ""
    assert verdict["problems"] == ["GEMM: rank 0: ModuleNotFoundError: No module named 'torch'"]
    assert bad(judge(*cluster(1, n0={"ranks": [gpu(right=False)]}))) == {
        "n0": "GPU 0 computes wrong results"
    }


def test_what_is_slow_everywhere_is_said_and_fails_nothing(subtests: pytest.Subtests) -> None:
    for ranks, check, text in (
        ([gpu(300), gpu(310)], "gemm", "2 × 300 TFLOPS of 989"),
        ([gpu(free_gb=30.0)], "gemm", "GPU 0: only 30 of 85 GB are free"),
        ([gpu(within=100.0), gpu(within=100.0)], "within", "100 GB/s of 450"),
        ([gpu(across=2.0)], "across", "2.0 GB/s, one port has 50"),
        ([{"doing": "import torch"}], "gemm", "import of torch timed out"),
        ([{"doing": "gemm", "for_s": 1.5}], "gemm", "rank 0 was not done in time"),
        ([cpu(asked=8)], "gemm", "on the CPU: torch 2.8.0+cpu has no CUDA"),
    ):
        with subtests.test(ranks=ranks):
            verdict = judge(*cluster(n0={"ranks": ranks}, n1={"ranks": ranks}), rates=H100)
            assert verdict["ok"]
            assert checks(verdict, "n1", check) == ("slow", text)
            assert message(verdict) == "preflight: no bad node; slow: n0, n1"


def test_a_node_that_is_late_under_load_fails_no_job(subtests: pytest.Subtests) -> None:
    waits = [
        cpu(doing="within", error="DistStoreError: timed out after 12 s"),
        {"doing": "import torch"},
    ]
    for ranks in ([cpu(doing="gemm", for_s=2.0)], [cpu(doing="within", for_s=2.0)], waits):
        with subtests.test(ranks=ranks):
            verdict = judge(
                *cluster(n0={"ranks": [cpu(doing="waiting")]}, n1={"ranks": ranks, "late": True})
            )
            assert message(verdict) == "preflight: no bad node; slow: n1"


def test_nodes_that_are_late_for_their_all_reduce() -> None:
    hosts, reports = cluster()
    del reports["n1"]["ended"], reports["n0"]["ranks"][0]["across"]
    verdict = judge(hosts, reports)
    assert message(verdict) == "preflight: n1 not ready in time for an all-reduce"
    assert checks(verdict, "n0", "across") == ("-", "no all-reduce: n1 not ready")
    late = {"ranks": [cpu(doing="waiting")], "late": True}
    verdict = judge(*cluster(n0=late, n1=late))
    assert message(verdict) == "preflight: no bad node; slow: n0, n1"
    assert checks(verdict, "n0", "across") == ("slow", "not ready in time")


def test_an_all_reduce_that_fails_between_good_nodes_is_the_network_s_fault() -> None:
    broken = gpu(doing="across", error="NCCL error: unhandled system error")
    del broken["across"]
    verdict = judge(*cluster(n0={"ranks": [broken]}, n1={"ranks": [broken]}))
    assert bad(verdict) == {}
    assert (
        "their all-reduce failed: GPU 0: NCCL error: unhandled system error"
        in verdict["problems"][0]
    )


def test_a_node_that_cannot_write_its_report_is_bad_for_that_reason() -> None:
    hosts, reports = cluster()
    del reports["n1"]
    why = "cannot write in the run's folder /r: Read-only file system"
    errors = parse_srun(f"1: hpcrun: n1 {why}; choose a runs folder that all nodes share\n")
    assert judge(hosts, reports, srun_errors=errors)["bad"] == [{"node": "n1", "why": why}]


def test_the_nodes_that_are_excluded_already_stay_so_and_srun_s_words_are_read() -> None:
    hosts, reports = cluster(3)
    del reports["n1"]
    assert judge(hosts, reports, excluded="m[1-3]")["exclude"] == "m[1-3],n1"
    assert judge(*cluster(), excluded="m[1-3]")["exclude"] == ""
    text = """srun: error: slurm_receive_msgs: [[a100-2]:6818] failed: \
Zero Bytes were transmitted or received
srun: error: Task launch for StepId=112.0 failed on node a100-2: Communication connection failure
srun: error: Application launch failed: Communication connection failure
"""
    assert parse_srun(text) == {"a100-2": "Communication connection failure"}


@pytest.mark.parametrize("more", [{}, {"PYTHONSAFEPATH": "1"}], ids=["", "safe-path"])
def test_the_judge_needs_only_what_lies_beside_it(more: dict[str, str], tmp_path: Path) -> None:
    run, other = RunFolder(tmp_path / "run"), tmp_path / "site"
    for name, content in job_programs().items():
        write(run.programs(name), content.decode())
    for name in ("hpcrun", "preflight"):  # an installed package of that name is not taken for ours
        write(other / name / "__init__.py", "raise ImportError")
    hosts, reports = cluster()
    attempt = run.element(0).attempt(0)
    write(attempt.hosts, "\n".join(hosts))
    for host, report in reports.items():
        write(attempt.preflight / f"{host}.json", json.dumps(report))
    env = {**os.environ, "HPCRUN_ATTEMPT_DIR": str(attempt.path), "PYTHONPATH": str(other), **more}
    before = set(run.path.rglob("*"))
    done = subprocess.run(
        [sys.executable, str(run.programs() / "preflight/judge.py"), "--bf16-tflops=989"],
        env=env,
        cwd=other,
        capture_output=True,
        text=True,
        timeout=30,
    )
    verdict = judge(hosts, reports, rates={"bf16-tflops": 989.0})
    assert (done.returncode, done.stdout) == (0, f"{message(verdict)}\n"), done.stderr
    assert json.loads(attempt.verdict.read_text()) == verdict
    assert set(run.path.rglob("*")) - before == {attempt.verdict}


def test_of_two_clocks_the_second_is_compared_with_the_first() -> None:
    verdict = judge(*cluster(n0={"reach": {"n1": {"ms": 0.2, "clock_s": 2.0}}}))
    assert checks(verdict, "n0", "clock") == ("ok", "+0 ms")
    assert checks(verdict, "n1", "clock") == ("slow", "+2000 ms")


@pytest.mark.parametrize("address", ["127.0.1.1", "::1"])
def test_a_node_that_resolves_its_own_name_to_loopback_is_slow(address: str) -> None:
    verdict = judge(*cluster(n1={"names": {"n0": ["10.0.0.1"], "n1": [address]}}))
    assert checks(verdict, "n1", "names") == ("slow", f"resolves its own name to {address}")


def test_a_late_node_explains_the_all_reduce_that_failed() -> None:
    ranks = [gpu(doing="across", error="NCCL error", across=None)]
    verdict = judge(*cluster(n0={"ranks": ranks}, n1={"late": True}))
    assert verdict["problems"] == []
