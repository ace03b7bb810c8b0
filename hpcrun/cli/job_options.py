"""The options of a job for commands: those of its request, the profile, and those of its start."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hpcrun.cli import complete
from hpcrun.cli.help_page import SELDOM
from hpcrun.cli.options import HelpPanel
from hpcrun.job.request.job_request import JOB_FIELDS
from hpcrun.job.request.option_panels import PROFILE, PROGRAM
from hpcrun.job.request.options import DeclaredOption, OptionPanel, option_in, options_of

SUBMISSION = HelpPanel("Submission")
NEW_RUN = OptionPanel("Submission")
"""What only a new run has: a file of its roles, and a folder."""
AFTER = OptionPanel("Submission")
DRY_RUN = OptionPanel("Submission")
CHAIN_AND_WAIT = OptionPanel("Submission")
"""Which jobs follow, whether the command waits for the end, and what it prints."""
_PROFILE = PROFILE.text(
    "--profile -P NAME",
    "Cluster profile, by name or path. Default: the one `profile list` marks.",
    complete=complete.profile_name,
)
_COMPLETIONS = {
    "partition": complete.partition,
    "account": complete.account,
    "qos": complete.qos,
    "launcher": complete.launcher,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """When a job starts, which jobs follow, and what is done besides submitting it."""

    roles_file: str | None = NEW_RUN.text(
        "--roles FILE",
        "Read the roles of the job from a YAML file, in place of SCRIPT.",
        seldom=True,
    )
    output_dir: str | None = NEW_RUN.text(
        "--output-dir DIR",
        "Folder for the run. Default: one per run in the runs folder.",
        seldom=True,
    )
    after: tuple[str, ...] = AFTER.several(
        "--after RUN[:ok|any|fail]",
        "Start after RUN (sbatch --dependency): ok, the default, if it completed; fail, if "
        "it failed; any. Repeatable.",
        complete=complete.run_name,
    )
    chain: str | None = CHAIN_AND_WAIT.text(
        "--chain N[:any]",
        "Submit N jobs in a row, each continuing from the checkpoints of the one before, "
        "until one completes. With :any, continue after any end.",
        seldom=True,
    )
    chain_anyway: bool = CHAIN_AND_WAIT.flag(
        "--chain-anyway",
        "Continue the chain even if a link makes no new checkpoint and no new step.",
        seldom=True,
    )
    parsable: bool = CHAIN_AND_WAIT.flag(
        "--parsable",
        "Print the job id alone, the rest on stderr (sbatch --parsable). A line for each job.",
        seldom=True,
    )
    note: str | None = CHAIN_AND_WAIT.text(
        "--note TEXT",
        "Note on the run: one line of at most 200 characters, with tags such as #paper. `hpcrun "
        "note` changes it.",
    )
    dry_run: bool = DRY_RUN.flag("--dry-run", "Print the script and submit nothing.")
    follow: bool = CHAIN_AND_WAIT.flag(
        "--follow -f", "Follow the log of rank 0 until the job ends."
    )
    wait: bool = CHAIN_AND_WAIT.flag(
        "--wait", "Wait until the job ends. Exit status 0 if it completed, else 7."
    )


def _job_options() -> dict[str, DeclaredOption]:
    """Return the profile and the options of a request, in the order of ``--help``."""
    options: dict[str, DeclaredOption] = {}
    for name, option in JOB_FIELDS.items():
        if name == "partition":
            options["profile"] = option_in(_PROFILE)
        if name in _COMPLETIONS:
            options[name] = replace(option, complete=_COMPLETIONS[name])
        elif option.panel is not PROGRAM:
            options[name] = option
    return options


JOB_SCRIPT = {name: option for name, option in JOB_FIELDS.items() if option.panel is PROGRAM}
"""The script of a job, and its arguments."""
JOB_OPTIONS = _job_options()
"""One option for each other field of ``JobRequest``, and the profile."""
START_OPTIONS = options_of(StartOptions)
for _options in (JOB_OPTIONS, START_OPTIONS):
    SELDOM.update(name for name, option in _options.items() if option.seldom)
