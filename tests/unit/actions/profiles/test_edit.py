"""profile new, set, unset, use and edit: the files of a person, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcrun.actions.profiles.edit import (
    Changed,
    FileChange,
    Place,
    check_name,
    edit_profile,
    new_profile,
    new_profile_path,
    plan_config,
    set_values,
    text_at,
    unset_values,
    use_profile,
)
from hpcrun.errors import ProfileError, UsageError
from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.yaml_file import Mistake, MistakesError


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return the folder of a person's profiles, over the shipped ones."""
    user = tmp_path / "config/profiles"
    return Place(user, [user, shipped_folder("cluster_profiles")])


def text_of(place: Place, name: str) -> str:
    return (place.user / f"{name}.yaml").read_text()


def test_a_new_profile_extends_another(place: Place) -> None:
    changed = new_profile("mine", "a100", ["partition=fast"], place)
    assert changed == Changed(place.user / "mine.yaml", made=True, changed=True)
    assert "extends: a100\n" in text_of(place, "mine")
    assert "partition: fast\n" in text_of(place, "mine")


def test_a_new_profile_replaces_none(place: Place) -> None:
    new_profile("mine", "a100", [], place)
    with pytest.raises(UsageError, match="already exists") as raised:
        new_profile("mine", "a100", [], place)
    assert raised.value.hint == "hpcrun profile edit mine changes it"


def test_a_new_profile_of_an_unknown_one_is_refused(place: Place) -> None:
    with pytest.raises(ProfileError, match="nothing"):
        new_profile("mine", "nothing", [], place)
    assert text_at(place.user / "mine.yaml") is None


def test_setting_makes_a_copy(place: Place) -> None:
    changed = set_values("a100", ["time.default=2h"], place)
    assert (changed.made, changed.changed) == (True, True)
    assert text_of(place, "a100") == (
        f"# Your own 'a100', over the one in {shipped_folder('cluster_profiles')}.\n"
        "extends: a100\ntime:\n  default: 2h\n"
    )


def test_setting_again_changes_the_copy(place: Place) -> None:
    set_values("a100", ["partition=a"], place)
    changed = set_values("a100", ["partition=b"], place)
    assert (changed.made, changed.changed) == (False, True)
    assert "partition: b\n" in text_of(place, "a100")


def test_setting_the_same_changes_nothing(place: Place) -> None:
    set_values("a100", ["partition=a"], place)
    changed = set_values("a100", ["partition=a"], place)
    assert (changed.made, changed.changed) == (False, False)


def test_null_removes_an_inherited_value(place: Place) -> None:
    set_values("a100", ["partition=null"], place)
    assert "partition:\n" in text_of(place, "a100") or "partition: null" in text_of(place, "a100")


def test_a_list_is_added_to(place: Place) -> None:
    set_values("a100", ["modules+=cuda"], place)
    assert "modules+: [cuda]\n" in text_of(place, "a100")


@pytest.mark.parametrize("word", ["partition", "=x", ".a=1", "a..b=1"])
def test_a_word_that_is_no_assignment(place: Place, word: str) -> None:
    with pytest.raises(UsageError, match="is not KEY=VALUE"):
        set_values("a100", [word], place)


def test_a_wrong_key_changes_nothing(place: Place) -> None:
    with pytest.raises(ProfileError, match="nothing is changed in") as raised:
        set_values("a100", ["partitoin=x"], place)
    assert "partitoin" in raised.value.message
    assert not (place.user / "a100.yaml").exists()


@pytest.mark.parametrize("key", ["requeue.warn", "cancel_idle"])
def test_a_time_needs_its_unit(place: Place, key: str) -> None:
    with pytest.raises(UsageError, match=f"{key}=30 has no unit"):
        set_values("a100", [f"{key}=30"], place)


def test_values_of_gpu_types_give_way(place: Place) -> None:
    place.user.mkdir(parents=True)
    (place.user / "two.yaml").write_text(
        "gpu:\n  per_node: 4\n  types:\n    a:\n      cpu: {per_gpu: 4}\n    b: {per_node: 2}\n"
        "partition: x\n"
    )
    changed = set_values("two", ["cpu.per_gpu=8"], place)
    assert changed.replaced == {"cpu.per_gpu": ["a"]}
    assert not unset_values("two", ["cpu.per_gpu"], place).replaced
    assert "per_gpu" not in text_of(place, "two")


def test_an_unset_value_is_inherited_again(place: Place) -> None:
    set_values("a100", ["partition=a", "time.default=2h"], place)
    unset_values("a100", ["time.default"], place)
    assert "time" not in text_of(place, "a100")
    assert "partition: a" in text_of(place, "a100")


def test_nothing_is_unset_without_a_copy(place: Place) -> None:
    with pytest.raises(ProfileError, match="nothing to remove") as raised:
        unset_values("a100", ["partition", "account"], place)
    assert raised.value.hint == (
        "hpcrun profile set a100 partition=null removes the inherited value"
    )


def test_a_profile_becomes_the_default(place: Place, tmp_path: Path) -> None:
    config = tmp_path / "config/config.yaml"
    assert use_profile("a100", place, config) == Changed(config, made=True, changed=True)
    assert config.read_text() == "profile: a100\n"
    assert use_profile("a100", place, config) == Changed(config, made=False, changed=False)
    assert use_profile("h100", place, config) == Changed(config, made=False, changed=True)


