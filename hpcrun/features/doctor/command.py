"""hpcrun doctor; and its checks at the end of hpcrun init."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.actions.hooks import Hooks, SetupChecks
from hpcrun.actions.ports import Surroundings
from hpcrun.cli.complete import profile_name
from hpcrun.cli.context import make_context
from hpcrun.cli.options import option
from hpcrun.cli.output import JsonOption, Outcome, table, width
from hpcrun.errors import PlanError
from hpcrun.views.text import fields_of, labelled, one_line

if TYPE_CHECKING:
    from rich.text import Text

    from hpcrun.features.doctor.check import Check, Checkup, Level

# A label for each level, since a pipe has no colours.
_LABELS: Mapping[Level, str] = {"green": "ok", "yellow": "warning", "red": "error"}
_LEVEL_WIDTH = max(map(len, _LABELS.values()))
_NAME_MOST = 20
_ROOM_LEAST = 30


def doctor(
    profile: str | None = option(
        "--profile -P NAME",
        "Cluster profile, by name or path. Default: as submit.",
        complete=profile_name,
    ),
    _json: JsonOption = False,
) -> Outcome:
    """Check this machine's setup for jobs, without a job.

    Checks Slurm, the profile, the runs folder, Python and torch in a few seconds.
    Exit status 4 if there is an error.
    """
    context = make_context()
    from hpcrun.features.doctor.check_up import check_up

    checkup = check_up(profile, context.surroundings, context.store.root)
    return Outcome(
        lambda: [table(checkup_text(checkup, width()))],
        lambda: checkup_json(checkup),
        status=0 if checkup.ok else PlanError.exit_code,
    )


class DoctorHooks(Hooks):
    """The checks of a profile that hpcrun init has written."""

    def check_setup(self, profile: str, surroundings: Surroundings, runs: Path) -> SetupChecks:
        """Return what doctor finds; an error of Python's prevents no test job."""
        from hpcrun.features.doctor.check_up import check_up

        checkup = check_up(profile, surroundings, runs)
        errors = [check for check in checkup.checks if check.level == "red"]
        failed = any(check.group != "Python" for check in errors)
        return SetupChecks(
            lambda columns: checkup_text(checkup, columns, brief=True),
            checkup_json(checkup),
            failed=failed,
        )


def checkup_text(checkup: Checkup, width: int, *, brief: bool = False) -> Text:
    """Return the checks by group, or in brief only the warnings and errors.

    The text is ``width`` columns wide, or wider where this width leaves no room for words.
    """
    from rich.text import Text

    text = Text()
    shown = [check for check in checkup.checks if not (brief and check.level == "green")]
    longest = max((len(one_line(check.name)) for check in shown), default=0)
    indent = 2 + _LEVEL_WIDTH + 2 + min(_NAME_MOST, longest) + 2
    width = max(width, indent + _ROOM_LEAST)
    for group in dict.fromkeys(check.group for check in shown):
        heading = group
        if group == "Profile" and checkup.profile:
            heading += f" {checkup.profile}"
        text.append(one_line(heading) + "\n", style="bold")
        for check in shown:
            if check.group == group:
                text.append(f"  {_LABELS[check.level]:<{_LEVEL_WIDTH}}", style=check.level)
                text.append(_check_text(check, indent, width))
    counts = Counter(check.level for check in checkup.checks)
    present = [level for level in _LABELS if counts[level]]
    text.append(", ".join(f"{counts[level]} {_LABELS[level]}" for level in present))
    return text


def _check_text(check: Check, indent: int, width: int) -> str:
    """Return what stands behind the level of a check: name, finding and fix."""
    before = " " * (2 + _LEVEL_WIDTH)
    lines = labelled(f"{before}  {one_line(check.name)}", _words(check.seen), indent, width)
    if check.fix:
        lines += labelled("", _words(f"fix: {check.fix}"), indent, width)
    return "".join(f"{line}\n" for line in lines).removeprefix(before)


def _words(text: str) -> str:
    return one_line(" ".join(text.split()))


def checkup_json(checkup: Checkup) -> dict[str, Any]:
    """Return the checks as a JSON document."""
    return {
        "kind": "doctor",
        **fields_of(checkup, "profile ok"),
        "checks": [asdict(each) for each in checkup.checks],
    }
