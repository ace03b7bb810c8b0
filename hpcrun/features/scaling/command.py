"""The commands that a report proposes: the study's own command with one change."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hpcrun.features.scaling.sizes import BATCH_PLACES, Size


@dataclass(frozen=True, slots=True)
class ScaleCommand:
    """The ``hpcrun scale run`` command of a study.

    Attributes:
        script: with its arguments, quoted for a shell.
        sizes: the option that names the sizes.
        profile: the option that names the profile, quoted; "" if unknown.
        options: its other options, quoted, without the batch size.
        gpu_type: of all its runs, if it was named.
        batch_size: the study's batch size, for the placeholders in the arguments.
        weak: the batch size is the per-GPU batch.
        one_by_one: a run of the study started when the run before it had ended.
    """

    script: str = "SCRIPT"
    sizes: str = "--gpus"
    profile: str = ""
    options: str = ""
    gpu_type: str | None = None
    batch_size: int | None = None
    weak: bool = False
    one_by_one: bool = False

    def scale(
        self,
        sizes: Iterable[Size],
        *,
        batch_size: int | None = None,
        options: Mapping[str, str] = MappingProxyType({}),
        args: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Return the command for some sizes. An option that the command has already gets the new value.

        Args:
            batch_size: a new global batch of the last size.
            options, args: additional options of hpcrun, and arguments of the script; "" is the value of a flag.
        """
        listed = list(sizes)
        batch, options, args = self.batch_size, dict(options), dict(args)
        if batch_size is not None:
            batch = max(1, batch_size // listed[-1].gpus) if self.weak else batch_size
        if batch is not None and any(place in self.script for place in BATCH_PLACES):
            options["--batch-size"] = str(batch)
        elif batch_size is not None:
            args = {"--batch-size": str(batch), **args}
        gpus, nodes = ",".join(str(size.gpus) for size in listed), ",".join(str(size.nodes or 1) for size in listed)
        typed = shlex.quote(f"{self.gpu_type}:{gpus}") if self.gpu_type else gpus
        spread = f"--nodes {nodes}" if any((size.nodes or 1) > 1 for size in listed) else ""
        own, script = with_options(self.options, options), with_options(self.script, args)
        words = ("hpcrun scale run", self.profile, self.sizes, typed, spread, own, script)
        return " ".join(word for word in words if word)

    def preflight(self, gpus: int, nodes: int) -> str:
        """Return the command that checks the nodes and GPUs of such a run."""
        spread = f"--nodes {nodes}" if nodes > 1 else ""
        return " ".join(word for word in ("hpcrun preflight", self.profile, f"--gpus {gpus}", spread) if word)


def with_options(command: str, options: Mapping[str, str]) -> str:
    """Return a quoted command in which each option stands once, with its new value: ``--batch_size`` is one, too.

    Args:
        options: the name with its dashes, and the value; "" is the value of a flag.
    """
    words = shlex.split(command)
    for name, value in options.items():
        places = [at for at, word in enumerate(words) if word.partition("=")[0].replace("_", "-") == name]
        first = places[0] if places else len(words)
        written = words[first].partition("=")[0] if places else name
        for at in reversed(places):
            with_value = value and "=" not in words[at] and not "".join(words[at + 1 : at + 2]).startswith("--")
            del words[at : at + (2 if with_value else 1)]
        words[first:first] = [written, *([value] if value else [])]
    return shlex.join(words)


ANY = ScaleCommand()
"""The command of a study with unknown options."""
