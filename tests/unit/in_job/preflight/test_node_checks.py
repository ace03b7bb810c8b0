"""The checks of a node: what they record of its machine, of its peers and of its ranks."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.preflight import node
from hpcrun.in_job.preflight.node import Door, LocalNode, NodeReport, free_port
from tests.harness import wait_for

# --- its machine ---------------------------------------------------------------------------------


def program(folder: Path, name: str, text: str) -> None:
    """Make a program of a shell."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("argv", "output"),
    [
        (("sh", "-c", "echo a"), "a\n"),
        (("sh", "-c", "echo a; exit 1"), None),
        (("no-such-program",), None),
        (("sh", "-c", "cat; printf '\\377'"), "\ufffd"),
    ],
)
def test_only_a_command_that_succeeds_has_an_output(
    argv: tuple[str, ...], output: str | None
) -> None:
    assert node.run(*argv) == output


ECC = "00000000:07:00.0, 2"
ROWS = "00000000:07:00.0, No, Yes"
NVIDIA_SMI = f'case "$*" in *ecc*) echo {ECC};; *--query-remapped-rows*) echo {ROWS};; esac'
XID = "NVRM: Xid (PCI:0000:b4:00): 79, GPU has fallen off the bus."


def test_the_errors_of_driver_and_kernel_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "nvidia-smi", NVIDIA_SMI)
    program(tmp_path / "bin", "dmesg", f"echo '{XID}'")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert node.counters() == {"ecc": [2], "rows": [["No", "Yes"]], "xids": [79]}


def test_the_errors_are_those_of_the_job_s_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "nvidia-smi", "echo 00:00.0, ${1#--id=}")
    program(tmp_path / "bin", "dmesg", "exit 1")
    program(tmp_path / "bin", "journalctl", f"echo '{XID}'")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert node.counters() == {"ecc": [5], "rows": [], "xids": [79]}


def test_what_does_not_respond_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert node.counters() == {"ecc": None, "rows": None, "xids": None}


def test_the_shared_memory_is_that_of_the_machine() -> None:
    memory = node.shared_memory()
    if not os.path.exists("/dev/shm"):
        assert memory is None
        return
    disk = os.statvfs("/dev/shm")
    assert memory is not None
    assert abs(memory["total_mb"] - disk.f_blocks * disk.f_frsize / 2**20) <= 1
    assert 0 <= memory["free_mb"] <= memory["total_mb"]


def keep(place: Path, code: str, text: bytes | None) -> Path:
    """Leave a folder of kept data, last used 1,000 s after 1970."""
    folder = place / f"hpcrun-kept-{os.getuid()}-{code}"
    folder.mkdir()
    if text is not None:
        (folder / "list").write_bytes(text)
    os.utime(folder, (0, 1000))
    return folder


def test_kept_data_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCRUN_STAGE_DIR", str(tmp_path))
    whole = keep(tmp_path, "a1", b"/data\xff\x005 9 ./a\x00- - ./b\x0012 9 ./b/c d\x00")
    damaged = keep(tmp_path, "b2", None)
    keep(tmp_path, "c3.part", b"/data\x00")
    (tmp_path / f"hpcrun-kept-{os.getuid() + 1}-d4").mkdir()
    (tmp_path / f"hpcrun-kept-{os.getuid()}-e5").touch()
    assert node.kept_data() == [
        {"folder": str(whole), "source": "/data\ufffd", "bytes": 17, "used": 1000},
        {"folder": str(damaged), "source": None, "bytes": None, "used": 1000},
    ]


def test_a_disk_that_cannot_be_read_has_unknown_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCRUN_STAGE_DIR", str(tmp_path / "missing"))
    assert node.kept_data() is None


