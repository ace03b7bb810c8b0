"""The profile as a model: what a person may write."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest
from pydantic import ValidationError

from hpcrun.job.profile_model import Profile
from tests.unit.builders import slurm_profile


@pytest.mark.parametrize(
    ("profile", "key", "value"),
    [
        *(
            ({"time": {"default": text}}, "time.default", seconds)
            for text, seconds in (
                ("1:00:00", 3600),
                ("90", 5400),
                ("36h", 129600),
                ("1-00:00:00", 86400),
            )
        ),
        *(
            ({"memory": {"per_node": text}}, "memory.per_node", megabytes)
            for text, megabytes in (("64G", 65536), (500, 500), ("1.5T", 1572864), (0, 0))
        ),
        ({"gpu": {"per_node": "4"}}, "gpu.per_node", 4),
        ({"cpu": {"per_gpu": "16"}}, "cpu.per_gpu", 16),
        ({"sbatch": {"exclusive": True}}, "sbatch", {"exclusive": True}),
    ],
)
def test_a_value_may_be_written_in_any_form(
    profile: dict[str, Any], key: str, value: object
) -> None:
    assert attrgetter(key)(slurm_profile(**profile)) == value


@pytest.mark.parametrize(
    "said",
    [
        {"partition": True},
        {"partition": ""},
        {"env": {"A B": "x"}},
        {"gpu": {"per_node": -1}},
        {"gpu": {"per_node": True}},
        {"cpu": {"per_node": 0}},
        {"memory": {"per_node": True}},
        {"time": {"max": True}},
        {"time": {"max": "1h", "default": "61m"}},
        {"time": {"max": "0"}},
        {"launcher": "mpirun"},
        {"modules": "cuda"},
        {"gpus": {}},
        {"card": {"memory_gb": 0}},
        {"card": {"memory_gb": "inf"}},
        {"card": {"nvlink_gb_s": -1}},
        {"card": {"compute_capability": "8"}},
        {"card": {"tflops": {"fp64": 1}}},
        {"fabric": {"kind": "omnipath"}},
        {"fabric": {"bandwidth_gbit_s": True}},
        {"fabric": {"hcas": "mlx5_0"}},
        {"fabric": {"hcas": ["=mlx5_0"]}},
        {"gpu": {"types": {"h 100": {}}}},
        {"gpu": {"types": {"h100": {"per_node": 0}}}},
        {"gpu": {"types": ["h100"]}},
    ],
)
def test_what_means_nothing_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Profile(name="x", **said)


def test_a_rate_is_shown_as_it_was_written() -> None:
    card = slurm_profile(
        card={"memory_gb": "80", "tflops": {"fp32": "19.5"}, "nvlink_gb_s": "0"}
    ).card
    shown = card.model_dump(exclude_unset=True)
    assert str(shown) == "{'memory_gb': 80, 'tflops': {'fp32': 19.5}, 'nvlink_gb_s': 0}"


@pytest.mark.parametrize("key", ["partition", "gpu.per_node", "time.max_s"])
def test_a_profile_that_was_read_is_not_changed(key: str) -> None:
    section, _, name = key.rpartition(".")
    profile = slurm_profile()
    part = attrgetter(section)(profile) if section else profile
    with pytest.raises(ValidationError):
        setattr(part, name, "other")
