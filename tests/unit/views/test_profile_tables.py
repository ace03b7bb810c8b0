"""Profiles as they are shown."""

from __future__ import annotations

from pathlib import Path

from hpcrun.actions.profiles.list_profiles import ProfileRow
from hpcrun.job.profile_model import Profile
from hpcrun.profiles.yaml_file import Origin, parse_yaml
from hpcrun.views.profile_tables import place_text, profile_values, profile_yaml, profiles_tables
from tests.unit.given import drawn

H100 = {"per_node": 8, "memory": {"per_gpu": "64G"}, "time": {"max": "12h"}}
MIXED = Profile(name="site", gpu={"types": {"h100": H100, "l40s": {"per_node": 4}}})


def test_values_of_gpu_types_are_shown_as_written_types_listed_and_places_by_layer() -> None:
    values = profile_values(MIXED.model_dump(exclude_defaults=True))
    h100 = values["gpu"]["types"]["h100"]
    assert h100 == {"per_node": 8, "memory": {"per_gpu": "64G"}, "time": {"max": "12:00:00"}}
    assert Profile(name="site", **values) == MIXED
    row = ProfileRow("site", Path("/x/site.yaml"), False, MIXED)
    table, _, folders = profiles_tables([row], {"mine": Path("/x")})
    _, *cells, source = (str(cell) for column in table.columns for cell in column.cells)
    assert (cells[:3], source, folders) == (
        ["site", "h100, l40s", "4, 8"],
        "mine",
        ["mine:     /x"],
    )
    layers = {"mine": Path("/x"), "shipped": Path("/opt/shipped")}
    assert (
        place_text(Origin(Path("/opt/shipped/base/slurm.yaml"), 8), layers)
        == "shipped: base/slurm.yaml:8"
    )
    assert place_text(Origin(Path("/elsewhere/my.yaml"), 3), layers) == "/elsewhere/my.yaml:3"


def test_yaml_shows_what_cannot_be_seen_and_reads_back_the_same() -> None:
    env = {"A": "é 👩\u200d💻", "B": "x\x85y\u200b", "C\u2066": "two\nlines"}
    values = {"description": "a\u202eb\x1b[2Jc\r", "env": env}
    text = profile_yaml(values)
    assert all(line.replace("\u200d", "").isprintable() for line in text.split("\n"))
    assert r"\u202e" in text and "é 👩\u200d💻" in text
    assert parse_yaml(text, Path("x.yaml")).data == values


def test_the_own_profiles_come_first_and_those_of_other_machines_last() -> None:
    shipped = Path("/s")
    rows = [
        ProfileRow("a100", shipped, False, MIXED, shipped=True),
        ProfileRow("b", shipped, False, MIXED, shipped=True, elsewhere=True),
        ProfileRow("detected", Path("/d"), True, MIXED),
        ProfileRow("mine", Path("/x"), False, MIXED),
    ]
    here, others, _ = profiles_tables(rows, {})
    assert list(map(str, here.columns[1].cells)) == ["detected", "mine", "a100"]
    assert others is not None
    assert list(map(str, others.columns[1].cells)) == ["b"]
    assert profiles_tables(rows[2:], {})[1] is None
    many = Profile(
        name="dev",
        gpu={"types": {f"h{number}00": H100 for number in range(9)}},
        partition="gpu-long",
    )
    shown = drawn(
        profiles_tables([ProfileRow("a100-40gb", shipped, False, many)], {"shipped": shipped})[0],
        80,
    )
    assert (shown[1].split()[-1], "…" in "".join(shown)) == ("shipped", False)
