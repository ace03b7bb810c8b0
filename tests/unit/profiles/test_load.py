"""Loading profiles: finding, extending, merging, and saying where each mistake and value stands."""

from __future__ import annotations

import time
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcrun.errors import ProfileError
from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.load import find_profile, load_profile, load_text, profile_names
from hpcrun.profiles.yaml_file import MistakesError, values_in
from tests.unit.builders import write

SHIPPED = shipped_folder("cluster_profiles")


def test_an_earlier_folder_hides_a_later_one_and_parts_are_no_profiles(tmp_path: Path) -> None:
    mine = write(tmp_path / "a100.yaml", "partition: mine\n")
    for name in ("_part.yaml", ".a100.yaml"):  # a part, and an editor's own file
        write(tmp_path / name, "partition: x\n")
    assert profile_names([tmp_path]) == {"a100": mine}
    assert profile_names([tmp_path, SHIPPED])["h100"] == SHIPPED / "h100.yaml"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("a10", "did you mean 'a100'?"),
        ("loca", "did you mean 'local'?"),
        ("zzz", "hpcrun profile list shows all"),
    ],
)
def test_an_unknown_profile_is_refused_with_the_nearest_or_the_command(
    name: str, hint: str
) -> None:
    with pytest.raises(ProfileError, match=f"there is no profile '{name}'") as refused:
        load_profile(name, [SHIPPED])
    assert (refused.value.hint or "").startswith(hint)
    assert refused.value.exit_code == 3


MERGED: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "mappings are merged, all else is replaced": (
        {
            "base": "gpu: {type: a100, per_node: 4}\nmodules: [a, b]\nenv: {A: x, B: y}\n",
            "mine": "extends: base\ngpu: {per_node: 8}\nmodules: [c]\nenv: {B: z}\n",
        },
        {"gpu.type": "a100", "gpu.per_node": 8, "modules": ("c",), "env": {"A": "x", "B": "z"}},
    ),
    "the later base over the earlier one, the file itself over all": (
        {
            "one": "partition: one\naccount: one\nqos: one\n",
            "two": "account: two\nqos: two\n",
            "mine": "extends: [one, two]\nqos: mine\n",
        },
        {"partition": "one", "account": "two", "qos": "mine"},
    ),
    "a base may have a base, and two may share one": (
        {
            "root": "partition: root\n",
            "left": "extends: root\naccount: left\n",
            "right": "extends: root\nqos: right\n",
            "mine": "extends: [left, right]\n",
        },
        {"partition": "root", "account": "left", "qos": "right"},
    ),
    "null removes what a base sets": (
        {
            "base": "partition: gpu\ngpu: {type: a100, per_node: 4}\nenv: {A: x, B: y}\nsetup: "
            "[a]\n",
            "mine": "extends: base\npartition: null\ngpu: {type: null}\nenv: {A: ~}\nsetup:\n",
        },
        {"partition": None, "gpu.type": None, "gpu.per_node": 4, "env": {"B": "y"}, "setup": ()},
    ),
    "null for what nothing sets is no mistake": (
        {
            "mine": "partition: null\nenv: {A: null}\ngpu: {type: null}\nsbatch: {comment: "
            "null}\nsrun: null\n"
        },
        {"partition": None, "env": {}, "gpu.type": None, "sbatch": {}, "srun": {}},
    ),
    "a section can be removed and made anew": (
        {
            "base": "env: {A: x}\n",
            "none": "extends: base\nenv: null\n",
            "mine": "extends: none\nenv: {B: y}\n",
        },
        {"env": {"B": "y"}},
    ),
    "a list can be extended twice, and where there is none": (
        {"one": "setup+: [a]\n", "mine": "extends: one\nsetup+: [b]\n"},
        {"setup": ("a", "b")},
    ),
    "an extended list can be replaced": (
        {"one": "setup+: [a]\n", "mine": "extends: one\nsetup: [c]\n"},
        {"setup": ("c",)},
    ),
}


