"""Sends messages with apprise, each at most once to each destination."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hpcrun.actions.status.wait import BackgroundCall
from hpcrun.errors import UsageError
from hpcrun.features.notify.deliveries import (
    FAILED,
    SENT,
    UNKNOWN,
    UNREACHABLE,
    UNSURE,
    Delivery,
    MessageClaim,
)
from hpcrun.files.ownership import read_open
from hpcrun.job.request.notify_options import file_of, filled_in, variables_in
from hpcrun.job.text.hide_secrets import HIDER

if TYPE_CHECKING:
    from apprise import AppriseAsset

# a destination has so long to accept a connection, and to answer
CONNECT_S = 3.0
READ_S = 4.0
ALL_S = 20.0  # all destinations together; a thread that takes longer is left behind
_MOST_FILE = 1 << 20
Kind = Literal["info", "success", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Message:
    """The text of a message, in plain text without control characters."""

    title: str
    body: str
    kind: Kind = "info"


def send_message(
    message: Message,
    destinations: Iterable[str],
    env: Mapping[str, str],
    *,
    run_folder: Path,
    event: str,
) -> list[Delivery]:
    """Send a message to each destination that has not got it, to all of them at the same time.

    It is first claimed in the run's folder.
    """
    _count_connections()
    calls = {}
    for to in destinations:
        call = partial(_send_one, message, to, env, run_folder, event)
        calls[to] = BackgroundCall(call)
    until = time.monotonic() + ALL_S
    sent = list[Delivery]()
    for to, sending in calls.items():
        results = sending.answer(until - time.monotonic())
        late = Delivery(event, to, UNSURE, f"no response within {ALL_S:g} s")
        sent += [late] if results is None else results
    return sent


def _send_one(
    message: Message, to: str, env: Mapping[str, str], run_folder: Path, event: str
) -> list[Delivery]:
    """Return the result of a message; empty if another process sends it, or has sent it."""
    try:
        # apprise is imported before anything is claimed
        servers = servers_of(to, env)
        problem = ""
    except UsageError as error:
        servers = []
        problem = error.message.removeprefix(f"{to}: ")
    try:
        claim = MessageClaim(run_folder, event, to)
    except OSError:
        return []
    if problem:
        state, reason = UNKNOWN, problem
    else:
        state, reason = _sent(message, to, servers, env)
    claim.close(state, reason)
    return [Delivery(event, to, state, reason)]


def _sent(
    message: Message, to: str, servers: Sequence[Any], env: Mapping[str, str]
) -> tuple[str, str]:
    """Try to send a message, and return the state of the message afterwards.

    The second value is the reason if the message has not arrived.
    """
    log = _Log()
    try:
        arrived = [_notify(server, message) for server in servers]
    finally:
        log.close()
    if all(arrived):
        return SENT, ""
    HIDER.learn(env, variables_in(to))
    reason = " ".join(HIDER.hide(log.text).split())[:200]
    if _connections.refused and not _connections.made and not any(arrived):
        return UNREACHABLE, reason or "no connection"  # a command on the login node may reach it
    # apprise says "A Connection error occurred" also if a service has the message and does not
    # answer
    state = UNSURE if "connection error" in reason.lower() else FAILED
    return state, reason or "refused"


def servers_of(to: str, env: Mapping[str, str]) -> list[Any]:
    """Return apprise's objects for a destination.

    Raises:
        UsageError: a variable is not set, a file cannot be used, or apprise does not know such a
            URL. The message contains no value.
    """
    from apprise import Apprise, AppriseConfig

    asset = _asset()
    path = file_of(to)
    if path is not None:
        everything = Apprise(asset=asset)
        config = AppriseConfig(asset=asset)
        form = "yaml" if path.endswith((".yml", ".yaml")) else "text"
        config.add_config(_private_text(to, path, env), format=form)
        everything.add(config)
        servers = list(everything)
    else:
        url = filled_in(to, env)
        if url is None:
            missing = ", ".join(name for name in variables_in(to) if not env.get(name))
            raise UsageError(f"{to}: {missing} is not set here")
        server = Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
        servers = [server] if server else []
    if not servers:
        raise UsageError(
            f"{to}: apprise knows no such destination", hint="https://appriseit.com/services"
        )
    for server in servers:
        server.socket_connect_timeout = CONNECT_S
        server.socket_read_timeout = READ_S
        server.redirects = False  # the message is for this server alone, whatever the URL says
    return servers


def _private_text(to: str, path: str, env: Mapping[str, str]) -> str:
    """Return the text of a file that only this user can read.

    Raises:
        UsageError: the file cannot be read, or other users can read or own the file.
    """
    home = env.get("HOME", "")
    if home and path.startswith("~/"):
        path = os.path.join(home, path[2:])
    place = Path(path)
    try:
        content, status = read_open(place, _MOST_FILE)
    except OSError as error:
        raise UsageError(f"{to}: {error.strerror}") from None
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise UsageError(
            f"{to}: other users can read it, or own it", hint=f"chmod 600 {shlex.quote(str(place))}"
        )
    return content.decode("utf-8", "replace")


def _asset() -> AppriseAsset:
    from apprise import AppriseAsset

    # no pictures from apprise's own site in the messages, and no name but hpcrun's
    return AppriseAsset(
        app_id="hpcrun",
        app_desc="hpcrun",
        app_url="",
        image_url_mask="",
        image_url_logo="",
        async_mode=False,
    )


def _notify(server: Any, message: Message) -> bool:
    try:
        return bool(
            server.notify(
                body=message.body, title=message.title, notify_type=message.kind, body_format="text"
            )
        )
    except Exception as error:
        # a plugin of apprise: whatever it raises, the message has not arrived for certain
        logging.getLogger("apprise").warning("%s", type(error).__name__)
        return False


class _Log(logging.Handler):
    """The first warning of apprise in this thread: it alone says why a message was not accepted."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        self._thread = threading.get_ident()
        logging.getLogger("apprise").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first warning."""
        if not self.text and threading.get_ident() == self._thread:
            self.text = record.getMessage()

    def close(self) -> None:
        """Listen no more."""
        with suppress(ValueError):
            logging.getLogger("apprise").removeHandler(self)
        super().close()


class _Connections(threading.local):
    """The connections of a thread: how many were made, and how many could not be made."""

    made = 0
    refused = 0


_connections = _Connections()
_connect = socket.socket.connect
_getaddrinfo = socket.getaddrinfo


def _count_connections() -> None:
    """Count the connections of each thread.

    If a thread could make no connection, a message has not left this host.

    apprise only says whether a service has accepted a message. A plugin that connects in another
    way has connected.
    """

    def connect(self: socket.socket, address: Any) -> None:
        try:
            _connect(self, address)
        except OSError as error:
            if isinstance(error, BlockingIOError | InterruptedError):  # it is made later
                _connections.made += 1
            _connections.refused += 1
            raise
        _connections.made += 1

    def getaddrinfo(*args: Any, **options: Any) -> Any:
        try:
            return _getaddrinfo(*args, **options)
        except OSError:
            _connections.refused += 1
            raise

    socket.socket.connect = connect  # type: ignore[method-assign, assignment]
    socket.getaddrinfo = getaddrinfo