def test_each_name_resolves_or_has_a_reason() -> None:
    found = node.resolve_names({"a": "localhost", "b": "no-such-host.invalid"})
    assert {"127.0.0.1", "::1"} & {*found["a"]}
    assert isinstance(found["b"], str)


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (OSError(111, "Connection refused"), "Connection refused"),
        (ValueError("no answer"), "no answer"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_an_error_is_told_in_words(failure: Exception, text: str) -> None:
    assert node.words(failure) == text


# --- its place -----------------------------------------------------------------------------------


@pytest.fixture
def nodes(tmp_path: Path) -> Callable[..., LocalNode]:
    """The nodes of a job, by their rank; more variables may be given."""
    (tmp_path / "hosts").write_text("local-0\nlocal-1\n")
    (tmp_path / "preflight").mkdir()
    job = {
        "HPCRUN_ATTEMPT_DIR": str(tmp_path),
        "HPCRUN_NODE_ADDR": "127.0.0.1",
        "HPCRUN_JOB_ID": "L1",
        "HPCRUN_PORT": str(free_port("127.0.0.1")),
    }

    def node_of(rank: int, **env: str) -> LocalNode:
        here = {"HPCRUN_NODE": f"local-{rank}", "HPCRUN_NODE_RANK": str(rank)}
        return LocalNode({**job, **here, **env})

    return node_of


@pytest.mark.parametrize(
    ("rank", "address"),
    [(0, "127.0.0.1"), (249, "127.0.0.250"), (250, "127.0.1.1"), (503, "127.0.2.4")],
)
def test_each_node_of_this_machine_has_its_own_address(
    nodes: Callable[..., LocalNode], rank: int, address: str
) -> None:
    assert nodes(0).address(rank) == address


def test_a_node_has_its_name_in_the_network(nodes: Callable[..., LocalNode]) -> None:
    env = {"HPCRUN_NODE_ADDR": "n1-ib", "HPCRUN_HOST_SUFFIX": "-ib"}
    assert nodes(0, **env).address(1) == "local-1-ib"


@pytest.mark.parametrize(("limit", "seconds"), [("", 24), ("40", 40), ("5", 16)])
def test_a_node_ends_in_its_time(
    nodes: Callable[..., LocalNode], limit: str, seconds: float
) -> None:
    ends_at = nodes(0, HPCRUN_PREFLIGHT_S=limit).ends_at
    assert abs(ends_at - time.monotonic() - seconds) < 2


# --- all of it -----------------------------------------------------------------------------------

RANK = """
import json, sys
def say(**facts):
    print(json.dumps(facts), flush=True)
say(doing="gemm", args=sys.argv[1:])
print("NCCL WARN: no json", flush=True)
print("3", flush=True)
{text}
say(doing="waiting")
order = sys.stdin.readline()
if order:
    say(order=json.loads(order))
say(doing="done")
"""


@pytest.fixture
def check(
    tmp_path: Path, nodes: Callable[..., LocalNode], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Run the checks of a node with ranks that run a text, and return its report."""
    monkeypatch.setattr(node, "__file__", str(tmp_path / "node.py"))
    monkeypatch.setattr(node, "has_driver", lambda: False)
    monkeypatch.setenv("HPCRUN_STAGE_DIR", str(tmp_path / "missing"))

    def check_node(rank: int, ranks: int, gpus: int, text: str = "") -> dict[str, Any]:
        (tmp_path / "rank.py").write_text(RANK.format(text=text))
        path = tmp_path / "preflight/report.json"
        here = nodes(rank)
        node.check(here, ranks, gpus, NodeReport(path, rank=rank))
        return dict(json.loads(path.read_text()))

    return check_node


def test_the_report_of_a_node_has_its_checks_and_ranks(
    tmp_path: Path, check: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "hosts").write_text("local-0\n")
    report = check(0, 2, 0)
    assert report["rank"] == 0
    assert report["kept"] is None
    assert report["reach"] == {}
    assert report["started"] <= report["ended"] <= time.time()
    assert [rank["doing"] for rank in report["ranks"]] == ["waiting", "waiting"]
    arguments = [rank["args"] for rank in report["ranks"]]
    assert [words[:3] for words in arguments] == [["0", "2", "0"], ["1", "2", "0"]]
    assert arguments[0][3] == arguments[1][3]
    assert not {"late", "errors", "names", "bind"} & {*report}
    assert (tmp_path / "preflight/local-0-rank-1.err").exists()


@pytest.mark.parametrize(
    ("gpus", "has_driver", "ranks"),
    [(3, False, 2), (3, True, 3), (0, False, 3)],
    ids=["configured", "real", "none"],
)
def test_gpus_that_exist_in_the_configuration_alone_get_few_ranks(
    tmp_path: Path,
    check: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    gpus: int,
    has_driver: bool,
    ranks: int,
) -> None:
    monkeypatch.setattr(node, "has_driver", lambda: has_driver)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "hosts").write_text("local-0\n")
    report = check(0, 3, gpus)
    assert len(report["ranks"]) == ranks
    assert ("errors" in report) == (gpus > 0)


@pytest.mark.parametrize("rank", [0, 1])
def test_nodes_that_reach_each_other_let_their_ranks_do_so(
    nodes: Callable[..., LocalNode], check: Callable[..., dict[str, Any]], rank: int
) -> None:
    other = Door(nodes(1 - rank))
    report = check(rank, 2, 0)
    answer = report["reach"][f"local-{1 - rank}"]
    assert answer["store"] == other.store
    orders = [each["order"] for each in report["ranks"]]
    assert [order["rank"] for order in orders] == [2 * rank, 2 * rank + 1]
    assert [order["ranks"] for order in orders] == [4, 4]
    address, _, port = orders[0]["store"].rpartition(":")
    assert address == "127.0.0.1"
    assert (int(port) == other.store) == (rank == 1)
    assert 10 < orders[0]["wait_s"] <= 22  # of 24, in whole seconds before the end


def test_a_rank_that_fails_early_is_reported_with_its_status(
    tmp_path: Path, check: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "hosts").write_text("local-0\n")
    report = check(0, 1, 0, "sys.exit(3)")
    assert report["late"] is True
    (rank,) = report["ranks"]
    assert (rank["doing"], rank["status"]) == ("gemm", 3)


def test_no_process_of_a_rank_outlives_the_checks(
    tmp_path: Path, check: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "hosts").write_text("local-0\n")
    text = "import subprocess; say(child=subprocess.Popen(['sleep', '60']).pid)"
    (rank,) = check(0, 1, 0, text)["ranks"]
    child = Path(f"/proc/{rank['child']}/exe")
    wait_for(lambda: not child.exists(), 5, "the end of what a rank has started")


def test_a_port_that_another_program_has_is_reported(
    tmp_path: Path,
    nodes: Callable[..., LocalNode],
    check: Callable[..., dict[str, Any]],
) -> None:
    (tmp_path / "hosts").write_text("local-0\n")
    Door(nodes(0))
    assert check(0, 1, 0)["bind"].startswith("Address already in use")
