"""Where each check of a preflight begins to be slow, and where it fails."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.in_job.preflight.grade_checks import listed
from hpcrun.in_job.preflight.judge import judge
from tests.unit.in_job.preflight.test_judge import H100, checks, cluster, cpu, gpu


def graded(check: str, n1: dict[str, Any], *, nodes: int = 3, rates: Any = H100) -> tuple[str, str]:
    """Return the mark and the text of a check of n1, of which something is otherwise."""
    return checks(judge(*cluster(nodes, n1=n1), rates=rates), "n1", check)


@pytest.mark.parametrize(
    ("off_s", "mark", "text"),
    [
        (0.9, "ok", "+899 ms"),
        (1.1, "slow", "+1099 ms"),
        (9.0, "slow", "+8999 ms"),
        (12.0, "slow", "+12 s"),
        (29.0, "slow", "+29 s"),
        (31.0, "FAILED", "+31 s"),
        (-31.0, "FAILED", "-31 s"),
    ],
)
def test_a_clock_is_wrong_from_half_a_minute(off_s: float, mark: str, text: str) -> None:
    hosts, reports = cluster(3)
    reports["n0"]["reach"]["n1"]["clock_s"] = off_s
    assert checks(judge(hosts, reports), "n1", "clock") == (mark, text)


@pytest.mark.parametrize(
    ("free_mb", "ranks", "mark", "text"),
    [
        (127, 2, "FAILED", "127 MB free"),
        (128, 2, "slow", "128 MB free"),
        (128, 3, "FAILED", "128 MB free"),
        (1023, 2, "slow", "1023 MB free"),
        (1024, 2, "ok", "1024 MB free"),
        (10239, 2, "ok", "10239 MB free"),
        (10240, 2, "ok", "10 GB"),
    ],
)
def test_shared_memory_has_room_for_each_rank(
    free_mb: int, ranks: int, mark: str, text: str
) -> None:
    n1 = {"shm": {"free_mb": free_mb, "total_mb": 50000}, "ranks": [gpu()] * ranks}
    assert graded("shm", n1) == (mark, text)


@pytest.mark.parametrize(
    ("tflops", "mark", "text"),
    [
        (425.0, "ok", "2 × 425 TFLOPS"),
        (419.0, "FAILED", "GPU 0: 419 TFLOPS, the others 700"),
    ],
)
def test_a_gpu_is_bad_below_three_fifths_of_the_others(tflops: float, mark: str, text: str) -> None:
    assert graded("gemm", {"ranks": [gpu(tflops), gpu()]}) == (mark, text)


@pytest.mark.parametrize(
    ("tflops", "rates", "mark"),
    [(396.0, H100, "ok"), (395.0, H100, "slow"), (395.0, {}, "ok")],
)
def test_a_gpu_is_slow_below_two_fifths_of_its_card(
    tflops: float, rates: dict[str, float], mark: str
) -> None:
    ranks = {"ranks": [gpu(tflops), gpu(tflops)]}
    verdict = judge(*cluster(2, n0=ranks, n1=ranks), rates=rates)
    assert checks(verdict, "n1", "gemm")[0] == mark


@pytest.mark.parametrize(("free_gb", "mark"), [(76.6, "ok"), (76.4, "slow")])
def test_a_gpu_of_which_a_tenth_is_taken_is_slow(free_gb: float, mark: str) -> None:
    assert graded("gemm", {"ranks": [gpu(), gpu(free_gb=free_gb)]})[0] == mark


@pytest.mark.parametrize(
    ("within", "mark", "text"),
    [
        (181.0, "ok", "181 GB/s"),
        (179.0, "FAILED", "179 GB/s, the others 300"),
    ],
)
def test_links_are_bad_below_three_fifths_of_the_others(
    within: float, mark: str, text: str
) -> None:
    assert graded("within", {"ranks": [gpu(), gpu(within=within)]}) == (mark, text)


@pytest.mark.parametrize(
    ("across", "mark", "text"),
    [
        (15.1, "ok", "15 GB/s"),
        (14.9, "slow", "15 GB/s, one port has 50"),
        (9.94, "slow", "9.9 GB/s, one port has 50"),
    ],
)
def test_links_are_slow_below_a_third_of_a_port(across: float, mark: str, text: str) -> None:
    assert graded("across", {"ranks": [gpu(), gpu(across=across)]}) == (mark, text)


@pytest.mark.parametrize("check", ["within", "across"])
def test_links_of_cpus_have_no_rate_to_reach(check: str) -> None:
    ranks = [cpu(within=0.5, across=0.25)] * 2
    assert graded(check, {"ranks": ranks})[0] == "ok"


@pytest.mark.parametrize(
    ("for_s", "mark", "text"),
    [(6.9, "slow", "GPU 1 was not done in time"), (7.0, "FAILED", "GPU 1 hangs")],
)
def test_a_rank_hangs_from_seven_seconds(for_s: float, mark: str, text: str) -> None:
    ranks = [gpu(), {"doing": "gemm", "gpu": "H100", "for_s": for_s}]
    assert graded("gemm", {"ranks": ranks}) == (mark, text)


@pytest.mark.parametrize(
    ("n1", "check"),
    [
        ({"names": None}, "names"),
        ({"names": {}}, "names"),
        ({"reach": {"n0": {}}}, "port"),
        ({"shm": None}, "shm"),
        ({"errors": None}, "errors"),
    ],
    ids=str,
)
def test_what_is_not_known_fails_nothing(n1: dict[str, Any], check: str) -> None:
    mark, text = graded(check, n1)
    assert mark == ("ok" if check == "port" else "-")
    assert text == ""


@pytest.mark.parametrize("check", ["gemm", "within", "across"])
def test_a_node_without_ranks_yet_fails_nothing(check: str) -> None:
    hosts, reports = cluster(3)
    reports["n1"]["ranks"] = None
    assert checks(judge(hosts, reports), "n1", check) == ("-", "")


def test_a_node_alone_may_be_called_localhost() -> None:
    n0 = {"names": {"n0": "Name or service not known"}}
    verdict = judge(*cluster(1, n0=n0))
    assert checks(verdict, "n0", "names") == ("slow", "cannot resolve n0")
    assert checks(verdict, "n0", "clock") == ("-", "")


def test_one_address_of_the_network_is_enough() -> None:
    names = {"n0": ["10.0.0.1"], "n1": ["127.0.1.1", "10.0.0.2"], "n2": ["10.0.0.3"]}
    assert graded("names", {"names": names}) == ("ok", "3")


def test_the_delay_of_a_node_is_the_middle_one() -> None:
    reach = {"n0": {"ms": 0.3, "clock_s": 0.0}, "n2": {"ms": 0.5, "clock_s": 0.0}}
    assert graded("port", {"reach": reach}) == ("ok", "0.4 ms")


@pytest.mark.parametrize(
    ("errors", "mark", "text"),
    [
        ({"ecc": [0, 0], "rows": [], "xids": []}, "ok", "no ECC or Xid"),
        ({"ecc": [0], "rows": None, "xids": None}, "ok", "no ECC"),
        ({"ecc": None, "rows": None, "xids": [31]}, "ok", "no Xid"),
        (
            {"ecc": [0], "rows": [], "xids": [48]},
            "FAILED",
            "Xid 48 (an uncorrectable memory error (double-bit ECC))",
        ),
        ({"ecc": [0, 3], "rows": [], "xids": []}, "slow", "3 uncorrected ECC errors"),
        (
            {"ecc": [0], "rows": [["Yes", "No"]], "xids": []},
            "slow",
            "a GPU reset is needed to remap a memory row",
        ),
        ({"ecc": [0], "rows": [["0", "1"]], "xids": []}, "FAILED", "a memory row could not be"),
        (
            {"ecc": [2], "rows": [], "xids": [79]},
            "FAILED",
            "Xid 79 (the GPU has fallen off the bus), 2 uncorrected ECC errors",
        ),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_errors_of_the_driver_are_warnings_or_failures(
    errors: dict[str, Any], mark: str, text: str
) -> None:
    found_mark, found_text = graded("errors", {"errors": errors})
    assert found_mark == mark
    assert found_text.startswith(text)


@pytest.mark.parametrize(
    ("number", "text"), [(4, "a, b, c, d"), (5, "a, b, c, d and 1 more"), (1, "a")]
)
def test_at_most_four_names_are_listed(number: int, text: str) -> None:
    assert listed([*"abcdef"[:number]]) == text
