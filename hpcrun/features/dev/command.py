"""hpcrun dev: submits a job to work in, or joins one.

It opens a shell, ssh, an editor or Jupyter on the job's node.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from hpcrun.actions.hooks import Elsewhere, Hooks
from hpcrun.actions.runs.allocation import check_running, open_shell
from hpcrun.actions.status.run_status import RunStatus, one_element
from hpcrun.actions.status.status_query import one_status
from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.job_options import AFTER, DRY_RUN, JOB_OPTIONS, START_OPTIONS
from hpcrun.cli.options import HelpPanel, argument, check_one_of, flag, read_duration, takes_options
from hpcrun.cli.output import (
    JsonOption,
    Outcome,
    Outcomes,
    finish,
    note,
    printed,
    render,
    show,
    tell,
    want_json,
    wants_json,
)
from hpcrun.errors import HpcrunError, InterruptedByUser, SchedulerError, UsageError
from hpcrun.features.dev import PROGRAM
from hpcrun.features.dev.dev_run import DevRun
from hpcrun.features.dev.ssh_files import (
    PUBLIC_KEY,
    Address,
    is_included,
    new_key,
    public_key,
    read_address,
    write_config,
)
from hpcrun.job.job_states import TIMEOUT
from hpcrun.job.request.job_request import option_of
from hpcrun.job.request.option_panels import (
    CONTAINER,
    ENVIRONMENT,
    NAME_AND_MAIL,
    PLACEMENT,
    PROFILE,
    RESOURCES,
    SIZE,
)
from hpcrun.machine.on_terminal import run_on_terminal
from hpcrun.machine.process import run_command

if TYPE_CHECKING:
    from hpcrun.actions.hooks import Level

_IDLE = "60m"
_NEAR_S = 90.0  # before the expected end of a job, or after it
_ENDS_WITHIN_S = 15
_OPEN = HelpPanel("On the node")
_PANELS = (
    SIZE,
    RESOURCES,
    PROFILE,
    PLACEMENT,
    ENVIRONMENT,
    CONTAINER,
    NAME_AND_MAIL,
    AFTER,
    DRY_RUN,
)
_GETS = {
    "shell": "a shell on the node",
    "ssh": "ssh to the node",
    "code": "VS Code on the node",
    "jupyter": "Jupyter on the node",
}
"""Way of working on the node → what the user gets."""
_NOT_JSON = UsageError("--json describes a connection of ssh", hint="hpcrun dev --ssh --json")
_TOKEN_LINE = re.compile(rb'\{"token": "([0-9a-f]{16,128})"\}\n')
_VSCODE = (
    '"remote.SSH.remoteServerListenOnSocket": true    (else its server has a TCP port on the node)',
    '"remote.SSH.lockfilesInTmp": true    (locks do not work on many home folders)',
)


@takes_options(JOB_OPTIONS, START_OPTIONS, panels=_PANELS, own_first=True)
def dev(
    options: dict[str, Any],
    run: str | None = argument(
        "RUN", "A run that is pending or running. Default: a new job.", complete=run_name
    ),
    jupyter: bool = _OPEN.flag(
        "--jupyter", "Start Jupyter on the node, and forward it to a port of this machine."
    ),
    code: bool = _OPEN.flag("--code", "Open VS Code, or print its command."),
    ssh: bool = _OPEN.flag("--ssh", "Let ssh, scp, rsync and editors connect: ssh hpcrun-JOB."),
    idle: str | None = _OPEN.option(
        "--idle TIME",
        f"End the job after so long without use: 30m, 3h; 0 for never. Default: {_IDLE}.",
    ),
    key: str | None = _OPEN.option(
        "--key KEY", "Public key of another machine, which may connect. With --json."
    ),
    yes: bool = flag("--yes -y", "Add the Include line to ~/.ssh/config without a question."),
    _json: JsonOption = False,
) -> Outcomes:
    """Work on a node: open a shell in a new job, or in one that runs.

    The job continues when you leave, until its time limit, hpcrun cancel, or an hour
    without use. Without --jupyter, --code or --ssh it opens a shell.
    """
    check_one_of(jupyter=jupyter, code=code, ssh=ssh)
    way = _way(jupyter=jupyter, code=code, ssh=ssh or key is not None)
    if key and not (wants_json() and PUBLIC_KEY.fullmatch(key)):
        raise UsageError("--key takes an ed25519 public key, with --json")
    if wants_json() and not key and way in ("shell", "jupyter"):
        raise _NOT_JSON
    idle_s = _idle_seconds(idle)
    context = make_context()
    if run is None:
        dev_run = yield from _submit(options, context, way, idle or _IDLE, idle_s)
    else:
        _check_no_job_options(options)
        dev_run = yield from _join(run, context, way, idle, idle_s)
    if dev_run is None:
        return
    item = dev_run.status()
    if item.run.nodes > 1:
        first = f"on the first of {item.run.nodes} nodes, {item.status.hosts}"
        other = f"a shell on another: hpcrun shell {item.run.job_id} --node NAME"
        yield note([f"hpcrun: {first}; {other}"])
    if way == "shell":
        yield from _shell(dev_run, item)
        return
    if key:
        yield Outcome(document=partial(dev_run.open, item, key))
        return
    with new_key() as path:
        document = dev_run.open(item, public_key(path))
        door = read_address(document)
        lost = f"job {door.job} cannot be reached: `hpcrun status {door.job}` says whether it runs"
        config = write_config(door, path, door.relay, lost)
    yield _connect(door, config, way, document, lambda: dev_run.status().status.state, yes=yes)


def _way(*, jupyter: bool, code: bool, ssh: bool) -> str:
    """Return how a person works on the node."""
    if jupyter:
        return "jupyter"
    if code:
        return "code"
    return "ssh" if ssh else "shell"


def _idle_seconds(idle: str | None) -> int | None:
    if idle is None:
        return None
    return 0 if idle == "0" else read_duration("--idle", idle)


def _join(
    run: str, context: Context, way: str, idle: str | None, idle_s: int | None
) -> Generator[Outcome, None, DevRun | None]:
    """Return a run that is pending or running; None if only its idle limit was to be changed."""
    [named] = yield from context.named([run])
    status = one_status(named.run.run_id, context.ports).runs[0]
    item, remark = one_element(status, named.element)
    yield note([remark])
    dev_run = DevRun(context, named.run.run_id, item.element or 0)
    if idle_s is not None:
        dev_run.change_idle(idle_s)
        end = f"ends after {idle} without use" if idle_s else "does not end without use"
        yield printed([f"idle       job {item.run.job_id} {end}"])
        if way == "shell":
            return None
    if item.run.request.get("script") == PROGRAM and not item.status.final:
        dev_run.wait_until_ready()
    return dev_run


def _shell(dev_run: DevRun, item: RunStatus) -> Outcomes:
    check_running(item, "hpcrun dev")
    job = item.run.job_id
    is_terminal = os.isatty(0)
    if is_terminal:
        yield note([f"Shell in job {job}. Type exit to leave."])
    status = open_shell(item, None, dev_run.context.env, is_terminal=is_terminal)
    after = dev_run.status().status
    if after.final:
        yield note([f"hpcrun: job {job} has ended: {after.state}"])
    elif item.run.request.get("script") == PROGRAM:
        commands = f"`hpcrun dev {job}` returns to it, `hpcrun cancel {job}` ends it"
        yield note([f"hpcrun: job {job} continues; {commands}"])
    yield Outcome(status=status if status >= 0 else 128 - status)


def _check_no_job_options(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None and value is not False:
            raise UsageError(
                f"{option_of(name)} is for a new job, and RUN has its own",
                hint="leave out one of them",
            )


def _submit(
    options: dict[str, Any], context: Context, way: str, idle: str, idle_s: int | None
) -> Generator[Outcome, None, DevRun | None]:
    """Submit the job, by submit's own path, and wait until it can be used; None after a dry run."""
    from hpcrun.cli.submit_flow import prepare_job, read_submit_options, submit_job

    start = read_submit_options({**dict.fromkeys(START_OPTIONS), **options})
    options = {name: value for name, value in options.items() if name not in START_OPTIONS}
    seconds = read_duration("--idle", idle) if idle_s is None else idle_s
    options |= {
        "script": PROGRAM,
        "module": True,
        "args": ["serve", str(seconds), *([] if way == "shell" else ["ssh"])],
        "launcher": "python",
    }
    options["name"] = options["name"] or "dev"
    # in place of the program that waits for its user
    end = f"ends after {idle} without use" if seconds else "does not end without use"
    instead = {"command": f"{_GETS[way]}; the job {end}"}
    done = yield from submit_job(prepare_job(options, context), context, start, instead=instead)
    if not done:
        return None
    dev_run = DevRun(context, done[0].run.run_id, 0)
    dev_run.wait_until_ready()
    return dev_run


