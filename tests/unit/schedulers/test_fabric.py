"""What a node's network moves, from two readings of its counters."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hpcrun.schedulers.job_steps import READ_PORTS, PortReading, parse_ports


def test_rates_are_what_came_between_two_readings() -> None:
    lines = [
        "100.0\tmlx5_0/1\t200 Gb/sec (4X HDR)\t1000\t500",
        "100.0\tmlx5_1/1\t200 Gb/sec (4X HDR)\t7\t7",
        "102.0\tmlx5_0/1\t200 Gb/sec (4X HDR)\t5000\t500",
        "102.0\tmlx5_1/1\t200 Gb/sec (4X HDR)\t0\t7",  # it has begun anew
    ]
    assert parse_ports(lines) == (
        PortReading("mlx5_0/1", "200 Gb/sec (4X HDR)", 2000.0, 0.0),
        PortReading("mlx5_1/1", "200 Gb/sec (4X HDR)", 0.0, 0.0),
    )


def test_interfaces_that_moved_nothing_are_left_out_and_the_loopback_always() -> None:
    lines = ["1.0\tlo\t\t0\t0", "1.0\teth0\t\t10\t10", "1.0\teth1\t\t5\t5"]
    lines += ["2.0\tlo\t\t9\t9", "2.0\teth0\t\t10\t40", "2.0\teth1\t\t5\t5"]
    assert parse_ports(lines) == (PortReading("eth0", "", 0.0, 30.0),)


def test_what_is_no_reading_is_passed_over() -> None:
    assert parse_ports(["", "1.0\teth0", "x\teth0\t\t1\t1", "1.0\teth0\t\tmany\t1", "1.0\teth0\t\t1\t1"]) == ()


def test_a_node_without_rdma_reads_its_interfaces() -> None:
    said = subprocess.run(["bash", "-c", READ_PORTS + "read_ports"], capture_output=True, text=True, check=True).stdout
    names = {line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]}
    assert {line.split("\t")[1] for line in said.splitlines()} == names
    assert all(len(line.split("\t")) == 5 for line in said.splitlines())
