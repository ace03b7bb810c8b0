"""The hpcrun commands of tests, in processes that have imported hpcrun already: that is most of
what they cost.

A server imports what the commands import, and forks for each: the child gets the command's
arguments, environment, folder and files, and goes on as ``python -m hpcrun`` does once that is
imported. It shares nothing with the command before it. At its end it does what Python does
(threads, atexit, its output), but does not take down one by one the modules that the server has
imported: that takes longer than most commands. Tests of how hpcrun itself starts, and of what it
prints to a terminal, start it anew.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

AT_START = ("PYTHON", "LC_", "LANG", "MALLOC_", "LD_")
"""Variables that Python, or its C library, reads once as it starts."""


def compile_templates_once() -> None:
    """Have this process compile each template of Jinja2 once: that takes longer than all else about
    a script.
    """
    import jinja2

    compile_anew = jinja2.Environment.compile
    compiled: dict[tuple[object, ...], object] = {}

    def compile_once(self: object, *template: object) -> object:
        # hpcrun has one environment, with the same options for each script
        key = (type(self), *template)
        if key not in compiled:
            compiled[key] = compile_anew(self, *template)  # type: ignore[call-overload]
        return compiled[key]

    jinja2.Environment.compile = compile_once  # type: ignore[assignment,method-assign]


def parse_shipped_files_once() -> None:
    """Have this process parse each YAML file that hpcrun ships once: its rules take longer than
    most commands.

    It is called before anything else of hpcrun is imported: modules take parse_yaml by its name.
    """
    import pickle
    from pathlib import Path

    import hpcrun.profiles.yaml_file as yaml_file

    parse_anew, shipped = yaml_file.parse_yaml, Path(yaml_file.__file__).parents[2]
    parsed: dict[tuple[str, Path], bytes] = {}

    def parse_once(text: str, path: Path) -> yaml_file.YamlFile:
        if not path.is_relative_to(shipped):
            return parse_anew(text, path)
        if (text, path) not in parsed:
            parsed[text, path] = pickle.dumps(parse_anew(text, path))
        # another one for each that asks
        read: yaml_file.YamlFile = pickle.loads(parsed[text, path])
        return read

    yaml_file.parse_yaml = parse_once


SERVER = (
    inspect.getsource(compile_templates_once)
    + inspect.getsource(parse_shipped_files_once)
    + r"""
import array, atexit, contextlib, gc, json, os, selectors, socket, sys, threading
sys.path.pop(0)  # -c: the folder in which it was started
parse_shipped_files_once()
import functools, importlib, pkgutil
import hpcrun.job.text.patterns as patterns  # before those that take compile_pattern by its name
patterns.compile_pattern = functools.cache(patterns.compile_pattern)
import hpcrun, jinja2, platformdirs, re2, rich.console, rich.table
import ruamel.yaml, submitit, typer.main
from hpcrun.cli.commands import COMMANDS
from hpcrun.cli.main import build_app
elsewhere = ("api", "in_job", "runtime", "shipped", "__main__")
for module in pkgutil.walk_packages(hpcrun.__path__, "hpcrun."):
    if not module.name.startswith(tuple("hpcrun." + name for name in elsewhere)):
        importlib.import_module(module.name)
typer.main.get_params_from_function = functools.cache(typer.main.get_params_from_function)
typer.main.get_command(build_app(COMMANDS))

def read_every_shipped_file():
    from hpcrun.explain.diagnosis.rules import load_rules
    from hpcrun.job.script import sandbox_of
    from hpcrun.profiles.folders import load_templates, shipped_folder
    from hpcrun.profiles.load import load_profile, profile_names
    templates = load_templates([shipped_folder("templates")])
    for name in templates:
        sandbox_of(templates).get_template(name)
    load_rules([])
    shipped = [shipped_folder("cluster_profiles")]
    for name in profile_names(shipped):
        load_profile(name, shipped)

compile_templates_once()
read_every_shipped_file()

def serve(requests):
    selector, running = selectors.DefaultSelector(), {}
    selector.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fd in running:
                pid, answers = running.pop(key.fd)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                selector.unregister(key.fd)
                with contextlib.suppress(OSError):  # whoever asked waits no longer
                    os.write(answers, b"%d\n" % status)
                os.close(key.fd), os.close(answers)
                continue
            text, files = receive(requests)
            if not text:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                selector.close()
                requests.close()
                for watched, (_, answers) in running.items():
                    os.close(watched), os.close(answers)
                return json.loads(text), files
            os.write(files[3], b"%d\n" % pid)
            for file in files[:3]:
                os.close(file)
            watched = os.pidfd_open(pid)
            running[watched] = pid, files[3]
            selector.register(watched, selectors.EVENT_READ)

def receive(requests):
    size, files = int.from_bytes(requests.recv(4, socket.MSG_WAITALL), "little"), array.array("i")
    if not size:
        return b"", []
    text, extra, _, _ = requests.recvmsg(1, socket.CMSG_SPACE(4 * files.itemsize))
    for _, _, data in extra:
        files.frombytes(data)
    while len(text) < size:
        text += requests.recv(size - len(text))
    return text, list(files)

