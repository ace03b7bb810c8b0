"""Which run a person means."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.actions.runs.find import find_run
from hpcrun.errors import NotFoundError, UsageError
from hpcrun.job.run_paths import run_name
from hpcrun.runs.store import RunStore
from tests.unit.builders import run, write

OLD = "20260101-000000-train-aaaa"
NEW = "20260102-000000-train-bbbb"
OTHER = "20260102-000001-eval-my-model-cccc"
DIGITS = "20251231-000000-2024-1234"


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """Three runs: two of one name, one of another."""
    made = RunStore(tmp_path)
    for run_id, job_id in ((OLD, "100"), (NEW, "101"), (OTHER, "102")):
        made.create(run(run_id, job_id=job_id), "")
    return made


@pytest.mark.parametrize(
    ("run_id", "words"),
    [
        (OTHER, "last 102 eval-my-model 20260102-000001-eval"),
        (OLD, f"{OLD} 100 20260101"),
        (NEW, "20260102-000000 bbbb"),
        (DIGITS, "L77 2024 1234"),
    ],
)
def test_a_run_is_meant_by_its_id_or_job_id_or_name_or_a_part(
    run_id: str, words: str, store: RunStore
) -> None:
    store.create(run(DIGITS, job_id="L77", scheduler="local"), "")
    store.create(run("20251231-000000-bad-1111", job_id="99"), "")
    (store.root / "notes").mkdir()
    # none of it hides a run
    for path in ("jobs", "README.md", "20251231-000000-bad-1111/run.json"):
        write(store.root / path, "{")
    for word in words.split():
        found = find_run(word, store)
        assert (found.run.run_id, found.note) == (run_id, None), word


def test_a_run_is_meant_by_the_name_that_its_job_has_in_slurm(store: RunStore) -> None:
    plan = {"directives": [["job-name", "my job"]]}
    store.create(run("20260103-000000-my-job-dddd", job_id="103", plan=plan), "")
    assert find_run("my job", store).run.job_id == "103"
    with pytest.raises(NotFoundError):
        find_run("my/job", store)
    store.create(run("20260103-000000-job-47-eeee", job_id="104"), "")
    with pytest.raises(NotFoundError) as refused:  # digits are the id of a job
        find_run("47", store)
    assert refused.value.hint == "did you mean job-47?"


def test_an_ambiguous_word_lists_its_candidates(store: RunStore) -> None:
    with pytest.raises(UsageError, match="matches 2 runs") as refused:
        find_run("20260102-", store)
    assert [run_id in refused.value.message for run_id in (NEW, OTHER, OLD)] == [True, True, False]


def test_of_several_runs_of_a_name_or_a_job_id_the_newest_is_meant_and_that_is_said(
    store: RunStore,
) -> None:
    again = run("20260103-000000-again-dddd", job_id="100", created_s=time.time())
    store.create(again, "")
    found = find_run("train", store)
    assert found.run.run_id == NEW
    assert found.note == f"train: the newest of 2 runs of that name, {NEW}"
    found = find_run("100", store)
    words = f"100: the newest of 2 runs of that job id, {again.run_id}"
    assert found.run.run_id == again.run_id
    assert found.note == words


def entries(store: RunStore) -> set[str]:
    return {path.name for path in (store.root / "jobs").iterdir()}


def test_a_job_id_that_was_looked_for_once_is_noted(store: RunStore) -> None:
    assert store.noted_jobs() == {}
    assert find_run("101", store).run.run_id == NEW
    assert entries(store) == {f"100.{OLD}", f"101.{NEW}", f"102.{OTHER}"}
    write(store.folder(OLD) / "run.json", "{")  # not read: it has another job id
    assert find_run("101", store).run.run_id == NEW


def test_an_entry_is_never_trusted(store: RunStore) -> None:
    wrong = (
        f"101.{OLD}",
        f"999.{OLD}",
        f"100.{NEW}",
        "100.20260105-000000-gone-eeee",
        "100.",
        "100.../x",
        f"100.{OLD}.more",
        f"..{OLD}",
        ".hidden",
        "100",
    )
    for name in wrong:
        write(store.root / "jobs" / name.replace("/", "∕"), "")
    (store.root / "jobs" / "102.20260106-000000-link-ffff").symlink_to("/etc/passwd")
    os.mkfifo(store.root / "jobs" / f"102.{OLD}")
    assert find_run("100", store).run.run_id == OLD
    assert find_run("101", store).run.run_id == NEW
    assert find_run("102", store).run.run_id == OTHER
    with pytest.raises(NotFoundError):
        find_run("999", store)


def test_of_two_runs_with_a_job_id_both_are_found_when_one_alone_is_noted(store: RunStore) -> None:
    store.note_job(store.load(OLD))
    store.create(run("20260103-000000-far-dddd", job_id="100", cluster="beta"), "")
    with pytest.raises(UsageError, match="job id 100 belongs to 2 runs") as refused:
        find_run("100", store)
    assert {f"  {OLD}  alpha", "  20260103-000000-far-dddd  beta"} < set(
        refused.value.message.splitlines()
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("trian", "did you mean 'train'?"),
        ("zzz 999 19 2 2026 19_3", "hpcrun status --all lists them"),
    ],
)
def test_what_is_no_run_is_not_found_and_the_nearest_name_is_shown(
    words: str, hint: str, store: RunStore
) -> None:
    for word in words.split():
        with pytest.raises(NotFoundError, match=word) as refused:
            find_run(word, store)
        assert hint in (refused.value.hint or "")
        assert refused.value.exit_code == 6
    (store.root / "studies/20260101-000000-train-eval-aaaa").mkdir(parents=True)
    with pytest.raises(NotFoundError, match="a scaling study") as refused:
        find_run("train-eval", store)
    assert refused.value.hint == "hpcrun scale run --show train-eval"
    with pytest.raises(NotFoundError, match="there are no runs in"):
        find_run("last", RunStore(store.root / "none"))


def test_a_run_s_name_is_read_from_its_id() -> None:
    names = {OTHER: "eval-my-model", OLD: "train", "20260101-000000-a-b-0-0a1b": "a-b-0", "x": "x"}
    assert {run_id: run_name(run_id) for run_id in names} == names


def test_of_two_runs_of_one_second_the_one_that_was_created_later_is_the_newest(
    tmp_path: Path,
) -> None:
    store = RunStore(tmp_path)
    for suffix, created_s in (("zzzz", 10.2), ("aaaa", 10.7)):
        store.create(replace(run(f"20260101-000000-twice-{suffix}"), created_s=created_s), "")
    for word in ("last", "twice"):
        assert find_run(word, store).run.run_id == "20260101-000000-twice-aaaa"