def test_other_lines_of_the_configuration_stay(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("# mine\nruns: /a  # large\nprofile: old\n")
    change, before = plan_config("new", config, "/b")
    assert before == "old"
    assert change.after == "# mine\nruns: /b  # large\nprofile: new\n"
    assert change.changed


def test_the_default_until_now_is_told_if_it_changes(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("profile: same\n")
    change, before = plan_config("same", config)
    assert (change.changed, before) == (False, None)


def test_a_file_that_another_program_changed_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("theirs")
    change = FileChange(path, "before", "after")
    with pytest.raises(ProfileError, match="changed by another program while") as raised:
        change.write(tmp_path / ".lock", during=" while you slept", hint="again")
    assert raised.value.hint == "again"
    assert path.read_text() == "theirs"


def test_the_old_text_is_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("before")
    FileChange(path, "before", "after").write(tmp_path / ".lock", kept=tmp_path / "a.old")
    assert (path.read_text(), (tmp_path / "a.old").read_text()) == ("after", "before")


def test_a_new_file_has_no_old_text(tmp_path: Path) -> None:
    FileChange(tmp_path / "a", None, "after").write(tmp_path / ".lock", kept=tmp_path / "old")
    assert not (tmp_path / "old").exists()


def edited(place: Place, *texts: str | None, again: bool = True) -> Changed:
    """Edit a copy of a100 with these texts, one after the other; None removes the file."""
    waiting = list(texts)

    def run_editor(path: Path) -> int:
        text = waiting.pop(0)
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
        return 0

    def ask_again(mistakes: Sequence[Mistake]) -> bool:
        assert mistakes
        return again

    return edit_profile("a100", place, run_editor, ask_again)


def test_an_edited_copy_is_saved(place: Place) -> None:
    changed = edited(place, "extends: a100\npartition: x\n")
    assert (changed.made, changed.changed) == (True, True)
    assert text_of(place, "a100") == "extends: a100\npartition: x\n"


def test_an_edit_without_a_change_saves_nothing(place: Place) -> None:
    changed = edit_profile("a100", place, lambda _: 0, lambda _: False)
    assert (changed.made, changed.changed) == (False, False)
    assert not (place.user / "a100.yaml").exists()


def test_a_mistake_goes_back_to_the_editor(place: Place) -> None:
    edited(place, "extends: a100\npartitoin: x\n", "extends: a100\npartition: y\n")
    assert text_of(place, "a100") == "extends: a100\npartition: y\n"


def test_a_mistake_that_stays_is_an_error(place: Place) -> None:
    with pytest.raises(MistakesError) as raised:
        edited(place, "extends: a100\npartitoin: x\n", again=False)
    assert str(raised.value.hint).startswith("nothing was saved")


def test_a_mistake_in_a_copy_leaves_it(place: Place) -> None:
    set_values("a100", ["partition=a"], place)
    with pytest.raises(MistakesError) as raised:
        edited(place, "partitoin: x\n", again=False)
    assert str(raised.value.hint).startswith(f"{place.user / 'a100.yaml'} is unchanged")
    assert "partition: a" in text_of(place, "a100")


def test_a_removed_draft_is_an_error(place: Place) -> None:
    with pytest.raises(ProfileError, match="the editor removed the file; nothing was saved"):
        edited(place, None)


def test_an_editor_that_fails_is_an_error(place: Place) -> None:
    with pytest.raises(ProfileError, match="ended with exit status 3; nothing was saved"):
        edit_profile("a100", place, lambda _: 3, lambda _: False)


def test_an_edit_beside_another_program_is_kept(place: Place) -> None:
    def run_editor(path: Path) -> int:
        path.write_text("extends: a100\npartition: x\n")
        set_values("a100", ["partition=theirs"], place)
        return 0

    with pytest.raises(ProfileError, match="while you edited it") as raised:
        edit_profile("a100", place, run_editor, lambda _: False)
    kept = Path(str(raised.value.hint).removeprefix("your text is saved in "))
    assert kept.read_text() == "extends: a100\npartition: x\n"
    kept.unlink()
    kept.parent.rmdir()
    assert "theirs" in text_of(place, "a100")


@pytest.mark.parametrize("name", ["a", "My-1.b_c", "a" * 64])
def test_a_name_of_a_profile(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", ".a", "a/b", "a b", "ä", "a" * 65, "a.yaml", "a.yml"])
def test_a_name_of_no_profile(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a profile's name"):
        check_name(name)


@pytest.mark.parametrize("name", ["local", "detected"])
def test_hpcrun_has_names_of_its_own(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="hpcrun itself uses"):
        new_profile_path(name, tmp_path, force=True)


def test_a_file_is_replaced_by_force_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    assert new_profile_path("a", tmp_path, force=False) == path
    path.touch()
    assert new_profile_path("a", tmp_path, force=True) == path
    with pytest.raises(ProfileError, match="already exists"):
        new_profile_path("a", tmp_path, force=False)


def test_a_profile_in_the_way_is_named(place: Place, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a100.yaml").write_text("extends: a100\n")
    behind = Place(place.user, [project, *place.folders])
    assert set_values("a100", ["partition=x"], behind).hidden_by == project / "a100.yaml"
