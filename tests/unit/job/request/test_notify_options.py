"""Destinations of messages: their forms, and that none of them holds a secret."""

from __future__ import annotations

import pytest

from hpcrun.errors import UsageError
from hpcrun.job.request.notify_options import (
    EVENTS,
    Notify,
    check_destination,
    check_events,
    decide_notify,
    filled_in,
    mail_types,
    variables_in,
)
from tests.unit.builders import request


@pytest.mark.parametrize(
    "text",
    [
        "$SLACK_URL",
        "${SLACK_URL}",
        "mailto:ada@example.org",
        "file:~/.config/apprise.yml",
        "none",
        "ntfys://ntfy.sh/my-training-runs-of-this-year",
        "json://host:8080/hook",
        "jsons://host/hook?method=PUT",
        "slack://$TOKEN_A/$TOKEN_B/$TOKEN_C/#ml",
        "discord://$ID/$TOKEN",
        "gotify://host/$TOKEN",
        "mailtos://ada:$PASSWORD@smtp.example.org?to=bob@example.org",
        "mailto://localhost:25?from=a@b.org&to=c@d.org",
        "json://ada:${PASSWORD}@host/hook?+X-Token=$TOKEN",
    ],
)
def test_a_destination_without_a_secret_is_taken_as_it_is(text: str) -> None:
    assert check_destination(text) == text
    assert request(notify=[text]).notify == (text,)


@pytest.mark.parametrize(
    "text",
    [
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ml",
        "ntfys://tk_hushhush@ntfy.example.org/topic",
        "mailtos://ada:hushhush@smtp.example.org",
        "json://host/hook?+X-Token=hushhush",
        "discord://4711/hushhush",
        "json://host/hooks/hushhus7-5717-4562-b3fc-2c963f66afa6",
        "https://hooks.slack.com/services/T1/B2/hushhush",
        "gotify://host/hushhush",
        "tgram://123456:hushhush/4711",
        "json://host/?password=hushhush",
        "jsons://u:hushhush@h/",
        "msteams://hushhush@tenant/aaaa/bbbb",
        "json://host/$A/?token=hushhush",
        "json://h/abc%31def2ghi3hush4hush",
        "json://h/a1b2c3d4hushhush.json",
        "json://h/p#a1b2c3d4hushhush5",
        "ntfy://h/topic?to=a1b2c3d4hushhush5",
    ],
)
def test_a_secret_is_refused_and_the_message_does_not_contain_it(text: str) -> None:
    with pytest.raises(UsageError, match="--notify: ") as refused:
        request(notify=[text])
    assert "hush" not in str(refused.value)
    assert "'$NAME' (in single quotes)" in str(refused.value)


def test_what_is_no_destination_is_refused_and_a_misspelt_service_gets_its_neighbour() -> None:
    for text in (
        "",
        "foo",
        "mailto:",
        "mailto:a@b,c@d",
        "mailto:a b@c",
        "file:",
        "json://a\x1b[2J/x",
    ):
        with pytest.raises(ValueError, match="takes"):
            check_destination(text)
    with pytest.raises(UsageError, match=r"the token of jsn:// \(did you mean json://\?\)"):
        request(notify=["jsn://host"])


def test_a_value_is_a_whole_url_or_one_quoted_part_of_it() -> None:
    env = {"URL": "json://host/x?a=b", "PART": "p/w@d"}
    assert filled_in("$URL", env) == "json://host/x?a=b"
    assert (
        filled_in("mailtos://ada:${PART}@smtp.example.org", env)
        == "mailtos://ada:p%2Fw%40d@smtp.example.org"
    )
    assert filled_in("slack://$PART/$MISSING", env) is None
    assert variables_in("slack://$PART/${MISSING}/#ml") == ["PART", "MISSING"]


def test_typed_destinations_come_to_the_configured_ones_and_none_removes_these() -> None:
    assert decide_notify((), (), (), None) == (None, None)
    assert decide_notify(("$A",), ("$B", "$A"), (), None) == (Notify(("$B", "$A")), None)
    assert decide_notify(("none", "$A"), ("$B",), ("failed",), 60) == (
        Notify(("$A",), ("failed",), 60),
        None,
    )
    assert decide_notify(("$A", "none", "$C"), ("$B",), (), None) == (Notify(("$C",)), None)
    assert decide_notify(("none",), ("$B", "mailto:a@b.org"), (), None) == (None, None)
    assert decide_notify((), ("mailto:a@b.org",), (), None) == (None, "a@b.org")


def test_slurm_sends_mail_about_the_events_that_it_knows() -> None:
    assert mail_types(()) == "BEGIN,FAIL,REQUEUE,END"
    assert mail_types(("failed", "idle")) == "FAIL,REQUEUE"
    assert mail_types(("idle",)) == "NONE"


def test_events_are_named_and_a_misspelt_one_gets_its_neighbour() -> None:
    assert check_events(["finished", " failed"]) == ("failed", "finished")
    assert check_events(["all"]) == EVENTS
    with pytest.raises(UsageError, match="no event 'finnished'; did you mean finished"):
        request(notify_on="failed,finnished")
