"""The page of --help: plain text in aligned columns, as wide as the terminal, coloured on one."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command

from hpcrun.cli.commands import COMMANDS, GROUPS
from hpcrun.cli.main import PlainCommand, build_app, list_app
from tests.harness import Hpcrun

_PROGRAM: Any = get_command(build_app(COMMANDS))
_LIST: Any = get_command(list_app())
_COLOUR = re.compile(r"\x1b\[\d+m")


def page(name: str, *, asked: str = "--help", program: Any = _PROGRAM) -> list[str]:
    """The lines of a command's help."""
    context = program.make_context("hpcrun", ["--help"], resilient_parsing=True)
    for word in name.split():
        command = context.command.commands[word]
        context = command.make_context(word, [asked], parent=context, resilient_parsing=True)
    return str(context.get_help()).splitlines()


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """The width of the terminal."""
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


@pytest.mark.parametrize("columns", [80], indirect=True)
@pytest.mark.parametrize("name", ["", *COMMANDS, *GROUPS])
def test_a_page_fits_80_columns_and_has_no_boxes_and_no_types_of_python(
    name: str, columns: int
) -> None:
    lines = page(name)
    assert max(map(len, lines)) <= columns
    assert [line for line in lines if line != line.rstrip()] == []
    text = "\n".join(lines)
    assert not re.search(r"[│─╭╰]|<\w|\\\[", text)
    assert text.startswith(f"Usage: hpcrun {name}".rstrip())


@pytest.mark.parametrize("columns", [80], indirect=True)
def test_descriptions_are_aligned_and_a_long_name_has_a_line_of_its_own(columns: int) -> None:
    lines = page("submit")
    start = lines.index("Submission:")
    assert lines[start + 1 : start + 11] == [
        "  -J, --name NAME             Job name (sbatch --job-name). Default: the",
        "                              script's name.",
        "      --notify URL            Send messages there: an apprise URL",
        "                              (ntfys://HOST/TOPIC), '$NAME' of a variable that",
        "                              holds one, or mailto:ADDRESS. `none` removes the",
        "                              configured ones. Repeatable.",
        "      --notify-on EVENTS      Events to send messages about, with commas:",
        "                              started, first-step, failed, finished, waiting,",
        "                              idle. Default: all.",
        "      --mail-user ADDRESS     Send mail to this address (sbatch).",
    ]
    after = lines.index("      --after RUN[:ok|any|fail]")
    assert lines[after + 1].startswith(f"{'':30}Start after RUN (sbatch --dependency)")


@pytest.mark.parametrize("columns", [80], indirect=True)
def test_the_short_help_has_the_first_sentences_and_leaves_the_long_one_as_it_is(
    columns: int,
) -> None:
    whole = page("submit")
    short = page("submit", asked="-h")
    assert "  -J, --name NAME             Job name (sbatch --job-name)." in short
    params = _PROGRAM.commands["submit"].params
    options = sum(param.param_type_name == "option" for param in params)
    assert f"`hpcrun submit --help` shows all {options} options." in short
    assert "Submission:" not in short
    assert len(short) < 60 < len(whole)
    assert page("submit") == whole


@pytest.mark.parametrize("columns", [200, 50, 20], indirect=True)
def test_a_page_is_as_wide_as_the_terminal_and_examples_stay_whole(columns: int) -> None:
    lines = page("logs")
    examples = lines.index("Examples:")
    longest = max(map(len, lines[:examples]))
    assert min(max(columns, 40) - 6, 100) <= longest <= max(columns, 40)
    assert lines[examples + 2] == "  hpcrun logs -f"
    assert lines[examples + 4] == "  hpcrun logs 4711 --all-ranks --grep Error"


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("nodes", "[OPTIONS] [forget [NODE]...]"),
        ("hold", "[OPTIONS] RUN..."),
        ("cancel", "[OPTIONS] [RUN]..."),
        ("profile set", "[OPTIONS] NAME [KEY=VALUE]..."),
        ("profile unset", "[OPTIONS] NAME KEY..."),
        ("profile validate", "[OPTIONS] [NAME|FILE]..."),
        ("scale", "[OPTIONS] COMMAND [ARGS]..."),
    ],
)
def test_the_line_of_usage_names_the_arguments_as_they_are_typed(name: str, usage: str) -> None:
    assert page(name)[0] == f"Usage: hpcrun {name} {usage}"


def test_the_list_of_commands_is_below_the_headings_of_the_table() -> None:
    headings = [line[:-1] for line in page("", program=_LIST) if re.fullmatch(r"\w+:", line)]
    panels = dict.fromkeys(command.panel for command in COMMANDS.values())
    assert headings == ["Options", *panels]


def test_a_page_is_coloured_on_a_terminal_unless_it_cannot_show_colours_or_must_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = page("nodes")
    assert "\x1b" not in "\n".join(plain)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = page("nodes")
    assert [_COLOUR.sub("", line) for line in coloured] == plain
    assert "\x1b[32m\x1b[1mOptions:\x1b[0m" in coloured
    assert any(line.startswith("  \x1b[36m\x1b[1m-h, --help\x1b[0m  ") for line in coloured)
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as other:
            other.setenv(name, value)
            assert page("nodes") == plain


def test_a_command_of_another_package_has_the_same_page() -> None:
    def greet(
        names: Annotated[list[str], typer.Argument(help="Who is greeted.")],
        how: Annotated[str, typer.Option("--how", "-w", help="How.")] = "well",
        often: Annotated[int, typer.Option(help="How often.")] = 1,
        loud: Annotated[bool, typer.Option(help="Shout.")] = False,
    ) -> None:
        """Greet."""

    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(cls=PlainCommand)(greet)
    command: Any = get_command(app)
    assert page("", program=command)[4:] == [
        "Arguments:",
        "  NAMES                  Who is greeted. [required]",
        "",
        "Options:",
        "  -w, --how HOW          How. [default: well]",
        "      --often OFTEN      How often. [default: 1]",
        "      --loud, --no-loud  Shout. [default: no-loud]",
        "      --help             Show this message and exit.",
    ]


def test_help_without_a_terminal_is_80_columns_wide_and_a_group_alone_prints_its_help(
    hpcrun: Hpcrun,
) -> None:
    done = hpcrun("profile")
    assert (done.returncode, done.stderr) == (2, "")
    shown = hpcrun("profile", "--help")
    assert (shown.returncode, shown.stdout) == (0, done.stdout)
    assert 70 < max(map(len, shown.stdout.splitlines())) <= 80


def test_help_at_a_terminal_has_colours(hpcrun: Hpcrun) -> None:
    assert "Examples:" in hpcrun.screen("nodes", "--help", columns=60)
    raw = hpcrun.terminal("nodes", "--help")
    raw.expect_exact("\x1b[32m\x1b[1mUsage:\x1b[0m python -m hpcrun nodes")
    raw.close()