@pytest.mark.parametrize(("files", "values"), MERGED.values(), ids=MERGED)
def test_a_profile_lies_over_those_that_it_extends(
    files: dict[str, str], values: dict[str, Any], tmp_path: Path
) -> None:
    for name, text in files.items():
        write(tmp_path / f"{name}.yaml", text)
    loaded = load_profile("mine", [tmp_path])
    assert {key: attrgetter(key)(loaded.profile) for key in values} == values
    assert all(key in loaded.origins or not key[1:] for key, _ in values_in(loaded.data))


@pytest.mark.parametrize(
    "files", [{"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "a"}, {"a": "b", "b": "c", "c": "b"}]
)
def test_profiles_that_extend_in_a_circle_are_refused_with_the_circle(
    files: dict[str, str], tmp_path: Path
) -> None:
    for name, base in files.items():
        write(tmp_path / f"{name}.yaml", f"extends: {base}\n")
    with pytest.raises(ProfileError, match=r"'extends' is circular: a → b") as refused:
        load_profile("a", [tmp_path])
    assert str(tmp_path) in refused.value.message


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("partition: x\npartitoin: y\n", 2, "unknown key 'partitoin'; did you mean 'partition'?"),
        ("gpu:\n  per_nod: 4\n", 2, "unknown key 'gpu.per_nod'; did you mean 'gpu.per_node'?"),
        (
            "gpu:\n  types:\n    h100:\n      per_node: 4\n      cpu: {pergpu: 4}\n",
            5,
            "unknown key 'gpu.types.h100.cpu.pergpu'; did you mean 'gpu.types.h100.cpu.per_gpu'?",
        ),
        ("gpu:\n  types:\n    h100: {}\n", 1, "gpu: types.h100 does not say per_node"),
        ("extend: a100\n", 1, "unknown key 'extend'; did you mean 'extends'?"),
        ("gpu:\n  per_node: four\n", 2, "gpu.per_node: "),
        ("partition: x\ntime:\n  max: soon\n", 3, "time.max: 'soon' is not a time"),
        ("env:\n  A: true\n", 2, "env.A: YAML reads this as true or false; put it in quotes"),
        ("env:\n  A: [x]\n", 2, "env.A: "),
        ("env:\n  1A: x\n", 2, "env.1A: '1A' cannot be a variable's name"),
        ("sbatch:\n  exclusive: false\n", 2, "sbatch.exclusive: "),
        ("scheduler: pbs\n", 1, "scheduler: "),
        ("setup: echo hi\n", 1, "setup: "),
        ("modules:\n  - a\n  - true\n", 3, "modules.1: "),
        ("partition: x\nname: y\n", 2, "remove the line: the file's name is the profile's name"),
        ("gpu: 4\n", 1, "gpu: "),
        (
            "card:\n  tflops:\n    bf61: 1\n",
            3,
            "unknown key 'card.tflops.bf61'; did you mean 'card.tflops.bf16'?",
        ),
        ("card:\n  bf16: 'yes'\n", 2, "card.bf16: takes true or false"),
        ("fabric:\n  interface: =ib0\n", 2, "fabric.interface: "),
        (
            "partition: x\nextends: [base/slurm, a10]\n",
            2,
            "'extends' names 'a10', which does not exist",
        ),
        ("qos: x\nextends: {a: b}\n", 2, "'extends' must be the name"),
        ("extends: [[a]]\n", 1, "'extends' must be the name"),
        (
            "extends: part\nmodules+: a\n",
            2,
            "modules+: must be a list of values to add to 'modules'",
        ),
        (
            "modules: [a]\nmodules+: [b]\n",
            2,
            "modules+: 'modules' is also in this file; write one list",
        ),
        ("extends: part\nqos: x\ngpu+: [b]\n", 3, "gpu+: 'gpu' is not a list"),
        ("extends: part\nmodulse+: [b]\n", 2, "unknown key 'modulse'; did you mean 'modules'?"),
        ("extends: part\nsetup+: [true]\n", 2, "setup.0: "),
        ("card: gpu/h10\n", 1, "'card' names 'gpu/h10', which does not exist"),
        (
            "gpu: {types: {h: {per_node: 1, card: gpu/none}}}\n",
            1,
            "'gpu.types.h.card' names 'gpu/none'",
        ),
        ("card: mine\n", 1, "'card' names 'mine', which does not exist"),
        ("card: [gpu/h100]\n", 1, "card: must be a valid section"),
    ],
)
def test_a_wrong_key_or_value_is_refused_at_its_file_and_line(
    text: str, line: int, message: str, tmp_path: Path
) -> None:
    write(tmp_path / "part.yaml", "partition: x\ngpu: {type: a100}\n")
    path = write(tmp_path / "mine.yaml", text)
    with pytest.raises(ProfileError) as refused:
        load_profile("mine", [tmp_path, SHIPPED])
    first = refused.value.message.splitlines()[0]
    assert first.startswith(f"{path}:{line}: {message}")
    assert "function-" not in refused.value.message  # pydantic's own words for its machinery
    assert "pydantic" not in refused.value.message.lower()
    assert "a10]" not in text or refused.value.hint == "did you mean 'a100'?"


