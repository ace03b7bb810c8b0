"""The script: a pure function of the plan and of the template texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import PurePath
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hpcrun.errors import ProfileError, UsageError
from hpcrun.job.launch_options import directive_line
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.text.quoting import quote_bash
from hpcrun.job.text.units import count
from hpcrun.version import __version__

_PLAIN = (str, int, float, bool, tuple, list, dict, frozenset, set)
_OURS = "hpcrun.job."
_GLOBALS = ("range", "dict", "namespace")


class Sandbox(ImmutableSandboxedEnvironment):
    """Renders templates from unknown authors."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.globals = {name: self.globals[name] for name in _GLOBALS}

    def is_safe_callable(self, obj: Any) -> bool:
        """Return whether a template may call this object.

        A template may call methods of plain values and of the plan, and Jinja's own functions.
        """
        if not super().is_safe_callable(obj):
            return False
        owner = getattr(obj, "__self__", None)
        # macros, loop, super
        if type(obj).__module__.startswith("jinja2.") or obj in self.globals.values():
            return True
        return isinstance(owner, _PLAIN) or (
            is_dataclass(owner) and type(owner).__module__.startswith(_OURS)
        )


MAIN_TEMPLATE = "job.sh.j2"
Template = tuple[str, str]  # the Jinja2 source of a template, and its file, for messages
LAUNCH = PurePath(__file__).parents[1] / "in_job" / "launch"
"""The folder where a script that was submitted by hand finds the programs that run inside a job."""


def sandbox_of(templates: Mapping[str, Template]) -> Sandbox:
    """Return what compiles and renders these templates."""
    environment = Sandbox(
        loader=jinja2.FunctionLoader(
            lambda name: (*templates[name], None) if name in templates else None
        ),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        # a template is rendered once: folding its constants takes longer than it saves
        optimized=False,
    )
    environment.filters |= {
        "q": _bash_filter,
        "comment": _comment,
        "quoted": _quoted,
        "is_plain": _is_plain,
    }
    return environment


def render_script(plan: Plan, templates: Mapping[str, Template]) -> str:
    """Return the script of a plan, rendered from templates: pure ASCII with LF.

    The template ``job.sh.j2`` includes the others.

    Raises:
        ProfileError: a template contains non-ASCII characters or CR line ends, or cannot be
            rendered: then with its file and line.
    """  # noqa: DOC501
    environment = sandbox_of(templates)
    try:
        text = environment.get_template(MAIN_TEMPLATE).render(_variables(plan))
    except (
        jinja2.TemplateError,
        TypeError,
        ValueError,
        ArithmeticError,
        LookupError,
        AttributeError,
    ) as error:
        # any error in a user's own template
        raise _template_error(error, templates) from None
    if not text.isascii() or "\r" in text or "\0" in text:
        raise ProfileError(
            "a template contains non-ASCII characters or CR line ends",
            hint="sbatch refuses them; see hpcrun profile path",
        )
    return text


def _variables(plan: Plan) -> dict[str, Any]:
    return {
        "plan": plan,
        "version": __version__,
        "title": _title(plan),
        "by_hand": _by_hand(plan),
        "launch_folder": str(LAUNCH),
        "directives": [directive_line(key, value) for key, value in plan.directives],
    }


def _title(plan: Plan) -> str:
    """Return the name and the size of a job."""
    shape = plan.shape
    size = f"{plan.cpus_per_node or 'the default'} CPUs"
    if shape.gpus_per_node:
        size = f"{shape.gpus_per_node} GPUs"
        if shape.gpu_type:
            size = f"{shape.gpus_per_node} {shape.gpu_type} GPUs"
    title = f"{plan.name}: {shape.nodes_text} x {_comment(size)}, {plan.ranks_text} "
    if plan.batch and not shape.world_size:
        title = f"{plan.name}: its script decides the ranks"
    elif plan.roles:
        title += f"in {count(len(plan.roles), 'role')}"
    else:
        title += f"by {shape.launcher}"
    if plan.sweep:
        title += f", {count(len(plan.sweep.chosen), 'element')}"
        if plan.sweep.pack and plan.scheduler == "slurm":
            title += f", {count(plan.sweep.tasks, 'task')} of {plan.sweep.pack}"
    return title


def _by_hand(plan: Plan) -> str:
    """Return how to submit the script without hpcrun, or what it needs from hpcrun submit."""
    needs = []
    if plan.snapshot:
        needs.append("snapshot")
    if plan.preflight:
        needs.append("preflight")
    if needs:
        return f"Needs its run's folder ({', '.join(needs)}): submit it with hpcrun."
    if plan.scheduler == "slurm":
        program = "sbatch"
    elif plan.sweep:
        program = "HPCRUN_ELEMENT=0 bash"
    else:
        program = "bash"
    less = ", without its messages" if plan.notify else ""
    return f"Complete as it stands: `{program}` this file by hand does the same{less}."


def _bash_filter(value: object) -> str:
    try:
        return quote_bash(str(value))
    except ValueError as error:
        raise UsageError(str(error)) from None


def _comment(value: object) -> str:
    """Make any text safe after a ``#``: one line of printable ASCII."""
    return "".join(char if 0x20 <= ord(char) < 0x7F else "?" for char in str(value))


def _is_plain(text: str) -> bool:
    """Whether a text is printable ASCII, with line breaks."""
    return all(char in "\n\t" or 0x20 <= ord(char) < 0x7F for char in text)


def _quoted(value: object) -> str:
    """Return any text as one quoted word; plain ASCII keeps its line breaks.

    No line of the result begins with #: sbatch and Slurm's burst buffers search for #SBATCH, #BB
    and #DW at the beginnings of lines.
    """
    text = str(value)
    if not any(line.lstrip().startswith("#") for line in text.split("\n")[1:]) and _is_plain(text):
        return "'" + text.replace("'", "'\\''") + "'"
    return _bash_filter(text)


def _template_error(error: Any, templates: Mapping[str, Template]) -> ProfileError:
    """Return an error with the file and line of the template that could not be rendered."""
    path = getattr(error, "filename", None)
    line = getattr(error, "lineno", None)
    paths = {path for _, path in templates.values()}
    frame = error.__traceback__
    # Jinja gives runtime errors a traceback through the template's own lines
    while frame is not None:
        if frame.tb_frame.f_code.co_filename in paths:
            path = frame.tb_frame.f_code.co_filename
            line = frame.tb_lineno
        frame = frame.tb_next
    where = f"template {path or getattr(error, 'name', None) or MAIN_TEMPLATE}"
    if line:
        where += f", line {line}"
    return ProfileError(
        f"{where}: {str(error) or 'no such template'}",
        hint="hpcrun profile path lists the folders that templates come from",
    )
