"""Limits in a configuration: which numbers they take, and which of several holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hpcrun.cli.configuration import Configuration
from hpcrun.errors import ProfileError
from hpcrun.profiles.config import load_config, load_limits
from hpcrun.profiles.folders import Trust
from hpcrun.profiles.limits import CostLimit, Limits, limits_of, read_limit, smallest

HERE = Path("/one")
THERE = Path("/two")


def test_the_smallest_of_each_kind_holds() -> None:
    first = limits_of({"gpus_per_job": 8, "gpu_hours_per_day": 100}, HERE)
    second = limits_of({"gpus_per_job": 4, "gpu_hours_per_job": 0}, THERE)
    assert smallest([first, second]) == Limits(
        CostLimit(4, THERE), CostLimit(0, THERE), CostLimit(100, HERE)
    )


def test_without_a_file_there_is_no_limit() -> None:
    assert smallest([]).is_empty
    assert not limits_of({"gpus_per_job": 0}, HERE).is_empty


@pytest.mark.parametrize("value", ["0", "8", "0.5", 8])
def test_a_limit_is_a_number(value: object) -> None:
    assert read_limit(value) == float(str(value))


@pytest.mark.parametrize("value", ["", "-1", "inf", "nan", "1e9", "8h", "none", None, True, [8]])
def test_nothing_else_is_a_limit(value: object) -> None:
    with pytest.raises(ValueError, match="takes a number, such as 8"):
        read_limit(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limits: 8\n", "limits: takes a section with gpus_per_job"),
        ("limits:\n  gpus_per_job: many\n", r"limits\.gpus_per_job: takes a number"),
        ("limits:\n  gpus: 8\n", r"limits\.gpus: there is no such limit; there are: gpus_per_job"),
    ],
)
def test_a_mistake_removes_no_limit(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ProfileError, match=message):
        load_config([tmp_path])


def test_a_project_raises_no_limit_of_the_user(tmp_path: Path) -> None:
    for name, most in (("project", 1000), ("user", 4)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(f"limits: {{gpus_per_job: {most}}}\n")
    limits = load_config([tmp_path / "project", tmp_path / "user"]).limits
    assert limits.gpus_per_job == CostLimit(4, tmp_path / "user/config.yaml")


def test_folders_that_no_variable_moves_limit_too(tmp_path: Path) -> None:
    for name, most in (("user", 8), ("fixed", 4)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(f"limits: {{gpus_per_job: {most}}}\n")
    configuration = Configuration(
        None,
        tmp_path / "user",
        tmp_path / "site",
        trusted=tmp_path / "trust",
        announce=None,
        limiting=(tmp_path / "fixed", tmp_path / "user"),
    )
    assert configuration.limits.gpus_per_job == CostLimit(4, tmp_path / "fixed/config.yaml")


def configuration(folder: Path) -> Configuration:
    return Configuration(
        None, folder / "user", folder / "site", trusted=folder / "trust", announce=None
    )


@pytest.fixture
def limited(tmp_path: Path) -> Path:
    """A user's configuration with a limit."""
    (tmp_path / "user").mkdir()
    path = tmp_path / "user/config.yaml"
    path.write_text("profile: a100\nlimits: {gpus_per_job: 4}\n")
    return path


def _stray_file(path: Path) -> None:
    stray = path.with_name("rules.yaml")
    stray.touch()
    stray.chmod(0o666)


def _elsewhere(path: Path) -> None:
    folder = path.parent
    folder.rename(folder.with_name("there")).chmod(0o777)
    folder.symlink_to("there")


@pytest.mark.parametrize(
    "expose",
    [
        _stray_file,
        _elsewhere,
        lambda path: path.chmod(0o666),
        lambda path: path.parent.chmod(0o777),
    ],
    ids=["stray file", "link", "file", "folder"],
)
def test_a_file_that_is_not_used_still_limits(
    tmp_path: Path, limited: Path, expose: Callable[[Path], None]
) -> None:
    expose(limited)
    result = configuration(tmp_path)
    assert result.values.profile is None
    assert result.limits.gpus_per_job == CostLimit(4, limited)


