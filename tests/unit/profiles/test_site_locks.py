"""Locked keys of a site's configuration, and limits on the jobs of a partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.cli.configuration import Configuration
from hpcrun.errors import ProfileError
from hpcrun.profiles.config import Config, load_config
from hpcrun.profiles.limits import CostLimit
from hpcrun.profiles.site_locks import LOCKABLE
from tests.unit.builders import write

SENTENCE = "Ask the help desk."
LOCKED = f"locked: {{notify: {SENTENCE}, comment_jobs: {SENTENCE}}}\n"


def load(folder: Path, *, site: str, user: str = "", warnings: list[str] | None = None) -> Config:
    write(folder / "user/config.yaml", user)
    write(folder / "site/config.yaml", site)
    told = [] if warnings is None else warnings
    return load_config([folder / "user", folder / "site"], folder / "site", told.append)


def test_the_sites_value_of_a_locked_key_counts(tmp_path: Path) -> None:
    warnings: list[str] = []
    config = load(
        tmp_path,
        site=f"notify: [json://site]\ncomment_jobs: true\n{LOCKED}",
        user="notify: [json://mine]\ncomment_jobs: false\ntime: 1h\n",
        warnings=warnings,
    )
    assert (config.notify, config.comment_jobs) == (("json://site",), True)
    assert config.walltime_s == 3600
    where = f"it is locked in {tmp_path}/site/config.yaml: {SENTENCE}"
    assert warnings == [
        f"{tmp_path}/user/config.yaml:1: notify is not used: {where}",
        f"{tmp_path}/user/config.yaml:2: comment_jobs is not used: {where}",
    ]


def test_a_locked_key_without_a_value_has_none_for_anybody(tmp_path: Path) -> None:
    assert load(tmp_path, site=LOCKED, user="notify: [json://mine]\n").notify == ()


def test_the_sites_own_value_is_no_attempt_to_override_it(tmp_path: Path) -> None:
    warnings: list[str] = []
    same = "notify: [json://site]\n"
    load(tmp_path, site=same + LOCKED, user=same, warnings=warnings)
    assert not warnings


def test_an_unlocked_key_is_overridden_as_before(tmp_path: Path) -> None:
    config = load(tmp_path, site="notify: [json://site]\n", user="notify: [json://mine]\n")
    assert config.notify == ("json://mine",)


def test_only_the_site_locks(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r":1: locked: only the site's config\.yaml locks keys"):
        load(tmp_path, site="", user=LOCKED)


def test_a_key_that_only_a_newer_hpcrun_locks_is_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    config = load(tmp_path, site="locked: {newer: x, notify: y}\n", warnings=warnings)
    assert set(config.site.locks) == {"notify"}
    (warning,) = warnings
    assert f"{tmp_path}/site/config.yaml:1: locked.newer: no such key to lock" in warning


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("locked: [limits]\n", "locked: takes a section with limits, partition_limits"),
        ("locked: {limits: true}\n", r"locked\.limits: takes a sentence"),
        ('locked: {limits: " "}\n', r"locked\.limits: takes a sentence"),
        ('locked: {limits: "a\\e[2J"}\n', r"locked\.limits: takes a sentence"),
        ('locked: {limits: "a\\u202eb"}\n', r"locked\.limits: takes a sentence"),
        (f"locked: {{limits: {'x' * 301}}}\n", r"locked\.limits: has more than 300 characters"),
        ("partition_limits: {gpu: 4}\n", r"partition_limits\.gpu: takes a section with time"),
        ("partition_limits: {gpu: {cpus: 4}}\n", "there is no limit 'cpus'; there are: time"),
        ("partition_limits: {gpu: {nodes: -1}}\n", "nodes: takes a number"),
        ("partition_limits: {gpu: {time: soon}}\n", "time: "),
    ],
)
def test_a_mistake_of_the_site_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        load(tmp_path, site=text)


def test_a_sentence_of_several_lines_is_shown_on_one(tmp_path: Path) -> None:
    config = load(tmp_path, site="locked:\n  limits: |\n    Ask the\n    help desk.\n")
    assert config.site.locks["limits"].sentence == SENTENCE


def test_of_partition_limits_the_smallest_of_each_kind_holds(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        site="partition_limits: {gpu: {time: 2h, nodes: 4}, cpu: {nodes: 9}}\n",
        user="partition_limits: {gpu: {time: 1h, nodes: 8, gpus: 2}}\n",
    )
    site, user = tmp_path / "site/config.yaml", tmp_path / "user/config.yaml"
    assert config.partition_limits == {
        "gpu": {
            "time": CostLimit(3600, user),
            "nodes": CostLimit(4, site),
            "gpus": CostLimit(2, user),
        },
        "cpu": {"nodes": CostLimit(9, site)},
    }
    assert config.site.partition_limits == {}


def test_the_locked_limits_are_the_sites_alone(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        site="limits: {gpus_per_job: 8}\nlocked: {limits: Ask.}\n",
        user="limits: {gpus_per_job: 4}\n",
    )
    assert config.limits.gpus_per_job == CostLimit(4, tmp_path / "user/config.yaml")
    assert config.site.limits.gpus_per_job == CostLimit(8, tmp_path / "site/config.yaml")


def test_no_variable_moves_the_locks_of_the_fixed_folder(tmp_path: Path) -> None:
    fixed, site, user = tmp_path / "fixed", tmp_path / "site", tmp_path / "user"
    write(
        fixed / "config.yaml",
        "profile: fixed\nnotify: [json://fixed]\nlimits: {gpus_per_job: 4}\n"
        "locked: {notify: Fixed., limits: Fixed.}\n",
    )
    write(site / "config.yaml", "profile: chosen\nnotify: [json://chosen]\n")
    told: list[str] = []
    config = Configuration(
        None, user, site, trusted=tmp_path / "trust", announce=told.extend, fixed=(fixed,)
    ).values
    assert config.profile == "chosen"
    assert config.notify == ("json://fixed",)
    assert config.site.limits.gpus_per_job == CostLimit(4, fixed / "config.yaml")
    assert [line.rpartition(": ")[2] for line in told] == ["Fixed."]


def test_a_fixed_folder_that_is_the_sites_is_read_once(tmp_path: Path) -> None:
    site = tmp_path / "site"
    write(site / "config.yaml", "newer: 1\nlocked: {limits: Ask.}\n")
    told: list[str] = []
    config = Configuration(
        None, tmp_path / "user", site, trusted=tmp_path / "t", announce=told.extend, fixed=(site,)
    ).values
    assert set(config.site.locks) == {"limits"}
    assert len(told) == 1


def test_each_key_that_can_be_locked_is_one_of_the_configuration(tmp_path: Path) -> None:
    locked = ", ".join(f"{key}: Ask." for key in LOCKABLE)
    assert set(load(tmp_path, site=f"locked: {{{locked}}}\n").site.locks) == set(LOCKABLE)
