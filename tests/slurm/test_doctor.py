"""hpcrun doctor on a real Slurm, as its ordinary user: what is wrong is named, with the command
that helps.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from tests.harness import Cluster, Hpcrun

pytestmark = pytest.mark.slurm


@pytest.fixture
def cuda_env(as_researcher: Hpcrun) -> dict[str, str | None]:
    """An environment whose torch says that it is built with CUDA, since the tests' own is not."""
    venv = as_researcher.folder / "cuda"
    as_researcher.run("/usr/bin/python3", "-m", "venv", "--without-pip", str(venv))
    (site,) = venv.glob("lib/python*/site-packages")
    flags = "class _C:\n    _cuda_getArchFlags = staticmethod(lambda: 'sm_80 sm_90')\n"
    as_researcher.write(f"{site}/torch/__init__.py", flags)
    as_researcher.write(f"{site}/torch/version.py", "__version__ = '2.9.1'\ncuda = '12.8'\n")
    return {"VIRTUAL_ENV": str(venv)}


def checks_of(
    person: Hpcrun, *args: str, env: dict[str, str | None] | None = None
) -> list[dict[str, Any]]:
    done = person("doctor", "--json", *args, env=env)
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"]) in [(0, True), (4, False)]
    return list(document["checks"])


def red(checks: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in checks if check["level"] == "red"}


def test_right_profiles_are_green_or_yellow(
    cluster: Cluster,
    as_researcher: Hpcrun,
    cuda_env: dict[str, str | None],
    subtests: pytest.Subtests,
) -> None:
    before = cluster.jobs()
    done = as_researcher("doctor", "-P", "a100", env=cuda_env)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for line in (
        "  ok       nodes          4 a100, 64 CPUs, 480G, 01:00:00: fits its 2 nodes\n",
        "  ok       sbatch         --test-only accepts --gres=gpu:a100:4\n",
        "  ok       torch          2.9.1, built with CUDA 12.8\n",
        "(compute capability 8.0): sm_80 sm_90\n",
    ):
        with subtests.test(line=line):
            assert line in done.stdout
    assert cluster.jobs() <= before  # nothing is submitted, and nothing left
    assert list(as_researcher.runs.iterdir()) == []
    as_researcher("profile", "detect", "--write", "dev", check=True)
    checks = checks_of(as_researcher, "-P", "dev", env=cuda_env)
    assert red(checks) == {}
    assert {f"{type_} nodes" for type_ in ("a100", "a40", "h100", "h200", "l40s", "v100")} <= {
        check["name"] for check in checks if check["level"] == "green"
    }
    (found,) = red(checks_of(as_researcher, "-P", "v100", env=cuda_env)).items()
    # a card that torch is not built for
    assert found[0] == "kernels"
    assert "sm_70" in found[1]["fix"]


def test_each_mistake_is_one_red_line_and_its_advice_puts_it_right(
    as_researcher: Hpcrun, cuda_env: dict[str, str | None]
) -> None:
    for text, name, seen, advice in (
        ("account: rich", "sbatch", "combination specified; available to you: lab", "account=lab"),
        (
            "gpu: {per_node: 8}",
            "GPUs",
            "8 on a node, but nodes of partition gpu have 4",
            "gpu.per_node=4",
        ),
    ):
        path = as_researcher.write("mine.yaml", f"extends: a100\n{text}\n")
        found = red(checks_of(as_researcher, "-P", str(path), env=cuda_env))
        assert list(found) == list(dict.fromkeys([name, "sbatch"]))
        assert found[name]["seen"].endswith(seen)
        assert found[name]["fix"] == f"hpcrun profile set {path} {advice}"
        as_researcher(*shlex.split(found[name]["fix"])[1:], check=True)
        assert red(checks_of(as_researcher, "-P", str(path), env=cuda_env)) == {}


@pytest.mark.versions
def test_without_accounting(
    cluster: Cluster, as_researcher: Hpcrun, cuda_env: dict[str, str | None]
) -> None:
    env = {**cuda_env, **cluster.env_without_accounting(as_researcher.folder)}
    checks = checks_of(as_researcher, "-P", "a100", env=env)
    assert red(checks) == {}
    (accounting,) = (check for check in checks if check["name"] == "accounting")
    assert accounting["level"] == "yellow"
    assert "records in its run folder" in accounting["fix"]
    done = as_researcher("profile", "detect", env=env)
    assert done.returncode == 0, done.stderr
    assert "# No response: sacct: " in done.stdout
    assert "# account:" in done.stdout
