"""hpcrun profile env, the program itself."""

from __future__ import annotations

import pytest

from tests.harness import Hpcrun


def test_without_a_name_all_variables_stand_by_kind(hpcrun: Hpcrun) -> None:
    lines = hpcrun("profile", "env", check=True).stdout.splitlines()
    headings = [
        line.partition(" ")[0].rstrip(":")
        for line in lines
        if line and not line.startswith(("NCCL_", " "))
    ]
    assert [word for word in headings if word.isalpha()][:4] == [
        "Site",
        "Debugging",
        "torch",
        "CUDA",
    ]
    assert [line for line in lines if line.startswith("NCCL_TIMEOUT ")]
    assert max(map(len, lines)) < 200


def test_a_variable_is_explained_whole(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    text = hpcrun("profile", "env", "nccl_p2p_level", check=True).stdout
    for word in ("default", "warning", "harmful", "instead", "source", "NCCL-src"):
        with subtests.test(word=word):
            assert word in text
    for name, kind, key in (
        ("NCCL_TIMEOUT", "variables", "variables"),
        ("a100", "profile-variables", "set_by_script"),
    ):
        document = hpcrun.document("profile", "env", name, check=True)
        assert document["kind"] == kind
        assert bool(document[key])
    for name, says in (
        ("NCCL_DEBUK", "NCCL_DEBUG"),
        ("a10", "a100"),
        ("zzz", "lists the variables"),
    ):
        with subtests.test(name=name):
            done = hpcrun("profile", "env", name)
            assert (done.returncode, says in done.stderr, "Traceback" in done.stderr) == (
                6,
                True,
                False,
            )


def test_a_profile_says_what_it_sets_where_and_why(hpcrun: Hpcrun) -> None:
    hpcrun.write(
        "home/.config/hpcrun/profiles/mine.yaml",
        "extends: l40s\nenv:\n  NCCL_P2P_LEVEL: NVL\nsecrets: [HF_TOKEN]\n",
    )
    text = hpcrun("profile", "env", "mine", check=True).stdout
    assert "NCCL_DEBUG=WARN\n    from " in text
    assert "base/slurm.yaml:" in text
    assert "NCCL_P2P_LEVEL=NVL\n    from user: mine.yaml:3\n" in text
    assert "warning: harmful on this GPU" in text
    assert "OMP_NUM_THREADS" in text
    assert "HF_TOKEN=***\n    from user: mine.yaml:4\n" in text
