"""Profiles as they are shown."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from hpcrun.actions.profiles import ProfileRow
from hpcrun.job.profile import Profile
from hpcrun.views.profiles import profile_values, profiles_table

MIXED = Profile(
    name="site",
    gpu={
        "types": {
            "h100": {"per_node": 8, "memory": {"per_gpu": "64G"}, "time": {"max": "12h"}},
            "l40s": {"per_node": 4},
        }
    },
)


def test_the_values_of_a_gpu_type_are_shown_as_they_are_written() -> None:
    values = profile_values(MIXED.model_dump(exclude_defaults=True))
    h100 = values["gpu"]["types"]["h100"]
    assert h100 == {"per_node": 8, "memory": {"per_gpu": "64G"}, "time": {"max": "12:00:00"}}
    assert Profile(name="site", **values) == MIXED


def test_the_list_names_every_gpu_type() -> None:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(profiles_table([ProfileRow("site", Path("/x/site.yaml"), False, MIXED)]))
    row = capture.get().splitlines()[-1]
    assert "h100, l40s" in row
    assert "4, 8" in row
