"""The roles of a request: several programs in one job, as typed behind ``--role``. Pure.

``--role server:1 'vllm serve M --port {port}' --role trainer:3 train.py --url {server.url}``: the
words up to the next
``--role`` are the program of a role. The program of the last role is that of the request.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SkipValidation,
    ValidationError,
)

from hpcrun.errors import UsageError, did_you_mean
from hpcrun.job.text.quoting import check_env_name
from hpcrun.job.text.units import error_words, format_time, parse_time

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}", re.ASCII)
_SIZE = re.compile(r"(\d{1,6})(gpus?)?", re.ASCII)
_READY = re.compile(r"(?:tcp|http):(?:\d{1,5}|\{[\w.-]+\})(?:/\S*)?|file:[^\0]+", re.ASCII)
_SHORT: dict[str, tuple[str, Callable[[Any], str]]] = {
    "ready": ("ready", str),
    "timeout": ("ready_timeout", format_time),
    "on-exit": ("on_exit", str),
    "after": ("after", "+".join),
    "launcher": ("launcher", str),
}
"""What may stand behind the size on the command line: its field, and how that is written."""
_FORM = (
    "--role NAME:NODES or --role NAME:NgpuS, and the program of the role: --role server:1 "
    "'vllm serve M'"
)


def _check_text(value: Any) -> Any:
    # of a file: a number would be written in another form
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{value!r} is no text; write it in quotes")
    return value


Text = Annotated[str, SkipValidation, AfterValidator(_check_text)]


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be a role's name: letters, digits, _ and -, a letter first"
        )
    return name


def _ready(text: str) -> str:
    if not _READY.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a check; write tcp:{{port}}, http:{{port}}/health or file:PATH"
        )
    return text


def split_words(value: Any) -> Any:
    """Return a program that is one text as its words.

    The text is split as a shell would split the text, and no shell gets the text.

    Raises:
        ValueError: a quote is not closed.
    """
    try:
        return shlex.split(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"a quote is not closed: {value}") from None


def _names(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(name for name in value.split("+") if name)
    return value


def _pairs(value: Any) -> Any:
    return tuple(value.items()) if isinstance(value, dict) else value


class RoleRequest(BaseModel):
    """One role: its size, its program, when the role is ready, and what its end means.

    ``None`` and ``()`` mean that a field is not given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, AfterValidator(_name)]
    nodes: int | None = Field(default=None, ge=1, le=1_000_000)
    # GPUs of the one node that all roles share
    gpus: int | None = Field(default=None, ge=1, le=1_000_000)
    # empty for the last role of a request
    command: Annotated[tuple[Text, ...], BeforeValidator(split_words)] = ()
    launcher: Literal["torchrun", "python", "once"] | None = None
    ready: Annotated[str, AfterValidator(_ready)] | None = None
    ready_timeout: Annotated[
        int, BeforeValidator(lambda value: parse_time(value) if isinstance(value, str) else value)
    ] = 600
    on_exit: Literal["end", "fail", "ignore"] | None = None
    after: Annotated[tuple[str, ...] | None, BeforeValidator(_names)] = None
    env: Annotated[
        tuple[tuple[Annotated[str, AfterValidator(check_env_name)], Text], ...],
        BeforeValidator(_pairs),
    ] = ()

    @property
    def size(self) -> str:
        """The size as typed: ``3`` or ``1gpu``."""
        return f"{self.gpus}gpu" if self.gpus else str(self.nodes or 1)


def address_names(roles: Iterable[RoleRequest]) -> list[str]:
    """Return the names that a command may have in braces.

    Examples are ``port``, ``server.host`` and ``server.port``.
    """
    names = ["port"]
    for role in roles:
        names += (f"{role.name}.host", f"{role.name}.port", f"{role.name}.url")
    return names


def keep_addresses(text: str, names: Sequence[str]) -> str:
    """Return a text with its addresses in double braces.

    A sweep makes the addresses from the double braces again.
    """
    address = "|".join(map(re.escape, names))
    return re.sub(rf"\{{({address})\}}", r"{{\1}}", text)


