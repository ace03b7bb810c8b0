"""The script: pure in the plan and the templates; every mistake in a template is shown with its
file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcrun.errors import ProfileError, UsageError
from hpcrun.job.launch_options import directive_line
from hpcrun.job.plan.job_plan import PythonEnvironment
from hpcrun.job.profile_model import Profile
from hpcrun.job.script import LAUNCH, MAIN_TEMPLATE, Sandbox, Template, render_script
from tests.unit.builders import laptop, plan, script, slurm_profile, templates

HOSTILE = [
    "it's",
    'say "hi"',
    "$HOME",
    "`id`",
    "a|b",
    "a\nb",
    "\\",
    "#",
    "é",
    "\udcff",
    "*",
    "$(id)",
    "a;b",
    " ",
]


def check_syntax(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text.encode("ascii"), capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def custom(text: str) -> dict[str, Template]:
    return {"job.sh.j2": (text, "/home/me/job.sh.j2")}


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    "asked",
    [
        lambda text: {"args": [text]},
        lambda text: {"env": [f"A={text}"]},
        lambda text: {"load": [text]} if text.isascii() else {"args": [text]},
        lambda text: {"script": f"{text}.py"},
        lambda text: {
            "python": PythonEnvironment(
                f"/opt/{text}/bin/python", "virtual environment", f"/opt/{text}"
            )
        },
    ],
    ids=["argument", "variable", "module", "script", "python"],
)
def test_hostile_values_make_a_script_of_pure_ascii_that_bash_reads(asked: Any, text: str) -> None:
    rendered = script(plan(gpus="2", **asked(text)))
    assert rendered.isascii()
    assert "\r" not in rendered
    check_syntax(rendered)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=30).map(lambda raw: raw.replace(b"\0", b"")), max_size=20))
def test_the_command_in_the_script_is_what_was_typed(args: list[bytes]) -> None:
    text = script(plan(gpus="2", args=[os.fsdecode(arg) for arg in args]))
    (line,) = [line for line in text.splitlines() if line.startswith("command=(")]
    program = f"{line}\nprintf '%s\\0' \"${{command[@]}}\"\n"
    done = subprocess.run(["bash"], input=program.encode("ascii"), capture_output=True, check=True)
    assert done.stdout.split(b"\0")[:-1] == [b"/opt/venv/bin/python", b"-u", b"train.py", *args]


@pytest.mark.parametrize(
    "command",
    [
        "echo hi",
        "source a.sh && b",
        "cat <<X\na\nX",
        "echo hi # a remark",
        "a; b;",
        "a\r\n",
        "if a\nthen b\nfi",
    ],
)
def test_a_setup_command_is_part_of_a_script_that_bash_reads(command: str) -> None:
    check_syntax(script(plan(setup=[command])))


@pytest.mark.parametrize(
    "command", ["", "  ", "# nothing to do", "\n", "echo 'oops", "if true", "}", "x=("]
)
def test_a_setup_command_that_bash_cannot_read_fails_alone(command: str) -> None:
    try:
        check_syntax(script(plan(setup=[command])))
    except UsageError as error:
        assert "setup" in error.message


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("#!/bin/bash\n{{ plan.nam }}\n", 2, "nam"),
        ("#!/bin/bash\n{% if %}\n", 2, "Expected an expression"),
        ("#!/bin/bash\n{{ plan.name | quote }}\n", 2, "No filter named 'quote'"),
        ("#!/bin/bash\n{% for x in plan.env %}\n", 2, "endfor"),
        ("#!/bin/bash\n{{ plan.walltime_s + 60 }}\n", 2, ""),
        ("#!/bin/bash\n{{ plan.name() }}\n", 2, ""),
    ],
)
def test_a_mistake_in_a_template_is_shown_with_file_and_line(
    source: str, line: int, words: str
) -> None:
    with pytest.raises(ProfileError) as refused:
        render_script(plan(slurm_profile()), custom(source))
    assert f"/home/me/job.sh.j2, line {line}" in refused.value.message
    assert words in refused.value.message


def test_a_mistake_in_an_included_template_is_shown_with_that_file() -> None:
    with pytest.raises(ProfileError, match=r"site\.sh\.j2"):
        render_script(plan(), custom('#!/bin/bash\n{% include "site.sh.j2" %}\n'))
    with pytest.raises(ProfileError, match=r"job\.sh\.j2"):
        render_script(plan(), {})
    sources = {
        **templates(),
        "launch/torchrun.sh.j2": ("\n{{ oops }}\n", "/home/me/torchrun.sh.j2"),
    }
    with pytest.raises(
        ProfileError, match=r"/home/me/torchrun\.sh\.j2, line 2.*'oops' is undefined"
    ):
        render_script(plan(gpus="2"), sources)


def test_a_template_may_not_hold_what_sbatch_refuses() -> None:
    with pytest.raises(ProfileError, match="non-ASCII"):
        render_script(plan(), custom("#!/bin/bash\n# café\n"))
    assert "\r" not in render_script(plan(), custom("#!/bin/bash\r\necho hi\r\n"))

    refused: tuple[dict[str, Any], ...] = ({"args": ["a\0b"]}, {"setup": ["echo é\0"]})
    for asked in refused:
        with pytest.raises(UsageError, match="NUL"):
            script(plan(**asked))


# what cannot be encoded is refused before
_typed = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
_breaks = st.sampled_from(
    ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\n \t", "\n\n"]
)


@settings(max_examples=40)
@given(texts=st.lists(_typed, min_size=3, max_size=3), break_=_breaks)
def test_nothing_that_is_typed_becomes_a_line_for_slurm(texts: list[str], break_: str) -> None:
    """Whatever it is, and wherever it stands: only the plan's own directives are lines of
    #SBATCH.
    """
    hostile = break_.join([texts[0], "#SBATCH --uid=0" + texts[1], "#BB" + texts[2]])
    python = PythonEnvironment(f"/opt/{hostile}", hostile, f"/opt/{hostile}")
    profile = slurm_profile(modules=[hostile], setup=[hostile], env={"A": hostile})
    said = plan(
        profile,
        load=[hostile],
        setup=[hostile],
        env=[f"B={hostile}"],
        args=[hostile],
        python=python,
    )
    lines = [line.lstrip() for line in script(said).split("\n")]
    directives = [f"#SBATCH {directive_line(key, value)}" for key, value in said.directives]
    assert [line for line in lines if line.startswith("#SBATCH")] == directives
    assert not [line for line in lines if line.startswith(("#BB", "#DW"))]


@pytest.mark.parametrize("profile", [slurm_profile(), laptop()], ids=["slurm", "local"])
@pytest.mark.parametrize("submitted", [True, False], ids=["run folder", "by hand"])
def test_what_runs_inside_the_job_is_the_run_folder_s_or_else_this_hpcrun_s(
    profile: Profile, submitted: bool, tmp_path: Path
) -> None:
    text = script(plan(profile, gpus="2", python=PythonEnvironment(sys.executable, "test")))
    lines = text.splitlines()
    first = lines.index("launch=$HPCRUN_RUN_DIR/programs/launch")
    last = next(number for number, line in enumerate(lines) if line.startswith("launch=("))
    program = "\n".join(["fail() { exit 1; }", *lines[first : last + 1], 'echo "${launch[-1]}"'])
    if submitted:
        (tmp_path / "programs/launch").mkdir(parents=True)
    env = {"HPCRUN_RUN_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-euc", program], env=env, capture_output=True, text=True, check=True
    )
    assert (
        done.stdout.strip()
        == f"{tmp_path / 'programs/launch' if submitted else LAUNCH}/__main__.py"
    )


@pytest.mark.parametrize(
    "text",
    [
        "{{ plan.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ plan.directive.__globals__ }}",
        "{{ plan.directive.__func__.__globals__['__builtins__'] }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ lipsum.__globals__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ '{0.__class__.__mro__}'.format(plan) }}",
        "{{ ''|attr('__class__') }}",
        "{{ [''.format][0]('x').__class__ }}",
        "{{ plan.env.clear() }}",
        "{{ plan.__setattr__('name', 'x') }}",
        "{% set x = plan.notes.__class__ %}{{ x.mro() }}",
        "{{ range(1000000000)|list }}",
    ],
)
def test_a_template_cannot_leave_the_sandbox(text: str) -> None:
    with pytest.raises(ProfileError, match=r"^template mine\.j2"):
        render_script(plan(), {MAIN_TEMPLATE: (text, "mine.j2")})


@pytest.mark.parametrize(
    "value", [Path("/tmp/x"), Path.touch, open, print, exec, Sandbox, b"x".decode]
)
@pytest.mark.parametrize(
    "call", ["value()", "value.touch()", "value.unlink()", "value.read_text()"]
)
def test_nothing_is_called_but_what_makes_text(value: Any, call: str) -> None:
    with pytest.raises((jinja2.TemplateError, TypeError)) as caught:
        Sandbox(undefined=jinja2.StrictUndefined).from_string("{{ " + call + " }}").render(
            value=value
        )
    assert isinstance(caught.value, jinja2.exceptions.SecurityError | jinja2.UndefinedError)


def test_what_templates_need_is_there() -> None:
    text = "{% macro twice(word) %}{{ word }}{{ word }}{% endmacro %}{{ twice('a') }}"
    text += "{% for n in range(2) %}{{ n }}{% endfor %}"
    sandbox = Sandbox(undefined=jinja2.StrictUndefined)
    assert sandbox.from_string(text).render() == "aa01"
    items = (
        "{% for key, value in d.items() %}{{ key.upper() }}{{ value }}{% endfor %}{{ ','.join(l) }}"
    )
    assert sandbox.from_string(items).render(d={"a": 1}, l=["x", "y"]) == "A1x,y"
    space = sandbox.from_string(
        "{% set n = namespace(x=1) %}{% set n.x = 2 %}{{ n.x }}{{ dict(a=1).a }}"
    )
    assert space.render() == "21"
