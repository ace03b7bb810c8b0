"""Options and arguments in which a user could write a secret's value, and what to do instead. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpcrun.errors import UsageError
from hpcrun.job.request import JobRequest, option_of
from hpcrun.job.secrets import is_secret_option, secret_arguments, secret_in_command, secret_kind

_INSTEAD = "export NAME=... where you submit, add --secret NAME, and use $NAME"
# Fields with their own rules, or without text from the user.
_APART = frozenset({"args", "env", "secrets", "setup", "sweep", "elements", "snapshot_include"})


def check_secrets(request: JobRequest) -> tuple[str, ...]:
    """Return notes on arguments that look like secrets; refuse secrets in all other parts of the script.

    The messages name the kind of secret, never its value.

    Raises:
        UsageError: a set-up command, a directive or another option holds one.
    """
    for command in request.setup:
        if found := secret_in_command(command):
            raise UsageError(f"--setup holds {found}: set-up commands are written to the script", hint=_INSTEAD)
    for field, text in _texts(request):
        if found := secret_kind(text):
            raise UsageError(f"{option_of(field)} holds {found}: it would be written to the script", hint=_INSTEAD)
    found_in_arguments = dict.fromkeys((*secret_arguments(request.args), *_in_sweep(request)))
    return tuple(
        f"the arguments hold {found}: they appear in the script, in the run's record and in process lists; "
        "read a variable in the script, and pass it with --secret NAME"
        for found in found_in_arguments
    )


def _texts(request: JobRequest) -> Iterator[tuple[str, str]]:
    for field in type(request).model_fields:
        value = getattr(request, field)
        texts: Iterable[object] = value if isinstance(value, tuple) else (value,)
        if field not in _APART:
            yield from ((field, text) for text in texts if isinstance(text, str))


def _in_sweep(request: JobRequest) -> Iterator[str]:
    for name, value in dict.fromkeys(pair for row in request.sweep for pair in row):
        if kind := secret_kind(value):
            yield kind
        elif is_secret_option(name, value):
            yield f"the value of {name}"
