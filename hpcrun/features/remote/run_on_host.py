"""A command on one host, over the connection that ``hpcrun login`` has opened."""

from __future__ import annotations

import json
import os
import shlex
import signal
from typing import TYPE_CHECKING, Any

from hpcrun.actions.hooks import Elsewhere, hooks_of
from hpcrun.errors import HpcrunError, InterruptedByUser, SchedulerError, did_you_mean
from hpcrun.features.remote import (
    ATTACHED,
    DEFAULT_OUT,
    FOLDER,
    VERBOSE,
    WRITTEN,
    WRITTEN_TO,
    TypedHost,
    on_host,
)
from hpcrun.features.remote.connection import (
    MOST_BYTES,
    Connection,
    NotConnectedError,
    Remote,
    connection_to,
    known,
    known_hosts,
    remote_command,
    shell_setup,
)
from hpcrun.machine.coding_agent import AT_TERMINAL, VARIABLE, agent_in
from hpcrun.machine.on_terminal import SSH_FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WITH_CODE = ("submit", "import", "scale run", "dev")
"""Commands that read files of the project, which travel with them."""
_SNAPSHOT = ("submit", "scale run")
NO_FOLDER = 97
"""The exit status if the folder of the code is missing there; hpcrun has no such status."""


def run_on_one(host: str, words: list[str]) -> int:
    """Run a command line of hpcrun on a host; return its exit status.

    Raises:
        NotConnectedError: there is no connection, or it broke.
        HpcrunError: hpcrun is not there, or the code cannot be copied.
    """
    connection, remote = opened(host)
    folder = ""
    written = None
    verb = _verb_of(words)
    if _writes_files(verb, words) and not _asks_for_help(words):
        from hpcrun.features.remote.written_files import written_files

        written = written_files(connection, verb, words)
    if written:
        folder = written.source
        words = written.words
    if verb in _WITH_CODE and not _asks_for_help(words):
        from hpcrun.features.remote.code import send_code  # few commands take code along

        folder = send_code(connection, verb, words[words.index(verb.split()[-1]) + 1 :])
        if verb in _SNAPSHOT:
            place = words.index(verb.split()[-1]) + 1
            words = [*words[:place], "--snapshot", *words[place:]]
    there = Elsewhere(
        host,
        lambda line: _document(connection, script_of(remote, line, folder), folder),
        lambda argv: _argv(connection, remote, argv),
    )
    status = hooks_of(verb).run_partly_here(words, there)
    if status is not None:
        return status
    status = connection.session(
        script_of(remote, words, folder, str(written.target) if written else ""),
        on_terminal=os.isatty(0) and os.isatty(1),
        is_shell=verb == "dev",
    )
    status = _checked(connection, status, folder)
    if written:
        written.bring()
    return status


def opened(host: str) -> tuple[Connection, Remote]:
    """Return the open connection to a host, and what is known of hpcrun there.

    Raises:
        NotConnectedError: there is no open connection.
        SchedulerError: no hpcrun is known on the host.
    """
    remote = known(host)
    connection = connection_to(host, remote)
    if not connection.is_alive():
        lost = connection.lost()
        if remote is None:
            raise NotConnectedError(
                lost.message, hint=did_you_mean(host, known_hosts(), lost.hint or "")
            )
        raise lost
    if remote is None or not remote.hpcrun:
        raise SchedulerError(
            f"{host} has no hpcrun, as far as `hpcrun login` has seen",
            hint=f"hpcrun login {shlex.quote(host)} --install",
        )
    return connection, remote


def script_of(remote: Remote, words: Sequence[str], folder: str = "", written_to: str = "") -> str:
    """Return the script of sh that runs a command line of hpcrun in a folder on the host.

    The default folder is the home. ``written_to`` is the folder of this machine to which the
    files are copied that the command writes.
    """
    if folder:
        go = f"cd -- {shlex.quote(folder)} || exit {NO_FOLDER}"
        ceiling = folder.partition(f"/{FOLDER}/")[0] + f"/{FOLDER}"
        go += f"\nexport GIT_CEILING_DIRECTORIES={shlex.quote(ceiling)}"
    else:
        go = "cd"
    variables = f"{ATTACHED}={shlex.quote(TypedHost.name)}"
    agent = agent_in(os.environ)
    if agent:
        variables += f" {VARIABLE}={shlex.quote(agent)}"
    if os.isatty(0) or os.isatty(2):  # of the host's own streams, ssh may make pipes
        variables += f" {AT_TERMINAL}=1"
    if written_to:
        variables += f" {WRITTEN_TO}={shlex.quote(written_to)}"
    line = f"{variables} exec {shlex.join([remote.hpcrun, *words])}"
    return "\n".join([shell_setup(remote), go, line])


