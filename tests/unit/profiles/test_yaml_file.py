"""Reading YAML: every value with its line, every mistake with file and line."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpcrun.errors import ProfileError
from hpcrun.profiles.load import load_profile
from hpcrun.profiles.yaml_file import parse_yaml
from tests.unit.builders import read_yaml, write

FILE = Path("/home/me/site.yaml")
TOKENS = [
    *"[]{},:-?&*!|>%@`#'\"",
    "\n",
    "\n  ",
    " ",
    "\t",
    "a",
    "b",
    "key",
    ": ",
    "- ",
    "? ",
    "&a ",
    "*a",
    "<<",
    "<<: *a",
    "!!int ",
    "!!float ",
    "!!set ",
    "!!omap ",
    "!!binary ",
    "!!str ",
    "!x ",
    "1",
    "1e3",
    "0x1f",
    "1:30",
    "12.10",
    "null",
    "~",
    "true",
    "2001-12-14",
    "2001-99-99",
    "%YAML 1.1\n",
    "---",
    "...",
    "\n---\n",
    "\\ud800",
    "é",
    "\0",
    "\x85",
    "\ufeff",
]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", {}),
        ("a: 1\nb: text\n", {"a": "1", "b": "text"}),
        ("a: {b: [1, two, 3.5]}", {"a": {"b": ["1", "two", "3.5"]}}),
        ("a: true\nb: yes\nc: 'no'\nd: null\n", {"a": True, "b": "yes", "c": "no", "d": None}),
        ("a: 1:00:00\n", {"a": "1:00:00"}),
        ("a: |\n  one\n  two\n", {"a": "one\ntwo\n"}),
        ("a: >\n  one\n  two\n\n  three\n", {"a": "one two\nthree\n"}),
        ("a: 2001-99-99\n5: x\n", {"a": "2001-99-99", "5": "x"}),
    ],
)
def test_a_mapping_is_read_as_plain_values(text: str, data: dict[str, object]) -> None:
    assert parse_yaml(text, FILE).data == data


def test_what_looks_like_a_number_or_a_date_is_read_as_it_was_written(tmp_path: Path) -> None:
    for written in "0042 12.10 1e3 1_000 0x1f 0o17 +5 1.0 2026-01-02 2001-12-14t21:59:43Z".split():
        write(tmp_path / "x.yaml", f"account: {written}\nenv: {{A: {written}}}\n")
        profile = load_profile("x", [tmp_path]).profile
        assert profile.account == written
        assert profile.env["A"] == written


def test_every_value_knows_its_line() -> None:
    file = parse_yaml(
        "# a remark\npartition: gpu\ngpu:\n  type: a100\n\n  per_node: 4\nmodules:\n  - x\n", FILE
    )
    lines = {".".join(key): origin.line for key, origin in file.origins.items()}
    assert lines == {
        "partition": 2,
        "gpu": 3,
        "gpu.type": 4,
        "gpu.per_node": 6,
        "modules": 7,
        "modules.0": 8,
    }
    assert str(file.origins["gpu", "type"]) == f"{FILE}:4"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "appears twice"),
        ("a:\n\tb: 1\n", 2, "\\t"),
        ("a: [1, 2\nb: 3\n", 2, ""),
        ("a: 'open\n", 2, ""),
        ("a: b: c\n", 1, ""),
        ("a: 1\nb: !!python/object:os.system x\n", 2, "tag"),
        ("a: 1\nb: !site x\n", 2, "tag"),
        ("a: 1\nb: !site {c: 1}\n", 2, "tag"),
        ("a: 1\nb: !!int x\n", 2, ""),
        ("a: 1\nb: !!set {x}\n", 2, "tag"),
        ("a: 1\nb: &x {c: 1}\nd: *x\n", 2, "anchors and aliases"),
        ("a: *nobody\n", 1, ""),
        ("<<: {b: 1}\nc: 2\n", 1, "merge keys"),
        ("a: 1\n---\nb: 2\n", 2, ""),
        ("a: 1\n[b]: x\n", 2, "a key must be text"),
        ("just words\n", 1, "keys and values were expected"),
        ("partition gpu\naccount: x\n", 1, "keys and values were expected"),
        ("%YAML 1.3\n---\na: 1\n", 1, "version"),
    ],
)
def test_a_mistake_is_refused_with_file_and_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ProfileError) as refused:
        parse_yaml(text, FILE)
    assert refused.value.message.startswith(f"{FILE}:{line}: ")
    assert words in refused.value.message
    assert "\n" not in refused.value.message
    assert refused.value.hint == "YAML indents with spaces, not with tabs" or "\t" not in text


def test_a_tab_in_another_line_is_not_the_mistake() -> None:
    with pytest.raises(ProfileError) as refused:
        parse_yaml("a: b: c\nd: '\t'\n", FILE)
    assert refused.value.hint is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: " + "[" * 9000, "nested too deeply"),
        ("a: " + "{b: " * 9000, "nested too deeply"),
        ("a: " + "[[[['[ ]]]] '," * 2000, "nested too deeply"),
        ("a:\n" + "- " * 9000, "nested too deeply"),
        ("".join(" " * depth + "a:\n" for depth in range(900)), "nested too deeply"),
        (
            "env:\n" + "".join(f"  V{number}: x\n" for number in range(40_000)),
            "more than 5000 values",
        ),
        ("a: [" + "x, " * 200_000 + "]", "more than 5000 values"),
    ],
    ids=["lists", "mappings", "decoys", "dashes", "blocks", "keys", "items"],
)
def test_a_hostile_file_is_refused_soon(text: str, words: str) -> None:
    begun_s = time.process_time()
    with pytest.raises(ProfileError, match=words):
        parse_yaml(text, FILE)
    assert time.process_time() - begun_s < 5  # of some 0.1 to 0.8


@given(st.text(max_size=60) | st.lists(st.sampled_from(TOKENS), max_size=25).map("".join))
@example("a: &a [*a]")
@example("a: &a {b: 1}\nc: {<<: *a}")
@example("a: !!float x")
@example("a: !!bool x")
@example("a: !!omap [b: 1]")
@example("a: " + "[" * 2000)
@example("? [a]\n: b")
@example("%YAML 1.1\n---\na: 1e3")
def test_any_text_is_read_or_refused_with_the_file_s_name(text: str) -> None:
    try:
        file = parse_yaml(text, FILE)
    except ProfileError as error:
        assert str(FILE) in error.message
    else:
        assert isinstance(file.data, dict)
        assert all((name,) in file.origins for name in file.data)


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.yaml: No such file"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(ProfileError, match="not an ordinary file"):
        read_yaml(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: caf\xe9\n")
    with pytest.raises(ProfileError, match=r"latin\.yaml: not UTF-8 text"):
        read_yaml(tmp_path / "latin.yaml")
    write(tmp_path / "huge.yaml", "#" * 1_000_001)
    with pytest.raises(ProfileError, match="larger than 1000 kB"):
        read_yaml(tmp_path / "huge.yaml")
