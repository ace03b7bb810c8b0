"""Where the messages about a run go, as written in ``--notify`` and ``notify:``. Pure: no I/O.

A destination holds no secret: a password or a token is a variable of the environment, ``$NAME``, or
stands in a file that only its owner can read. So it may stand in a script, a record and an output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpcrun.errors import nearest
from hpcrun.job.text.recognise_secrets import secret_kind

STARTED = "started"
FIRST_STEP = "first-step"
FAILED = "failed"
FINISHED = "finished"
WAITING = "waiting"
IDLE = "idle"
EVENTS = (STARTED, FIRST_STEP, FAILED, FINISHED, WAITING, IDLE)
ATTEMPT = "attempt"
FIRST_FAILURE = "first-failure"
"""A message about each failed attempt, ``attempt-0``, and about the first failed element: both are
``failed``.
"""
NONE = "none"  # ``--notify none``: no messages, whatever the configuration and the profile name
# how long a job is pending before the message ``waiting``, if nothing else is configured
WAITING_S = 3600

_FILE = "file:"
_MAIL = "mailto:"
_MAIL_TYPES = {STARTED: "BEGIN", FAILED: "FAIL,REQUEUE", FINISHED: "END"}
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)\}|(?P<plain>[A-Za-z_]\w*))", re.ASCII)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.ASCII)
_ADDRESS = re.compile(r"[^\s@,:/?$]+@[^\s@,:/?$]+")
# Schemes of apprise whose URL needs no secret. The others hold a token somewhere between the
# slashes.
_OPEN = frozenset("form forms json jsons mailto mailtos ntfy ntfys syslog xml xmls".split())
_WITH_USER = frozenset({"mailto", "mailtos"})
_PLAIN_QUERY = frozenset(
    "bcc cc format from method mode name overflow priority reply smtp tags to verify".split()
)
# A webhook's path may be its only secret: a long word of letters and digits, or of both cases.
_RANDOM = re.compile(
    r"(?=.*\d)(?=.*[A-Za-z])[\w-]{16,}|(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9]{16,}", re.ASCII
)
_IN_A_VARIABLE = (
    "put it into a variable of your environment, and write '$NAME' (in single quotes) in its place"
)


@dataclass(frozen=True, slots=True)
class Notify:
    """The messages about a run."""

    to: tuple[str, ...]  # the destinations, without the address that Slurm itself sends mail to
    events: tuple[str, ...] = EVENTS  # of these hpcrun sends a message
    waiting_s: int = WAITING_S  # how long a job is pending before the message ``waiting``


def check_destination(text: str) -> str:
    """Return a destination, if the text is one.

    A destination is an apprise URL, ``$NAME``, ``file:PATH``, or ``mailto:ADDRESS`` for mail by
    Slurm.

    Raises:
        ValueError: the text has another form, or holds a secret; the message does not contain the
            destination.
    """
    if text == NONE or _VARIABLE.fullmatch(text):
        return text
    if text.startswith(_FILE) and text.isprintable() and text != _FILE:
        return text
    if is_slurms_mail(text):
        if not _ADDRESS.fullmatch(text.removeprefix(_MAIL)):
            raise ValueError("mailto: takes one address, such as mailto:ada@example.org")
        return text
    if text.startswith(("http://", "https://")):
        raise ValueError(
            "an http address has no form that apprise knows, and may hold a secret: write "
            "json://HOST/PATH "
            "(jsons:// for https) for a webhook of your own; for a service's address, "
            f"{_IN_A_VARIABLE}"
        )
    if not _URL.fullmatch(text) or not text.isprintable():
        raise ValueError(
            "takes an apprise URL such as ntfys://ntfy.sh/TOPIC, '$NAME', file:PATH or "
            "mailto:ADDRESS"
        )
    problem = _secret_in_url(text)
    if problem:
        raise ValueError(f"holds {problem}: {_IN_A_VARIABLE}")
    return text


def _secret_in_url(text: str) -> str | None:
    from urllib.parse import unquote, urlsplit  # few jobs have messages

    kind = secret_kind(text)
    if kind:
        return kind
    try:
        parts = urlsplit(text.replace("#", "%23"))
        user = parts.username or ""
        password = parts.password or ""
        host = parts.hostname or ""
    except ValueError:
        return "a host or port that cannot be read"
    kind = _secret_in_user(parts.scheme, user, password)
    if kind:
        return kind
    if parts.scheme not in _OPEN and not _VARIABLE.search(text):
        return _token_of(parts.scheme)
    items = [item.partition("=")[::2] for item in parts.query.split("&") if item]
    texts = [host, parts.path]
    texts += [value for _, value in items if "@" not in value]
    fixed = unquote(_VARIABLE.sub(" ", " ".join(texts)))
    if any(map(_RANDOM.fullmatch, re.split(r"[^\w-]+", fixed))):
        return "what looks like a token"
    return _secret_in_query(items)


def _secret_in_user(scheme: str, user: str, password: str) -> str | None:
    """Return what may be a secret before the host, None for nothing."""
    if password:
        return None if _is_filled_in(password) else "a password"
    if not user or _is_filled_in(user) or scheme in _WITH_USER:
        return None
    return "a user or token"


def _token_of(scheme: str) -> str:
    close = nearest(scheme, sorted(_OPEN))
    meant = f" (did you mean {close}://?)" if close else ""
    return f"the token of {scheme}://{meant}"


def _secret_in_query(items: Iterable[Sequence[str]]) -> str | None:
    """Return what may be a secret in the names and values behind ``?``, None for nothing."""
    for name, value in items:
        if name not in _PLAIN_QUERY and not _is_filled_in(value):
            if name.isalnum():
                return f"a value of ?{name}= that may be a secret"
            return "a value that may be a secret"
    return None


def _is_filled_in(text: str) -> bool:
    return bool(text) and not _VARIABLE.sub("", text)


def check_events(words: Iterable[str]) -> tuple[str, ...]:
    """Return the events that were named, in the order of ``EVENTS``; all for ``all``.

    Raises:
        ValueError: an event is unknown.
    """
    named = [event.strip() for event in words]
    for event in named:
        if event not in (*EVENTS, "all"):
            close = nearest(event, list(EVENTS))
            known = f"; did you mean {close}?" if close else f": {', '.join(EVENTS)}"
            raise ValueError(f"no event {event!r}{known}")
    if "all" in named:
        return EVENTS
    return tuple(event for event in EVENTS if event in named)


def event_kind(event: str) -> str:
    """Return which of EVENTS a message is about.

    An example is ``failed`` for ``attempt-0`` and ``first-failure``.
    """
    if event in (FAILED, FIRST_FAILURE) or event.startswith(f"{ATTEMPT}-"):
        return FAILED
    return IDLE if event.startswith(f"{IDLE}-") else event


def decide_notify(
    typed: Sequence[str], known: Sequence[str], events: Sequence[str], waiting_s: int | None
) -> tuple[Notify | None, str | None]:
    """Return the messages that hpcrun sends, and the address that Slurm sends mail to.

    Args:
        typed: the destinations of ``--notify``; ``none`` among them leaves out all destinations
            before it.
        known: the destinations of the configuration and the profile.
        events: the events for which there are messages; empty for all events.
        waiting_s: the seconds for which a job is pending before the message ``waiting``; None for
            the default.
    """
    named: list[str] = []
    for text in (*known, *typed):
        if text == NONE:
            named = []
        elif text not in named:
            named.append(text)
    to = []
    mail = None
    for text in named:
        if is_slurms_mail(text):
            mail = text.removeprefix(_MAIL)
        else:
            to.append(text)
    notify = None
    if to:
        notify = Notify(tuple(to), tuple(events) or EVENTS, waiting_s or WAITING_S)
    return notify, mail


def is_slurms_mail(destination: str) -> bool:
    """Whether Slurm itself sends this mail: an address without a server."""
    return destination.startswith(_MAIL) and not destination.startswith(f"{_MAIL}//")


def mail_types(events: Sequence[str]) -> str:
    """Return the value of ``--mail-type`` for some events; Slurm knows three of them."""
    types = [_MAIL_TYPES[event] for event in events or EVENTS if event in _MAIL_TYPES]
    return ",".join(types) or "NONE"


def variables_in(destination: str) -> list[str]:
    """Return the names of the variables in a destination."""
    if destination.startswith(_FILE):
        return []
    return [match["braced"] or match["plain"] for match in _VARIABLE.finditer(destination)]


def file_of(destination: str) -> str | None:
    """Return the path of a file of destinations, None for another destination."""
    if destination.startswith(_FILE):
        return destination.removeprefix(_FILE)
    return None


def filled_in(destination: str, env: Mapping[str, str]) -> str | None:
    """Return a URL with the values of its variables; None if one has no value.

    A variable that is the whole destination holds a URL. Within a URL, a value is one part of it,
    and is quoted.
    """
    if not all(env.get(name) for name in variables_in(destination)):
        return None
    if _VARIABLE.fullmatch(destination):
        return env[variables_in(destination)[0]].strip()
    from urllib.parse import quote

    return _VARIABLE.sub(
        lambda match: quote(env[match["braced"] or match["plain"]], safe=""), destination
    )