def test_a_list_is_extended_with_a_plus_and_each_item_and_value_knows_its_line(
    tmp_path: Path,
) -> None:
    base = write(tmp_path / "base.yaml", "modules: [a, b]\ngpu:\n  type: a100\n  per_node: 4\n")
    mine = write(
        tmp_path / "mine.yaml", "extends: base\nmodules+:\n  - c\n  - d\ngpu:\n  per_node: 8\n"
    )
    loaded = load_profile("mine", [tmp_path])
    assert loaded.profile.modules == ("a", "b", "c", "d")
    where = [str(loaded.origins["modules", str(number)]) for number in range(4)]
    assert where == [f"{base}:1", f"{base}:1", f"{mine}:3", f"{mine}:4"]
    assert [str(loaded.origins["gpu", key]) for key in ("type", "per_node")] == [
        f"{base}:3",
        f"{mine}:6",
    ]


def test_every_mistake_of_a_profile_and_what_it_extends_is_told_at_once(tmp_path: Path) -> None:
    base = write(tmp_path / "base.yaml", "extends: nowhere\ngpu: {typ: x}\n")
    broken = write(tmp_path / "broken.yaml", "a: b\na: c\n")
    mine = write(
        tmp_path / "mine.yaml", "extends: [base, broken]\ntime: {max: soon}\nmodules+: x\n"
    )
    with pytest.raises(MistakesError) as refused:
        load_profile("mine", [tmp_path])
    found = [(mistake.path, mistake.line) for mistake in refused.value.mistakes]
    assert found == [(base, 1), (base, 2), (broken, 2), (mine, 2), (mine, 3)]  # as one reads


def test_a_profile_can_be_named_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "profiles/a100.yaml", "extends: a100\nmodules+: [once]\n")
    monkeypatch.chdir(tmp_path)
    loaded = load_profile("./profiles/../profiles/a100.yaml", [tmp_path / "profiles", SHIPPED])
    assert loaded.profile.name == "a100"
    assert loaded.profile.modules[-1:] == ("once",)
    assert loaded.profile.modules.count("once") == 1
    with pytest.raises(ProfileError, match="no such file"):
        find_profile(str(tmp_path / "none.yaml"), [])


def test_a_long_chain_is_refused(tmp_path: Path) -> None:
    for number in range(2000):
        write(tmp_path / f"f{number}.yaml", f"extends: f{number + 1}\n")
    with pytest.raises(
        ProfileError, match=r"f50\.yaml:1: 'extends' goes through more than 50 files"
    ):
        load_profile("f0", [tmp_path])


def test_many_that_extend_one_twice_are_read_once_each(tmp_path: Path) -> None:
    write(tmp_path / "f0.yaml", "partition: deep\n")
    for number in range(1, 40):
        write(tmp_path / f"f{number}.yaml", f"extends: [f{number - 1}, f{number - 1}]\n")
    assert load_profile("f39", [tmp_path]).profile.partition == "deep"


