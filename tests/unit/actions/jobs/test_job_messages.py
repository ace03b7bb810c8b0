"""To whom the messages about a job go, and what is said of those that are not sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.job_messages import JobMessages, decide_messages
from hpcrun.errors import PlanError, UsageError
from hpcrun.job.profile_model import Profile
from hpcrun.profiles.config import Config
from hpcrun.profiles.site_locks import Lock, SiteLocks
from tests.unit.builders import laptop, request, slurm_profile, surroundings

ADA = "mailto:ada@example.org"
LAB = "ntfy://lab"
TOPIC = "ntfy://$TOPIC"
LOCKED = SiteLocks({"notify": Lock("notify", "Ask the help desk.", Path("/site/config.yaml"))})


def decided(
    profile: Profile,
    configured: tuple[str, ...] = (),
    site: SiteLocks | None = None,
    env: dict[str, str] | None = None,
    **asked: Any,
) -> JobMessages:
    config = replace(Config(), notify=configured, site=site or SiteLocks())
    around = surroundings(Path("/none"), env or {}, config=config)
    return decide_messages(request(**asked), profile, around)


def receivers(messages: JobMessages) -> tuple[str, ...]:
    return messages.notify.to if messages.notify else ()


def test_a_job_without_a_destination_has_no_messages() -> None:
    assert decided(slurm_profile()) == JobMessages()


def test_events_without_a_destination_are_refused() -> None:
    with pytest.raises(UsageError, match="--notify-on has no effect") as refused:
        decided(slurm_profile(), notify_on=["failed"])
    assert refused.value.hint == "add --notify URL"


def test_the_destinations_are_those_of_the_configuration_and_the_profile() -> None:
    messages = decided(slurm_profile(notify=["ntfy://theirs"]), (LAB,))
    assert receivers(messages) == (LAB, "ntfy://theirs")
    assert messages.notes == ()


def test_a_check_of_nodes_sends_no_messages() -> None:
    assert decided(slurm_profile(), (LAB,), preflight="only") == JobMessages()


def test_a_locked_site_leaves_out_the_destinations_of_the_profile() -> None:
    messages = decided(slurm_profile(notify=[LAB, "ntfy://theirs"]), (LAB,), LOCKED)
    assert receivers(messages) == (LAB,)
    note = "no messages to the destinations of the profile: Ask the help desk."
    assert messages.notes == (note,)


def test_a_locked_site_takes_a_profile_with_its_destinations() -> None:
    assert decided(slurm_profile(notify=[LAB]), (LAB,), LOCKED).notes == ()


def test_a_locked_site_refuses_other_destinations_of_an_option() -> None:
    with pytest.raises(PlanError, match=r"--notify ntfy://mine: .* the site has locked notify"):
        decided(slurm_profile(), (LAB,), LOCKED, notify=["ntfy://mine"])


def test_slurm_sends_the_mail_of_a_job() -> None:
    messages = decided(slurm_profile(), (LAB,), notify=[ADA])
    assert messages.mail["mail-user"] == "ada@example.org"
    assert messages.mail["mail-type"]


def test_a_job_without_slurm_gets_no_mail_from_it() -> None:
    with pytest.raises(UsageError, match="this job runs without Slurm"):
        decided(laptop(), notify=[ADA])


def test_configured_mail_is_no_error_without_slurm() -> None:
    messages = decided(laptop(), (ADA, LAB))
    assert messages.mail == {}
    assert receivers(messages) == (LAB,)


def test_a_variable_of_a_configured_destination_may_be_missing() -> None:
    assert decided(slurm_profile(), (TOPIC,)).notes == (
        f"no messages to {TOPIC}: TOPIC is not set",
    )
    assert decided(slurm_profile(), (TOPIC,), env={"TOPIC": "x"}).notes == ()


def test_a_variable_of_a_typed_destination_is_needed() -> None:
    with pytest.raises(UsageError, match="--notify: TOPIC is not set") as refused:
        decided(slurm_profile(), notify=[TOPIC])
    assert refused.value.hint == "read -rs TOPIC && export TOPIC"
