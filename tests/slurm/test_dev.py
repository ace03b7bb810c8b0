"""hpcrun dev: a job to work in, with real OpenSSH servers on its node, a real Jupyter, and an
attacker beside it.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.harness import Cluster, Hpcrun, at_end, processes_with, wait_for
from tests.remote import free_port, kill_connection, laptop, login_node_of

pytestmark = [pytest.mark.slurm, pytest.mark.needs("sshd", "rsync")]
JOB = ("-P", "a100", "--gpus", "1", "--cpus", "2", "--mem", "2G", "--time", "1h")
NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")


@pytest.fixture
def person(as_researcher: Hpcrun) -> Hpcrun:
    """Somebody whose ssh finds the configuration in the home of the tests: it takes that of
    /etc/passwd.
    """
    config = as_researcher.write("home/.ssh/config", "Host other\n  Port 1\n")
    config.parent.chmod(0o700)
    for name in ("ssh", "scp", "sftp"):
        as_researcher.program(f"bin/{name}", f'exec /usr/bin/{name} -F {config} "$@"')
    as_researcher.write("home/.bashrc", "PATH=/of/bashrc:/usr/bin:/bin\n")
    return as_researcher


def path_of(person: Hpcrun) -> dict[str, str | None]:
    return {"PATH": f"{person.folder}/bin:{person.environ['PATH']}"}


def run(
    person: Hpcrun, *argv: str, check: bool = True, **more: Any
) -> subprocess.CompletedProcess[str]:
    return person.run(*argv, env=path_of(person), check=check, **more)


def dev(person: Hpcrun, *words: str, check: bool = True) -> str:
    done = run(person, *person.argv("dev", *words), check=check)
    return done.stdout if check else done.stderr


def submitted(person: Hpcrun, *words: str) -> str:
    """Submit a job to work in, and connect; return its id."""
    match = re.search(r"ssh +ssh hpcrun-(\d+)\n", dev(person, *JOB, "--ssh", "--yes", *words))
    assert match
    return match[1]


def run_folder(person: Hpcrun) -> Path:
    return Path(person.status("last")["folder"])


def test_a_shell_in_a_new_job_and_again(person: Hpcrun) -> None:
    terminal = person.terminal("dev", *JOB)
    terminal.expect(r"Shell in job (\d+)")
    job = terminal.match[1]
    terminal.sendline(
        "echo at-$SLURM_JOB_ID-$CUDA_VISIBLE_DEVICES-$(hostname) $(command -v python)"
    )
    terminal.expect(rf"at-{job}-0-(a100-\d) {person.venv}/bin/python")
    prompt_at = time.time()
    started = json.loads((run_folder(person) / "elements/0/attempts/0/start").read_text())[
        "started"
    ]
    assert prompt_at - started < 3
    terminal.sendline("sleep 600 &")  # it has the terminal, too
    terminal.sendline("exit 3")
    terminal.expect(f"job {job} continues; `hpcrun dev {job}` returns to it")
    assert "srun: error" not in str(terminal.before)
    assert at_end(terminal)[0] == 3
    assert person.status(job)["state"] == "RUNNING"
    assert (
        run(person, *person.argv("dev", job), stdin="echo again-$SLURM_JOB_ID\n").stdout
        == f"again-{job}\n"
    )
    refused = dev(person, job, "--gpus", "2", check=False)
    assert "--gpus is for a new job" in refused
    person("cancel", "--yes", job, check=True)
    person.ended(job)
    assert "its allocation has ended" in dev(person, job, "--ssh", check=False)


def test_everything_that_uses_ssh(person: Hpcrun, cluster: Cluster, tmp_path: Path) -> None:
    job = submitted(person)
    host = f"hpcrun-{job}"
    assert (person.home / ".ssh/config").read_text().splitlines()[
        0
    ] == f"Include {person.home}/.ssh/hpcrun.d/*.conf"
    there = run(
        person,
        "ssh",
        host,
        "echo $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES $PWD; hostname; command -v python",
    )
    node = there.stdout.splitlines()[1]
    assert there.stdout == f"{job} 0 {person.home}\n{node}\n{person.venv}/bin/python\n"
    assert run(person, "ssh", host, "exit 7", check=False).returncode == 7
    # a terminal, whose PATH is the job's and not that of .bashrc
    terminal = pexpect.spawn(
        "setpriv",
        [*person.become[1:], str(person.folder / "bin/ssh"), host],
        encoding="utf-8",
        env={**person.environ, "TERM": "xterm"},
        timeout=30,
    )
    # else sshd cannot give a terminal to this user
    has_tty_group = "gid=5" in Path("/proc/mounts").read_text()
    terminal.expect_exact("$ " if has_tty_group else "PTY allocation request failed")
    terminal.sendline("command -v python")
    terminal.expect_exact(f"{person.venv}/bin/python")
    terminal.sendline("exit")
    terminal.expect(pexpect.EOF)
    copies_files(person, host)
    forwards(person, host)
    # a daemon of one window is alive in the next
    run(person, "ssh", host, "setsid nohup sleep 4711 >/dev/null 2>&1 </dev/null &")
    assert run(person, "ssh", host, "pgrep -x -f 'sleep 4711' | wc -l").stdout == "1\n"
    # kill -9 of ssh: nothing else is lost
    with held(person, host, "cat") as client:
        assert client.stdin
        assert client.stdout
        client.stdin.write(b"x")
        client.stdin.flush()
        assert client.stdout.read(1) == b"x"
        client.kill()
    wait_for(lambda: not processes_with(f"relay {run_folder(person)}"), 20, "the relay to end")
    assert run(person, "ssh", host, "echo $SLURM_JOB_ID").stdout == f"{job}\n"
    local = another_user_reaches_nothing(person, cluster, node, token="")
    person("cancel", "--yes", job, check=True)
    person.ended(job)
    gone = run(person, "ssh", host, "true", check=False)
    assert (
        f"hpcrun: job {job} cannot be reached: `hpcrun status {job}` says whether it runs"
        in gone.stderr
    )
    assert not local.exists()


def copies_files(person: Hpcrun, host: str) -> None:
    data = os.urandom(20_000_000)
    person.write("data", "").write_bytes(data)
    config = person.home / ".ssh/config"
    run(person, "scp", "data", f"{host}:by-scp")
    run(person, "rsync", "-e", f"ssh -F {config}", "data", f"{host}:by-rsync")
    run(person, "sftp", "-b", "-", host, stdin="put data by-sftp\n")
    begun = time.monotonic()
    run(person, "ssh", host, "cat >by-ssh", stdin="x" * 20_000_000)
    assert time.monotonic() - begun < 20
    for name in ("by-scp", "by-rsync", "by-sftp"):
        assert (
            hashlib.sha256((person.home / name).read_bytes()).digest()
            == hashlib.sha256(data).digest()
        )
    assert (person.home / "by-ssh").stat().st_size == 20_000_000


@contextmanager
def held(person: Hpcrun, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ssh while the block runs."""
    process = subprocess.Popen(
        [*person.become, person.folder / "bin/ssh", *argv],
        env=person.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.terminate()


def forwards(person: Hpcrun, host: str) -> None:
    """-L to a server on the node, and -T -D with a shell that reads its script, as VS Code
    does it.
    """
    there, here, socks = free_port(), free_port(), free_port()
    server = (
        f"{person.python_word} -m http.server --bind 127.0.0.1 --directory "
        f"{person.home}/.ssh/hpcrun.d {there}"
    )
    run(person, "ssh", host, f"setsid nohup {server} >/dev/null 2>&1 </dev/null &")
    with held(person, "-N", "-L", f"127.0.0.1:{here}:127.0.0.1:{there}", host):
        wait_for(lambda: "hpcrun" in fetched(f"http://127.0.0.1:{here}/"), 30, "the forward")
    with held(person, "-T", "-D", str(socks), host, "bash") as shell:
        assert shell.stdin
        shell.stdin.write(b"echo $SLURM_JOB_ID >from-script\n")
        shell.stdin.flush()
        wait_for(lambda: (person.home / "from-script").exists(), 30, "the script")
        wait_for(lambda: "hpcrun" in through_socks(socks, there), 30, "the proxy")
    run(person, "ssh", host, f"pkill -f 'http.server.* {there}'", check=False)


def cookie_of(url: str) -> str:
    """What a browser keeps of a server."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return "; ".join(line.partition(";")[0] for line in answer.headers.get_all("Set-Cookie"))


def fetched(url: str, token: str = "", data: bytes | None = None, cookie: str = "") -> str:
    headers = {}
    if token:
        headers["Authorization"] = f"token {token}"
    elif cookie:
        headers["Cookie"] = cookie
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return str(error)
    except (OSError, http.client.HTTPException) as error:
        return str(error)


def through_socks(proxy: int, port: int) -> str:
    """A page of a server on 127.0.0.1 there, by SOCKS 5 (RFC 1928)."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", proxy), timeout=5) as connection:
        connection.sendall(
            b"\5\1\0" + b"\5\1\0\1" + socket.inet_aton("127.0.0.1") + port.to_bytes(2, "big")
        )
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with connection.makefile("rb") as file:
            return file.read().decode(errors="replace")
    return ""


