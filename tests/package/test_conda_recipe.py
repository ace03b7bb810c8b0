"""The recipe for conda-forge: it is rendered, and requires what the package requires."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from hpcrun.version import __version__
from tests.harness import REPO

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

RECIPE = REPO / "packaging/conda-forge/recipe.yaml"
CONDAS_OWN = ("python", "pip", "__unix")

pytestmark = pytest.mark.needs_package("rattler_build")


def rendered(recipe: Path = RECIPE) -> dict[str, Any]:
    """The recipe for Linux, with all of its places filled in."""
    from rattler_build import RenderConfig, Stage0Recipe
    from rattler_build.tool_config import PlatformConfig

    config = RenderConfig(platform=PlatformConfig(target_platform="linux-64"))
    (variant,) = Stage0Recipe.from_file(recipe).render(render_config=config)
    return dict(variant.recipe.to_dict())


def by_name(texts: list[str]) -> dict[str, SpecifierSet]:
    """Name of a package → the versions that are allowed."""
    requirements = [Requirement(text) for text in texts]
    return {each.name: each.specifier for each in requirements}


def of_conda(rows: list[Any]) -> dict[str, SpecifierSet]:
    """The same of the rows of a recipe, without what conda alone requires."""
    texts = [row for row in rows if row.split()[0] not in CONDAS_OWN]
    return by_name([row.replace("tree_sitter", "tree-sitter") for row in texts])


def bounds(allowed: SpecifierSet, operator: str) -> list[str]:
    """The versions behind an operator, such as ``>=``."""
    return [each.version for each in allowed if each.operator == operator]


def check_allows_no_more(recipe: dict[str, SpecifierSet], package: dict[str, SpecifierSet]) -> None:
    """Assert that a recipe has these packages, in versions that the package itself allows."""
    for name, allowed in package.items():
        assert name in recipe
        (lowest,) = bounds(recipe[name], ">=")
        assert lowest in allowed, name
        assert bounds(recipe[name], "<") == bounds(allowed, "<"), name


def project() -> dict[str, Any]:
    described: dict[str, Any] = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))
    return described


def test_the_recipe_is_of_this_version() -> None:
    recipe = rendered()
    assert Version(recipe["package"]["version"]) == Version(__version__)
    assert recipe["build"]["noarch"] == "python"


def test_it_requires_what_the_package_and_its_tables_require() -> None:
    described = project()["project"]
    tables = described["optional-dependencies"].get("tables", [])
    needed = by_name([*described["dependencies"], *tables])
    recipe = of_conda(rendered()["requirements"]["run"])
    check_allows_no_more(recipe, needed)
    assert set(recipe) == set(needed)


def test_it_is_built_with_what_the_package_is_built_with() -> None:
    needed = by_name(project()["build-system"]["requires"])
    check_allows_no_more(of_conda(rendered()["requirements"]["host"]), needed)


def test_it_has_the_programs_of_the_package() -> None:
    programs = {f"{name} = {call}" for name, call in project()["project"]["scripts"].items()}
    assert programs <= set(rendered()["build"]["python"]["entry_points"])


def test_the_commands_of_its_tests_are_those_of_the_program() -> None:
    from hpcrun.cli.commands import COMMANDS

    text = RECIPE.read_text("utf-8")
    words = re.findall(r"^      - hpcrun(?:-slurm)? ([a-z-]+)", text, re.MULTILINE)
    assert words
    assert [word for word in words if word not in COMMANDS and word != "--version"] == []


def test_a_mistake_in_the_recipe_is_found(tmp_path: Path) -> None:
    broken = tmp_path / "recipe.yaml"
    broken.write_text(RECIPE.read_text("utf-8").replace("${{ version }}", "${{ verison }}"))
    with pytest.raises(Exception, match="verison"):
        rendered(broken)
