"""Loading profiles: finding, extending, merging, and saying where a mistake stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.errors import ProfileError
from hpcrun.profiles.folder import shipped_folder
from hpcrun.profiles.load import find_profile, load_profile, profile_names
from tests.unit.given import write

SHIPPED = shipped_folder("cluster_profiles")


def test_an_earlier_folder_hides_a_later_one_and_parts_are_no_profiles(tmp_path: Path) -> None:
    mine = write(tmp_path / "a100.yaml", "partition: mine\n")
    write(tmp_path / "_part.yaml", "partition: x\n")
    names = profile_names([tmp_path, SHIPPED])
    assert names["a100"] == mine
    assert names["h100"] == SHIPPED / "h100.yaml"
    assert not [name for name in names if name.startswith("_")]


def test_a_folder_that_is_not_there_has_no_profiles(tmp_path: Path) -> None:
    assert profile_names([tmp_path / "none"]) == {}


def test_a_profile_can_be_named_by_its_path(tmp_path: Path) -> None:
    path = write(tmp_path / "site.yaml", "partition: gpu\n")
    assert load_profile(str(path), []).profile.name == "site"
    with pytest.raises(ProfileError, match="no such file"):
        find_profile(str(tmp_path / "none.yaml"), [])


@pytest.mark.parametrize(
    ("name", "hint"),
    [("a10", "did you mean 'a100'?"), ("loca", "did you mean 'local'?"), ("zzz", "hpcrun profile list shows all")],
)
def test_an_unknown_profile_is_refused_with_the_nearest_or_the_command(name: str, hint: str) -> None:
    with pytest.raises(ProfileError, match=f"there is no profile '{name}'") as refused:
        load_profile(name, [SHIPPED])
    assert refused.value.hint is not None
    assert refused.value.hint.startswith(hint)
    assert refused.value.exit_code == 3


@pytest.mark.parametrize("name", ["local", "a100", "h100", "v100", "l40s"])
def test_the_shipped_profiles_load(name: str) -> None:
    profile = load_profile(name, [SHIPPED]).profile
    assert profile.name == name
    assert profile.description
    if name != "local":
        assert profile.gpu.type == name
        assert profile.gpu.per_node
        assert profile.cpu.per_node
        assert profile.cpu.per_gpu
        assert profile.gpu.per_node * profile.cpu.per_gpu <= profile.cpu.per_node
        assert profile.memory.per_node
        assert profile.memory.per_gpu
        assert profile.gpu.per_node * profile.memory.per_gpu <= profile.memory.per_node
        assert profile.time.default
        assert profile.time.max
        assert profile.time.default <= profile.time.max


def test_mappings_are_merged_and_all_else_is_replaced(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", "gpu: {type: a100, per_node: 4}\nmodules: [a, b]\nenv: {A: x, B: y}\n")
    write(tmp_path / "mine.yaml", "extends: base\ngpu: {per_node: 8}\nmodules: [c]\nenv: {B: z}\n")
    profile = load_profile("mine", [tmp_path]).profile
    assert (profile.gpu.type, profile.gpu.per_node) == ("a100", 8)
    assert profile.modules == ("c",)
    assert profile.env == {"A": "x", "B": "z"}


def test_of_several_bases_the_later_wins_and_the_file_itself_over_all(tmp_path: Path) -> None:
    write(tmp_path / "one.yaml", "partition: one\naccount: one\nqos: one\n")
    write(tmp_path / "two.yaml", "account: two\nqos: two\n")
    write(tmp_path / "mine.yaml", "extends: [one, two]\nqos: mine\n")
    profile = load_profile("mine", [tmp_path]).profile
    assert (profile.partition, profile.account, profile.qos) == ("one", "two", "mine")


def test_a_base_may_have_a_base_and_two_may_share_one(tmp_path: Path) -> None:
    write(tmp_path / "root.yaml", "partition: root\n")
    write(tmp_path / "left.yaml", "extends: root\naccount: left\n")
    write(tmp_path / "right.yaml", "extends: root\nqos: right\n")
    write(tmp_path / "mine.yaml", "extends: [left, right]\n")
    profile = load_profile("mine", [tmp_path]).profile
    assert (profile.partition, profile.account, profile.qos) == ("root", "left", "right")


def test_a_user_s_a100_extends_the_shipped_one_that_it_hides(tmp_path: Path) -> None:
    write(tmp_path / "a100.yaml", "extends: a100\npartition: mine\n")
    loaded = load_profile("a100", [tmp_path, SHIPPED])
    assert loaded.profile.partition == "mine"
    assert loaded.profile.gpu.type == "a100"
    assert loaded.path == tmp_path / "a100.yaml"


def test_a_project_s_a100_extends_the_user_s_which_extends_the_shipped_one(tmp_path: Path) -> None:
    project, user = tmp_path / "project", tmp_path / "user"
    write(project / "a100.yaml", "extends: a100\nqos: project\n")
    write(user / "a100.yaml", "extends: a100\npartition: user\n")
    profile = load_profile("a100", [project, user, SHIPPED]).profile
    assert (profile.qos, profile.partition, profile.gpu.type) == ("project", "user", "a100")


@pytest.mark.parametrize(
    "files", [{"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "a"}, {"a": "b", "b": "c", "c": "b"}]
)
def test_profiles_that_extend_in_a_circle_are_refused_with_the_circle(files: dict[str, str], tmp_path: Path) -> None:
    for name, base in files.items():
        write(tmp_path / f"{name}.yaml", f"extends: {base}\n")
    with pytest.raises(ProfileError, match=r"'extends' is circular: a → b") as refused:
        load_profile("a", [tmp_path])
    assert str(tmp_path) in refused.value.message


def test_a_profile_that_extends_itself_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "extends: a\n")
    with pytest.raises(ProfileError, match="extends"):
        load_profile("a", [tmp_path])


def test_a_base_that_is_nowhere_is_refused_at_its_line_with_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.yaml", "partition: x\nextends: [base/slurm, a10]\n")
    with pytest.raises(ProfileError) as refused:
        load_profile("mine", [tmp_path, SHIPPED])
    assert refused.value.message == f"{path}:2: 'extends' names 'a10', which does not exist"
    assert refused.value.hint == "did you mean 'a100'?"


@pytest.mark.parametrize("value", ["{a: b}", "[[a]]", "true"])
def test_extends_takes_names(value: str, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.yaml", f"partition: x\nextends: {value}\n")
    with pytest.raises(ProfileError) as refused:
        load_profile("mine", [tmp_path])
    assert refused.value.message.startswith(f"{path}:2: 'extends' must be the name")


def test_null_removes_what_a_base_sets(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", "partition: gpu\ngpu: {type: a100, per_node: 4}\nenv: {A: x, B: y}\nsetup: [a]\n")
    write(tmp_path / "mine.yaml", "extends: base\npartition: null\ngpu: {type: null}\nenv: {A: ~}\nsetup:\n")
    loaded = load_profile("mine", [tmp_path])
    profile = loaded.profile
    assert (profile.partition, profile.gpu.type, profile.gpu.per_node) == (None, None, 4)
    assert (profile.env, profile.setup) == ({"B": "y"}, ())
    assert ("env", "A") not in loaded.origins


@pytest.mark.parametrize(
    "text", ["partition: null\n", "env: {A: null}\n", "gpu: {type: null}\n", "sbatch: {comment: null}\n", "env: null\n"]
)
def test_null_for_what_nothing_sets_is_no_mistake(text: str, tmp_path: Path) -> None:
    write(tmp_path / "mine.yaml", text)
    profile = load_profile("mine", [tmp_path]).profile
    assert (profile.partition, profile.env, profile.gpu.type, profile.sbatch) == (None, {}, None, {})


def test_a_whole_section_can_be_taken_away_and_made_anew(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", "env: {A: x}\n")
    write(tmp_path / "none.yaml", "extends: base\nenv: null\n")
    write(tmp_path / "mine.yaml", "extends: none\nenv: {B: y}\n")
    assert load_profile("mine", [tmp_path]).profile.env == {"B": "y"}


def test_every_value_knows_the_file_it_came_from(tmp_path: Path) -> None:
    base = write(tmp_path / "base.yaml", "gpu:\n  type: a100\n  per_node: 4\n")
    mine = write(tmp_path / "mine.yaml", "extends: base\ngpu:\n  per_node: 8\n")
    origins = load_profile("mine", [tmp_path]).origins
    assert str(origins["gpu", "type"]) == f"{base}:2"
    assert str(origins["gpu", "per_node"]) == f"{mine}:3"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("partition: x\npartitoin: y\n", 2, "unknown key 'partitoin'; did you mean 'partition'?"),
        ("gpu:\n  per_nod: 4\n", 2, "unknown key 'gpu.per_nod'; did you mean 'gpu.per_node'?"),
        (
            "gpu:\n  types:\n    h100:\n      per_nod: 4\n",
            4,
            "unknown key 'gpu.types.h100.per_nod'; did you mean 'gpu.types.h100.per_node'?",
        ),
        (
            "gpu:\n  types:\n    h100:\n      per_node: 4\n      cpu: {pergpu: 4}\n",
            5,
            "unknown key 'gpu.types.h100.cpu.pergpu'; did you mean 'gpu.types.h100.cpu.per_gpu'?",
        ),
        ("gpu:\n  types:\n    h100: {}\n", 1, "gpu: types.h100 does not say per_node"),
        ("time:\n  default: 1h\n  maximum: 2h\n", 3, "unknown key 'time.maximum'"),
        ("extend: a100\n", 1, "unknown key 'extend'; did you mean 'extends'?"),
        ("gpu:\n  per_node: four\n", 2, "gpu.per_node: "),
        ("gpu:\n  directive: tres\n", 2, "gpu.directive: "),
        ("partition: x\ntime:\n  max: soon\n", 3, "time.max: 'soon' is not a time"),
        ("memory:\n\n  per_node: lots\n", 3, "memory.per_node: 'lots' is not a memory size"),
        ("env:\n  A: true\n", 2, "env.A: YAML reads this as true or false; put it in quotes"),
        ("env:\n  A: [x]\n", 2, "env.A: "),
        ("env:\n  1A: x\n", 2, "env.1A: '1A' cannot be a variable's name"),
        ("sbatch:\n  exclusive: false\n", 2, "sbatch.exclusive: "),
        ("scheduler: pbs\n", 1, "scheduler: "),
        ("setup: echo hi\n", 1, "setup: "),
        ("modules:\n  - a\n  - true\n", 3, "modules.1: "),
        ("partition: x\nname: y\n", 2, "remove the line: the file's name is the profile's name"),
        ("gpu: 4\n", 1, "gpu: "),
        ("card:\n  memory_gb: lots\n", 2, "card.memory_gb: "),
        ("card:\n  tflops:\n    bf61: 1\n", 3, "unknown key 'card.tflops.bf61'; did you mean 'card.tflops.bf16'?"),
        ("card:\n  bf16: 'yes'\n", 2, "card.bf16: takes true or false"),
        ("fabric:\n  interface: =ib0\n", 2, "fabric.interface: "),
    ],
)
def test_a_wrong_key_or_value_is_refused_at_its_file_and_line(
    text: str, line: int, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "mine.yaml", text)
    with pytest.raises(ProfileError) as refused:
        load_profile("mine", [tmp_path])
    first = refused.value.message.splitlines()[0]
    assert first.startswith(f"{path}:{line}: {message}")
    assert "function-" not in refused.value.message  # pydantic's own words for its machinery
    assert "pydantic" not in refused.value.message.lower()


def test_every_mistake_of_a_file_is_said_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.yaml", "partitoin: x\ngpu: {per_node: four}\n")
    with pytest.raises(ProfileError) as refused:
        load_profile("mine", [tmp_path])
    assert {line.split(": ")[0] for line in refused.value.message.splitlines()} == {f"{path}:1", f"{path}:2"}


def test_a_wrong_value_of_a_base_is_shown_in_the_base(tmp_path: Path) -> None:
    base = write(tmp_path / "base.yaml", "gpu:\n  per_node: four\n")
    write(tmp_path / "mine.yaml", "extends: base\npartition: x\n")
    with pytest.raises(ProfileError) as refused:
        load_profile("mine", [tmp_path])
    assert refused.value.message.startswith(f"{base}:2: gpu.per_node")
