"""The file of a sweep: YAML and CSV, every value as it was typed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hpcrun.errors import UsageError
from hpcrun.profiles.sweep_file import load_sweep_file
from tests.unit import builders


@pytest.mark.parametrize(
    ("name", "text", "elements"),
    [
        (
            "a.yaml",
            "product:\n  lr: [1e-3, 1e-4]\n  m: [a]\n",
            [{"lr": "1e-3", "m": "a"}, {"lr": "1e-4", "m": "a"}],
        ),
        (
            "a.yml",
            "zip: {a: [007, true], b: [null, 1.10]}",
            [{"a": "007", "b": "null"}, {"a": "true", "b": "1.10"}],
        ),
        (
            "a.yaml",
            "zip: {a: [1, 2]}\nproduct: {b: x}",
            [{"a": "1", "b": "x"}, {"a": "2", "b": "x"}],
        ),
        ("a.yaml", "- {lr: 1, x: 'a,b'}\n- {lr: ''}\n", [{"lr": "1", "x": "a,b"}, {"lr": ""}]),
        (
            "a.csv",
            'lr,text\n1e-3,"a,b"\n\n1e-4,\n',
            [{"lr": "1e-3", "text": "a,b"}, {"lr": "1e-4", "text": ""}],
        ),
        ("a.csv", '\ufefflr\r\n"two\nlines"\r\n', [{"lr": "two\nlines"}]),
        ("a.tsv", "lr\tm\n1\ta b\n", [{"lr": "1", "m": "a b"}]),
    ],
)
def test_elements_are_read_as_they_are_written(
    tmp_path: Path, name: str, text: str, elements: list[dict[str, str]]
) -> None:
    assert [dict(row) for row in load_sweep_file(builders.write(tmp_path / name, text))] == elements


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "", "neither a list"),
        ("a.yaml", "[]", "no elements"),
        ("a.yaml", "prodct: {a: [1]}", "did you mean 'product'"),
        ("a.yaml", "product: {a: }", "'a' has no values"),
        ("a.yaml", "product: [1]", "names parameters"),
        ("a.yaml", "product: {a: [[1, 2]]}", "is a list"),
        ("a.yaml", "product: {a: [1]}\nzip: {a: [2]}", "given twice"),
        ("a.yaml", "zip: {a: [1, 2], b: [1]}", "a has 2, b has 1"),
        ("a.yaml", "product: {a: [1], a: [2]}", "line"),
        ("a.yaml", "a: [1", "line"),
        ("a.yaml", "- 1", "element 0 is not a mapping"),
        ("a.csv", "a,a\n1,2\n", "twice in the header"),
        ("a.csv", "a,b\n1\n", "line 2 has 1 values, the header 2"),
        ("a.csv", "a\n", "no elements"),
        ("a.csv", 'a\n"x\n', "line"),
        ("a.csv", "a b\n1\n", "cannot be a parameter's name"),
    ],
)
def test_what_cannot_be_names_the_file(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = builders.write(tmp_path / name, text)
    with pytest.raises(UsageError, match=said) as error:
        load_sweep_file(path)
    assert str(path) in error.value.message


def test_a_hostile_file_is_refused_soon(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name, text, said in (
        ("deep.yaml", "a: " + "[" * 9000, "nested too deeply"),
        ("dashes.yaml", "- " * 9000, "nested too deeply"),
        ("long.csv", "a\n" + "1\n" * 4_000_000, "10001 elements"),
        ("wide.csv", ",".join(f"z{number}" for number in range(20_000)), "it has no elements"),
    ):
        with subtests.test(name=name):
            path = builders.write(tmp_path / name, text)
            begun_s = time.process_time()
            with pytest.raises(UsageError, match=said):
                load_sweep_file(path)
            assert time.process_time() - begun_s < 3


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_sweep_file(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="is not a regular file"):
        load_sweep_file(tmp_path)
    (tmp_path / "raw.csv").write_bytes(b"a\n\xff\n")
    with pytest.raises(UsageError, match="no UTF-8 text"):
        load_sweep_file(tmp_path / "raw.csv")


def test_a_file_has_at_most_ten_megabytes(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("wb") as file:
        file.truncate(10_000_001)
    with pytest.raises(UsageError, match="is larger than 10 MB"):
        load_sweep_file(tmp_path / "a.csv")
