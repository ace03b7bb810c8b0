"""hpcrun init."""

from __future__ import annotations

import difflib
import os.path
import shlex
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hpcrun.actions.hooks import hooks_of
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.jobs.submission import submit
from hpcrun.actions.profiles import init_choices
from hpcrun.actions.profiles.detect import Choices, ask_cluster, detected_profile
from hpcrun.actions.profiles.detect_types import accounts_of, gpu_offers
from hpcrun.actions.profiles.edit import FileChange, plan_config
from hpcrun.actions.user_choice import Choice, Picker, first_option
from hpcrun.cli.confirm import ask, choose, confirm
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.options import flag, option
from hpcrun.cli.output import (
    JsonOption,
    Outcome,
    Outcomes,
    can_ask,
    note,
    printed,
    stdout,
    table,
    tell,
    width,
)
from hpcrun.cli.profile_edit import overruled, own_place
from hpcrun.cli.submit_end import run_end
from hpcrun.errors import InterruptedByUser, ProfileError, UsageError
from hpcrun.job.profile_model import Profile
from hpcrun.machine.process import SlurmSite
from hpcrun.profiles.config import FILE_NAME
from hpcrun.profiles.load import load_profile, profile_names
from hpcrun.schedulers.cluster_facts import ClusterFacts
from hpcrun.views.plan_text import submitted_json
from hpcrun.views.text import fields_of, one_line

_NOTHING_WRITTEN = InterruptedByUser("interrupted; nothing was written")


