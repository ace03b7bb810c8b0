"""The pages that are made from the program: nothing is missing, and nothing is shown otherwise."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from dev.reference import commands, keys, python_api
from dev.reference.__main__ import MAN, outdated
from hpcrun.api.own_parameters import SubmititParameters
from hpcrun.api.submitit_names import NAMES
from hpcrun.cli.commands import COMMANDS
from hpcrun.cli.help_page import HelpRow
from hpcrun.cli.main import build_app
from hpcrun.features.skill.schema import commands_with_documents, documents_of
from hpcrun.job.profile_model import Profile
from tests.documents import schema_file


def options_of(name: str) -> list[str]:
    """The options of a command that its help shows, as typer has them."""
    command: Any = get_command(build_app([name]))
    for word in name.split():
        command = command.commands[word]
    forms = []
    for param in command.params:
        if param.param_type_name == "option" and not param.hidden:
            forms += param.opts
    return forms


def test_every_command_and_group_has_a_page_with_all_its_options(subtests: pytest.Subtests) -> None:
    page = commands.page()
    for name in COMMANDS:
        with subtests.test(name=name):
            section = page.partition(f"\n## hpcrun {name}\n")[2].partition("\n## ")[0]
            man = (MAN / f"hpcrun-{name.replace(' ', '-')}.1").read_text("utf-8")
            for option in options_of(name):
                assert re.search(rf"(`|>|, ){option}\b", section), option
                assert option.replace("-", "\\-") in man
    words = {name.split()[0] for name in COMMANDS}
    assert {f"hpcrun-{word}.1" for word in words} <= {path.name for path in MAN.glob("*.1")}
    assert all(f"\n## hpcrun {word}\n" in page for word in words)


def test_a_command_leads_to_the_schema_of_its_documents() -> None:
    page = commands.page()
    for command in commands_with_documents():
        kinds = {shape.get("kind"): None for shape in documents_of(command, COMMANDS[command])}
        names = "".join(f", `{kind}`" for kind in kinds if kind)
        section = page.partition(f"\n## hpcrun {command}\n")[2].partition("\n## ")[0]
        assert f"[schema](schemas/{schema_file(command)}){names}\n" in section


def as_shown(path: Path) -> subprocess.CompletedProcess[str]:
    """What man prints of a page, and its warnings."""
    env = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "90", "MAN_KEEP_FORMATTING": ""}
    argv = ["man", "--warnings", "-l", str(path)]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True)


@pytest.mark.needs("man")
@pytest.mark.parametrize("path", sorted(MAN.glob("*.1")), ids=lambda path: path.stem)
def test_man_shows_a_page_without_a_warning(path: Path) -> None:
    done = as_shown(path)
    assert done.stderr == ""
    assert re.search(rf"^NAME\n +{path.stem} ", done.stdout, re.MULTILINE)


@pytest.mark.needs("man")
def test_man_shows_a_text_as_it_is(tmp_path: Path) -> None:
    texts = [".so /etc/passwd", "'quoted' at the start", r"back\\slash \\n", "a-b ~x ^y `z"]
    rows = [HelpRow(f"--o{number}", " N", text) for number, text in enumerate(texts)]
    command = commands.CommandHelp(
        "hpcrun x", "hpcrun x [OPTIONS]", ["Show."], {"Options": rows}, [('.line "it"', "Do it")]
    )
    path = tmp_path / command.man_name
    path.write_text(commands.man_page(command), "utf-8")
    done = as_shown(path)
    assert done.stderr == ""
    for text in (*texts, '.line "it"'):
        assert text in re.sub(r" +", " ", done.stdout), text


def test_the_page_of_keys_has_all_keys_of_a_profile() -> None:
    page = keys.page()
    for name in Profile.model_fields:
        assert (name == "name") != bool(re.search(rf"`{name}[`.]", page)), name
    for key in (
        "gpu.types.NAME.partition",
        "cpu.per_gpu",
        "card.tflops.bf16",
        "limits.gpus_per_job",
    ):
        assert f"`{key}`" in page
    assert re.search(r"`requeue.warn` .* `120s` ", page)


def test_old_and_missing_files_and_those_that_nothing_makes_are_told(tmp_path: Path) -> None:
    texts = {tmp_path / name: name for name in ("same.1", "other.1", "missing.1")}
    (tmp_path / "same.1").write_text("same.1")
    (tmp_path / "other.1").write_text("otherwise")
    (tmp_path / "gone.1").write_text("")
    old = {path.name for path in outdated(texts, tmp_path)}
    assert old == {"other.1", "missing.1", "gone.1"}


def test_submitits_names_have_types() -> None:
    assert {*SubmititParameters.__annotations__} == {*NAMES}


def test_a_time_that_needs_a_unit_is_a_text_and_a_size_may_be_a_number() -> None:
    types = {each.name: each.type for each in python_api.parameters()}
    assert types["warn"] == "str"
    assert types["time"] == types["mem"] == types["gpus"] == "int | str"
    assert types["cpus"] == "int"
    assert types["snapshot"] == "bool"
    assert types["env"] == "Mapping[str, Any] | Sequence[str] | str"
    assert types["workdir"] == "str | PathLike[str]"
    assert types["notify_on"] == "Sequence[str] | str"