CONNECT = (
    "/usr/bin/python3",
    "-c",
    """
import socket, sys
to = sys.argv[1]
peer = socket.socket() if to.isdigit() else socket.socket(socket.AF_UNIX)
peer.settimeout(2)
peer.connect(("127.0.0.1", int(to)) if to.isdigit() else to)
peer.sendall(b"s" * 99)
sys.stdout.buffer.write(peer.recv(999))
""",
)
"""A program that connects to a path or a port, and prints what it gets; as nc does."""


def another_user_reaches_nothing(person: Hpcrun, cluster: Cluster, node: str, token: str) -> Path:
    """Nobody tries the socket by its path and by /proc/net/unix, the ports, and what ps and /proc
    show.
    """
    inside = ("ip", "netns", "exec", f"hpcrun-{node}", *NOBODY)
    local = json.loads(next(run_folder(person).glob("elements/*/dev/door")).read_text())["local"]
    listed = subprocess.run(
        [*NOBODY, "cat", "/proc/net/unix"], capture_output=True, text=True
    ).stdout
    paths = {word for word in listed.split() if "hpcrun-dev" in word} | {
        f"{local}/socket",
        f"{local}/jupyter/socket",
    }
    for path in paths:
        done = subprocess.run([*inside, *CONNECT, path], capture_output=True, text=True)
        assert done.returncode != 0
        assert "Permission denied" in done.stderr
        assert (
            subprocess.run([*inside, "ls", str(Path(path).parent)], capture_output=True).returncode
            != 0
        )
    ports = subprocess.run(
        [*inside[:4], "ss", "-Hltnp"], capture_output=True, text=True
    ).stdout.splitlines()
    for line in (line for line in ports if not re.search('"(slurmd|slurmstepd|srun)"', line)):
        # ipykernel's pipe for the output of its own children: it sends nothing, and takes only what
        # has its secret
        match = re.search(r"127.0.0.1:(\d+) .*pid=(\d+)", line)
        assert match and b"ipykernel" in Path(f"/proc/{match[2]}/cmdline").read_bytes(), line
        reply = subprocess.run([*inside, *CONNECT, match[1]], capture_output=True)
        assert len(reply.stdout) <= 64, "more than the greeting of ZeroMQ"
    keys = next(run_folder(person).glob("elements/*/dev/host_key"))
    assert subprocess.run([*NOBODY, "cat", keys], capture_output=True).returncode != 0
    shown = subprocess.run(
        [*NOBODY, "sh", "-c", "ps auxwwe; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline"],
        capture_output=True,
        errors="replace",
    ).stdout
    assert not token or token not in shown
    return Path(local)


