"""How long the facts of a cluster are believed."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.schedulers.cluster_facts import PARTIAL_VALID_S, VALID_S, ClusterFacts, FactsCache
from hpcrun.schedulers.cluster_text import Association, NodeKind, Partition, QosLimits
from hpcrun.version import __version__

NOW = 1_000_000.0
FACTS = ClusterFacts(
    user="me",
    groups=("lab", "gpu"),
    config={"ClusterName": "dev", "AccountingStorageType": "accounting_storage/slurmdbd"},
    kinds=[NodeKind("gpu", 2, 64, None, (("a100", 4), (None, 2)))],
    partitions=[Partition("gpu", default=True, max_s=60, accounts=("lab",), qos=("normal",))],
    associations=[Association("lab", None, ("normal", "short"), None)],
    accounting=True,
    default_account="lab",
    qos=[QosLimits("normal", gpus_per_user=4)],
)


@pytest.mark.parametrize("facts", [FACTS, replace(FACTS, associations=None, problems={"sacctmgr show assoc": "away"})])
def test_what_is_kept_comes_back(facts: ClusterFacts, tmp_path: Path) -> None:
    cache = FactsCache(tmp_path / "cache", "dev")
    assert cache.load(NOW) is None
    cache.save(facts, NOW)
    assert cache.load(NOW + 1) == facts
    assert FactsCache(tmp_path / "cache", "other").load(NOW + 1) is None
    cache.drop()
    assert cache.load(NOW + 1) is None


@pytest.mark.parametrize(
    ("facts", "valid_s"),
    [
        (FACTS, VALID_S),
        (replace(FACTS, problems={"sacctmgr show assoc": "timed out after 5 s"}), PARTIAL_VALID_S),
        (replace(FACTS, config={}, problems={"sacctmgr show assoc": "no accounting"}), VALID_S),
        (replace(FACTS, config={}, problems={"scontrol show node": "timed out after 5 s"}), PARTIAL_VALID_S),
    ],
)
def test_for_how_long(facts: ClusterFacts, valid_s: float, tmp_path: Path) -> None:
    cache = FactsCache(tmp_path, None)
    cache.save(facts, NOW)
    assert cache.load(NOW + valid_s - 1) == facts
    assert cache.load(NOW + valid_s) is None
    assert cache.load(NOW - 10) is None  # of a clock that was set back


BAD_FACTS = json.dumps({"version": __version__, "asked_s": NOW - 1, "valid_s": 9e9, "facts": {"kinds": 7}})


@pytest.mark.parametrize("text", ["", "{}", "[]", BAD_FACTS, "[" * 200_000, None])
def test_a_damaged_file_is_asked_again(text: str | None, tmp_path: Path) -> None:
    cache = FactsCache(tmp_path, "dev")
    if text is None:
        os.mkfifo(cache.path, 0o600)
    else:
        cache.path.write_text(text)
    assert cache.load(NOW) is None


def test_a_file_that_others_can_write_is_not_believed(tmp_path: Path) -> None:
    cache = FactsCache(tmp_path, "dev")
    cache.save(FACTS, NOW)
    cache.path.chmod(0o666)
    assert cache.load(NOW) is None