def init(
    account: str | None = option("--account -A NAME", "Account to charge (sbatch --account)."),
    gpu_type: str | None = option(
        "--gpu-type TYPE", "GPU type that --gpus 4 means; none for no default type."
    ),
    launcher: str | None = option(
        "--launcher NAME",
        "What starts the ranks of jobs: torchrun or srun. Default: ask; without a terminal, "
        "torchrun.",
    ),
    runs: str | None = option(
        "--runs DIR", "Folder of the runs, on a file system that all nodes share."
    ),
    name: str | None = option("--name NAME", "Name of the profile. Default: the cluster's name."),
    test: bool | None = option(
        "--test/--no-test",
        "Submit a test job of under a minute. Default: ask; without a terminal, no.",
    ),
    yes: bool = flag("--yes -y", "Take the suggested answers; no test job without --test."),
    force: bool = flag(
        "--force", "Replace an existing profile by the detected one. The old file is kept."
    ),
    dry_run: bool = flag("--dry-run", "Print what would be written, and write nothing."),
    as_json: JsonOption = False,
) -> Outcomes:
    """Set hpcrun up on this cluster: write your profile and make it the default.

    Asks for what Slurm does not tell, checks the setup as hpcrun doctor does, and offers a test
    job. A second run changes only what you change.
    """
    context = make_context()
    asks = can_ask() and not (yes or as_json)
    typed = Choices(account, gpu_type, launcher)
    chosen = _Chosen(typed, runs, name, asks=asks, suggested=yes, anew=force)
    with interrupted_as(_NOTHING_WRITTEN):
        reason = context.scheduler("slurm").unavailable()
        if reason:
            yield note([f"hpcrun: {reason}: jobs will run on this machine, with the profile local"])
            setup = _without_slurm(chosen, context)
        else:
            setup = yield from _on_cluster(chosen, context)
        if dry_run:
            if not as_json:
                yield note(_chosen_lines(setup))
            yield Outcome(lambda: [stdout(_files_lines(setup))], lambda: _setup_json(setup))
            return
        if not _agreed(setup, asks=asks, agreed=yes or force):
            remark = "nothing was written; hpcrun init --name NAME writes another profile"
            yield note([f"hpcrun: {remark}"])
            return

    kept = init_choices.write_setup(setup, own_place(context))
    yield printed(_setup_lines(setup, kept))
    yield overruled(setup.name)
    yield from _check_and_try(setup, test, asks=asks, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The typed values, and the means to complete them."""

    typed: Choices
    runs: str | None
    name: str | None
    asks: bool
    suggested: bool
    anew: bool


def _without_slurm(chosen: _Chosen, context: Context) -> init_choices.Setup:
    if chosen.name or chosen.typed != Choices():
        raise UsageError(
            "--account, --gpu-type, --launcher and --name have no effect without Slurm",
            hint="on a cluster, sbatch must be on PATH: log in to its login node, or load its "
            "Slurm module first",
        )
    folder = _runs(chosen, context)
    config, instead_of = plan_config("local", context.user_folder / FILE_NAME, folder)
    return init_choices.Setup("local", None, config, instead_of, folder)


def _on_cluster(chosen: _Chosen, context: Context) -> Generator[Outcome, None, init_choices.Setup]:
    """Detect the cluster, ask for open choices, and return the files to write."""
    site = SlurmSite(context.env)
    place = own_place(context)
    facts = ask_cluster(site)
    shipped = set(profile_names([context.profile_layers["shipped"]]))
    name = chosen.name or init_choices.default_name(facts, shipped)
    existing = init_choices.existing_profile(name, place, anew=chosen.anew)
    init_choices.check_choices(chosen.typed, facts)
    yield note(_cluster_lines(facts))
    picker = _picker(chosen)
    choices = _choices(facts, existing, chosen, picker)
    runs = _runs(chosen, context)
    folders = context.surroundings.profile_folders
    of_profile = choices
    if choices.gpu_type == init_choices.NONE:
        of_profile = replace(choices, gpu_type=None)  # then the type has no line
    detected = detected_profile(facts, site, context.host, folders, of_profile)
    yield note(f"hpcrun: {warning}" for warning in detected.warnings)
    config = context.user_folder / FILE_NAME
    setup = init_choices.plan_setup(name, detected, choices, config, runs, place, anew=chosen.anew)
    if chosen.asks:
        return setup
    return replace(setup, chosen=tuple(picker.made))


def _choices(
    facts: ClusterFacts, existing: Profile | None, chosen: _Chosen, picker: Picker
) -> Choices:
    """Ask for the choices that the cluster leaves and nobody typed.

    Raises:
        unmade: a UsageError with the options to add, if a choice needs a terminal and there is
            none.
    """
    account = chosen.typed.account
    gpu_type = chosen.typed.gpu_type
    launcher = chosen.typed.launcher
    if existing is not None and not chosen.asks:
        if not chosen.anew:
            return chosen.typed  # values that are not typed do not change
        account = account or existing.account
        gpu_type = gpu_type or existing.gpu.type
        launcher = launcher or existing.launcher
    if account is None and not chosen.asks and facts.default_account in accounts_of(facts):
        account = facts.default_account
    if account is None:
        account = _answer(init_choices.account_choice(facts, existing), picker)
    if gpu_type is None:
        gpu_type = _answer(init_choices.gpu_choice(facts, account, existing), picker)
    if launcher is None and chosen.asks:
        launcher = _answer(init_choices.launcher_choice(facts, existing), picker)
    if picker.unmade:
        raise init_choices.unmade(picker.unmade)
    return Choices(account, gpu_type, launcher)


def _answer(choice: Choice | None, picker: Picker) -> str | None:
    """Return the answer to a choice; None if there is no choice."""
    return None if choice is None else picker.pick(choice)


def _picker(chosen: _Chosen) -> Picker:
    if chosen.asks:
        return Picker(partial(choose, interrupted=_NOTHING_WRITTEN.message))
    return Picker(first_option if chosen.suggested else None)


def _runs(chosen: _Chosen, context: Context) -> str | None:
    """Return the runs folder to set, None if the folder does not change.

    A note says that existing runs are not moved.

    Raises:
        UsageError: if the typed folder is not suitable, and nobody can be asked for another one.
    """
    current = str(context.store.root)
    asks = chosen.asks and chosen.runs is None and not context.env.get("HPCRUN_RUNS")
    while True:
        answer = chosen.runs or current
        if asks:
            answer = ask("Folder of the runs, which all nodes must see", default=current).strip()
        folder = os.path.abspath(context.cwd / os.path.expanduser(answer))
        if folder == current:
            return None
        problem = init_choices.runs_problem(Path(folder))
        if problem is None:
            break
        if not asks:
            raise UsageError(
                f"--runs {answer}: {problem}",
                hint="name a folder on a file system that all nodes see",
            )
        tell([problem])
    number = len(context.store.run_ids())
    if number:
        old = shlex.quote(current)
        tell([f"note: {number} runs stay in {old}; HPCRUN_RUNS={old} hpcrun status shows them"])
    return folder


def _agreed(setup: init_choices.Setup, *, asks: bool, agreed: bool) -> bool:
    """Show what would change in an existing profile, ask, and return whether the answer was yes.

    Raises:
        ProfileError: if the profile would change, and nobody agreed or can be asked.
    """
    change = setup.profile
    if agreed or change is None or change.before is None or not change.changed:
        return True
    tell(_diff_lines(change))
    if not asks:
        raise ProfileError(
            f"{change.path} exists, and would be changed as shown",
            hint="add --yes, or choose another --name",
        )
    return confirm(f"Change {change.path}?", interrupted=_NOTHING_WRITTEN.message)


def _check_and_try(
    setup: init_choices.Setup, test: bool | None, *, asks: bool, as_json: bool
) -> Outcomes:
    """Run doctor's checks, offer the test job, and print what to type next."""
    context = make_context(announce=None)  # with the files just written
    checks = hooks_of("doctor").check_setup(setup.name, context.surroundings, context.store.root)
    document: dict[str, Any] = {**_setup_json(setup), "written": True, "doctor": None, "test": None}
    if checks:
        document["doctor"] = checks.document
        slurm = "Slurm, " if setup.profile else ""
        checked = (
            f"checked    {slurm}the profile, the runs folder and Python (all checks: hpcrun doctor)"
        )
        yield Outcome(lambda: [stdout([checked]), table(checks.text(width()))], lambda: document)
    profile = load_profile(setup.name, context.surroundings.profile_folders).profile
    job = init_choices.trial_size(setup.detected, profile.gpu.type)
    if test is None and checks and checks.failed:
        yield note(
            ["hpcrun: no test job, because of the errors above; afterwards: hpcrun init --test"]
        )
    elif test is None and asks:
        test = confirm(
            f"Submit a test job of under a minute ({job.words})?",
            default=True,
            interrupted="interrupted; the files are written, and no job was submitted",
        )
    if test:
        prepared = init_choices.prepare_trial(
            job, setup.name, context.surroundings, context.machine
        )
        ended = yield from _try(prepared, context, follow=not as_json)
        document["test"] = ended.document() if ended.document else None
        yield replace(ended, document=lambda: document)
        if ended.failure:
            return
    commands = init_choices.next_commands(setup, profile.gpu.type)
    yield printed(_next_lines(commands), lambda: document)


def _try(
    prepared: Prepared, context: Context, *, follow: bool
) -> Generator[Outcome, None, Outcome]:
    """Submit the test job, wait for its end, and return how it ended."""
    result = submit(prepared, context.ports, context.surroundings)
    yield Outcome(document=lambda: submitted_json(result))
    yield note([f"hpcrun: waiting for test job {result.run.job_id}; Ctrl-C stops waiting"])
    yield note(result.remarks.splitlines())
    return run_end(result, context, follow=follow)


# --- what it shows ---


def _cluster_lines(facts: ClusterFacts) -> list[str]:
    """Return what a cluster is, in a few lines."""
    name = facts.config.get("ClusterName", "unknown")
    version = facts.config.get("SLURM_VERSION", "of unknown version")
    offers = []
    for offer in gpu_offers(facts):
        gpu_type = offer.type or "GPU"
        offers.append(f"{gpu_type} ({offer.nodes} × {offer.per_node})")
    gpus = ", ".join(offers) or ("none" if facts.kinds else "unknown")
    accounts = ", ".join(accounts_of(facts)) or "unknown"
    return [
        one_line(f"cluster    {name}, Slurm {version}"),
        one_line(f"GPUs       {gpus}"),
        one_line(f"accounts   {accounts}"),
    ]


def _chosen_lines(setup: init_choices.Setup) -> list[str]:
    """Return what --yes has chosen, and how to choose otherwise."""
    lines = []
    for choice, answer in setup.chosen:
        others = ", ".join(choice.flags_besides(answer))
        lines.append(one_line(f"chosen     {choice.what} {answer}, by --yes; others: {others}"))
    return lines


def _setup_lines(setup: init_choices.Setup, kept: Path | None) -> list[str]:
    """Return what was chosen and written, and where the old text of the profile is kept."""
    lines = _chosen_lines(setup)
    if setup.profile:
        if not setup.profile.changed:
            label = "unchanged"
        elif setup.profile.before:
            label = "changed"
        else:
            label = "written"
        lines.append(f"{label:<9}  {setup.profile.path}")
    if kept:
        lines.append(f"kept       {kept}, the profile until now")
    default = f"default    {setup.name}"
    if setup.instead_of:
        default += f" instead of {setup.instead_of}"
    lines.append(f"{default}, in {setup.config.path}")
    if setup.runs:
        lines.append(f"runs       {setup.runs}")
    if setup.outdated:
        keys = ", ".join(setup.outdated)
        remark = f"note       the profile has other values than Slurm reports for {keys}"
        lines.append(f"{remark}; hpcrun init --force")
        lines.append("           replaces it by the detected profile, and keeps the old file")
    return [one_line(line) for line in lines]


def _files_lines(setup: init_choices.Setup) -> list[str]:
    """Return what would be written: the text of a new file, the difference of one that exists."""
    lines: list[str] = []
    for change in setup.files:
        if not change.changed:
            lines.append(one_line(f"# {change.path}: unchanged"))
        elif change.before is None:
            lines += [one_line(f"# {change.path}:"), *change.after.splitlines()]
        else:
            lines += _diff_lines(change)
    return lines


def _diff_lines(change: FileChange) -> list[str]:
    """Return the difference between a file as it is and as it should be."""
    before = (change.before or "").splitlines()
    after = change.after.splitlines()
    lines = difflib.unified_diff(
        before, after, f"{change.path} (now)", f"{change.path} (new)", lineterm="", n=1
    )
    return [one_line(line) for line in lines]


def _next_lines(commands: Sequence[tuple[str, str]]) -> list[str]:
    """Return the commands to type next, each with what it does."""
    width = max(len(command) for command, _ in commands)
    lines = []
    label = "next"
    for command, purpose in commands:
        lines.append(f"{label:<9}  {command:<{width}}  # {purpose}")
        label = ""
    return lines


def _setup_json(setup: init_choices.Setup) -> dict[str, Any]:
    """Return what is to be written as a JSON document."""
    files = []
    for change in setup.files:
        files.append({**fields_of(change, "path changed before"), "text": change.after})
    chosen = []
    for choice, answer in setup.chosen:
        others = choice.flags_besides(answer)
        chosen.append({"what": choice.what, "value": answer, "others": others})
    return {
        "kind": "init",
        "profile": setup.name,
        "scheduler": "slurm" if setup.profile else "local",
        **fields_of(setup, "runs instead_of outdated"),
        "chosen": chosen,
        "written": False,
        "files": files,
    }