def test_jupyter_with_a_kernel_that_computes(person: Hpcrun, cluster: Cluster) -> None:
    for name in (
        "selectors",
        "secrets",
        "hpcrun_dev",
        "notebook/x",
        "jupyterlab",
        "jupyter_server",
        "jupyter_config",
    ):
        person.write(f"{name}.py", "open('hacked', 'a').close()\n")
    terminal = person.terminal("dev", *JOB, "--jupyter", env=path_of(person))
    terminal.expect(r"jupyter +http://127.0.0.1:(\d+)/\?token=(\w+)")
    port, token = int(terminal.match[1]), str(terminal.match[2])
    url = f"http://127.0.0.1:{port}/api/kernels"
    assert "Forbidden" in fetched(url)
    cookie = cookie_of(f"http://127.0.0.1:{port}/api/kernels?token={token}")
    assert "Forbidden" not in fetched(url, cookie=cookie)
    kernel = json.loads(fetched(url, token, b"{}"))
    assert (
        computed(
            port,
            token,
            kernel["id"],
            "print(6 * 7, __import__('os').environ['CUDA_VISIBLE_DEVICES'])",
        )
        == "42 0\n"
    )
    node = person.status("last")["hosts"]
    assert not list(person.folder.rglob("hacked"))  # nothing of the folder of the job runs
    another_user_reaches_nothing(person, cluster, node, token)
    terminal.sendintr()
    terminal.expect("the connection to Jupyter is closed")
    terminal.expect(pexpect.EOF)
    # Jupyter and the kernel are still there for the next connection; who has listened at the port
    # has nothing
    again = person.terminal("dev", "last", "--jupyter", env=path_of(person))
    again.expect(rf"jupyter +http://127.0.0.1:{port}/\?token=(\w+)")
    renewed = str(again.match[1])
    assert kernel["id"] in fetched(url, renewed)
    assert "Forbidden" in fetched(url, token)
    assert "Forbidden" in fetched(url, cookie=cookie)
    person("cancel", "--yes", "last", check=True)
    again.expect(r"hpcrun: the connection to job \d+ has ended")


