"""What a person sees of a preflight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.output import Outcome
from hpcrun.errors import HpcrunError
from hpcrun.features.preflight.command import (
    _cancel,
    _verdict,
    kept_lines,
    preflight_json,
    preflight_lines,
    preflight_table,
)
from hpcrun.in_job.preflight.judge import judge
from hpcrun.runs.record import LastStatus
from tests.unit.builders import drawn, run
from tests.unit.in_job.preflight.test_judge import cluster, cut, gpu


def table(found: dict[str, Any], width: int) -> list[str]:
    return drawn(preflight_table(found, width), width)


def test_every_node_has_a_line_with_marks_and_numbers_and_json_has_the_run_and_the_verdict(
    subtests: pytest.Subtests,
) -> None:
    more, heading, first, second = table(judge(*cluster()), 200)
    assert heading.split() == "NODE DNS PORT CLOCK SHM GEMM ALL-REDUCE ALL-REDUCE ERRORS".split()
    assert more.split() == ["INTRA-NODE", "INTER-NODE"]
    assert first.split("  ")[0] == "n0"
    for words in (
        "ok 2",
        "ok 0.2 ms",
        "ok 49 GB",
        "ok 2 × 700 TFLOPS",
        "ok 300 GB/s",
        "ok 45 GB/s",
        "ok no ECC",
    ):
        with subtests.test(words=words):
            assert words in second
    item = RunStatus(run(), Path("/runs/it"), LastStatus("FAILED", 0.0))
    document = preflight_json(item, judge(*cluster()))
    assert [document[name] for name in ("kind", "job_id", "ok", "exclude")] == [
        "preflight",
        "4711",
        True,
        "",
    ]
    assert document["nodes"][1]["checks"]["gemm"] == {"mark": "ok", "text": "2 × 700 TFLOPS"}
    assert "schema" not in document, "show_json has its own"


def test_on_a_narrow_terminal_what_is_slow_is_said_below_the_table() -> None:
    ranks = {"ranks": [gpu(300)]}
    found = judge(*cluster(n0=ranks, n1=ranks), rates={"bf16-tflops": 989.0})
    assert "slow 1 × 300 TFLOPS of 989" in table(found, 200)[2]
    assert max(map(len, table(found, 80))) <= 80
    narrow = " ".join(table(found, 100))
    assert "slow" in narrow
    assert "of 989" not in narrow
    assert "of 989" in preflight_lines(found)[0]


def test_bad_and_slow_nodes_are_named_and_words_of_a_cluster_cannot_act_on_the_terminal() -> None:
    hosts, reports = cluster(3)
    cut(reports, ("n0", "n2"), ("n1", "n2"))
    del reports["n1"]["ranks"][0]["within"]
    assert preflight_lines(judge(hosts, reports)) == [
        "bad: n2 (no node reaches its port 20001 (timed out))"
    ]
    ranks = {"ranks": [gpu(300)]}
    found = judge(*cluster(n0=ranks, n1=ranks), rates={"bf16-tflops": 989.0})
    assert preflight_lines(found) == ["slow: n0, n1 (GEMM: 1 × 300 TFLOPS of 989)", "no bad node"]
    hosts, reports = cluster()
    reports["n1"]["ranks"] = [gpu(), {"doing": "gemm", "error": "\x1b[2J\nbad"}]
    found = judge(hosts, reports)
    assert "\x1b[2J" not in "".join([*table(found, 200), *preflight_lines(found)])


def test_what_is_kept_on_the_nodes_is_shown_and_what_is_not_known_is_said() -> None:
    copy = {"folder": "/tmp/kept", "source": "/data\x1b", "bytes": 5 << 30, "used": 1000.0}
    damaged = {"folder": "/tmp/damaged", "source": None, "bytes": None, "used": None}
    hosts, reports = cluster(n0={"kept": [copy, damaged]})
    assert kept_lines(judge(hosts, reports), 1000.0 + 3 * 86400) == [
        "kept on n0: /data? (5.0G, last used 3 d ago), /tmp/damaged (not readable)",
        "kept on n1: not known",
    ]


def test_without_kept_data_nothing_is_shown_of_them() -> None:
    assert kept_lines(judge(*cluster(n0={"kept": []})), 0.0) == []


def outcome_of(verdict: dict[str, Any]) -> Outcome:
    """What the command ends with."""
    item = RunStatus(run(), Path("/runs/it"), LastStatus("FAILED", 0.0))
    return _verdict(item, verdict, 0.0)


def test_the_exclusion_of_a_bad_node_is_proposed() -> None:
    hosts, reports = cluster(3)
    cut(reports, ("n0", "n2"), ("n1", "n2"))
    failure = outcome_of(judge(hosts, reports)).failure
    assert failure
    assert failure.exit_code == 7
    assert failure.hint == "add --exclude=n2"


def test_a_failure_of_no_single_node_names_the_log() -> None:
    verdict = {**judge(*cluster()), "ok": False}
    failure = outcome_of(verdict).failure
    assert failure
    assert failure.hint == "hpcrun logs --batch 4711"


def test_a_preflight_without_bad_nodes_is_no_failure() -> None:
    outcome = outcome_of(judge(*cluster()))
    assert outcome.failure is None
    assert outcome.document
    assert outcome.document()["folder"] == "/runs/it"
    assert outcome.text
    _, last = outcome.text()
    assert last.lines == ("all nodes are ok",)


class Watch:
    """A preflight whose job is cancelled, or is not."""

    def __init__(self, done: str | HpcrunError) -> None:
        self.done = done

    def cancel(self) -> str:
        if isinstance(self.done, HpcrunError):
            raise self.done
        return self.done


def test_ctrl_c_says_what_became_of_the_job() -> None:
    watch: Any = Watch("was cancelled")
    assert _cancel(watch, run()).message == "interrupted; job 4711 was cancelled"
    watch = Watch(HpcrunError("Slurm does not respond"))
    error = _cancel(watch, run())
    assert error.message == (
        "interrupted, but job 4711 could not be cancelled: Slurm does not respond"
    )
    assert error.hint == "hpcrun cancel 4711"
