"""The differences between sbatch and hpcrun that are wanted, and where hpcrun says each of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.as_without.compare import Difference

DOCS = "docs/import.md"
IMPORT = "hpcrun import"
RANK = r"(?:program|launcher) \S+"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A wanted difference.

    Args:
        pattern: the beginning of the difference as text.
        said_by: a file of the docs, or `IMPORT`: what that command prints of the script.
        words: in which it is said.
    """

    pattern: str
    said_by: str
    words: str

    def matches(self, difference: Difference) -> bool:
        """Whether this is that difference."""
        return re.match(self.pattern, str(difference), re.DOTALL) is not None


WANTED = (
    Wanted(r"job: (StdOut|StdErr|Command): ", DOCS, "Slurm's Command, StdOut and StdErr"),
    Wanted(r"script: path: ", DOCS, "`$0` is a copy in the run's folder"),
    Wanted(
        r"output [\"']hpcrun: .*: 0 by sbatch", DOCS, "lines in the output begin with `hpcrun:`"
    ),
    Wanted(r"launcher \S+: arguments: .*/torchrun_rank\.py", DOCS, "a wrapper around each rank"),
    Wanted(r"job: Requeue: 1 by sbatch, 0 by", DOCS, "`--restarts` alone sets `--no-requeue`"),
    Wanted(r"(program uv: arguments: |output 'ran uv run )", DOCS, "`uv run` gets hpcrun's words"),
    Wanted(
        r"script: traps:  by sbatch, trap -- '\{ printf [^\n]* ERR by hpcrun$",
        IMPORT,
        "line 1 is a trap",
    ),
    Wanted(
        RANK + r": \$(TORCH_(FR|NCCL)|WANDB_(TAGS|RUN_GROUP)|MLFLOW_RUN|SPT_NOENV)\w*: null by sb",
        IMPORT,
        "the ranks get WANDB_TAGS, MLFLOW_RUN_CONTEXT, TORCH_FR_*, TORCH_NCCL_*, SPT_NOENV",
    ),
    Wanted(
        RANK + r": \$PYTHONPATH: .* by sbatch, \S*/programs/runtime by hpcrun$",
        IMPORT,
        "a folder on PYTHONPATH",
    ),
    Wanted(r"names of steps: ", IMPORT, "Slurm calls the step python"),
    Wanted(
        r"launcher \S+: SigBlk: 0{16} by sbatch, 0{12}6a07 by hpcrun$",
        IMPORT,
        "signals go to the ranks, not through torchrun",
    ),
)


def unwanted(differences: Iterable[Difference]) -> list[Difference]:
    """Return the differences that are faults."""
    return [one for one in differences if not any(row.matches(one) for row in WANTED)]
