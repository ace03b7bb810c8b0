"""The configuration of a project, a user and a site: its folders, and what stands in them.

A command that needs none of it does not import this module.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from hpcrun.profiles.config import FILE_NAME, MISNAMED, Config, load_config, load_limits
from hpcrun.profiles.folders import Folder, Layer, TrustStore, own_layer, project_layer, shipped
from hpcrun.profiles.limits import Limits, smallest
from hpcrun.profiles.site_locks import PartitionLimits, smallest_of_partitions

Announce = Callable[[Iterable[str]], None]


class Configuration:
    """The folders of the configuration; they are read when they are first needed."""

    def __init__(
        self,
        project: Path | None,
        user: Path,
        site: Path,
        *,
        trusted: Path,
        announce: Announce | None,
        limiting: Sequence[Path] = (),
        fixed: Sequence[Path] = (),
    ) -> None:
        self._project = project
        self._user = user
        self._site = site
        # folders whose limits hold, too, whatever the environment says
        self._limiting = limiting
        # folders of the site whose locks hold, too, whatever the environment says
        self._fixed = fixed
        self._announce = announce  # prints which configuration is not used
        self.trust = TrustStore(trusted)

    @cached_property
    def judged_layers(self) -> dict[str, Layer]:
        """The folders, most important first, each with whether it is used, and why not."""
        layers = {}
        if self._project is not None:
            layers["project"] = project_layer(self._project, self.trust)
        layers["user"] = own_layer(self._user, self.trust)
        layers["site"] = own_layer(self._site, self.trust)
        if self._announce:
            self._announce(f"hpcrun: {warning}" for warning in _warnings_of(layers.values()))
        return layers

    @cached_property
    def layers(self) -> dict[str, Folder]:
        """The folders whose files come before the shipped ones, by name, most important first."""
        return {name: layer.folder for name, layer in self.judged_layers.items()}

    @cached_property
    def values(self) -> Config:
        """The values of all configuration files."""
        fixed = [own_layer(path, self.trust).folder for path in self._fixed if path != self._site]
        return load_config(tuple(self.layers.values()), self._site, self._warn, fixed)

    @cached_property
    def limits(self) -> Limits:
        """The limits on what a command submits.

        Raises:
            ProfileError: limits of a folder are unknown.
        """
        return smallest([self.values.limits, *(limits for limits, _ in self._unused_limits)])

    @cached_property
    def partition_limits(self) -> PartitionLimits:
        """The limits on the jobs of each partition.

        Raises:
            ProfileError: limits of a folder are unknown.
        """
        unused = [partitions for _, partitions in self._unused_limits]
        return smallest_of_partitions([self.values.partition_limits, *unused])

    @cached_property
    def _unused_limits(self) -> list[tuple[Limits, PartitionLimits]]:
        """The limits of the folders of which nothing else is used."""
        used = {layer.path for layer in self.layers.values() if layer.has(FILE_NAME)}
        folders = dict.fromkeys((self._user, self._site, *self._limiting))
        return [load_limits(folder) for folder in folders if folder not in used]

    def _warn(self, warning: str) -> None:
        if self._announce:
            self._announce([f"hpcrun: {warning}"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Which configuration is not used, and why."""
        return tuple(_warnings_of(self.judged_layers.values()))

    @property
    def templates(self) -> tuple[Folder, ...]:
        """The folders of templates, most important first."""
        folders = [folder.below("templates") for folder in self.layers.values()]
        return (*folders, shipped("templates"))

    def profiles(self, detected: Folder | None = None) -> dict[str, Folder]:
        """Return the folders of profiles by layer, most important first.

        Args:
            detected: the folder of the detected profile, if there is one.
        """
        layers = {name: folder.below("profiles") for name, folder in self.layers.items()}
        if detected is not None:
            layers["detected"] = detected
        return {**layers, "shipped": shipped("cluster_profiles")}


def _warnings_of(layers: Iterable[Layer]) -> Iterator[str]:
    """Yield which configuration is not used, and why."""
    for layer in layers:
        if layer.warning:
            yield layer.warning
        misnamed = layer.path / MISNAMED
        if not layer.folder.never and os.path.lexists(misnamed):
            yield f"{misnamed} is not read: its name must be {FILE_NAME}"