def _document(connection: Connection, script: str, folder: str) -> dict[str, Any]:
    """Run a script there, whose stderr is passed on; return the JSON document that it prints."""
    answer = bytearray()

    def take(chunk: bytes) -> None:
        answer.extend(chunk)
        if len(answer) > MOST_BYTES:
            raise SchedulerError(f"{connection.host}: it printed more than {MOST_BYTES >> 20} MiB")

    _checked(connection, connection.session(script, take=take), folder)
    return document_of(connection.host, answer.decode("utf-8", "replace"))


def document_of(host: str, stdout: str, stderr: str = "") -> dict[str, Any]:
    """Return the JSON document in the output of a host.

    Raises:
        SchedulerError: there is no document.
        HpcrunError: the document has an error.
    """
    document = parse_document(host, stdout, stderr)
    error = error_in(host, document)
    if error:
        raise error
    return document


def parse_document(host: str, stdout: str, stderr: str = "") -> dict[str, Any]:
    """Return the JSON document in the output of a host, which may have an error.

    The host may print anything: the fields of the document are checked at their use.

    Raises:
        SchedulerError: there is no document.
    """
    try:
        return dict(json.loads(stdout[stdout.find("{") :]))  # behind what start-up files print
    except (ValueError, TypeError, RecursionError):
        text = (stderr or stdout).strip()[-200:]
        raise SchedulerError(
            f"{host}: hpcrun printed no JSON document{text and f': {text}'}"
        ) from None


def error_in(host: str, document: Mapping[str, Any]) -> HpcrunError | None:
    """Return the error in a document of a host, None without an error."""
    error = document.get("error")
    if not isinstance(error, dict):
        return None
    hint = on_host(str(error.get("hint") or ""), host)
    failure = HpcrunError(f"{host}: {on_host(str(error.get('message')), host)}", hint=hint or None)
    code = error.get("exit_code")
    if isinstance(code, int) and 0 < code < 256:
        failure.exit_code = code
    return failure


def _argv(connection: Connection, remote: Remote, program: Sequence[str]) -> list[str]:
    """Return the ssh that runs a program there, with its stdin and stdout."""
    return [
        *connection.argv("-T"),
        remote_command(f"{shell_setup(remote)}\nexec {shlex.join(program)}"),
    ]


def _checked(connection: Connection, status: int, folder: str) -> int:
    """Return the exit status of a command there, or raise the error that the status stands for.

    Raises:
        InterruptedByUser: the user interrupts ssh.
        NotConnectedError: the connection is lost, or takes no further session.
        SchedulerError: the folder of the code is gone on the host.
    """
    if status == -signal.SIGINT:
        raise InterruptedByUser("interrupted")
    if status == SSH_FAILED or status < 0:
        is_alive = connection.is_alive()
        raise connection.lost(
            "" if is_alive else f"the connection to {connection.host} is lost; jobs there continue"
        )
    if status == NO_FOLDER:
        raise SchedulerError(
            f"the folder of the code is gone on {connection.host}: {folder}", hint="run it again"
        )
    return status


def _writes_files(verb: str, words: Sequence[str]) -> bool:
    """Return whether a command may write files; most do so only with an option."""
    option = WRITTEN.get(verb, "")
    if option == DEFAULT_OUT:
        return True
    return bool(option) and any(text.startswith(option) for text in words)


def _verb_of(words: Sequence[str]) -> str:
    plain = [text for text in words if text not in VERBOSE]
    first = " ".join(plain[:1])
    two = " ".join(plain[:2])
    return two if two in _WITH_CODE or two in WRITTEN else first


def _asks_for_help(words: Sequence[str]) -> bool:
    return not {"-h", "--help"}.isdisjoint(words[:3])