# --- on the machine of the person ----------------------------------------------------------------


class DevHooks(Hooks):
    """``hpcrun --on HOST dev``, where the job is on the other machine.

    ssh, its files, the editor and the browser are on this machine.
    """

    def doctor_checks(self) -> Sequence[tuple[str, str, Level, str, str | None]]:
        """Return whether this machine has what ssh to a node needs.

        The nodes mostly resemble this machine.
        """
        folders = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
        programs = ("ssh", "ssh-keygen", "sshd")
        missing = [name for name in programs if not shutil.which(name, path=folders)]
        if not missing:
            seen = "ssh, ssh-keygen and sshd, if the nodes have it as well"
            return [("Development", "ssh", "green", seen, None)]
        fix = (
            "a shell needs none: hpcrun dev; for --ssh, --code and --jupyter ask the "
            "administrators for OpenSSH"
        )
        return [("Development", "ssh", "yellow", f"no {', '.join(missing)} here", fix)]

    def run_partly_here(self, words: Sequence[str], there: Elsewhere) -> int | None:
        """Connect this machine to a run there; None for a shell, which ssh alone brings here."""
        ways = [name for name in ("jupyter", "code", "ssh") if f"--{name}" in words]
        if not ways or not {"-h", "--help", "--dry-run"}.isdisjoint(words):
            return None
        if want_json("--json" in words) and "jupyter" in ways:
            raise _NOT_JSON
        check_one_of(**{name: name in ways for name in ("jupyter", "code", "ssh")})
        with new_key() as path:
            rest = [option for option in words if option not in ("--yes", "-y")]
            stopped = InterruptedByUser(
                "stopped waiting; a job that was submitted is not affected",
                hint=f"hpcrun --on {there.host} status",
            )
            if not wants_json():
                rest.append("--json")
            try:
                document = there.document([*rest, "--key", public_key(path)])
            except InterruptedByUser:
                raise stopped from None
            door = read_address(document, there.host)
            status_line = f"`hpcrun --on {there.host} status {door.job}` says whether it runs"
            login_line = f"`hpcrun login {there.host}` connects again"
            lost = f"job {door.job} cannot be reached: {status_line}; {login_line}"
            document["relay"] = there.argv(door.relay)
            config = write_config(door, path, document["relay"], lost)
        yes = not {"--yes", "-y"}.isdisjoint(words)

        def state() -> str:
            rows = there.document(["status", door.job, "--json"]).get("runs") or [{}]
            return str(rows[0].get("state"))

        status = render(_connect(door, config, ways[0], document, state, yes=yes))
        finish(status)
        return status


