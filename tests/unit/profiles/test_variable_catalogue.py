"""The catalogue of variables as it is shipped, and what happens to a broken one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcrun.errors import ProfileError
from hpcrun.profiles.folder import shipped_folder
from hpcrun.profiles.load import profile_names
from hpcrun.profiles.variable_catalogue import KINDS, PREFIXES, load_catalogue
from tests.unit.given import read_yaml, write

CATALOGUE = load_catalogue()
# The group of NCCL's guide that costs speed or hangs when left on.
NCCL_DEBUGGING = {
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_SHM_DISABLE",
    "NCCL_BUFFSIZE",
    "NCCL_IB_DISABLE",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_READ",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NVLS_ENABLE",
    "NCCL_IB_PCI_RELAXED_ORDERING",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_CHECK_MODE",
}


def test_reading_piece_by_piece_finds_what_the_whole_file_says() -> None:
    whole = read_yaml(CATALOGUE.path).data
    assert set(CATALOGUE) | {"others"} == set(whole)
    assert CATALOGUE.others == set(whole["others"])
    for name, variable in CATALOGUE.items():
        assert variable.meaning == whole[name]["meaning"]
        assert variable.kind == whole[name]["kind"]


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_a_variable_is_complete(name: str) -> None:
    variable = CATALOGUE[name]
    assert name.startswith((*PREFIXES, "MASTER_"))
    assert variable.source
    assert variable.renamed_to is not None or variable.kind != "renamed"
    assert variable.renamed_to is None or variable.kind in {"renamed", "deprecated"}
    assert (variable.kind == "deprecated") == (variable.since is not None)
    assert variable.renamed_to is None or variable.renamed_to in CATALOGUE
    if variable.kind in {"system", "torch", "process", "efa"}:
        assert variable.default
        assert variable.set_when or variable.hpcrun or variable.trap
    if variable.kind == "debugging":
        assert variable.set_when, "the symptom that it is for"
    if variable.kind in {"debugging", "deprecated", "unread"}:
        assert variable.instead
    for off in variable.off:
        assert variable.values.allow(off)
    for pattern in (variable.values.pattern, *(one.values for one in variable.harmful)):
        assert pattern is None or re.compile(pattern)


def test_every_kind_has_a_variable_and_no_name_stands_twice() -> None:
    assert {variable.kind for variable in CATALOGUE.values()} == set(KINDS)
    assert not CATALOGUE.others & set(CATALOGUE)


def test_what_nccl_keeps_for_debugging_is_for_debugging_here() -> None:
    assert {name for name, one in CATALOGUE.items() if one.kind == "debugging"} >= NCCL_DEBUGGING


def test_the_catalogue_is_no_profile() -> None:
    assert "variables" not in profile_names([shipped_folder("cluster_profiles")])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("NCCL_X:\n  kind: sometimes\n  meaning: x\n  source: y\n", "NCCL_X: there is no kind 'sometimes'"),
        ("NCCL_X:\n  kind: torch\n  source: y\n", "NCCL_X: "),
        ("NCCL_X:\n  kind: torch\n  means: x\n", "NCCL_X: unknown key 'means'"),
        ("NCCL_X:\n  kind: [torch\n", "variables.yaml"),
    ],
)
def test_a_broken_catalogue_says_where(text: str, says: str, tmp_path: Path) -> None:
    path = write(tmp_path / "variables.yaml", text)
    with pytest.raises(ProfileError, match=re.escape(says)):
        load_catalogue(path)["NCCL_X"]


def test_a_catalogue_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read"):
        load_catalogue(tmp_path / "none.yaml")
