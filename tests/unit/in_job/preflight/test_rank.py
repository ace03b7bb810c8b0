"""What a rank of the preflight reports, on this machine's CPU."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hpcrun.in_job.preflight import rank
from hpcrun.in_job.preflight.node import free_port
from hpcrun.in_job.preflight.rank import choose_device, is_right, multiply, say, sum_up


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


# --- GPUs, as torch describes them ---------------------------------------------------------------


def fake_torch(gpus: int, *, cuda: str | None = "12.8") -> Any:
    """A torch that sees some GPUs."""
    return SimpleNamespace(
        __version__="2.9.0",
        version=SimpleNamespace(cuda=cuda, hip=None),
        device=lambda kind, number=0: SimpleNamespace(type=kind, number=number),
        cuda=SimpleNamespace(
            is_available=lambda: gpus > 0,
            device_count=lambda: gpus,
            set_device=lambda device: None,
            mem_get_info=lambda device: (60 * 10**9, (80 + device.number) * 10**9),
            get_device_name=lambda device: "H200",
        ),
    )


def test_a_rank_uses_the_gpu_of_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    device = choose_device(fake_torch(4), 3, 4)
    assert (device.type, device.number) == ("cuda", 3)
    assert json.loads(capsys.readouterr().out) == {
        "device": "cuda",
        "torch": "2.9.0",
        "gpu": "H200",
        "free_gb": 60,
        "total_gb": 83,
    }


@pytest.mark.parametrize(
    ("torch", "gpus", "why", "expected"),
    [
        pytest.param(fake_torch(3), 4, "torch sees 3 of 4 GPUs", True, id="fewer"),
        pytest.param(fake_torch(0), 4, "torch sees 0 of 4 GPUs", True, id="none"),
        pytest.param(fake_torch(0, cuda=None), 4, "torch 2.9.0 has no CUDA", False, id="no CUDA"),
        pytest.param(fake_torch(4), 0, "torch sees 4 of 0 GPUs", False, id="not asked"),
    ],
)
def test_a_rank_says_why_it_has_no_gpu(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    torch: Any,
    gpus: int,
    why: str,
    expected: bool,
) -> None:
    monkeypatch.setattr(os.path, "exists", lambda _: False)  # no driver on this machine
    assert choose_device(torch, 3, gpus).type == "cpu"
    facts = json.loads(capsys.readouterr().out)
    assert (facts["no_gpu"], facts["asked"], facts["expected"]) == (why, gpus, expected)


@pytest.mark.needs_package("torch")
def test_one_rank_sums_up_alone(torch: ModuleType) -> None:
    store = f"127.0.0.1:{free_port('127.0.0.1')}"
    device = torch.device("cpu")
    assert sum_up(torch, device, rank=0, ranks=1, store=store, wait_s=20) == 0


def test_an_error_of_a_rank_is_one_short_line(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('no\\nlibrary ' + 'x' * 400)\n")
    argv = [sys.executable, rank.__file__, "0", "1", "0", "1"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0] == {"doing": "import torch"}
    assert lines[1]["error"] == ("OSError: no library " + "x" * 400)[:300]
    assert len(lines) == 2
