"""Destinations as apprise knows them, and what hpcrun refuses before a message leaves."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from hpcrun.errors import UsageError
from hpcrun.features.notify.send import CONNECT_S, READ_S, _Log, servers_of
from tests.unit.builders import write

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # apprise imports it


def addresses(to: str, **env: str) -> list[str]:
    """The addresses of a destination, as apprise writes them, without their options."""
    return [server.url(privacy=False).partition("?")[0] for server in servers_of(to, env)]


def test_a_destination_may_be_in_a_variable() -> None:
    assert addresses("$MY_TOPIC", MY_TOPIC="json://hook.org/a") == ["json://hook.org/a"]
    assert addresses("json://hook.org/a") == ["json://hook.org/a"]


@pytest.mark.parametrize("env", [{}, {"MY_TOPIC": ""}], ids=["unset", "empty"])
def test_a_variable_without_a_value_is_named(env: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"^\$MY_TOPIC: MY_TOPIC is not set here$"):
        servers_of("$MY_TOPIC", env)


def test_an_unknown_url_is_refused_without_its_value() -> None:
    with pytest.raises(UsageError, match="apprise knows no such destination") as caught:
        servers_of("$MY_TOPIC", {"MY_TOPIC": "nonsense://secret"})
    assert "secret" not in str(caught.value)


def test_a_message_waits_for_no_server_and_follows_none() -> None:
    (server,) = servers_of("json://hook.org", {})
    assert server.socket_connect_timeout == CONNECT_S
    assert server.socket_read_timeout == READ_S
    assert server.redirects is False
    assert server.app_id == "hpcrun"
    assert server.image_url("info") is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("urls.txt", "json://a.org\njson://b.org\n"),
        ("urls.yml", "urls:\n  - json://a.org\n  - json://b.org\n"),
        ("urls.yaml", "urls:\n  - json://a.org\n  - json://b.org\n"),
    ],
)
def test_a_file_may_have_several_destinations(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path / name, text).chmod(0o600)
    both = ["json://a.org/", "json://b.org/"]
    assert addresses(f"file:{tmp_path / name}") == both
    assert addresses(f"file:~/{name}", HOME=str(tmp_path)) == both


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o601])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path / "my urls", "json://a.org\n")
    path.chmod(mode)
    with pytest.raises(UsageError, match="other users can read it, or own it") as caught:
        servers_of(f"file:{path}", {})
    assert caught.value.hint == f"chmod 600 '{path}'"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^file:{tmp_path}/none: No such file or directory$"):
        servers_of(f"file:{tmp_path}/none", {})


def test_a_file_without_a_destination_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "urls", "# none yet\n").chmod(0o600)
    with pytest.raises(UsageError, match="apprise knows no such destination"):
        servers_of(f"file:{tmp_path}/urls", {})


def test_the_first_warning_of_this_thread_says_why() -> None:
    log = _Log()
    apprise = logging.getLogger("apprise")
    other = threading.Thread(target=lambda: apprise.warning("of another destination"))
    other.start()
    other.join()
    apprise.info("connecting")
    apprise.warning("refused: %s", 403)
    apprise.warning("giving up")
    log.close()
    assert log.text == "refused: 403"
    assert log not in apprise.handlers
