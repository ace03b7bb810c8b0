"""What a person has trusted: by the contents of every file, written where nobody else can write."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcrun.errors import ProfileError
from hpcrun.profiles.folders import (
    Layer,
    Trust,
    TrustStore,
    own_layer,
    project_layer,
    read_contents,
)
from hpcrun.profiles.load import load_profile, profile_names
from tests.unit.profiles.hostile import give_away, ordinary_user, put

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")


@pytest.fixture
def store() -> Iterator[TrustStore]:
    with ordinary_user() as home:
        yield TrustStore(home / "state/hpcrun/trust")


@pytest.fixture
def home(store: TrustStore) -> Path:
    return store.root.parents[2]


@pytest.fixture
def project(home: Path) -> Path:
    folder = home / "clone/.hpcrun"
    put(folder / "profiles/ours.yaml", "extends: parts/base\n")
    put(folder / "profiles/parts/base.yaml", "scheduler: local\nsetup: [echo hello]\n")
    put(folder / "templates/job.sh.j2", "echo\n")
    put(folder / "README.md", "not read\n")
    return folder


def trusted(folder: Path, store: TrustStore) -> Layer:
    store.save(Trust(folder.resolve(), read_contents(folder).hashes()))
    return project_layer(folder, store)


def test_an_answer_about_a_folder_is_forgotten_once(project: Path, store: TrustStore) -> None:
    trusted(project, store)
    assert store.forget(project)
    assert store.find(project) is None
    assert not store.forget(project)


def test_a_folder_without_an_answer_can_be_forgotten(project: Path, store: TrustStore) -> None:
    assert not store.forget(project)


def test_a_project_is_used_when_it_is_trusted(project: Path, store: TrustStore) -> None:
    layer = project_layer(project, store)
    names = "profiles/ours.yaml, profiles/parts/base.yaml, templates/job.sh.j2"
    assert layer.warning is not None
    assert f"{project} is not used: you have not trusted it: {names}" in layer.warning
    assert profile_names([layer.folder.below("profiles")]) == {}
    with pytest.raises(
        ProfileError, match=r"profile 'ours' is .*ours\.yaml, and you have not trusted it"
    ):
        load_profile("ours", [layer.folder.below("profiles")])
    layer = trusted(project, store)
    assert layer.warning is None
    assert load_profile("ours", [layer.folder.below("profiles")]).profile.setup == ("echo hello",)
    elsewhere = project.parent.with_name("moved")  # trust is of one place
    project.parent.rename(elsewhere)
    assert project_layer(elsewhere / ".hpcrun", store).folder.withheld == "you have not trusted it"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda folder: put(folder / "profiles/ours.yaml", "setup: [evil]\n"),
            "profiles/ours.yaml (changed)",
        ),
        (lambda folder: put(folder / "rules.yaml", ""), "rules.yaml (new)"),
        (
            lambda folder: put(folder / "profiles/deep/er/x.yaml", ""),
            "profiles/deep/er/x.yaml (new)",
        ),
        (lambda folder: (folder / "templates/job.sh.j2").unlink(), "templates/job.sh.j2 (removed)"),
    ],
    ids=["changed", "new", "deep", "removed"],
)
def test_any_change_asks_anew_and_names_what_changed(
    project: Path, store: TrustStore, change: Callable[[Path], object], says: str
) -> None:
    assert trusted(project, store).folder.withheld is None
    change(project)
    layer = project_layer(project, store)
    assert layer.folder.withheld == "it changed since you trusted it"
    assert f"{says} (to review and trust it: hpcrun profile trust)" in (layer.warning or "")


def test_what_was_hashed_is_what_is_used(project: Path, store: TrustStore) -> None:
    layer = trusted(project, store)
    put(project / "profiles/parts/base.yaml", "scheduler: local\nsetup: [evil]\n")
    put(project / "profiles/more.yaml", "scheduler: local\n")
    (project / "templates/job.sh.j2").unlink()
    folder = layer.folder.below("profiles")
    assert load_profile("ours", [folder]).profile.setup == ("echo hello",)
    assert load_profile(str(project / "profiles/ours.yaml"), [folder]).profile.setup == (
        "echo hello",
    )
    assert list(profile_names([folder])) == ["ours"]
    assert layer.folder.below("templates").text("job.sh.j2") == "echo\n"


@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_a_shared_project_is_used_as_it_was_trusted(
    project: Path, store: TrustStore, mode: int
) -> None:
    for path in (project, *project.rglob("*")):
        path.chmod(mode)
    assert trusted(project, store).folder.withheld is None
    put(project / "profiles/ours.yaml", "setup: [evil]\n")
    assert project_layer(project, store).folder.withheld == "it changed since you trusted it"


def test_a_project_that_is_a_link_is_never_used(project: Path, store: TrustStore) -> None:
    elsewhere = project.with_name("elsewhere")
    project.rename(elsewhere)
    project.symlink_to(elsewhere)
    store.save(Trust(project.resolve(), read_contents(elsewhere).hashes()))
    layer = project_layer(project, store)
    assert layer.refused == layer.folder.withheld == "it is a symbolic link"
    assert layer.folder.contents == {}


@pytest.mark.parametrize(
    "name", ["profiles/ours.yaml", "profiles/parts", "templates", "config.yaml"]
)
def test_links_in_a_project_are_not_read(
    home: Path, project: Path, store: TrustStore, name: str
) -> None:
    put(home / "secret/x.yaml", "password: x\n")
    place = project / name
    if place.exists():
        place.rename(home / "gone")
    place.symlink_to(home / "secret" / ("x.yaml" if "." in name else ""))
    contents = read_contents(project)
    assert b"password: x\n" not in contents.files.values()
    assert contents.skipped == (f"{name} (a link)",)
    layer = trusted(project, store)
    assert layer.warning == f"not used from {project}: {name} (a link)"


def test_a_pipe_and_a_large_file_are_left_out(project: Path) -> None:
    os.mkfifo(project / "config.yaml")
    put(project / "rules.yaml", "#" * 1_000_001)
    assert read_contents(project).skipped == (
        "config.yaml (not an ordinary file)",
        "rules.yaml (larger than 1000 kB)",
    )


@pytest.mark.parametrize(("place", "most"), [("profiles/a/b", 498), ("templates", 496)])
def test_a_folder_of_very_many_folders_is_not_walked(home: Path, place: str, most: int) -> None:
    project = home / "clone/.hpcrun"
    for folder in ("profiles", "templates", place):
        (project / folder).mkdir(parents=True, exist_ok=True)
    for number in range(most):
        (project / place / f"d{number}").mkdir()
    if place == "templates":
        (project / "profiles/a/b/c/d").mkdir(parents=True)
    read_contents(project)
    (project / place / "one-more").mkdir()
    with pytest.raises(ProfileError, match="more than 500 files and folders"):
        read_contents(project)


def test_the_walk_of_a_folder_ends_at_the_bound(project: Path) -> None:
    for outer in range(20):
        for inner in range(20):
            (project / f"profiles/{outer}/{inner}/x").mkdir(parents=True)
    walked: list[object] = []
    scandir = os.scandir

    def noted(path: str) -> object:
        walked.append(path)
        return scandir(path)

    with (
        pytest.MonkeyPatch.context() as patched,
        pytest.raises(ProfileError, match="more than 500"),
    ):
        patched.setattr(os, "scandir", noted)
        read_contents(project)
    assert len(walked) <= 500


def test_names_lead_nowhere_else(home: Path, project: Path, store: TrustStore) -> None:
    put(home / "evil.yaml", "scheduler: local\n")
    for base in (str(home / "evil"), "../../../evil", "parts/../../../../evil"):
        put(project / "profiles/ours.yaml", f"extends: {base}\n")
        layer = trusted(project, store)
        with pytest.raises(ProfileError, match="which does not exist"):
            load_profile("ours", [layer.folder.below("profiles"), home / "clone"])


def test_never_is_heard_and_nothing_is_said(project: Path, store: TrustStore) -> None:
    store.save(Trust(project.resolve(), {}, never=True))
    layer = project_layer(project, store)
    assert layer.warning is None
    assert layer.folder.contents == {}
    assert layer.folder.withheld is None


# --- the folders of a person and of a site -------------------------------------------------------


def test_the_own_folder_is_used_as_it_is(home: Path, store: TrustStore) -> None:
    file = put(home / "config/profiles/mine.yaml", "scheduler: local\n")
    layer = own_layer(home / "config", store)
    assert layer.warning is None
    assert list(profile_names([layer.folder.below("profiles")])) == ["mine"]
    assert own_layer(home / "none", store).warning is None
    (home / "link").symlink_to("config")  # as tools that keep dotfiles make it
    assert load_profile(
        "mine", [own_layer(home / "link", store).folder.below("profiles")]
    ).path.samefile(file)


@pytest.mark.parametrize(
    "place", ["", "profiles", "profiles/parts", "profiles/parts/x.yaml", "config.yaml"]
)
@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_a_folder_that_others_can_write_is_used_as_it_was_trusted(
    home: Path, store: TrustStore, place: str, mode: int
) -> None:
    folder = home / "site"
    put(folder / "profiles/parts/x.yaml", "scheduler: local\n")
    put(folder / "config.yaml", "profile: x\n")
    (folder / place).chmod(mode)
    layer = own_layer(folder, store)
    assert layer.folder.withheld == f"other users can write to {folder / place} (mode {mode:04o})"
    assert trusted(folder, store).folder.withheld is None
    assert own_layer(folder, store).warning is None
    (folder / "config.yaml").write_text("profile: evil\n")
    assert own_layer(folder, store).folder.withheld is not None


@needs_root
def test_a_site_of_another_user_is_not_used(home: Path, store: TrustStore) -> None:
    put(home / "site/config.yaml", "profile: x\n")
    give_away(home / "site")
    layer = own_layer(home / "site", store)
    assert layer.folder.withheld == f"{home}/site belongs to another user (uid 65533)"


@needs_root
def test_root_uses_nothing_of_an_ordinary_user_trusted_or_not(
    project: Path, store: TrustStore
) -> None:
    trusted(project, store)
    os.seteuid(0)
    layer = project_layer(project, TrustStore(store.root.with_name("roots")))
    assert "root uses only files writable by root alone" in (layer.refused or "")
    assert layer.folder.names("") == []
    assert layer.folder.has("profiles/ours.yaml") is False
    with pytest.raises(
        ProfileError, match=r"profile 'ours' is .* root uses only files writable by root alone"
    ):
        load_profile("ours", [layer.folder.below("profiles")])


# --- the store -----------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o002])
def test_what_is_trusted_is_written_for_oneself_alone(
    project: Path, store: TrustStore, umask: int
) -> None:
    before = os.umask(umask)
    try:
        trusted(project, store)
    finally:
        os.umask(before)
    (file,) = store.root.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (store.root, store.root.parent)} == {
        0o700
    }


def test_what_others_could_have_written_is_not_believed(project: Path, store: TrustStore) -> None:
    trusted(project, store)
    store.root.chmod(0o777)
    assert f"other users can write to {store.root}" in (project_layer(project, store).refused or "")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 2}', "[" * 100_000, "\xff"])
def test_a_damaged_record_is_none(project: Path, store: TrustStore, text: str) -> None:
    trusted(project, store)
    (file,) = store.root.iterdir()
    file.write_text(text, "latin-1")
    assert project_layer(project, store).folder.withheld == "you have not trusted it"
    assert store.all() == []
