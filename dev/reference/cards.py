"""The shipped cards, from their parts."""

from __future__ import annotations

from dev.reference import markdown
from hpcrun.job.profile_model import CardSection
from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.load import load_profile

_INTRODUCTION = """\
[GPUs](gpus.md) says more. Rates are dense TFLOPS, without 2:4 sparsity, which training does not
reach. NVLink rates are for both directions together."""
_RATES = ("fp32", "tf32", "bf16", "fp16", "fp8")


def page() -> str:
    """Return the page of the shipped cards."""
    folder = shipped_folder("cluster_profiles")
    lines = markdown.head("The shipped cards")
    lines += [_INTRODUCTION, ""]
    rows = []
    for path in sorted((folder / "gpu").glob("*.yaml")):
        card = load_profile(str(path), [folder]).profile.card
        rows.append([f"`gpu/{path.stem}`", *_cells(card)])
    headings = ["part", "card", "memory, GB", "GB/s", *_RATES, "NVLink, GB/s", "watts", "CUDA"]
    return "\n".join([*lines, *markdown.table(headings, rows)])


def _cells(card: CardSection) -> list[str]:
    values = [card.model, card.memory_gb, card.memory_bandwidth_gb_s]
    values += [getattr(card.tflops, rate) for rate in _RATES]
    values += [card.nvlink_gb_s, card.power_w, card.compute_capability]
    return ["" if value is None else str(value) for value in values]
