"""profile trust: what is shown of a folder before it is trusted, and what is remembered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.actions.jobs.trust import (
    folder_to_trust,
    keep_trust,
    list_trust,
    look_into,
    remember,
    revoke,
)
from hpcrun.errors import NotFoundError, UsageError
from hpcrun.profiles.folders import TrustStore, project_layer
from tests.unit.profiles.hostile import ordinary_user, put


@pytest.fixture
def store() -> Iterator[TrustStore]:
    with ordinary_user() as home:
        yield TrustStore(home / "state/hpcrun/trust")


@pytest.fixture
def project(store: TrustStore) -> Path:
    """Return a project's folder for hpcrun."""
    folder = store.root.parents[2] / "clone/.hpcrun"
    put(folder / "profiles/ours.yaml", "partition: x\nsetup+: [echo]\nenv: {A: b}\n")
    put(folder / "templates/job.sh.j2", "echo\n")
    put(folder / "config.yaml", "profile: ours\n")
    put(folder / "rules.yaml", "a:\n  pattern: x\n")
    return folder


def test_the_folder_of_a_project_is_meant(project: Path) -> None:
    assert folder_to_trust(project.parent, []) == project
    assert folder_to_trust(project, []) == project


def test_a_folder_that_is_not_there(project: Path) -> None:
    with pytest.raises(NotFoundError, match="no such folder"):
        folder_to_trust(project / "none", [])


def test_nothing_is_to_trust_here() -> None:
    with pytest.raises(NotFoundError, match="nothing to trust here"):
        folder_to_trust(None, [])


def test_the_first_folder_that_is_not_used_is_meant(project: Path, store: TrustStore) -> None:
    other = project.parents[1] / "other/.hpcrun"
    put(other / "config.yaml", "profile: a\n")
    remember(project, look_into(project, store).contents, store)
    layers = [project_layer(project, store), project_layer(other, store)]
    assert folder_to_trust(None, layers) == other
    assert folder_to_trust(None, layers[:1]) == project


def test_each_file_is_shown_with_its_power(project: Path, store: TrustStore) -> None:
    question = look_into(project, store)
    assert [(file.name, file.state, file.keys, file.power) for file in question.files] == [
        (
            "config.yaml",
            "new",
            ("profile",),
            "chooses profile, runs folder, account and time, and where messages go",
        ),
        ("profiles/ours.yaml", "new", ("partition", "setup+", "env"), "set-up commands, variables"),
        ("rules.yaml", "new", ("a",), "patterns that hpcrun searches for in logs"),
        ("templates/job.sh.j2", "new", (), "writes the script: any command, in every job"),
    ]
    assert question.files[0].size_bytes == len("profile: ours\n")
    assert not question.trusted


def test_a_harmless_profile_has_values_of_a_job(project: Path, store: TrustStore) -> None:
    put(project / "profiles/ours.yaml", "partition: x\n")
    assert look_into(project, store).files[1].power == "values of a job"


def test_a_profile_that_cannot_be_read_may_do_anything(project: Path, store: TrustStore) -> None:
    put(project / "profiles/ours.yaml", "a: [\n")
    file = look_into(project, store).files[1]
    assert file.keys == ()
    assert file.power.startswith("set-up commands, Python, containers")


def test_an_answer_is_about_the_contents(project: Path, store: TrustStore) -> None:
    remember(project, look_into(project, store).contents, store)
    assert look_into(project, store).trusted
    put(project / "rules.yaml", "b:\n  pattern: y\n")
    (project / "config.yaml").unlink()
    put(project / "templates/more.j2", "x")
    question = look_into(project, store)
    assert not question.trusted
    assert {file.name: file.state for file in question.files} == {
        "config.yaml": "removed",
        "profiles/ours.yaml": "trusted",
        "rules.yaml": "changed",
        "templates/job.sh.j2": "trusted",
        "templates/more.j2": "new",
    }
    removed = question.files[0]
    assert (removed.size_bytes, removed.keys, removed.power) == (0, (), "")


def test_a_folder_without_files_has_no_question(project: Path, store: TrustStore) -> None:
    empty = project.parents[1] / "empty/.hpcrun"
    put(empty / "README.md", "x")
    with pytest.raises(NotFoundError, match="has no files for hpcrun"):
        look_into(empty, store)


def states(store: TrustStore) -> list[tuple[str, int]]:
    return [(row.state, row.files) for row in list_trust(store)]


def test_answers_are_listed_with_their_state(project: Path, store: TrustStore) -> None:
    assert states(store) == []
    remember(project, look_into(project, store).contents, store)
    assert states(store) == [("trusted", 4)]
    put(project / "rules.yaml", "b:\n  pattern: y\n")
    assert states(store) == [("changed", 4)]
    remember(project, None, store)
    assert states(store) == [("never", 0)]
    project.rename(project.with_name("moved"))
    assert states(store) == [("gone", 0)]


def test_never_is_no_trust(project: Path, store: TrustStore) -> None:
    remember(project, None, store)
    question = look_into(project, store)
    assert not question.trusted
    assert {file.state for file in question.files} == {"new"}


def test_an_answer_is_revoked_once(project: Path, store: TrustStore) -> None:
    remember(project, None, store)
    revoke(project, store)
    with pytest.raises(UsageError, match="is not trusted"):
        revoke(project, store)


def test_an_own_change_stays_trusted(project: Path, store: TrustStore) -> None:
    remember(project, look_into(project, store).contents, store)
    layers = [project_layer(project, store)]
    put(project / "rules.yaml", "b:\n  pattern: y\n")
    keep_trust(project / "rules.yaml", layers, store)
    assert look_into(project, store).trusted


def test_an_own_change_trusts_no_other_file(project: Path, store: TrustStore) -> None:
    remember(project, look_into(project, store).contents, store)
    layers = [project_layer(project, store)]
    put(project / "rules.yaml", "b:\n  pattern: y\n")
    keep_trust(project / "config.yaml", layers, store)
    keep_trust(project.parent / "rules.yaml", layers, store)
    assert not look_into(project, store).trusted


def test_a_folder_that_was_not_used_stays_unused(project: Path, store: TrustStore) -> None:
    keep_trust(project / "rules.yaml", [project_layer(project, store)], store)
    assert states(store) == []
