"""hpcrun on a laptop: login, and commands on the cluster over one connection, with a real sshd."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pexpect
import pytest

from tests.harness import RESEARCHER, Hpcrun, at_end, processes_with, wait_for
from tests.remote import LoginNode, kill_connection, laptop, login_node, make_key

pytestmark = [pytest.mark.slurm, pytest.mark.needs("sshd", "rsync")]
JOB = ("-P", "a100", "--gpus", "0", "--cpus", "1", "--mem", "1G")


def environ_of(person: Hpcrun) -> dict[str, str]:
    """Return the environment of a session: the home is that of a person of the tests."""
    return {"HOME": str(person.home), **person.extra}


@pytest.fixture
def home(as_researcher: Hpcrun) -> Path:
    """The home of the login node's user, with hpcrun on PATH; returns the folder of sshd's
    files.
    """
    for start in (".bashrc", ".cshrc", ".config/fish/config.fish"):
        as_researcher.write(f"home/{start}", "echo welcome to the cluster\n")
    wanted = ("PATH", "PYTHONPATH", "SLURM_CONF")  # /etc/profile has its own PATH
    values = {name: value for name, value in as_researcher.environ.items() if name in wanted}
    # the environment's own script names a Python by a path that this user may not reach
    program = as_researcher.program(
        "there/hpcrun", f'exec {as_researcher.python_word} -m hpcrun "$@"'
    )
    values["PATH"] = f"{program.parent}:{values['PATH']}"
    for start, form in ((".profile", "export {}='{}'"), (".login", "setenv {} '{}'")):
        lines = [form.format(name, value) for name, value in values.items()]
        as_researcher.write(f"home/{start}", "\n".join([*lines, ""]))
    lines = [f"set -gx {name} '{value}'" for name, value in values.items()]
    as_researcher.write("home/.config/fish/config.fish", "\n".join(["echo welcome", *lines, ""]))
    # as of people who keep their dotfiles there
    as_researcher.run("git", "init", "--quiet", str(as_researcher.home))
    return as_researcher.write("sshd/readme", "").parent  # the server reads the key as this user


@pytest.fixture
def node(home: Path, as_researcher: Hpcrun) -> Iterator[LoginNode]:
    with login_node(home, environ_of(as_researcher), "MaxSessions 3") as far:
        yield far


@pytest.fixture
def here(node: LoginNode, tmp_path: Path) -> Iterator[Hpcrun]:
    with laptop(tmp_path / "laptop", far=node) as person:
        with_project(person)
        yield person


def with_project(person: Hpcrun) -> None:
    person.write(
        "project/train.py",
        "import sys\nprint('trains', sys.argv[1:])\nsys.exit(int(sys.argv[1]))\n",
    )
    person.write("project/.env", "API_KEY=1\n")
    # no comment, no end of a line, no module of ours
    for name in ("#a.py", ";b.py", "c\r.py", "pip.py", "json.py"):
        person.write(f"project/{name}", "raise SystemExit('imported')\n")


def on(person: Hpcrun, *words: str, check: bool = True) -> str:
    done = person("--on", "far", *words, cwd=person.folder / "project", check=check)
    return done.stdout


def test_a_job_is_submitted_from_a_laptop_over_one_login(
    here: Hpcrun, node: LoginNode, as_researcher: Hpcrun
) -> None:
    here("login", "far", check=True)
    said = here(
        "--on",
        "far",
        "submit",
        *JOB,
        "--follow",
        "train.py",
        "0",
        "a b",
        "$x",
        "q'q",
        cwd=here.folder / "project",
        check=True,
    )
    assert "trains ['0', 'a b', '$x', \"q'q\"]" in said.stdout
    assert "not copied, since they look like secrets: .env" in said.stderr
    assert "welcome" not in said.stdout
    failed = here(
        "--on",
        "far",
        "submit",
        "--mem",
        "1G",
        "--wait",
        "--parsable",
        "-",
        "3",
        cwd=here.folder / "project",
        stdin="#!/bin/sh\nls train.py && exit $1\n",
    )
    assert failed.returncode == 7
    assert failed.stdout.strip().isdigit()
    assert (
        on(here, "status", "--json")
        == as_researcher("status", "--json", env={"HPCRUN_RUNS": None}).stdout
    )
    (code,) = (as_researcher.home / "hpcrun-code").iterdir()
    assert not list(code.rglob(".env"))
    assert [path.parent for path in as_researcher.home.rglob(".profile")] == [as_researcher.home]
    assert {"#a.py", ";b.py", "c\r.py"} <= {path.name for path in code.rglob("*.py")}
    copies = sorted(path for path in code.iterdir() if path.name.startswith("2"))
    first, second = (path / "train.py" for path in copies)
    assert first.samefile(second)  # it did not travel again
    shared = on(here, "share", "last")
    assert f"written  {here.folder}/project/" in shared
    on(here, "fetch", "last")
    (record,) = (here.folder / "project").glob("2*/run.json")
    assert json.loads(record.read_text())["nodes"] == 1
    missing = here("--on", "far", "logs", "lost").stderr
    assert "hint: hpcrun --on far status --all lists them" in missing
    assert node.logins == 1


@pytest.mark.versions
@pytest.mark.parametrize(
    "how",
    [
        pytest.param("tcsh", marks=pytest.mark.needs("tcsh")),
        pytest.param("fish", marks=pytest.mark.needs("fish")),
        "MaxSessions 1",
        "ProxyJump",
        "shared",
        "USER@HOST",
    ],
)
def test_a_job_is_submitted_through_what_sites_and_people_set_up(
    how: str, home: Path, as_researcher: Hpcrun, tmp_path: Path
) -> None:
    """Login shells, a limit of sessions, a jump host, and a connection that the person's own
    configuration shares.
    """
    environ, shell = environ_of(as_researcher), f"/usr/bin/{how}" if how in ("tcsh", "fish") else ""
    options = [how] if how.startswith("Max") else []
    lines = {
        "ProxyJump": "Match originalhost far\n ProxyJump jump",
        "shared": f"Host far\n ControlPath {tmp_path}/master",
    }
    with ExitStack() as stack:
        far = stack.enter_context(login_node(home, environ, *options, shell=shell))
        jump = stack.enter_context(
            login_node(as_researcher.write("jump/readme", "").parent, environ)
        )
        here = stack.enter_context(
            laptop(tmp_path / "laptop", lines=lines.get(how, ""), far=far, jump=jump)
        )
        with_project(here)
        if how == "shared":
            own = [f"{here.folder}/bin/ssh", "-fNM", "-o", f"ControlPath={tmp_path}/master", "far"]
            subprocess.run(own, env=here.environ, check=True)
        host = f"{RESEARCHER}@far" if how == "USER@HOST" else "far"
        here("login", host, check=True)
        done = here(
            "--on",
            host,
            "submit",
            *JOB,
            "--follow",
            "train.py",
            "0",
            "a b",
            "$x",
            "q'q!",
            cwd=here.folder / "project",
            check=True,
        )
        assert "trains ['0', 'a b', '$x', \"q'q!\"]" in done.stdout
        assert "welcome" not in done.stdout
        assert far.logins == 1
        assert jump.logins == int(how == "ProxyJump")
        checks = json.loads(here("doctor", "--json").stdout)["checks"]
        assert [check["level"] for check in checks if check["group"] == "Other machines"] == [
            "green",
            "green",
        ]
        closed = here("login", host, "--close", check=True).stdout
        assert ("left open" in closed) == (how == "shared")
        here.run("ssh", "-O", "exit", host, check=how == "shared")


def test_nothing_but_login_logs_in(here: Hpcrun, node: LoginNode) -> None:
    refused = here("--on", "far", "status")
    assert refused.returncode == 5
    assert refused.stderr == "hpcrun: there is no connection to far\nhint: hpcrun login far\n"
    assert node.logins == 0
    here("login", "far", check=True)
    kill_connection(here, "far")
    refused = here("--on", "far", "submit", *JOB, "train.py", "0")
    assert refused.stderr == "hpcrun: there is no connection to far\nhint: hpcrun login far\n"
    here("login", "far", check=True)
    assert node.logins == 2


def test_a_connection_without_room_says_so(here: Hpcrun, node: LoginNode) -> None:
    here("login", "far", check=True)
    watching = [here.terminal("--on", "far", "status", "--watch") for _ in range(3)]
    for terminal in watching:
        terminal.expect("no runs")
    refused = here("--on", "far", "status")
    assert "takes no further session over this connection" in refused.stderr
    for terminal in watching:
        terminal.sendintr()
        terminal.expect("stopped watching")
        terminal.close()
    assert on(here, "--version").startswith("hpcrun ")
    assert "did you mean 'far'?" in here("--on", "fra", "status").stderr
    assert "--on needs a host" in here("--on").stderr
    assert "for this machine alone" in here("status", "--on=far", "--on=local").stderr
    assert node.logins == 1


def test_ctrl_c_without_a_terminal_ends_the_command_there(here: Hpcrun, node: LoginNode) -> None:
    here.write("project/long.py", "import time\ntime.sleep(600)\n")
    here("login", "far", check=True)
    terminal = here.terminal(
        "--on", "far", "submit", *JOB, "--wait", "long.py", cwd=str(here.folder / "project")
    )
    terminal.expect("submitted")
    terminal.close()  # SIGHUP, as a closed window sends it
    wait_for(
        lambda: not processes_with("long.py --wait") and not _waits(),
        20,
        "the command there to end",
    )
    on(here, "cancel", "--yes", "last")
    # and through a pipe, where there is no terminal to send it
    line = shlex.join([*here.argv("--on", "far", "submit"), *JOB, "--wait", "long.py"])
    command = f"cd {here.folder}/project && exec {line} >>out 2>err"
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", command], here.environ, setpgroup=0)
    out = here.write("project/out", "")
    wait_for(lambda: "submitted" in out.read_text(), 60, "the job")
    os.killpg(pid, signal.SIGINT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    wait_for(lambda: not _waits(), 20, "the command there to end")
    on(here, "cancel", "--yes", "last")


def _waits() -> bool:
    return any(
        "submit" in line and "ssh" not in line for line in processes_with("long.py").values()
    )


@pytest.mark.parametrize(
    ("agent", "on_terminal", "ending", "by"),
    [
        (None, False, "", {"terminal": False, "agent": None}),
        ("1", False, "", {"terminal": False, "agent": "claude-code"}),
        (None, True, "", {"terminal": True, "agent": None}),
        (None, True, ">printed", {"terminal": True, "agent": None}),
        ("1", True, ">printed", {"terminal": True, "agent": "claude-code"}),
    ],
)
def test_a_run_on_a_host_says_who_submitted_it_from_the_laptop(
    here: Hpcrun,
    as_researcher: Hpcrun,
    agent: str | None,
    on_terminal: bool,
    ending: str,
    by: dict[str, object],
) -> None:
    here("login", "far", check=True)
    line = shlex.join(here.argv("--on", "far", "submit", *JOB, "--begin", "now+1hour", "true"))
    env = {"CLAUDECODE": agent}
    folder = here.folder / "project"
    if on_terminal:
        changed = {**here.environ, "TERM": "xterm", **({"CLAUDECODE": agent} if agent else {})}
        child = pexpect.spawn(
            "sh", ["-c", f"{line} {ending}"], env=changed, cwd=str(folder), timeout=60
        )
        assert at_end(child)[0] == 0
    else:
        here.run("sh", "-c", line, env=env, cwd=folder)
    [run] = json.loads(on(here, "status", "--json"))["runs"]
    assert json.loads(Path(run["folder"], "run.json").read_text())["by"] == by
    # of a person there, only the person's terminal takes the job away
    refused = here("--on", "far", "cancel", run["job_id"])
    assert refused.returncode == (2 if by["terminal"] else 0), refused.stderr
    here("--on", "far", "cancel", "--yes", run["job_id"])


def test_two_clusters_are_one_table(here: Hpcrun, node: LoginNode) -> None:
    here("login", "far", check=True)
    on(here, "submit", *JOB, "--wait", "train.py", "0")
    table = here("status", "--on", "far", "--on", "near")
    assert table.returncode == 5
    assert "CLUSTER" in table.stdout
    assert "COMPLETED" in table.stdout
    assert "there is no connection to near" in table.stderr
    document = json.loads(here("status", "--on", "far", "--on", "near", "--json").stdout)
    assert [run["on"] for run in document["runs"]] == ["far"]
    first = here(
        "submit",
        "--on",
        "far",
        "--on",
        "near",
        *JOB,
        "train.py",
        "0",
        cwd=here.folder / "project",
        check=True,
    )
    assert "cluster    far: " in first.stderr


def test_login_asks_for_a_second_factor_once_and_nothing_else_asks(
    as_researcher: Hpcrun, tmp_path: Path
) -> None:
    folder = as_researcher.write("sshd/readme", "").parent
    ways = (
        "AuthenticationMethods publickey,keyboard-interactive",
        "KbdInteractiveAuthentication yes",
    )
    environ = environ_of(as_researcher)
    with (
        login_node(folder, environ, *ways, code="123456") as node,
        laptop(tmp_path / "laptop", far=node) as here,
    ):
        terminal = here.terminal("login", "far")
        terminal.expect("Password: ")
        terminal.sendline("123456")
        terminal.expect("connected  far")
        terminal.expect(pexpect.EOF)
        assert "far has no hpcrun" in here("--on", "far", "status").stderr
        kill_connection(here, "far")
        refused = here("--on", "far", "status")
        assert refused.stderr == "hpcrun: there is no connection to far\nhint: hpcrun login far\n"
        assert node.logins == 1


def test_a_changed_host_key_is_refused(here: Hpcrun, node: LoginNode) -> None:
    make_key(node.folder / "other")
    (here.folder / "known_hosts").write_text(
        f"[127.0.0.1]:{node.port} {(node.folder / 'other.pub').read_text()}"
    )
    refused = here("login", "far")
    assert refused.returncode == 5
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in refused.stderr
    assert "hpcrun: ssh could not log in to far" in refused.stderr
    assert node.logins == 0


def test_a_cut_connection_leaves_no_incomplete_copy_under_a_name(
    here: Hpcrun, as_researcher: Hpcrun
) -> None:
    """The copy of 100 MB is cut while it travels; the next submission is whole."""
    here("login", "far", check=True)
    (here.folder / "project/large.bin").write_bytes(os.urandom(1 << 20) * 100)
    terminal = here.terminal(
        "--on", "far", "submit", *JOB, "train.py", "0", cwd=str(here.folder / "project")
    )
    code = as_researcher.home / "hpcrun-code"
    wait_for(lambda: list(code.rglob(".large.bin.*")), 30, "the copy to begin")
    kill_connection(here, "far")
    terminal.expect("there is no connection to far")
    terminal.expect(pexpect.EOF)
    (project,) = code.iterdir()
    assert {path.suffix for path in project.iterdir()} == {".part"}
    assert as_researcher.document("status", env={"HPCRUN_RUNS": None})["runs"] == []
    here("login", "far", check=True)
    on(here, "submit", *JOB, "--wait", "train.py", "0")
    (whole,) = (path for path in project.glob("2*") if not path.suffix)
    assert (whole / "large.bin").stat().st_size == 100 << 20


def test_a_hostile_login_node_can_only_answer(
    here: Hpcrun, as_researcher: Hpcrun, subtests: pytest.Subtests
) -> None:
    """Its hpcrun prints what it likes: no answer is a bug here, or moves a cursor."""
    text = 'case $1 in --version) echo hpcrun 9.9;; *) cat "$HOME/answer";; esac'
    program, profile = as_researcher.program("evil/hpcrun", text), as_researcher.home / ".profile"
    profile.write_text(f"{profile.read_text()}PATH={program.parent}:$PATH\n")
    assert "hpcrun 9.9 is installed there" in here("login", "far", check=True).stderr
    run = {"nodes": "x", "elapsed_s": [], "created_s": "z", "hosts": 1, "name": "\x1b]0;x\x07"}
    answers = [
        "",
        "[]",
        '{"error": 7}',
        '{"error": {"message": [1], "hint": {}}}',
        "{" * 9999,
        json.dumps({"runs": 3}),
    ]
    for answer in (
        *answers,
        json.dumps({"runs": [3, run]}),
        json.dumps({"offers": [{"start_s": "soon"}, 3]}),
    ):
        with subtests.test(answer=answer):
            as_researcher.write("home/answer", answer)
            words = ("submit", "--gpus", "1", "train.py") if "offers" in answer else ("status",)
            argv = here.argv(words[0], "--on", "far", "--on", "near", *words[1:])
            done = here.run(*argv, cwd=here.folder / "project", check=False)
            assert "bug" not in done.stderr, answer
            assert "\x1b" not in done.stdout + done.stderr
    as_researcher.write("home/answer", "x" * (17 << 20))
    assert "far: ssh: it printed more than 16 MiB" in here.run(*argv, check=False).stderr
    as_researcher.write("home/.bashrc", "yes\n")
    assert "it printed more than 16 MiB" in here("login", "far").stderr
    endless = here("--on", "far", "status").stderr
    assert "start-up files there print more than 16 MiB" in endless


@pytest.mark.parametrize(
    "host", ["-oProxyCommand=touch hacked", "far;touch hacked", "a/../../b", ""]
)
def test_a_host_that_is_no_host_is_refused(here: Hpcrun, host: str) -> None:
    refused = here(f"--on={host}", "status")
    assert (refused.returncode, "is not the name of a host" in refused.stderr) == (2, True)
    assert not list(here.folder.rglob("hacked"))


def test_a_configured_host_counts_once_its_project_is_trusted(here: Hpcrun) -> None:
    here.write("project/.hpcrun/config.yaml", "on: far\n")
    local = here("status", cwd=here.folder / "project", check=True)
    assert "no runs" in local.stderr
    here.write("home/.config/hpcrun/config.yaml", "on: far\n")
    assert "no connection to far" in here("status").stderr
    assert "no runs" in here("--on", "local", "status", check=True).stderr
