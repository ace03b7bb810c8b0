"""hpcrun profile env, the program itself."""

from __future__ import annotations

import pytest

from tests.harness import Hpcrun


def test_without_a_name_all_variables_stand_by_kind(hpcrun: Hpcrun) -> None:
    lines = hpcrun("profile", "env", check=True).stdout.splitlines()
    headings = [line.partition(" ")[0].rstrip(":") for line in lines if line and not line.startswith(("NCCL_", " "))]
    assert [word for word in headings if word.isalpha()][:4] == ["Site", "Debugging", "torch", "CUDA"]
    assert [line for line in lines if line.startswith("NCCL_TIMEOUT ")]
    assert max(map(len, lines)) < 200


def test_a_variable_is_explained_whole(hpcrun: Hpcrun) -> None:
    text = hpcrun("profile", "env", "NCCL_P2P_LEVEL", check=True).stdout
    for word in ("default", "warning", "harmful", "instead", "source", "NCCL-src"):
        assert word in text
    assert hpcrun("profile", "env", "nccl_p2p_level", check=True).stdout == text


def test_a_profile_says_what_it_sets_where_and_why(hpcrun: Hpcrun) -> None:
    hpcrun.write(
        "home/.config/hpcrun/profiles/mine.yaml", "extends: l40s\nenv:\n  NCCL_P2P_LEVEL: NVL\nsecrets: [HF_TOKEN]\n"
    )
    text = hpcrun("profile", "env", "mine", check=True).stdout
    assert "NCCL_DEBUG=WARN\n    from " in text
    assert "base/slurm.yaml:" in text
    assert "NCCL_P2P_LEVEL=NVL\n    from user: mine.yaml:3\n" in text
    assert "warning: harmful on this GPU" in text
    assert "OMP_NUM_THREADS" in text
    assert "HF_TOKEN=***\n    from user: mine.yaml:4\n" in text


def test_json(hpcrun: Hpcrun) -> None:
    for name, kind, key in (("NCCL_TIMEOUT", "variables", "variables"), ("a100", "profile-variables", "set_by_script")):
        document = hpcrun.document("profile", "env", name, check=True)
        assert document["kind"] == kind
        assert document[key]


@pytest.mark.parametrize(
    ("name", "says"), [("NCCL_DEBUK", "NCCL_DEBUG"), ("a10", "a100"), ("zzz", "lists the variables")]
)
def test_a_name_that_is_nothing_is_refused_with_the_nearest(name: str, says: str, hpcrun: Hpcrun) -> None:
    done = hpcrun("profile", "env", name)
    assert done.returncode == 6
    assert says in done.stderr
    assert "Traceback" not in done.stderr
