"""How long the facts of a cluster are believed: while its files are the same, and for a day at most."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.schedulers.cluster_facts import ClusterFacts, ConfigStamp, FactsCache, read_stamp
from hpcrun.schedulers.cluster_text import Association, NodeKind, Partition, QosLimits

NOW, DAY = 1_000_000.0, 86400.0
OLD = ConfigStamp("abc", NOW - 30 * DAY)
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
    assert cache.load(OLD, NOW) is None
    cache.save(facts, OLD, NOW)
    assert cache.load(OLD, NOW + 1) == facts
    assert FactsCache(tmp_path / "cache", "other").load(OLD, NOW + 1) is None
    cache.drop()
    assert cache.load(OLD, NOW + 1) is None


@pytest.mark.parametrize(
    ("stamp", "facts", "lasts_s"),
    [
        (OLD, FACTS, DAY),
        (ConfigStamp("abc", NOW - 600), FACTS, 600.0),  # the controller may not have read it yet
        (ConfigStamp("abc", NOW - 1), FACTS, 60.0),
        (ConfigStamp("abc", None), FACTS, 3600.0),
        (OLD, replace(FACTS, problems={"sacctmgr show assoc": "timed out after 5 s"}), 60.0),
        (OLD, replace(FACTS, config={}, problems={"sacctmgr show assoc": "no accounting"}), DAY),
        (OLD, replace(FACTS, config={}, problems={"scontrol show node": "timed out after 5 s"}), 60.0),
    ],
)
def test_for_how_long(stamp: ConfigStamp, facts: ClusterFacts, lasts_s: float, tmp_path: Path) -> None:
    cache = FactsCache(tmp_path, None)
    cache.save(facts, stamp, NOW)
    assert cache.load(stamp, NOW + lasts_s - 1) == facts
    assert cache.load(stamp, NOW + lasts_s) is None
    assert cache.load(stamp, NOW - 10) is None  # of a clock that was set back
    assert cache.load(ConfigStamp("abd", stamp.changed_s), NOW + 1) is None


BAD_FACTS = '{"digest": "abc", "asked_s": 999999, "valid_s": 9e9, "facts": {"kinds": 7}}'


@pytest.mark.parametrize("text", ["", "{}", "[]", BAD_FACTS, "[" * 200_000, None])
def test_a_damaged_file_is_asked_again(text: str | None, tmp_path: Path) -> None:
    cache = FactsCache(tmp_path, "dev")
    if text is None:
        os.mkfifo(cache.path, 0o600)
    else:
        cache.path.write_text(text)
    assert cache.load(OLD, NOW) is None


def test_a_file_that_others_can_write_is_not_believed(tmp_path: Path) -> None:
    cache = FactsCache(tmp_path, "dev")
    cache.save(FACTS, OLD, NOW)
    cache.path.chmod(0o666)
    assert cache.load(OLD, NOW) is None


def test_the_stamp_changes_with_each_file_of_the_configuration(tmp_path: Path) -> None:
    conf, included, gres = tmp_path / "slurm.conf", tmp_path / "nodes.conf", tmp_path / "gres.conf"
    env = {"SLURM_CONF": str(conf)}
    conf.write_text("ClusterName=dev\nInclude nodes.conf\ninclude slurm.conf\n")
    seen = [read_stamp(env)]
    changes = [(included, "NodeName=a\n"), (included, "NodeName=b\n"), (gres, "Name=gpu\n"), (conf, "ClusterName=x\n")]
    for path, text in changes:
        path.write_text(text)
        seen.append(read_stamp(env))
    assert len({stamp.digest for stamp in seen}) == len(seen)
    os.utime(conf, (NOW, NOW))
    os.utime(gres, (NOW + 5, NOW + 5))
    assert read_stamp(env) == ConfigStamp(seen[-1].digest, NOW + 5)
    nowhere = read_stamp({"SLURM_CONF": str(tmp_path / "none")})
    assert nowhere.changed_s is None or Path("/etc/slurm/slurm.conf").exists()
