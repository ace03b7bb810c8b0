"""Reading a request from the options that were given, and checking it for secrets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from hpcrun.errors import UsageError
from hpcrun.job.request.job_request import (
    JOB_FIELDS,
    WRAPPED,
    JobRequest,
    given_fields,
    option_of,
)
from hpcrun.job.request.options import WrongTypeError
from hpcrun.job.request.read_options import WrongOption, read_values
from hpcrun.job.request.role_options import as_role, split_roles
from hpcrun.job.text.hide_secrets import HIDER, SecretHider
from hpcrun.job.text.recognise_secrets import (
    is_secret,
    secret_arguments,
    secret_in_command,
    secret_kind,
)
from hpcrun.job.text.spelling import spell_row

_INSTEAD_OF_SECRET = (
    "export NAME=... where you submit, add --secret NAME, and use $NAME in "
    "--setup, or in bash -c 'PROGRAM \"$NAME\"'"
)
# In these fields secrets have their own rules, or they have no text from the user.
_APART = frozenset({"args", "env", "secrets", "setup", "sweep", "elements", "snapshot_include"})
_OF_COMMAND = ("script", "args", "sweep")
_COMMANDS = ("setup", "wrap")
_MOST_SHOWN = 60


def read_request(fields: dict[str, Any]) -> JobRequest:
    """Build the request from the typed options.

    Raises:
        UsageError: an option has a wrong value; the message shows how to write the option.
    """
    if fields.get("wrap") is not None:
        fields = _with_wrapped(fields)
    roles = fields.get("roles", ())
    if roles and not isinstance(roles[0], str):
        fields = {**fields, "roles": tuple(map(as_role, roles))}
    elif roles:
        program = [fields["script"], *fields.get("args", ())]
        if fields.get("module"):
            program.insert(0, "-m")
        fields = {**fields, **split_roles(roles, program)}
    values, mistakes = read_values(JOB_FIELDS, fields)
    if mistakes:
        learn_secrets(fields)
        lines = dict.fromkeys(map(_mistake_line, mistakes))
        raise UsageError(
            HIDER.hide("\n".join(lines)), hint="--help shows how to write every option"
        )
    return JobRequest(**values)


def _with_wrapped(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the typed options with --wrap as the program of the job.

    Raises:
        UsageError: there is another program, or the command of --wrap has arguments.
    """
    script = fields.get("script") or WRAPPED
    others = [script, *fields.get("args", ())]
    if script == WRAPPED:
        del others[0]
    for name in ("roles", "module"):
        if fields.get(name):
            others.append(option_of(name))
    if others:
        raise UsageError(
            f"--wrap is the whole program, and {others[0]} is one more", hint="leave one out"
        )
    return {**fields, "script": script}


def _mistake_line(mistake: WrongOption) -> str:
    """Return one mistake of a request: the option, and how its value is written."""
    option = option_of(mistake.field)
    if mistake.field not in ("env", "secrets"):
        name = HIDER.variable_in(str(mistake.value))
        if name:
            # a proposal may have it in another form
            return f"{option} holds the value of {name}"
    if not isinstance(mistake.error, WrongTypeError):
        return f"{option}: {mistake.error}"
    shown = repr(mistake.value)
    if len(shown) > _MOST_SHOWN:
        shown = f"{shown[:_MOST_SHOWN]}..."
    return f"{option}: {mistake.error}, not {shown}"


def learn_secrets(fields: Mapping[str, Any]) -> None:
    """Let no message repeat the value of a variable that a request declares as secret.

    The request has not been read yet.
    """
    variables = dict(text.split("=", 1) for text in _texts(fields.get("env")) if "=" in text)
    HIDER.learn(variables, [*_texts(fields.get("secrets"))])


def check_secrets(
    request: JobRequest, env: Mapping[str, str] = MappingProxyType({}), named: Collection[str] = ()
) -> None:
    """Raise UsageError for a secret anywhere but in ``--env``.

    The messages name the kind of secret, never its value.

    Args:
        request: the request to check.
        env: the variables of the job; the shell may have filled in the value of a variable that is
            a secret.
        named: the names of variables that are declared as secret.

    Raises:
        UsageError: an option or the command holds a secret.
    """
    for place, kind in _secrets_in(request, SecretHider(env, named), named):
        raise UsageError(
            f"{place} holds {kind}, which the script, the run's record and process lists would "
            "show",
            hint=spell_row(_INSTEAD_OF_SECRET),
        )


def _secrets_in(
    request: JobRequest, hider: SecretHider, named: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield options, and the kind of secret that each option holds.

    The function recognises a secret by its form or name, and by the known values.
    """
    words = [request.script, *request.args]
    for row in request.sweep:
        words += [f"--{name}={value}" for name, value in row]
    for role in request.roles:
        words += role.command
    for kind in secret_arguments(words):
        yield "the command", kind
    for field, given in given_fields(request).items():
        value = given
        place = "the command" if field in _OF_COMMAND else option_of(field)
        if field == "env":
            value = [text for name, text in request.env if not is_secret(name, text, named)]
        for text in _texts(value):
            of_text = _kind_in(field, text, hider)
            if of_text:
                yield place, of_text


def _kind_in(field: str, text: str, hider: SecretHider) -> str | None:
    """Return the kind of secret in a text of a field, None if there is none."""
    kind = None
    if field in _COMMANDS:
        kind = secret_in_command(text)
    elif field not in _APART:
        kind = secret_kind(text)
    if kind or field == "secrets":
        return kind
    name = hider.variable_in(text)
    return f"the value of {name}" if name else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        return
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, Iterable):
        for item in value:
            yield from _texts(item)
