"""How much a run's folder holds."""

from __future__ import annotations

from pathlib import Path

from hpcrun.actions.runs.clean_runs import DiskUsage, run_size
from tests.unit.builders import write


def test_an_empty_folder_and_one_that_is_gone_hold_nothing(tmp_path: Path) -> None:
    assert run_size(tmp_path) == DiskUsage(0, 0)
    assert run_size(tmp_path / "gone") == DiskUsage(0, 0)


def test_checkpoints_are_counted_in_the_whole_and_by_themselves(tmp_path: Path) -> None:
    run, other = tmp_path / "run", write(tmp_path / "other/large", "x" * 1_000_000)
    logs = [
        write(run / "batch.log", "x" * 5000),
        write(run / "elements/0/attempts/0/rank-0.out", "x"),
    ]
    kept = [
        write(run / f"elements/{element}/checkpoints/step/model.pt", "x" * 100_000 * (element + 1))
        for element in (0, 1)
    ]
    # named so by somebody
    logs.append(write(run / "elements/0/attempts/checkpoints/model.pt", "x"))
    (run / "elements/0/checkpoints/last").symlink_to(other)

    def blocks(paths: list[Path]) -> int:
        return sum(path.lstat().st_blocks * 512 for path in paths)

    kept.append(run / "elements/0/checkpoints/last")
    assert run_size(run) == DiskUsage(blocks([*logs, *kept]), blocks(kept))
