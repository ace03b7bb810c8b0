"""Profiles as they are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from hpcrun.actions.profiles.detect import Detected
from hpcrun.actions.profiles.list_profiles import Difference, ProfileRow, Verdict
from hpcrun.actions.profiles.variables import ProfileVariables, SetVariable
from hpcrun.job.profile_model import Profile
from hpcrun.profiles.load import LoadedProfile
from hpcrun.profiles.variable_catalogue import Harmful, Values, Variable
from hpcrun.profiles.yaml_file import Mistake, Origin, parse_yaml
from hpcrun.views.profile_tables import (
    detected_json,
    diff_json,
    diff_table,
    layer_of,
    origins_json,
    origins_table,
    place_text,
    profile_values,
    profile_variables_json,
    profile_variables_lines,
    profile_yaml,
    profiles_json,
    profiles_tables,
    variable_lines,
    variables_json,
    variables_lines,
    verdicts_json,
)
from tests.unit.builders import drawn

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
    assert cells[:3] == ["site", "h100, l40s", "4, 8"]
    assert source == "mine"
    assert folders == ["mine:     /x"]
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
    assert r"\u202e" in text
    assert "é 👩\u200d💻" in text
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
    assert shown[1].split()[-1] == "shipped"
    assert "…" not in "".join(shown)


LAYERS = {"mine": Path("/x"), "shipped": Path("/s")}
VARIABLE = Variable(
    name="A_LONG_NAME",
    kind="system",
    meaning="what it does",
    source="the manual",
    default="1",
    set_when="on InfiniBand",
    trap="not on EFA",
    instead="B=1",
    hpcrun="0",
    renamed_to="NEW",
    since="2.1",
    values=Values(one_of=("0", "1")),
    harmful=(
        Harmful(values="1", why="slow", on=("a100", "h100")),
        Harmful(values="0", why="doubtful"),
    ),
)
RENAMED = Variable(name="B", kind="renamed", meaning="", source="source", renamed_to="C")


def _rows_of(table: Table) -> list[list[str]]:
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def test_a_list_of_profiles_shows_where_each_is_its_gpus_and_its_limit() -> None:
    h100 = {"type": "h100", "per_node": 8}
    big = Profile(name="big", gpu=h100, partition="gpu", time={"max": "12h"})
    cpus = Profile(name="cpus", gpu={"per_node": 0})
    typed = Profile(name="typed", gpu={"types": {"a": {"per_node": 8}, "b": {"per_node": 8}}})
    rows = [
        ProfileRow("big", Path("/x/big.yaml"), True, big),
        ProfileRow("cpus", Path("/x/cpus.yaml"), False, cpus),
        ProfileRow("here", Path("/s/here.yaml"), False, Profile(name="here", scheduler="local")),
        ProfileRow("typed", Path("/s/typed.yaml"), False, typed),
        ProfileRow("bad", Path("/else/bad.yaml"), False, None, "it is bad"),
    ]
    table, others, folders = profiles_tables(rows, LAYERS)
    assert _rows_of(table) == [
        ["", "NAME", "GPU", "GPUS/NODE", "PARTITION", "MAX TIME", "SOURCE"],
        ["*", "big", "h100", "8", "gpu", "12:00:00", "mine"],
        ["", "cpus", "-", "0", "-", "-", "mine"],
        ["", "here", "-", "-", "-", "-", "shipped"],
        ["", "typed", "a, b", "8", "-", "-", "shipped"],
        ["", "bad", "broken", "", "", "", "/else/bad.yaml"],
    ]
    folded = [str(column.header) for column in table.columns if not column.no_wrap]
    assert folded == ["GPU", "SOURCE"]
    assert others is None
    assert folders == ["mine:     /x", "shipped:  /s"]
    documents = profiles_json(rows)["profiles"]
    assert documents[0] == {
        "name": "big",
        "path": Path("/x/big.yaml"),
        "default": True,
        "problem": None,
        "profile": big.model_dump(),
    }
    assert documents[4]["problem"] == "it is bad"
    assert documents[4]["profile"] is None


def test_a_detected_profile_as_json_has_what_differs_from_the_defaults() -> None:
    profile = Profile(name="site", partition="gpu")
    assert detected_json(Detected("the text", profile, (), ("a warning",), Path("/d"))) == {
        "kind": "detected",
        "path": Path("/d"),
        "text": "the text",
        "warnings": ("a warning",),
        "profile": {"partition": "gpu"},
    }


def test_each_value_of_a_profile_has_its_file_and_line() -> None:
    data = {
        "partition": "gpu\x1b",
        "modules": ["cuda"],
        "setup": [],
        "env": {},
        "gpu": {"per_node": None},
        "requeue": True,
    }
    keys = [("partition",), ("modules", "0"), ("setup",), ("env",), ("gpu", "per_node")]
    origins = {key: Origin(Path("/x/p.yaml"), line) for line, key in enumerate(keys, 1)}
    origins["requeue",] = Origin(Path("/else/q.yaml"), 9)
    loaded = LoadedProfile(Profile(name="p"), Path("/x/p.yaml"), origins, data)
    table, folders = origins_table(loaded, LAYERS)
    assert _rows_of(table) == [
        ["KEY", "VALUE", "SOURCE"],
        ["partition", "gpu?", "mine: p.yaml:1"],
        ["modules.0", "cuda", "mine: p.yaml:2"],
        ["setup", "[]", "mine: p.yaml:3"],
        ["env", "{}", "mine: p.yaml:4"],
        ["gpu.per_node", "-", "mine: p.yaml:5"],
        ["requeue", "true", "/else/q.yaml:9"],
    ]
    assert [column.no_wrap for column in table.columns] == [True, False, False]
    assert folders == ["mine:     /x"]
    document = origins_json(loaded)
    assert list(document) == [row[0] for row in _rows_of(table)[1:]]
    assert document["modules.0"] == {"value": "cuda", "file": Path("/x/p.yaml"), "line": 2}
    assert layer_of(Path("/else/q.yaml"), LAYERS) is None
    assert origins_json(LoadedProfile(Profile(name="p"), Path("/x/p.yaml"), {}, {})) == {}


def test_two_profiles_side_by_side() -> None:
    differences = [
        Difference(("time", "max"), 3600, None),
        Difference(("memory", "per_gpu"), 65536, 0),
        Difference(("memory", "per_node"), "all", 1024),
        Difference(("gpu", "types", "h100", "time", "max"), 60, None),
        Difference(("modules",), ("a", None), ["b", 1]),
        Difference(("gpu", "per_node"), 8, {}),
    ]
    table = diff_table(differences, "a\x1b", "b")
    assert _rows_of(table) == [
        ["KEY", "a?", "b"],
        ["time.max", "01:00:00", "-"],
        ["memory.per_gpu", "64G", "0"],
        ["memory.per_node", "all", "1G"],
        ["gpu.types.h100.time.max", "00:01:00", "-"],
        ["modules", "[a, -]", "[b, 1]"],
        ["gpu.per_node", "8", "{}"],
    ]
    assert [column.no_wrap for column in table.columns] == [True, False, False]
    document = diff_json(differences, "a", "b")
    assert document["kind"] == "profile-diff"
    assert document["profiles"] == ["a", "b"]
    assert document["differences"][0] == {"key": "time.max", "values": ["01:00:00", None]}
    assert document["differences"][4]["values"] == [["a", None], ["b", 1]]


def test_mistakes_and_remarks_as_json() -> None:
    mistake = Mistake(Path("/x/p.yaml"), 3, "no such key", ("gpu", "typ"))
    remark = Mistake(Path("/x/p.yaml"), None, "odd")
    assert verdicts_json([Verdict("p", Path("/x/p.yaml"), (mistake,), None, (remark,))]) == {
        "kind": "profile-validation",
        "profiles": [
            {
                "name": "p",
                "path": Path("/x/p.yaml"),
                "mistakes": [
                    {
                        "file": Path("/x/p.yaml"),
                        "line": 3,
                        "key": "gpu.typ",
                        "message": "no such key",
                    }
                ],
                "remarks": [{"file": Path("/x/p.yaml"), "line": None, "key": "", "message": "odd"}],
            }
        ],
    }


def test_the_catalogue_is_listed_by_kind() -> None:
    assert variables_lines([RENAMED, VARIABLE], 80) == [
        "Site settings, safe to keep",
        "A_LONG_NAME  since 2.1, replaced by NEW; what it does",
        "",
        "Debugging only: slows down training; in no shipped profile",
        "",
        "torch",
        "",
        "CUDA and threads",
        "",
        "EFA (AWS)",
        "",
        "Renamed",
        "B            renamed to C",
        "",
        "Deprecated, still read",
        "",
        "Not read by any program",
        "",
        "hpcrun profile env NAME explains a variable or a profile",
    ]


@pytest.mark.parametrize(
    ("since", "renamed_to", "text"),
    [
        ("2.1", "NEW", "since 2.1, replaced by NEW"),
        ("2.1", None, "since 2.1"),
        (None, "NEW", "renamed to NEW"),
        (None, None, ""),
    ],
)
def test_what_replaces_a_variable(since: str | None, renamed_to: str | None, text: str) -> None:
    variable = Variable(
        name="A",
        kind="deprecated",
        meaning="",
        source="source",
        since=since,
        renamed_to=renamed_to,
    )
    lines = variable_lines(variable, 80)
    assert [line for line in lines if line.startswith("deprecated ")] == (
        [f"deprecated     {text}"] if text else []
    )


def test_one_variable_has_a_row_for_each_fact() -> None:
    assert variable_lines(VARIABLE, 80) == [
        "A_LONG_NAME: what it does",
        "kind           Site settings, safe to keep",
        "default        1",
        "values         0, 1",
        "set by hpcrun  0",
        "deprecated     since 2.1, replaced by NEW",
        "use            on InfiniBand",
        "warning        not on EFA",
        "harmful        on a100, h100: slow",
        "remark         doubtful",
        "instead        B=1",
        "source         the manual",
    ]
    assert variable_lines(RENAMED, 80) == [
        "B:",
        "kind           Renamed",
        "deprecated     renamed to C",
        "source         source",
    ]
    narrow = variable_lines(VARIABLE, 10)
    assert narrow[:3] == ["A_LONG_NAM", "E: what it", "does"]
    assert max(map(len, narrow)) <= len("set by hpcrun") + 30


def test_the_variables_of_a_profile_have_their_place_and_reason() -> None:
    origin = Origin(Path("/x/p.yaml"), 3)
    unused = Variable(name="C", kind="torch", meaning="it", source="source")
    variables = ProfileVariables(
        "big",
        (
            SetVariable("X", "1\x1b", origin, VARIABLE, "it is bad"),
            SetVariable("Y", "2", None, None),
            SetVariable("Z", "3", None, unused),
        ),
        (VARIABLE,),
    )
    assert profile_variables_lines(variables, LAYERS, 80) == [
        "Profile big sets",
        "",
        "X=1?",
        "    from mine: p.yaml:3",
        "    what it does. Use: on InfiniBand (the manual)",
        "    warning: it is bad",
        "",
        "Y=2",
        "",
        "Z=3",
        "    it (source)",
        "",
        "Every job script sets",
        "A_LONG_NAME  0: what it does",
    ]
    assert profile_variables_lines(ProfileVariables("big", (), ()), LAYERS, 80) == [
        "Profile big sets no variable",
        "",
        "Every job script sets",
    ]
    document = profile_variables_json(variables)
    assert document["set"][0] == {
        "name": "X",
        "value": "1\x1b",
        "origin": origin,
        "problem": "it is bad",
        "variable": VARIABLE.model_dump(),
    }
    assert document["set"][1]["variable"] is None
    assert document["kind"] == "profile-variables"
    assert document["profile"] == "big"
    every: dict[str, Any] = variables_json([VARIABLE])
    assert every == {"kind": "variables", "variables": document["set_by_script"]}
    assert json.loads(json.dumps(every["variables"]))[0]["values"]["one_of"] == ["0", "1"]
