"""Several clusters at once: ``status`` of all, and ``submit`` on one of them.

``status`` shows all clusters in one table. ``submit`` uses the cluster where the job would start
first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hpcrun.cli.output import Outcome, TextPart, finish, render, stderr, table, tell, want_json
from hpcrun.errors import HpcrunError, PlanError, UsageError
from hpcrun.features.remote import VERBOSE, TypedHost
from hpcrun.features.remote.line_options import options_of, split_options
from hpcrun.features.remote.run_on_host import document_of, opened, run_on_one, script_of
from hpcrun.views.text import clock_text, count, start_text, text_table

_ANSWER_S = 30.0
_NEVER_S = 1e11
"""The start of an offer that names none."""
_NOT_MERGED = ("--watch", "--csv", "--columns", *VERBOSE, "--gpus")
_HEADINGS = ("CLUSTER", "NAME", "JOB", "PROFILE", "STATE", "SIZE", "ELAPSED", "NODES (REASON)")


def run_on_several(hosts: Sequence[str], words: Sequence[str]) -> int:
    """Run ``status`` or ``submit`` on several hosts; return the exit status.

    Raises:
        UsageError: the command is neither ``status`` nor ``submit``.
    """
    verb = next((text for text in words if text not in VERBOSE), "")
    options = list(words)
    if verb:
        options.remove(verb)  # -v may stand before the command, too
    if verb == "status":
        want_json("--json" in words)
        status = render(_merged_status(hosts, options))
        finish(status)
        return status
    if verb == "submit":
        TypedHost.name = _first_to_start(hosts, options)
        return run_on_one(TypedHost.name, list(words))
    raise UsageError(
        f"{verb or 'hpcrun'} takes one --on HOST", hint="several hosts: status, submit"
    )


def _documents(
    hosts: Sequence[str], words: Sequence[str]
) -> dict[str, dict[str, Any] | HpcrunError]:
    """Return the JSON document that a command prints on each host, or why there is none."""

    def ask(host: str) -> dict[str, Any] | HpcrunError:
        try:
            connection, remote = opened(host)
            done = connection.run(script_of(remote, [*words, "--json"]), timeout_s=_ANSWER_S)
            return document_of(host, done.stdout, done.stderr)
        except HpcrunError as error:
            return error

    with ThreadPoolExecutor(len(hosts)) as pool:
        return dict(zip(hosts, pool.map(ask, hosts), strict=True))


def _merged_status(hosts: Sequence[str], words: Sequence[str]) -> Outcome:
    wrong = [option for option in words if option in _NOT_MERGED]
    if wrong:
        raise UsageError(f"status {wrong[0]} takes one --on HOST")
    line = ["status", *(text for text in words if text != "--json")]
    failures: dict[str, HpcrunError] = {}
    runs: list[dict[str, Any]] = []
    for host, document in _documents(hosts, line).items():
        if isinstance(document, HpcrunError):
            failures[host] = document
            continue
        for run in _list(document.get("runs")):
            if isinstance(run, dict):
                runs.append({**run, "on": host})
    runs.sort(key=lambda run: _number(run.get("created_s")))
    messages = _messages(failures.values())
    rows = [_row(run) for run in runs]

    def parts() -> list[TextPart]:
        if not rows:
            return [stderr(messages)]
        shown = table(text_table(_HEADINGS, rows, whole=_HEADINGS[:-1]))
        return [shown, stderr(messages)]

    failed = {host: error.message for host, error in failures.items()}
    return Outcome(
        parts,
        lambda: {"kind": "status", "runs": runs, "failed": failed},
        status=max((error.exit_code for error in failures.values()), default=0),
    )


def _messages(errors: Iterable[HpcrunError]) -> list[str]:
    messages = []
    for error in errors:
        messages.append(f"hpcrun: {error.message}")
        if error.hint:
            messages.append(f"hint: {error.hint}")
    return messages


def _row(run: Mapping[str, Any]) -> list[str]:
    why = run.get("cause") or run.get("reason") or ""
    nodes = int(_number(run.get("nodes")))
    gpus = int(_number(run.get("gpus_per_node")))
    place = str(run.get("hosts") or "")
    if why:
        place = f"{place} ({why})" if place else f"({why})"
    return [
        str(run["on"]),
        str(run.get("name")),
        str(run.get("job_id") or "-"),
        str(run.get("profile")),
        str(run.get("state")),
        f"{nodes}×{gpus}" if gpus else count(nodes, "node"),
        clock_text(int(_number(run.get("elapsed_s")))),
        place,
    ]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in _list(value) if isinstance(item, dict)]


def _number(value: object) -> float:
    if isinstance(value, (int, float)) and 0 <= value < 1e11:
        return value
    return 0


def _first_to_start(hosts: Sequence[str], words: Sequence[str]) -> str:
    """Return the host on which a job would start first, and print its name.

    The answers of each host's ``where`` decide this.

    Raises:
        PlanError: no host can start the job.
    """
    answers = _documents(hosts, ["where", *_job_words(words)])
    starts: dict[str, float] = {}
    for host, answer in answers.items():
        if isinstance(answer, HpcrunError):
            tell([f"hpcrun: {answer.message}"])
            continue
        offers = _objects(answer.get("offers"))
        if offers:
            starts[host] = min(_number(offer.get("start_s")) or _NEVER_S for offer in offers)
        elif any(misfit.get("waits") for misfit in _objects(answer.get("misfits"))):
            tell([f"hpcrun: on {host} the job waits for nodes: hpcrun --on {host} where"])
        else:
            tell([f"hpcrun: the job fits no profile of {host}"])
    if not starts:
        raise PlanError(
            "no cluster of these can start the job",
            hint="hpcrun --on HOST where, with the same options",
        )
    now_s = time.time()
    first = min(starts, key=lambda host: starts[host])
    text = f"cluster    {first}: {start_text(starts[first], now_s)}"
    others = [host for host in starts if host != first]
    if others:
        starts_there = [f"{host}: {start_text(starts[host], now_s)}" for host in others]
        text += f" ({'; '.join(starts_there)})"
    tell([text])
    return first


def _job_words(words: Sequence[str]) -> list[str]:
    """Return those options of a ``submit`` line that decide when and where its job starts."""
    of_where = options_of("where").keys() - {"--json"}
    options, _ = split_options("submit", words)
    shared: list[str] = []
    for option in options:
        name = option[0].partition("=")[0]
        if name in of_where:
            shared += option
    return shared