def test_from_a_laptop_in_one_line(as_researcher: Hpcrun, tmp_path: Path) -> None:
    as_researcher.write("home/.bashrc", "echo welcome\n")
    with login_node_of(as_researcher) as node, laptop(tmp_path / "laptop", far=node) as here:
        here("login", "far", check=True)
        here.write("project/train.py", "1 / 0\n")
        line = ("dev", *JOB, "--nodes", "2", "--gpus", "2", "--ssh", "--yes")
        done = here("--on", "far", *line, cwd=here.folder / "project", check=True)
        assert re.search(
            r"on the first of 2 nodes.* hpcrun --on far shell \d+ --node NAME", done.stderr
        )
        match = re.search(r"ssh +ssh hpcrun-far-(\d+)\n", done.stdout)
        assert match
        host = f"hpcrun-far-{match[1]}"
        assert here.run("ssh", host, "echo $SLURM_JOB_ID").stdout == f"{match[1]}\n"
        here.write("data", "x" * 100_000)
        here.run("rsync", "-e", f"{here.folder}/bin/ssh", "data", f"{host}:from-laptop")
        assert (as_researcher.home / "from-laptop").stat().st_size == 100_000
        assert (
            here("--on", "far", "dev", match[1], stdin="echo $SLURM_JOB_ID\n", check=True).stdout
            == f"{match[1]}\n"
        )
        editor = here("--on", "far", "dev", match[1], "--code", check=True).stdout
        code = re.search(
            rf"code --remote ssh-remote\+{host} ({as_researcher.home}/hpcrun-code/.*)", editor
        )
        assert code
        assert os.listdir(code[1]) == ["train.py"]
        own = json.loads(here("--on", "far", "dev", match[1], "--ssh", "--json", check=True).stdout)
        assert own["name"] == host
        assert own["ssh"][0] == "ssh"
        assert own["relay"][0] == "ssh"
        jupyter = here.terminal("--on", "far", "dev", match[1], "--jupyter")
        jupyter.expect(r"http://127.0.0.1:(\d+)/\?token=(\w+)")
        assert (
            fetched(f"http://127.0.0.1:{jupyter.match[1]}/api/kernels?token={jupyter.match[2]}")
            == "[]"
        )
        assert node.logins == 1
        refused = here("--on", "far", "dev", "999999", "--ssh")
        assert refused.returncode == 6
        assert "there is no run '999999'" in refused.stderr
        kill_connection(here, "far")
        jupyter.expect(rf"hpcrun: the connection to job {match[1]} has ended")
        gone = here.run("ssh", host, "true", check=False)
        assert f"hpcrun: job {match[1]} cannot be reached" in gone.stderr
        assert node.logins == 1


