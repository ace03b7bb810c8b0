"""The options of a job's submission: its name, and the messages about it. The last ones in ``--help``."""

# Annotations that are text would be compiled anew for each command that reads them.
from typing import Annotated, Any

import typer

SUBMISSION = "Submission"


def job_option(*names: str, help: str, panel: str, metavar: str | None = None, complete: Any = None) -> Any:
    return typer.Option(
        *names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False, autocompletion=complete
    )


class SubmissionOptions:
    """Fields of ``JobRequest``, as in ``JobOptions``."""

    name: Annotated[
        str | None,
        job_option(
            "--name",
            "-J",
            metavar="NAME",
            help="Job name (sbatch --job-name). Default: the script's name.",
            panel=SUBMISSION,
        ),
    ] = None
    notify: Annotated[
        list[str] | None,
        job_option(
            "--notify",
            metavar="URL",
            panel=SUBMISSION,
            help="Send messages there: an apprise URL (ntfys://HOST/TOPIC), '$NAME' of a variable that holds one, or "
            "mailto:ADDRESS. `none` removes the configured ones. Repeatable.",
        ),
    ] = None
    notify_on: Annotated[
        str | None,
        job_option(
            "--notify-on",
            metavar="EVENTS",
            panel=SUBMISSION,
            help="Events to send messages about, with commas: started, first-step, failed, finished, waiting, idle. "
            "Default: all.",
        ),
    ] = None
    mail_user: Annotated[
        str | None,
        job_option("--mail-user", metavar="ADDRESS", help="Send mail to this address (sbatch).", panel=SUBMISSION),
    ] = None
    mail_type: Annotated[
        str | None,
        job_option("--mail-type", metavar="EVENTS", help="Events to mail about (sbatch): END, FAIL.", panel=SUBMISSION),
    ] = None