def _connect(
    door: Address,
    config: Path,
    way: str,
    document: dict[str, Any],
    state: Callable[[], str],
    *,
    yes: bool,
) -> Outcome:
    """Do what was asked for over ssh; ``state`` asks for the state of the job."""
    if way == "jupyter":
        return Outcome(status=_forward_jupyter(door, config, state))
    included = is_included(door.name, yes=yes)
    ssh = ["ssh", door.name] if included else ["ssh", "-F", str(config), door.name]
    lines = [f"node       {door.node}, job {door.job}", f"ssh        {shlex.join(ssh)}"]
    if way == "code":
        editor = ["code", "--remote", f"ssh-remote+{door.name}", door.cwd]
        lines.append(f"editor     {shlex.join(editor)}")
        lines += [f"setting    {setting}" for setting in _VSCODE]
        has_desktop = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
        if included and has_desktop and shutil.which("code"):
            run_command(editor, timeout_s=30)
    return printed(lines, lambda: {**document, "name": door.name, "ssh": ssh})


def _jupyter_port(run: str) -> int:
    """Return a free port, always the same port for a run.

    So, the page in a browser finds its own server again. If another program has the usual port, the
    result is any free port.
    """
    usual = 20_000 + crc32(run.encode()) % 10_000  # below those that Linux gives to any connection
    try:
        socket.create_server(("127.0.0.1", usual)).close()
    except OSError:
        problem = f"another program has port {usual}, the usual one of this run"
        tell([f"hpcrun: {problem}: close older pages of Jupyter"])
        with socket.create_server(("127.0.0.1", 0)) as other:
            return int(other.getsockname()[1])
    return usual


