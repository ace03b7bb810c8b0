"""Clusters of another kind than the one of the session: dev/cluster.sh up --as KIND, beside it and for a while."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness import Cluster, Hpcrun, cluster_sh, folder_open_to_others, new_researcher, shown_to_researcher
from tests.namespaces import Namespaces


@contextmanager
def cluster_as(kind: str) -> Iterator[Cluster]:
    """A cluster of a kind, in namespaces of its own; for tests with the marker ``slurm``, which installs Slurm."""
    before = os.environ.get("HPCRUN_CLUSTER_DIR")
    with Namespaces().entered():
        os.environ["HPCRUN_CLUSTER_DIR"] = f"/tmp/hpcrun-cluster-{secrets.token_hex(4)}"
        try:
            cluster_sh("up", "--as", kind)
            yield Cluster.running()
        finally:
            cluster_sh("down")
            os.environ.pop("HPCRUN_CLUSTER_DIR")
            if before is not None:
                os.environ["HPCRUN_CLUSTER_DIR"] = before


@contextmanager
def fresh_researcher(cluster: Cluster) -> Iterator[Hpcrun]:
    """The cluster's ordinary user with an empty home, in a folder that is removed at the end."""
    with folder_open_to_others() as folder, shown_to_researcher(cluster) as shown:
        yield new_researcher(folder, cluster, shown)