def test_a_folder_that_is_never_used_still_limits(tmp_path: Path, limited: Path) -> None:
    limited.chmod(0o666)
    result = configuration(tmp_path)
    result.trust.save(Trust(limited.parent.resolve(), {}, never=True))
    assert result.limits.gpus_per_job == CostLimit(4, limited)


def test_a_file_that_was_left_out_when_its_folder_was_trusted_limits(
    tmp_path: Path, limited: Path
) -> None:
    limited.rename(limited.with_name("real"))
    limited.symlink_to("real")
    limited.parent.chmod(0o777)
    result = configuration(tmp_path)
    result.trust.save(Trust(limited.parent.resolve(), {}))
    assert result.limits.gpus_per_job == CostLimit(4, limited)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _lost(path: Path) -> None:
    path.unlink()
    path.symlink_to("gone")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _mistake(path: Path) -> None:
    path.write_text("limits: {gpus: 4}\n")
    path.chmod(0o666)


def _folder_is_file(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    path.parent.touch()


def _folder_is_lost(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to("gone")


@pytest.mark.parametrize(
    "spoil", [_folder, _lost, _pipe, _mistake, _folder_is_file, _folder_is_lost]
)
def test_limits_that_cannot_be_read_are_not_none(
    tmp_path: Path, limited: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(limited)
    with pytest.raises(ProfileError, match=r"user"):
        assert not configuration(tmp_path).limits


def test_a_folder_below_a_lost_link_is_not_a_folder_without_limits(tmp_path: Path) -> None:
    (tmp_path / ".config").symlink_to("gone")
    with pytest.raises(ProfileError, match=r"\.config is not a folder"):
        load_limits(tmp_path / ".config/hpcrun")


def test_a_home_that_does_not_exist_sets_no_limit() -> None:
    assert load_limits(Path("/dev/null/.config/hpcrun")) == (Limits(), {})


def test_a_misnamed_file_is_told(tmp_path: Path, limited: Path) -> None:
    limited.rename(limited.with_suffix(".yml"))
    (warning,) = configuration(tmp_path).warnings
    assert warning == f"{limited.with_suffix('.yml')} is not read: its name must be config.yaml"


def test_limits_of_partitions_hold_of_a_file_that_is_not_used(limited: Path) -> None:
    limited.write_text("partition_limits: {debug: {nodes: 2}}\n")
    limited.chmod(0o666)
    here = configuration(limited.parents[1])
    assert here.warnings
    assert here.partition_limits == {"debug": {"nodes": CostLimit(2, limited)}}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("closed", ["site", "."])
def test_a_folder_that_the_user_may_not_read_is_told_and_its_limits_are_unknown(
    closed: str,
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "site").mkdir()
        (folder / "site/config.yaml").write_text("limits: {gpus_per_job: 4}\n")
        (folder / closed).chmod(0o700)
        here = Configuration(
            None, Path("/none"), folder / "site", trusted=Path("/none/trust"), announce=None
        )
        os.seteuid(65534)
        try:
            (warning,) = here.warnings
            with pytest.raises(ProfileError, match="you may not read it"):
                _ = here.limits
        finally:
            os.seteuid(0)
    assert warning == f"{folder}/site is not used: you may not read it"


def test_the_smallest_limit_knows_the_folders_of_the_others() -> None:
    least = smallest(
        [
            limits_of({"gpus_per_job": 4}, Path("/a/config.yaml")),
            limits_of({"gpus_per_job": 2}, Path("/b/config.yaml")),
            limits_of({"gpus_per_job": 2}, Path("/c/config.yaml")),
        ]
    ).gpus_per_job
    assert least == CostLimit(2, Path("/b/config.yaml"))
    assert {*least.folders} == {Path("/a"), Path("/b"), Path("/c")}


def test_a_warning_about_a_key_has_no_control_characters(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text('"a\\e]0;title\\a": 1\n')
    warnings: list[str] = []
    load_config([tmp_path], tmp_path, warnings.append)
    (warning,) = warnings
    assert "a?]0;title?: unknown key" in warning
