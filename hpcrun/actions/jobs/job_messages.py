"""The messages about a job: those that hpcrun sends, and the mail that Slurm sends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hpcrun.actions.hooks import hooks_of
from hpcrun.actions.ports import Surroundings
from hpcrun.errors import UsageError
from hpcrun.job.batch.sbatch_input import directives_in
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.request.notify_options import (
    Notify,
    decide_notify,
    is_slurms_mail,
    mail_types,
    variables_in,
)
from hpcrun.job.text.spelling import spell
from hpcrun.profiles.config import Config
from hpcrun.profiles.site_locks import NOTIFY


@dataclass(frozen=True, slots=True)
class JobMessages:
    """The messages about a job; by default there are none."""

    notify: Notify | None = None  # the messages that hpcrun sends
    mail: Mapping[str, str] = field(default_factory=dict)  # the directives for mail from Slurm
    notes: tuple[str, ...] = ()


def check_locked_destinations(typed: Iterable[str], config: Config, option: str) -> None:
    """Refuse a destination that is not the site's, if the site has locked the destinations.

    Args:
        typed: the destinations, or ``none``.
        config: the configuration.
        option: the option that names them, for the message.

    Raises:
        PlanError: there is such a destination; the hint is the site's sentence.
    """
    lock = config.site.locks.get(NOTIFY)
    if lock is None:
        return
    for to in typed:
        if to not in config.notify:
            where = f"notify in {lock.path} has the only destinations"
            raise lock.refusal(f"{option} {to}: {where}")


def check_locked_mail(script: str, config: Config) -> None:
    """Refuse a script whose mail Slurm would send elsewhere than the site has locked.

    Raises:
        PlanError: there is such an address; the hint is the site's sentence.
    """
    address = directives_in(script).get("mail-user")
    if address:
        mails = [f"mailto:{each}" for each in address.split(",")]
        check_locked_destinations(mails, config, "--mail-user")


_MAIL_SERVER = "'mailto://SERVER:25?from=ADDRESS&to=ADDRESS'"


def decide_messages(
    request: JobRequest, profile: Profile, surroundings: Surroundings
) -> JobMessages:
    """Decide which messages about a job are sent, and to whom.

    Raises:
        UsageError: --notify-on has no destination, a variable of a --notify destination is not set,
            or mail needs Slurm and the job has no Slurm.
    """
    config = surroundings.config
    lock = config.site.locks.get(NOTIFY)
    if lock:
        check_locked_destinations(request.notify, config, spell("notify"))
    known = _configured_destinations(request, profile, config)
    if not request.notify and not known:
        if request.notify_on:
            raise UsageError(
                f"{spell('notify-on')} has no effect: no destination is configured",
                hint=f"add {spell('notify', 'URL')}",
            )
        return JobMessages()
    events = request.notify_on or config.notify_on or profile.notify_on
    waiting_s = config.notify_waiting_s or profile.notify_waiting
    notify, address = decide_notify(request.notify, known, events, waiting_s)
    notes: tuple[str, ...] = ()
    if notify:
        notes = tuple(_check_destinations(request, notify, surroundings))
    if lock and set(profile.notify) - set(config.notify):
        notes += (f"no messages to the destinations of the profile: {lock.sentence}",)
    if not address:
        return JobMessages(notify, notes=notes)
    if profile.scheduler == "slurm":
        mail = {"mail-user": address, "mail-type": mail_types(events)}
        return JobMessages(notify, mail, notes)
    if any(is_slurms_mail(to) for to in request.notify):
        raise UsageError(
            f"{spell('notify', f'mailto:{address}')}: Slurm sends this mail, and this job runs "
            "without Slurm",
            hint=f"name a mail server: {spell('notify', _MAIL_SERVER)}",
        )
    return JobMessages(notify, notes=notes)


def _configured_destinations(
    request: JobRequest, profile: Profile, config: Config
) -> tuple[str, ...]:
    """Return the destinations of a job besides those that the user types."""
    if request.preflight == "only":  # a check of nodes sends no messages: its user waits for it
        return ()
    if config.site.locks.get(NOTIFY):
        return config.notify
    return config.notify + profile.notify


def _check_destinations(
    request: JobRequest, notify: Notify, surroundings: Surroundings
) -> Iterator[str]:
    """Check the destinations of messages, and yield a note on each that gets no messages.

    Raises:
        UsageError: a variable of a destination that the user typed is not set.
    """
    for to in notify.to:
        missing = [name for name in variables_in(to) if not surroundings.env.get(name)]
        if missing and to in request.notify:
            raise UsageError(
                f"{spell('notify')}: {missing[0]} is not set",
                hint=f"read -rs {missing[0]} && export {missing[0]}",
            )
        if missing:
            yield f"no messages to {to}: {missing[0]} is not set"
        elif to in request.notify:
            hooks_of("notify").check_destination(to, surroundings.env)