gc.collect()
gc.freeze()
request, files = serve(socket.socket(fileno=int(sys.argv[1])))
for number in range(3):
    os.dup2(files[number], number)
for file in (*files, *request["closed"]):
    os.close(file)
if 0 in request["closed"]:
    sys.stdin = sys.__stdin__ = None  # as Python has it
os.chdir(request["folder"])
os.umask(request["umask"])
os.environ.clear()
os.environ.update(request["environ"])
sys.argv = [sys.modules["hpcrun"].__path__[0] + "/__main__.py", *request["args"]]
sys.executable = request["python"]  # another name of the same Python
sys.orig_argv = [sys.executable, "-m", "hpcrun", *request["args"]]
from hpcrun.__main__ import main

def end_as_python_does(end):
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush(), sys.stderr.flush()
    except OSError:
        return  # Python says what it says of that
    if isinstance(end.code, int):
        os._exit(end.code & 0xFF)

try:
    main()
except SystemExit as end:
    end_as_python_does(end)
    raise
"""
)

# A command of a shell: what Server.run sends, with the shell's own files, from a Python that
# imports next to nothing.
CLIENT = """
import json, os, socket, sys
closed = []
for number in range(3):
    try:
        os.fstat(number)
    except OSError:
        closed.append(os.open("/dev/null", os.O_RDWR))  # the lowest number that is free
requests = socket.socket(fileno=int(sys.argv[1]))
ours, answers = os.pipe()
mask = os.umask(0)
os.umask(mask)
fields = {"args": sys.argv[3:], "python": sys.argv[2], "closed": closed, "umask": mask}
fields.update(environ=dict(os.environ), folder=os.getcwd())
text = json.dumps(fields).encode()
requests.sendall(len(text).to_bytes(4, "little"))
socket.send_fds(requests, [text[:1]], [0, 1, 2, answers])
requests.sendall(text[1:])
os.close(answers)
status = int(open(ours).read().split()[1])
os._exit(status if status >= 0 else 128 - status)
"""


class Server:
    """A server that lives as long as this process. Several threads may use it.

    Args:
        python: the command that starts Python as the person whose commands these are. A command
            may have another name of the same Python.
        environ: the environment that Python starts in.
    """

    def __init__(self, python: Sequence[str], environ: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair()
        self._one_at_a_time = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(  # kept: one that nobody holds is warned of
                [*python, "-c", SERVER, str(theirs.fileno())],
                env=dict(environ),
                cwd="/",
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def run(
        self,
        python: str,
        args: Sequence[str],
        environ: Mapping[str, str],
        folder: Path,
        stdin: str,
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end, as subprocess.run does.

        Raises:
            subprocess.TimeoutExpired: it took longer than ``timeout`` seconds, and was killed.
        """
        fields = {
            "args": args,
            "python": python,
            "closed": [],
            "environ": dict(environ),
            "folder": str(folder),
            "umask": umask(),
        }
        ours, answers = os.pipe()
        with (
            tempfile.TemporaryFile() as in_,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            in_.write(encoded(stdin))
            in_.seek(0)
            with os.fdopen(ours, "rb") as told:
                try:
                    self._ask(
                        json.dumps(fields).encode(),
                        [in_.fileno(), out.fileno(), err.fileno(), answers],
                    )
                finally:
                    os.close(answers)
                pid, status = _numbers(told, timeout)
            if pid is None:
                raise AssertionError(
                    "the server of preloaded commands has ended: its traceback is above"
                )
            if status is None:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(["hpcrun", *args], timeout)
            return subprocess.CompletedProcess(
                ["hpcrun", *args], status, text_of(out), text_of(err)
            )

    def shell_function(self, python: str) -> tuple[str, int]:
        """Return bash's function ``hpcrun``, and the file that bash has to inherit for it: one
        command at a time.
        """
        number = self._requests.fileno()
        words = [python, "-ISc", CLIENT, str(number), python]
        return f'hpcrun() {{ {shlex.join(words)} "$@"; }}', number

    def end(self) -> None:
        """Let it go: what it has imported is mounted where others may want to unmount."""
        self._requests.close()
        self._process.wait(10)

    def _ask(self, text: bytes, files: list[int]) -> None:
        with self._one_at_a_time:
            self._requests.sendall(len(text).to_bytes(4, "little"))
            socket.send_fds(self._requests, [text[:1]], files)
            self._requests.sendall(text[1:])


def _numbers(told: IO[bytes], timeout: float) -> tuple[int | None, int | None]:
    """Return the child's process id and its exit status, as far as they are told in time."""
    poll, deadline, text = select.poll(), time.monotonic() + timeout, b""
    poll.register(told, select.POLLIN)
    while text.count(b"\n") < 2 and poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        part = os.read(told.fileno(), 100)
        text += part
        if not part:
            break
    pid, status, *_ = [*map(int, text.splitlines()), None, None]
    return pid, status


def umask() -> int:
    """Return this process's mask; os.umask can only set one."""
    found = re.search(r"^Umask:\s+(\d+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1], 8)


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def text_of(file: IO[bytes]) -> str:
    """Return what was written, with ends of lines as subprocess gives them."""
    file.seek(0)
    return re.sub("\r\n?", "\n", file.read().decode("utf-8", "surrogateescape"))