def computed(port: int, token: str, kernel: str, code: str) -> str:
    """What a kernel prints, by Jupyter's own protocol over a websocket."""
    import asyncio

    from tornado.httpclient import HTTPRequest
    from tornado.websocket import websocket_connect

    async def talk() -> str:
        address = f"ws://127.0.0.1:{port}/api/kernels/{kernel}/channels"
        channel = await websocket_connect(
            HTTPRequest(address, headers={"Authorization": f"token {token}"})
        )
        header = {
            "msg_id": "1",
            "username": "",
            "session": "1",
            "msg_type": "execute_request",
            "version": "5.3",
        }
        message = {
            "header": header,
            "parent_header": {},
            "metadata": {},
            "channel": "shell",
            "content": {"code": code},
        }
        await channel.write_message(json.dumps(message))
        while True:
            answer = json.loads(await channel.read_message() or "{}")
            if answer["msg_type"] == "stream":
                channel.close()
                return str(answer["content"]["text"])

    return asyncio.run(asyncio.wait_for(talk(), 60))


def test_it_ends_without_use_and_joins_the_ranks_of_another_job(person: Hpcrun) -> None:
    dev(person, *JOB, "--name", "unused", "--idle", "24s", "--ssh", "--yes")
    person.write("long.py", "import time\ntime.sleep(600)\n")
    person("submit", *JOB, "--launcher", "python", "--name", "plain", "long.py", check=True)
    wait_for(lambda: person.status("plain")["state"] == "RUNNING", 60, "the ranks")
    match = re.search(r"ssh (hpcrun-\d+)\n", dev(person, "plain", "--ssh"))
    assert match
    answer = run(
        person, "ssh", match[1], "echo $SLURM_JOB_ID ${#CUDA_VISIBLE_DEVICES}; command -v python"
    ).stdout
    assert answer == f"{match[1][7:]} 1\n{person.venv}/bin/python\n"
    assert (
        run(person, *person.argv("dev", "plain"), stdin="echo $SLURM_JOB_ID\n").stdout
        == f"{match[1][7:]}\n"
    )
    assert re.search(r"(?m)^unused .*dev, ", person("status", check=True).stdout)
    assert person.ended("unused")["state"] == "COMPLETED"
    assert (
        "the job ended because it was unused for 2"
        in person("explain", "unused", check=True).stdout
    )
    assert re.search(r"(?m)^unused .*unused for 2\d s", person("status", check=True).stdout)
    said = person("logs", "unused", check=True).stdout
    assert re.search(r"unused since \d+ s: it ends in 8 s.*--idle 3h", said)
    assert "unused for 24 s (--idle): it ends" in said
    assert person.status("plain")["state"] == "RUNNING"


def test_a_node_that_is_unplugged(person: Hpcrun, cluster: Cluster) -> None:
    job = submitted(person)
    node = person.status(job)["hosts"]
    cluster.unplug(node)
    done = run(person, "ssh", "-o", "ConnectTimeout=60", f"hpcrun-{job}", "true", check=False)
    assert done.returncode == 255
    assert f"hpcrun: job {job} cannot be reached" in done.stderr  # behind two lines of ssh
    cluster.plug(node)
    wait_for(
        lambda: run(person, "ssh", f"hpcrun-{job}", "true", check=False).returncode == 0,
        60,
        "the node",
    )
    assert [line["job_id"] for line in person.document("status")["runs"]] == [job]
