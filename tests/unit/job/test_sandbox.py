"""A template makes text, and reaches nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest

from hpcrun.errors import ProfileError
from hpcrun.job.script import MAIN_TEMPLATE, Sandbox, render_script
from tests.unit.given import plan

HOSTILE = [
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
    "{% set x = plan.notes.__class__ %}{{ x.mro() }}",
    "{{ range(1000000000)|list }}",
    "{{ plan.__setattr__('name', 'x') }}",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_template_cannot_leave_the_sandbox(text: str) -> None:
    with pytest.raises(ProfileError, match=r"^template mine\.j2"):
        render_script(plan(), {MAIN_TEMPLATE: (text, "mine.j2")})


@pytest.mark.parametrize("value", [Path("/tmp/x"), Path.touch, open, print, exec, Sandbox, b"x".decode])
@pytest.mark.parametrize("call", ["value()", "value.touch()", "value.unlink()", "value.read_text()"])
def test_nothing_is_called_but_what_makes_text(value: Any, call: str) -> None:
    with pytest.raises((jinja2.TemplateError, TypeError)) as caught:
        Sandbox(undefined=jinja2.StrictUndefined).from_string("{{ " + call + " }}").render(value=value)
    assert isinstance(caught.value, jinja2.exceptions.SecurityError | jinja2.UndefinedError)


def test_what_templates_need_is_there() -> None:
    text = "{% macro twice(word) %}{{ word }}{{ word }}{% endmacro %}{{ twice('a') }}"
    text += "{% for n in range(2) %}{{ n }}{% endfor %}"
    sandbox = Sandbox(undefined=jinja2.StrictUndefined)
    assert sandbox.from_string(text).render() == "aa01"
    items = "{% for key, value in d.items() %}{{ key.upper() }}{{ value }}{% endfor %}{{ ','.join(l) }}"
    assert sandbox.from_string(items).render(d={"a": 1}, l=["x", "y"]) == "A1x,y"
    assert (
        sandbox.from_string("{% set n = namespace(x=1) %}{% set n.x = 2 %}{{ n.x }}{{ dict(a=1).a }}").render() == "21"
    )
