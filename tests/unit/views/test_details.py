"""status --verbose on a terminal."""

from __future__ import annotations

from pathlib import Path

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.runs.record import LastStatus
from hpcrun.views.details import detail_lines
from tests.unit.given import run


def test_long_text_is_folded_between_words_below_its_own_column() -> None:
    item = RunStatus(run(), Path("/runs/a/folder/that/is/longer/than/the/terminal"), LastStatus("PENDING", 0.0))
    more = [("advice", "Wait for them, ask for fewer GPUs, CPUs or less memory, or use another --qos.")]
    assert detail_lines(item, 44, more) == [
        "20260102-030405-train-0a1b",
        "  advice       Wait for them, ask for fewer",
        "               GPUs, CPUs or less memory, or",
        "               use another --qos.",
        "  folder       /runs/a/folder/that/is/longer/than/the/terminal",
    ]
