"""The profile ``detected``: the facts of this cluster from Slurm, as a profile.

No user had to write this profile. It is a layer of profiles between the site's and the shipped
ones. So it is named, shown, extended and hidden by a file of the same name like any other profile;
the cluster is asked when its text is read, or nothing is asked if the facts of an earlier command
are still valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import ProfileError
from hpcrun.profiles.config import DETECTED
from hpcrun.profiles.folders import Folder, Source
from hpcrun.profiles.load import SUFFIX

if TYPE_CHECKING:  # most commands read no detected profile
    from hpcrun.profiles.load import LoadedProfile
    from hpcrun.schedulers.cluster_facts import ClusterFacts
    from hpcrun.schedulers.cluster_facts_cache import FactsCache

QUICKLY_S = 5.0
"""How long a submission waits for each of Slurm's commands."""
_FILE = f"{DETECTED}{SUFFIX}"


class DetectedProfile(Mapping[str, bytes]):
    """The contents of the layer: one file, whose text is made when it is read.

    Attributes:
        path: a copy of the text, for people: hpcrun itself reads the text from here.
        forget: makes the next command ask the cluster again: Slurm has refused a job that fits the
            facts.
    """

    def __init__(
        self,
        folder: Path,
        ask: Callable[[], ClusterFacts],
        parts: Sequence[Source],
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = folder / _FILE
        self._ask = ask
        self._parts = parts
        self.forget = forget

    @property
    def folder(self) -> Folder:
        """The layer as a folder of profiles."""
        return Folder(self.path.parent, self, checked=False)

    @cached_property
    def facts(self) -> ClusterFacts:
        """The facts of the cluster, cached for an hour at most."""
        return self._ask()

    @cached_property
    def _text(self) -> str:
        from hpcrun.actions.profiles.detect import check_loads, profile_text
        from hpcrun.profiles.yaml_file import replace_text

        text = profile_text(self.facts)
        before = ""
        with suppress(OSError):
            before = self.path.read_text("utf-8", errors="replace")
        if text != before:
            check_loads(text, self._parts)
            with suppress(ProfileError):  # without space there is no copy
                replace_text(self.path, text)
        return text

    def shaped(self, loaded: LoadedProfile) -> bool:
        """Whether a profile is the detected one, or extends it."""
        return any(origin.path == self.path for origin in loaded.origins.values())

    def __getitem__(self, name: str) -> bytes:
        if name != _FILE:
            raise KeyError(name)
        return self._text.encode()

    def __contains__(self, name: object) -> bool:
        return name == _FILE

    def __iter__(self) -> Iterator[str]:
        return iter([_FILE])

    def __len__(self) -> int:
        return 1


def known_facts(env: Mapping[str, str], cache: FactsCache, now_s: float) -> ClusterFacts:
    """Return the cached facts while they are valid, else query the cluster."""
    from hpcrun.machine.process import SlurmSite
    from hpcrun.schedulers.cluster_facts import ask_facts, check_answered

    known = cache.load(now_s)
    if known is not None:
        return known
    facts = ask_facts(SlurmSite(env, QUICKLY_S))
    check_answered(facts, ", or choose a profile with -P")
    cache.save(facts, now_s)
    return facts