def read_role(where: str, fields: Mapping[str, Any]) -> RoleRequest:
    """Return a role from its fields.

    Raises:
        UsageError: a field is unknown or has a wrong value; the message says where the mistake is.
    """
    try:
        return RoleRequest(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = str(first["loc"][0])
        known = RoleRequest.model_fields
        if first["type"] == "extra_forbidden":
            hint = did_you_mean(place, known, f"known are: {', '.join(known)}")
            raise UsageError(f"{where}: {place!r} is not known here", hint=hint) from None
        raise UsageError(f"{where}: {place}: {error_words(first)}") from None


def as_role(item: Any) -> RoleRequest:
    """Return a role, which may be the section of a run's record.

    Raises:
        UsageError: the section has another form.
    """
    return item if isinstance(item, RoleRequest) else read_role("--role", item)


def split_roles(typed: Sequence[str], program: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a request with ``--role`` options.

    Args:
        typed: the values of these options in front of the first program; there can be only one.
        program: all words from the first program on.

    Raises:
        UsageError: a role has no program.
    """
    if len(typed) > 1:
        raise UsageError(f"--role {typed[0]!r} has no program", hint=_FORM)
    groups = [(typed[0], list[str]())]
    words = iter(program)
    for argument in words:
        if argument == "--role":
            groups.append((next(words, ""), []))
        else:
            groups[-1][1].append(argument)
    return with_last_program([_typed_role(spec, command) for spec, command in groups])


def _typed_role(spec: str, words: Sequence[str]) -> RoleRequest:
    head, *options = spec.split(",")
    name, _, size = head.partition(":")
    match = _SIZE.fullmatch(size)
    if match is None:
        raise UsageError(f"--role {spec!r}: {size!r} is not a size", hint=_FORM)
    unit = "gpus" if match[2] else "nodes"
    fields: dict[str, Any] = {"name": name, unit: int(match[1])}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or key not in _SHORT:
            hint = did_you_mean(
                key, _SHORT, f"known are: {', '.join(_SHORT)}; more in a file: --roles FILE"
            )
            raise UsageError(f"--role {spec!r}: {key!r} is not known here", hint=hint)
        fields[_SHORT[key][0]] = value
    is_line = len(words) == 1 and re.search(r"\s", words[0])
    fields["command"] = words[0] if is_line else words
    return read_role(f"--role {spec!r}", fields)


def with_last_program(roles: Sequence[RoleRequest]) -> dict[str, Any]:
    """Return the fields of a request with these roles, each of which has its program.

    Raises:
        UsageError: a role has no program.
    """
    for role in roles:
        if role.command in ((), ("-m",)):
            raise UsageError(f"role {role.name} has no program", hint=_FORM)
    last = roles[-1]
    program = split_module(last.command)
    return {
        "roles": (*roles[:-1], last.model_copy(update={"command": ()})),
        "module": program.is_module,
        "script": program.name,
        "args": program.args,
    }


@dataclass(frozen=True, slots=True)
class RoleProgram:
    """A program: a script, a command or a module, and its arguments."""

    is_module: bool
    name: str
    args: tuple[str, ...]


def split_module(command: Sequence[str]) -> RoleProgram:
    """Return the program of some words, which begin with ``-m`` for a module."""
    if command[0] == "-m":
        return RoleProgram(True, command[1], tuple(command[2:]))
    return RoleProgram(False, command[0], tuple(command[1:]))


def role_words(role: Mapping[str, Any]) -> list[str]:
    """Return the option of a recorded role and its program, without what only a file can say."""
    parts = [f"{role['name']}:{RoleRequest(**role).size}"]
    for key, (field, text) in _SHORT.items():
        value = role.get(field)
        if value is not None:
            parts.append(f"{key}={text(value)}")
    return ["--role", ",".join(parts), *role.get("command", ())]
