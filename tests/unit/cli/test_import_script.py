"""hpcrun import: what the document and the text say of a script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcrun.cli.import_script import import_
from hpcrun.cli.output import Outcome

HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=4\n"


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Outcome]:
    """A script's lines → what the command makes of the script."""
    monkeypatch.chdir(tmp_path)

    def import_lines(lines: str) -> Outcome:
        (tmp_path / "old.sbatch").write_text(HEAD + lines)
        return import_(Path("old.sbatch"), None, False)

    return import_lines


def document(outcome: Outcome) -> dict[str, Any]:
    assert outcome.document
    return dict(outcome.document())


@pytest.mark.parametrize(
    ("lines", "launcher"),
    [
        ("srun python train.py\n", "srun"),
        ("srun torchrun --nproc-per-node=4 train.py\n", "torchrun"),
        ("python train.py\n", "python"),
    ],
)
def test_the_document_names_the_launcher(
    imported: Callable[[str], Outcome], lines: str, launcher: str
) -> None:
    assert document(imported(lines))["launcher"] == launcher


def text(outcome: Outcome) -> str:
    assert outcome.text
    return "\n".join(line for part in outcome.text() for line in part.lines)


def test_the_text_names_the_size_and_the_launcher(imported: Callable[[str], Outcome]) -> None:
    outcome = imported("#SBATCH --ntasks-per-node=4\nsrun python train.py\n")
    assert outcome.failure is None
    assert "old.sbatch: complete" in text(outcome)
    assert "2 nodes × 4 GPUs, 8 ranks by srun; " in text(outcome)


def test_without_logs_per_rank_no_ranks_are_named(imported: Callable[[str], Outcome]) -> None:
    outcome = imported("for x in 1 2; do srun python train.py $x; done\n")
    assert outcome.failure is not None
    assert outcome.failure.hint == "its ranks have no logs of their own"
    assert "2 nodes × 4 GPUs; the script starts its programs itself; --dry-run" in text(outcome)
    assert document(outcome)["command_line"] == "hpcrun submit old.sbatch"


def test_what_is_wrong_and_as_by_sbatch_is_noted(imported: Callable[[str], Outcome]) -> None:
    outcome = imported("export NCCL_TIMEOUT=1\nsrun torchrun --nproc-per-node=4 train.py\n")
    assert document(outcome)["notes"][0].startswith("line 4: each of the 2 nodes trains alone")
    assert "  NCCL_TIMEOUT=1 (old.sbatch line 3): no program reads" in text(outcome)


def test_what_sbatch_alone_can_run_has_no_command(imported: Callable[[str], Outcome]) -> None:
    outcome = imported("#SBATCH hetjob\nsrun python train.py\n")
    assert outcome.failure is not None
    assert outcome.failure.hint == "sbatch old.sbatch"
    assert document(outcome)["command_line"] is None
    assert "--dry-run" not in text(outcome)


def test_the_words_after_a_script_are_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.sbatch").write_text(f"{HEAD}srun python train.py $1\n")
    outcome = import_(Path("old.sbatch"), ["a b"], False)
    assert document(outcome)["command_line"] == "hpcrun submit old.sbatch 'a b'"