def _has_timed_out(door: Address, state: Callable[[], str]) -> bool:
    """Whether a job that is near its time limit has reached it; the job may still be ending."""
    for _ in range(_ENDS_WITHIN_S):
        if time.time() < door.ends_s - _NEAR_S:
            return False
        try:
            now = state()
        except HpcrunError:
            return False
        if now not in ("RUNNING", "COMPLETING"):
            return now == TIMEOUT
        time.sleep(1)
    return False


def _forward_jupyter(door: Address, config: Path, state: Callable[[], str]) -> int:
    """Start Jupyter on the node, and forward it until Ctrl-C; return the exit status.

    Raises:
        InterruptedByUser: if Ctrl-C closes the connection.
        SchedulerError: if the node does not answer with a token of Jupyter, or the connection ends.
    """
    port = _jupyter_port(door.run)
    argv = [
        "ssh",
        "-F",
        str(config),
        "-T",
        "-o",
        "ExitOnForwardFailure=yes",
        "-L",
        f"127.0.0.1:{port}:{door.local}/jupyter/socket",
        door.name,
        shlex.join([*door.program, "jupyter", door.folder]),
    ]
    started: list[str] = []

    def show_address(source: int) -> None:
        with os.fdopen(source, "rb", closefd=False) as answer:
            line = answer.readline(200)
            if line:
                match = _TOKEN_LINE.fullmatch(line)
                if match is None:
                    raise SchedulerError(f"{door.node} did not answer with a token of Jupyter")
                token = match[1].decode()
                started.append(token)
                show(printed([f"jupyter    http://127.0.0.1:{port}/?token={token}"]))
                rest = "Ctrl-C closes the connection; Jupyter and its kernels stay."
                tell([f"On {door.node}, job {door.job}. {rest}"])
            while answer.read1():
                pass  # until the connection ends

    status = run_on_terminal(argv, os.environ, read=show_address)
    again = f"hpcrun dev {door.job} --jupyter connects again, hpcrun cancel {door.job} ends the job"
    if status == -signal.SIGINT:
        raise InterruptedByUser("the connection to Jupyter is closed", hint=again)
    if started and _has_timed_out(door, state):
        raise SchedulerError(
            f"job {door.job} has reached its time limit", hint="hpcrun dev --jupyter --time TIME"
        )
    if started:
        raise SchedulerError(f"the connection to job {door.job} has ended", hint=again)
    tell([f"hint: {again}"])
    return 1 if status == 0 else status
