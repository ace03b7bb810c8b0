"""The JSON Schema: what may stand in a file, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcrun.job.profile_model import Profile
from hpcrun.profiles.config import KEYS, check_config
from hpcrun.profiles.file_schemas import config_schema, profile_schema
from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.limits import LIMITS
from hpcrun.profiles.load import load_profile, profile_names
from hpcrun.profiles.site_locks import LOCKABLE
from hpcrun.profiles.validate import known_keys, value_kinds
from hpcrun.profiles.yaml_file import parse_yaml
from tests.unit.builders import read_yaml

SHIPPED = shipped_folder("cluster_profiles")
PARTS = [path for path in sorted(SHIPPED.rglob("*.yaml")) if path.parent.name != "variables"]


def allows(schema: dict[str, Any], value: Any, defs: dict[str, Any]) -> bool:
    """Whether a value, read as our parser does, may stand there; as much of JSON Schema as the
    schema uses.
    """
    if "$ref" in schema:
        return allows(defs[schema["$ref"].rpartition("/")[2]], value, defs)
    if "anyOf" in schema:
        return any(allows(option, value, defs) for option in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    if "properties" in schema or schema.get("type") == "object":
        if not isinstance(value, dict):
            return False
        rest = schema.get("additionalProperties", True)
        known = schema.get("properties", {})
        return all(
            allows(known[name], item, defs)
            if name in known
            else rest is True or (rest and allows(rest, item, defs))
            for name, item in value.items()
        )
    if schema.get("type") == "array":
        return isinstance(value, list) and all(
            allows(schema.get("items", {}), item, defs) for item in value
        )
    kinds = {type(None): "null", bool: "boolean", str: "string", list: "array", dict: "object"}
    said = schema.get("type", kinds[type(value)])
    return kinds[type(value)] in ([said] if isinstance(said, str) else said)


@pytest.mark.parametrize("path", PARTS, ids=lambda path: path.stem)
def test_the_shipped_files_fit_it_and_lead_an_editor_to_it(path: Path) -> None:
    schema = profile_schema()
    assert allows(schema, read_yaml(path).data, schema["$defs"])
    said, _, place = path.read_text().splitlines()[0].partition("=")
    assert said == "# yaml-language-server: $schema"
    assert (path.parent / place).resolve() == (SHIPPED / "schema.json").resolve()


def test_it_knows_right_from_wrong() -> None:
    schema = profile_schema()
    right: list[dict[str, Any]] = [
        {"extends": ["a", "b"], "modules+": ["c"]},
        {"partition": None, "gpu": None, "env": {"A": None}},
        {"sbatch": {"exclusive": True}},
    ]
    wrong: list[dict[str, Any]] = [
        {"partitoin": "x"},
        {"gpu": {"typ": "x"}},
        {"name": "x"},
        {"modules": "x"},
        {"gpu": {"directive": "tres"}},
    ]
    for data in right + wrong:
        assert allows(schema, data, schema["$defs"]) is (data in right), data


def test_the_shipped_copy_is_no_profile() -> None:
    assert not {"schema", "variables"} & set(profile_names([SHIPPED]))


def described(schema: dict[str, Any]) -> dict[str, str]:
    """Key, behind the name of its section → its description."""
    sections = {"": schema, **schema["$defs"]}
    return {
        f"{name}.{key}": value.get("description", "")
        for name, section in sections.items()
        for key, value in section["properties"].items()
    }


@pytest.mark.parametrize("schema", [profile_schema(), config_schema()], ids=["profile", "config"])
def test_every_key_has_a_description(schema: dict[str, Any]) -> None:
    descriptions = described(schema)
    assert len(descriptions) > 10
    assert [key for key, text in descriptions.items() if not text.endswith(".")] == []


def test_the_description_of_a_key_is_the_docstring_of_its_attribute() -> None:
    key = profile_schema()["$defs"]["RequeueSection"]["properties"]["times"]
    assert key["description"].startswith("Further attempts after a time limit")


def defaults_in(section: dict[str, Any], sections: dict[str, Any]) -> dict[str, Any]:
    """The defaults that the schema of a section shows, with those of the sections inside."""
    values: dict[str, Any] = {}
    for name, key in section["properties"].items():
        if "default" in key:
            values[name] = key["default"]
        for form in key.get("anyOf", ()):
            inner = sections.get(form.get("$ref", "").rpartition("/")[2])
            defaults = defaults_in(inner, sections) if inner else {}
            if defaults:
                values[name] = defaults
    return values


def test_a_default_in_the_schema_is_what_the_key_is_without_it(tmp_path: Path) -> None:
    schema = profile_schema()
    defaults = defaults_in(schema, schema["$defs"])
    assert defaults["requeue"]["warn"] == "120s"
    path = tmp_path / "all.yaml"
    path.write_text(json.dumps(defaults))
    assert load_profile(str(path), []).profile == Profile(name="all")


def test_the_schema_of_a_configuration_has_the_keys_that_hpcrun_reads() -> None:
    schema = config_schema()
    assert set(schema["properties"]) == set(KEYS)
    assert set(schema["$defs"]["LimitsSection"]["properties"]) == set(LIMITS)
    assert set(schema["$defs"]["LockedSection"]["properties"]) == set(LOCKABLE)


def test_the_schema_of_a_configuration_knows_right_from_wrong(tmp_path: Path) -> None:
    text = (
        "profile: mine\nnotify: [mailto:ada@example.org]\nlimits: {gpus_per_job: 8}\n"
        "metrics: {loss: 'loss (.*)'}\nwandb_sync: true\nnotify_on: [failed]\ntime: 4h\n"
    )
    check_config(text, tmp_path / "config.yaml")
    schema = config_schema()
    assert allows(schema, parse_yaml(text, tmp_path / "config.yaml").data, schema["$defs"])
    for wrong in ({"profil": "mine"}, {"notify": "x"}, {"limits": {"gpus": "8"}}):
        assert not allows(schema, wrong, schema["$defs"])


@pytest.mark.parametrize(
    ("key", "kinds"),
    [
        ("extends", {"list"}),
        ("modules", {"list"}),
        ("secrets", {"list"}),
        ("gpu", {"mapping"}),
        ("env", {"mapping"}),
        ("gpu.types", {"mapping"}),
        ("gpu.types.h100", {"mapping"}),
        ("gpu.types.h100.card", {"mapping"}),
        ("sample_use", {"bool"}),
        ("requeue.expedite", {"bool"}),
        ("sbatch.exclusive", {"bool"}),
        ("srun.overlap", {"bool"}),
        ("env.A", set()),
        ("partition", set()),
        ("gpu.types.h100.per_node", set()),
        ("time.max", set()),
        ("nothing", set()),
        ("gpu.nothing", set()),
        ("name", set()),
    ],
)
def test_a_key_has_the_kinds_of_its_values(key: str, kinds: set[str]) -> None:
    assert value_kinds(tuple(key.split("."))) == kinds


def test_a_section_has_its_keys_and_env_any() -> None:
    assert {"extends", "gpu", "partition"} <= set(known_keys())
    assert "name" not in known_keys()
    assert set(known_keys(("gpu", "types", "h100", "time"))) == {"default", "max"}
    assert known_keys(("env",)) == []
    assert known_keys(("gpu", "types")) == []
    assert known_keys(("nothing",)) == []
