"""Clusters of another kind than the one of the session: dev/cluster.sh up --as KIND, beside it and for a while."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.harness import REPO, RESEARCHER, Cluster, Hpcrun, as_researcher_command, cluster_sh, shown_to_researcher
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
    with ExitStack() as at_end:
        checkout, venv = at_end.enter_context(shown_to_researcher(cluster))
        folder = Path(tempfile.mkdtemp(prefix="hpcrun-tests-", dir="/tmp"))
        at_end.callback(shutil.rmtree, folder)
        extra = cluster.env if checkout == REPO else {**cluster.env, "PYTHONPATH": str(checkout)}
        person = Hpcrun(folder, checkout, venv, as_researcher_command(), extra)
        for path in (folder, person.home, person.runs):
            shutil.chown(path, RESEARCHER)
        yield person
