"""The configuration of a project and of a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.errors import ProfileError
from hpcrun.job.request.notify_options import EVENTS
from hpcrun.profiles.config import KEYS, Config, load_config
from tests.unit.builders import write


def test_the_project_is_heard_before_the_user_and_without_a_file_nothing_is_configured(
    tmp_path: Path,
) -> None:
    project, user = tmp_path / "project", tmp_path / "user"
    assert load_config([project, user]) == Config(None, None)
    write(project / "config.yaml", "profile: a100\nnotify_on: [all]\n")
    write(user / "config.yaml", "profile: h100\nruns: /data/runs\n")
    assert load_config([project, user]) == Config("a100", Path("/data/runs"), notify_on=EVENTS)


def test_a_relative_runs_folder_counts_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "config.yaml", "runs: ../runs\n")
    assert load_config([tmp_path]).runs == tmp_path / "../runs"
    monkeypatch.setenv("HOME", "/home/me")
    write(tmp_path / "config.yaml", "runs: ~/runs\n")
    assert load_config([tmp_path]).runs == Path("/home/me/runs")


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("profil: a100\n", 1, "profil: unknown key", "did you mean 'profile'?"),
        ("profile: a100\nzzz: x\n", 2, "zzz: unknown key", f"there are: {', '.join(KEYS)}"),
        ("profile: true\n", 1, "profile: takes text", None),
        ("wandb_sync: yes please\n", 1, "wandb_sync: takes true or false", None),
        ("profile: a\nruns: [a]\n", 2, "runs: takes text", None),
        ("profile: a\nprofile: b\n", 2, "the key 'profile' appears twice here", None),
    ],
)
def test_a_mistake_is_refused_at_its_file_and_line(
    text: str, line: int, message: str, hint: str | None, tmp_path: Path
) -> None:
    path = write(tmp_path / "config.yaml", text)
    with pytest.raises(ProfileError) as refused:
        load_config([tmp_path])
    assert refused.value.message.startswith(f"{path}:{line}: {message}")
    assert refused.value.hint == hint


def test_an_unknown_key_of_the_site_is_a_warning_and_of_a_person_a_mistake(tmp_path: Path) -> None:
    user, site = tmp_path / "user", tmp_path / "site"
    path = write(site / "config.yaml", "profile: a100\nnewer: {a: 1}\n")
    warnings: list[str] = []
    assert load_config([user, site], site, warnings.append) == Config("a100")
    (warning,) = warnings
    assert warning.startswith(f"{path}:2: newer: unknown key; hpcrun ")
    write(user / "config.yaml", "newer: 1\n")
    with pytest.raises(ProfileError, match="newer: unknown key"):
        load_config([user, site], site)


def test_a_wrong_value_of_the_site_is_a_mistake(tmp_path: Path) -> None:
    write(tmp_path / "config.yaml", "profile: true\n")
    with pytest.raises(ProfileError, match="profile: takes text"):
        load_config([tmp_path], tmp_path)
