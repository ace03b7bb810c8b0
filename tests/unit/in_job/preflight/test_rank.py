"""What a rank of the preflight reports, on this machine's CPU."""

from __future__ import annotations

import importlib
import json
from types import ModuleType

import pytest

from hpcrun.in_job.preflight.rank import choose_device, is_right, multiply, say


@pytest.fixture
def torch() -> ModuleType:
    return importlib.import_module("torch")


def test_results_are_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    say(right=True, device="cpu")
    say(right=False)
    assert capsys.readouterr().out == '{"right": true, "device": "cpu"}\n{"right": false}\n'


@pytest.mark.needs_package("torch")
def test_without_a_gpu_the_rank_uses_the_cpu(
    torch: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert choose_device(torch, 0, 0).type == "cpu"
    facts = json.loads(capsys.readouterr().out)
    assert facts["device"] == "cpu"
    assert facts["torch"] == str(torch.__version__)
    assert (facts["asked"], facts["expected"]) == (0, False)
    assert "gpu" not in facts


@pytest.mark.needs_package("torch")
def test_products_on_the_cpu_are_right(
    torch: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    device = torch.device("cpu")
    assert is_right(torch, device)
    multiply(torch, device)
    assert json.loads(capsys.readouterr().out) == {"right": True}