def test_a_large_file_of_nonsense_is_refused_in_a_moment(tmp_path: Path) -> None:
    write(tmp_path / "mine.yaml", "".join(f"key{number}: []\n" for number in range(15000)))
    begun = time.process_time()
    with pytest.raises(ProfileError) as refused:
        load_profile("mine", [tmp_path])
    assert time.process_time() - begun < 30
    assert len(refused.value.message.splitlines()) < 40


def test_a_device_is_no_profile(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").symlink_to("/dev/zero")
    with pytest.raises(ProfileError, match="not an ordinary file"):
        load_profile("mine", [tmp_path])


SHIPPED_FILES = ("a100.yaml", "base/slurm.yaml", "gpu/a100.yaml")
LINES = "".join((SHIPPED / name).read_text() for name in SHIPPED_FILES).splitlines(keepends=True)
PIECES = [
    "\t",
    ":",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "!!python/object:os.system ",
    "&a ",
    "*a",
    "<<: ",
    "null",
    '"',
    "'",
    "|",
]
# what stands in the way of a line: a piece of YAML, any character, or the line once more
CHANGE = st.sampled_from(["insert", "cut", "repeat", "remove", "swap"])
MUTATION = st.tuples(
    CHANGE, st.integers(0, 10**6), st.integers(0, 200), st.sampled_from(PIECES) | st.characters()
)


def mutated(lines: list[str], mutations: list[tuple[str, int, int, str]]) -> str:
    lines = [line for line in lines if not line.startswith("#")]
    for change, place, column, piece in mutations:
        number = place % len(lines)
        line, at = lines[number], column % (len(lines[number]) + 1)
        lines[number] = {
            "insert": line[:at] + piece + line[at:],
            "cut": line[:at] + line[at + 1 :],
            "repeat": line + line,
            "remove": "",
            "swap": lines[(place * 7) % len(lines)],
        }[change]
    return "".join(lines)


@settings(max_examples=500)
@given(mutations=st.lists(MUTATION, min_size=1, max_size=4))
def test_a_mutated_profile_loads_or_fails_with_file_line_and_key(
    mutations: list[tuple[str, int, int, str]],
) -> None:
    text, path = mutated(LINES[:24], mutations), Path("mutated.yaml")
    try:
        load_text(text, path, [SHIPPED])
    except MistakesError as error:
        assert error.mistakes
        assert {mistake.path for mistake in error.mistakes} == {path}
        for mistake in error.mistakes:
            assert 1 <= (mistake.line or 0) <= len(text.split("\n")) + 1
            assert mistake.text
            # one of the merged values names its key; one of YAML itself has none. To YAML a line
            # ends at \x85 too, and a key that is folded there is spelt with a space
            assert not mistake.key or mistake.key[-1][:5] in text.replace("\x85", " ")


def test_a_card_is_named_by_its_part(tmp_path: Path) -> None:
    types = "{h: {per_node: 8, card: gpu/h100}, a: {per_node: 4}}"
    write(tmp_path / "mine.yaml", f"gpu: {{types: {types}}}\ncard: gpu/a100\n")
    loaded = load_profile("mine", [tmp_path, SHIPPED])
    assert loaded.profile.card.model == "NVIDIA A100 80 GB SXM4"
    assert loaded.profile.gpu.types["h"].card.memory_gb == 80
    origin = loaded.origins["gpu", "types", "h", "card", "memory_gb"]
    assert origin.path == SHIPPED / "gpu/h100.yaml"
    write(
        tmp_path / "yours.yaml",
        "extends: mine\ngpu: {types: {h: {card: {memory_gb: 94}}}}\ncard: null\n",
    )
    yours = load_profile("yours", [tmp_path, SHIPPED]).profile
    assert yours.gpu.types["h"].card.memory_gb == 94
    assert yours.gpu.types["h"].card.nvlink_gb_s == 900
    assert yours.card.model is None
