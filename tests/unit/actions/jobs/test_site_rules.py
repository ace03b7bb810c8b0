"""What a site sets for everybody, when a job is prepared and submitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.check_limits import LimitError, within_limits
from hpcrun.actions.jobs.prepare import Prepared, prepare
from hpcrun.actions.jobs.submission import submit
from hpcrun.actions.ports import Consent, Surroundings
from hpcrun.errors import PlanError
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.profiles.config import load_config
from hpcrun.runs.store import RunStore
from hpcrun.version import __version__
from tests.unit.builders import Takes, ports, request, surroundings, write

DEBUG = "partition_limits: {debug: {time: 1h, nodes: 2, gpus: 4}}\n"
PROFILE = "extends: base/slurm\ngpu: {type: h100, per_node: 4}\npartition: debug\n"
SENTENCE = "Ask the help desk."


def around(
    folder: Path, site: str, *, consent: Consent | None = None, profile: str = PROFILE
) -> Surroundings:
    """A person at a site with this configuration."""
    write(folder / "train.py", "")
    write(folder / "own/profiles/mine.yaml", profile)
    write(folder / "site/config.yaml", site)
    config = load_config([folder / "site"], folder / "site")
    made = surroundings(folder, own=(folder / "own",), config=config)
    return replace(
        made,
        limits=lambda: config.limits,
        partition_limits=lambda: config.partition_limits,
        consent=consent or Consent(),
    )


def prepared(around: Surroundings, **asked: Any) -> Prepared:
    asked = {"gpus": "4", "walltime_s": "1h", **asked}
    return prepare(request(**asked), "mine", around, lambda: Machine(cpus=1))


def check(around: Surroundings, jobs: Sequence[Prepared]) -> Surroundings:
    here = ports(RunStore(around.cwd / "runs"), Takes(), 1000.0)
    with within_limits(jobs, here, around) as allowed:
        return allowed


def test_what_equals_the_limits_of_a_partition_is_within(tmp_path: Path) -> None:
    site = around(tmp_path, DEBUG)
    job = prepared(site, nodes="2")
    assert check(site, [job]).consent.has(job)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        pytest.param({"walltime_s": "61m"}, "at most 01:00:00 in a job, not 01:01:00", id="time"),
        pytest.param({"gpus": "3", "nodes": "3"}, "at most 2 nodes in a job, not 3", id="nodes"),
        pytest.param({"gpus": "8"}, "at most 4 GPUs in a job, not 8", id="gpus"),
        pytest.param({"sbatch": ["time=2:00:00"]}, "not 02:00:00", id="time of sbatch"),
        pytest.param({"no_sbatch": ["time"]}, "this job's time is not known", id="no time"),
        pytest.param({"partition": "large,debug", "walltime_s": "2h"}, "not 02", id="of several"),
    ],
)
def test_a_job_over_a_limit_of_its_partition_is_refused(
    tmp_path: Path, asked: dict[str, Any], problem: str
) -> None:
    site = around(tmp_path, DEBUG)
    with pytest.raises(LimitError) as refused:
        check(site, [prepared(site, **asked)])
    assert problem in refused.value.message
    assert f"(partition_limits in {tmp_path}/site/config.yaml)" in refused.value.message


def test_another_partition_has_no_limits(tmp_path: Path) -> None:
    site = around(tmp_path, DEBUG)
    check(site, [prepared(site, partition="large", gpus="16")])


def test_an_unknown_partition_is_over_each_limit(tmp_path: Path) -> None:
    site = around(tmp_path, DEBUG, profile=PROFILE.replace("partition: debug\n", ""))
    with pytest.raises(LimitError, match="the partition is unknown"):
        check(site, [prepared(site)])


def test_a_person_allows_what_the_site_has_not_locked(tmp_path: Path) -> None:
    site = around(tmp_path, DEBUG, consent=Consent(lambda _: True))
    check(site, [prepared(site, gpus="8")])


@pytest.mark.parametrize(
    "text",
    [
        f"{DEBUG}locked: {{partition_limits: {SENTENCE}}}\n",
        f"limits: {{gpus_per_job: 4}}\nlocked: {{limits: {SENTENCE}}}\n",
    ],
    ids=["partition_limits", "limits"],
)
def test_nobody_is_asked_about_a_locked_limit(tmp_path: Path, text: str) -> None:
    questions: list[str] = []

    def ask(problem: str) -> bool:
        questions.append(problem)
        return True

    site = around(tmp_path, text, consent=Consent(ask))
    with pytest.raises(PlanError, match="the site has locked") as refused:
        check(site, [prepared(site, gpus="8")])
    assert refused.value.hint == SENTENCE
    assert not questions


def test_a_smaller_limit_of_ones_own_hides_no_locked_one(tmp_path: Path) -> None:
    site = around(
        tmp_path,
        f"limits: {{gpus_per_job: 4}}\nlocked: {{limits: {SENTENCE}}}\n",
        consent=Consent(lambda _: True),
    )
    own = load_config([write(tmp_path / "mine/config.yaml", "limits: {gpus_per_job: 1}\n").parent])
    both = replace(site, limits=lambda: own.limits)
    check(both, [prepared(both, gpus="2")])
    with pytest.raises(PlanError, match="the limit is 4 "):
        check(both, [prepared(both, gpus="8")])


NOTIFY = f"notify: [json://site/in, mailto:ops@site.example]\nlocked: {{notify: {SENTENCE}}}\n"


@pytest.mark.parametrize(
    "asked",
    [
        {"notify": ["json://else/where"]},
        {"notify": ["none"]},
        {"notify": ["mailto:me@home.example"]},
        {"mail_user": "me@home.example"},
        {"sbatch": ["mail-user=ops@site.example,me@home.example"]},
    ],
    ids=str,
)
def test_a_destination_that_is_not_the_sites_is_refused(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    site = around(tmp_path, NOTIFY)
    with pytest.raises(PlanError, match="the site has locked notify") as refused:
        prepared(site, **asked)
    assert refused.value.hint == SENTENCE


def test_the_mail_of_a_profile_is_refused_like_a_typed_one(tmp_path: Path) -> None:
    site = around(tmp_path, NOTIFY, profile=f"{PROFILE}sbatch: {{mail-user: me@home.example}}\n")
    site = replace(site, config=replace(site.config, notify=()))
    with pytest.raises(PlanError, match="the site has locked notify"):
        prepared(site)


def test_the_destinations_of_a_profile_are_left_out_with_the_sites_sentence(tmp_path: Path) -> None:
    site = around(tmp_path, NOTIFY, profile=f"{PROFILE}notify: [json://else/where]\n")
    plan = prepared(site).plan
    assert plan.notify is not None
    assert plan.notify.to == ("json://site/in",)
    assert plan.directive("mail-user") == "ops@site.example"
    assert [note for note in plan.notes if note.endswith(SENTENCE)]


def comment(folder: Path, config: str, **asked: Any) -> str:
    site = around(folder, config)
    scheduler = Takes()
    port = ports(RunStore(folder / "runs"), scheduler, 1000.0)
    submit(prepared(site, **asked), port, site, "20260102-030405-train-0a1b")
    return scheduler.taken[0].comment


MARK = f"hpcrun {__version__} 20260102-030405-train-0a1b"


def test_a_job_has_a_comment_of_hpcrun_only_if_configured(tmp_path: Path) -> None:
    assert comment(tmp_path / "without", "") == ""
    assert comment(tmp_path / "with", "comment_jobs: true\n") == MARK


def test_ones_own_comment_follows(tmp_path: Path) -> None:
    own = "mine; 'all' \"mine\" %j"
    assert comment(tmp_path, "comment_jobs: true\n", sbatch=[f"comment={own}"]) == f"{MARK}; {own}"


def test_no_job_is_refused_for_a_comment_that_has_become_too_long(tmp_path: Path) -> None:
    own = "x" * (1023 - len(MARK) - 2)
    for number, text in enumerate((own, f"{own}x")):
        got = comment(tmp_path / str(number), "comment_jobs: true\n", sbatch=[f"comment={text}"])
        assert got == ("" if number else f"{MARK}; {own}")
