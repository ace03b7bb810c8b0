"""The commands that a report proposes: the study's own command with one change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hpcrun.scaling.sizes import BATCH_PLACES, Size


@dataclass(frozen=True, slots=True)
class ScaleCommand:
    """The ``hpcrun scale`` command of a study.

    Attributes:
        script: with its arguments, quoted for a shell.
        sizes: the option that names the sizes.
        profile: the option that names the profile, quoted; "" if unknown.
        options: its other options, quoted, without the batch size.
        batch_size: the study's batch size, for the placeholders in the arguments.
        weak: the batch size is the per-GPU batch.
    """

    script: str = "SCRIPT"
    sizes: str = "--gpus"
    profile: str = ""
    options: str = ""
    batch_size: int | None = None
    weak: bool = False

    def scale(self, sizes: Iterable[Size], *, batch_size: int | None = None, options: str = "", args: str = "") -> str:
        """Return the command for some sizes.

        Args:
            batch_size: a new global batch of the last size.
            options, args: additional options of hpcrun, and arguments of the script.
        """
        listed = list(sizes)
        batch = self.batch_size
        if batch_size is not None:
            batch = max(1, batch_size // listed[-1].gpus) if self.weak else batch_size
        if any(place in self.script for place in BATCH_PLACES):
            options = f"{options} --batch-size {batch}"
        elif batch_size is not None:
            args = f"--batch-size {batch} {args}"
        gpus, nodes = ",".join(str(size.gpus) for size in listed), ",".join(str(size.nodes or 1) for size in listed)
        spread = f"--nodes {nodes}" if any((size.nodes or 1) > 1 for size in listed) else ""
        words = ("hpcrun scale", self.profile, self.sizes, gpus, spread, self.options, options, self.script, args)
        return " ".join(word.strip() for word in words if word)

    def preflight(self, gpus: int, nodes: int) -> str:
        """Return the command that checks the nodes and GPUs of such a run."""
        spread = f"--nodes {nodes}" if nodes > 1 else ""
        return " ".join(word for word in ("hpcrun preflight", self.profile, f"--gpus {gpus}", spread) if word)


ANY = ScaleCommand()
"""The command of a study with unknown options."""
