"""What is typed for each picture, and what happens on the cluster in between."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from dev.pictures.desk import Desk
from dev.pictures.past_runs import write_past_runs
from dev.pictures.terminal import COLUMNS, Terminal
from tests.harness import REPO
from tests.local.wandb_server import KEY, wandb_server
from tests.remote import login_node

AT_END = ExitStack()
Step = Callable[[Terminal], None]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of the docs: ``docs/pictures/NAME.svg``.

    Attributes:
        steps: lines to type, each when the one before has ended; or what else a person does at the
            terminal.
        drawn: a file that the command draws, kept beside the picture.
        page: a page that the command writes; its picture is kept beside this one.
        host: the name of the machine where its commands show one; Slurm's commands do not work
            there.
    """

    name: str
    steps: tuple[str | Step, ...]
    columns: int = COLUMNS
    drawn: str | None = None
    page: str | None = None
    host: str | None = None


def picture(
    name: str,
    *steps: str | Step,
    columns: int = COLUMNS,
    drawn: str | None = None,
    page: str | None = None,
    host: str | None = None,
) -> Picture:
    """Return a picture of these steps."""
    return Picture(name, steps, columns, drawn, page, host)


def look_on(line: str, until: str, seconds: float) -> Step:
    """Type a command that goes on, look on from certain words for so many seconds, and press
    Ctrl-C.
    """

    def step(terminal: Terminal) -> None:
        terminal.type(line, until=until)
        terminal.look_on(seconds)
        terminal.interrupt()

    return step


def full_screen(line: str, *keys: tuple[str, str], rows: int = 18, leave: str = "q") -> Step:
    """Type the command of a program that draws on the whole screen, and press keys, each when some
    words are shown.
    """

    def step(terminal: Terminal) -> None:
        terminal.full_screen(line, *keys, rows=rows, leave=leave)

    return step


def answering(line: str, question: str, answer: str) -> Step:
    """Type a command, and an answer to what it asks."""

    def step(terminal: Terminal) -> None:
        terminal.type(line, until=question)
        terminal.type(answer)

    return step


def answered(line: str, *answers: tuple[str, str]) -> Step:
    """Type a command, and an answer to each of its questions."""

    def step(terminal: Terminal) -> None:
        typed = line
        for question, answer in answers:
            terminal.type(typed, until=question)
            typed = answer
        terminal.type(typed)

    return step


# --- what happens in between ---------------------------------------------------------------------


def fit_thrice(desk: Desk) -> None:
    """Let one script run three times, with other arguments, and the last time with an edit."""
    program = desk.project / "train.py"
    text = program.read_text()
    job = ("-P", "cpu", "-G", "0", "-t", "10m", "--launcher", "python", "--snapshot", "train.py")
    steps = ("--steps", "60", "--seconds", "0.1")
    for name, arguments in (
        ("base", steps),
        ("fast", (*steps, "--lr", "0.2")),
        ("noisy", (*steps, "--lr", "0.8")),
    ):
        if name == "noisy":
            program.write_text(text.replace("gauss(0, 0.1)", "gauss(0, 0.5)"))
        desk.submit(name, *job, *arguments)
    for name in ("base", "fast", "noisy"):
        desk.wait_until(name, "COMPLETED")
    program.write_text(text)


def bring_history(desk: Desk) -> None:
    """Write down runs of the last weeks."""
    share = desk.project.parent / ".local"
    write_past_runs(share / "share/hpcrun/runs")
    desk.give(share)


def bring_login_node(desk: Desk) -> None:
    """Let the person reach the cluster by ssh, from a laptop."""
    home = desk.project.parent
    node = AT_END.enter_context(login_node(home / ".sshd", desk.environ))
    (home / ".profile").write_text(f"PATH={home}/venv/bin:$PATH\n")
    ssh = home / "venv/bin/ssh"  # ssh itself takes the home of /etc/passwd
    ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {home}/.sshd/config "$@"\n')
    ssh.chmod(0o755)
    (home / ".sshd/config").write_text(
        f"Host cluster\n HostName 127.0.0.1\n Port {node.port}\n IdentityFile {home}/.sshd/user\n"
        " StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n"
    )
    for place in (home / ".sshd", home / ".profile"):
        desk.give(place)


def track(desk: Desk) -> None:
    """Let two jobs use trackers, and a server take what they have written offline (`make trackers`
    installs them).
    """
    server = AT_END.enter_context(wandb_server())
    settings = desk.project.parent / ".config/wandb/settings"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[default]\nbase_url = {server.url}\nmode = offline\n")
    netrc = desk.project.parent / ".netrc"
    netrc.write_text(f"machine {urlsplit(server.url).netloc}\nlogin user\npassword {KEY}\n")
    netrc.chmod(0o600)
    desk.give(settings.parents[1])
    desk.give(netrc)
    for name, lr in (("small", "0.1"), ("large", "1")):
        desk.submit(
            name,
            "-P",
            "cpu",
            "-G",
            "0",
            "-t",
            "10m",
            "--launcher",
            "python",
            "tracked.py",
            "--lr",
            lr,
        )
        # one after the other: two jobs cannot make one MLflow database at the same time
        desk.wait_until(name, "COMPLETED", within_s=300)


def bring_example(desk: Desk) -> None:
    """Lay down a training."""
    shutil.copyfile(REPO / "examples/digits_ddp.py", desk.project / "digits.py")
    desk.give(desk.project / "digits.py")


def end_classify(desk: Desk) -> None:
    """Submit a job of two nodes that fails, is requeued, and fails again, and wait for its end."""
    again = ("--requeue", "1", "--retry-on-failure")
    job = ("-P", "l40s", "-N", "2", "-G", "2", "-t", "30m", "--launcher", "srun", *again)
    desk.submit("classify", *job, "classify.py", "--lr", "3e-4")
    desk.wait_until("classify", "FAILED", within_s=180)


def forget_first_hour(desk: Desk) -> None:
    """Take away what the first hour has left: the other pictures are of one who names a profile."""
    for folder in (".config/hpcrun", ".local/share/hpcrun", ".local/state/hpcrun", ".cache/hpcrun"):
        shutil.rmtree(desk.project.parent / folder, ignore_errors=True)


def receive(desk: Desk) -> None:
    """Start a server that writes each message it receives to a file of the project."""
    inbox = desk.project / "inbox"
    inbox.touch()
    desk.give(inbox)

    class Inbox(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            note = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with inbox.open("a") as file:
                file.write(
                    ""
                    if note["title"].startswith("Test")
                    else f"* {note['title']}\n{note['message']}\n"
                )
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("0.0.0.0", 8025), Inbox)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def begin(desk: Desk) -> None:
    """Submit what runs while the first pictures are taken, and what is to be over afterwards."""
    desk.submit(
        "digits",
        "-P",
        "v100",
        "-G",
        "2",
        "-t",
        "2h",
        "--launcher",
        "srun",
        "train.py",
        "--steps",
        "130",
    )
    desk.submit("finetune", "-P", "l40s", "-G", "2", "-t", "4h", "finetune.py")
    desk.submit(
        "evaluate",
        "-P",
        "l40s",
        "-N",
        "2",
        "-G",
        "2",
        "-t",
        "30m",
        "--launcher",
        "srun",
        "evaluate.py",
    )
    wide = ("-P", "h100", "-N", "2", "-G", "16", "-t", "12h", "--launcher", "srun")
    desk.submit("pretrain", *wide, "train.py", "--steps", "900")


def fill(desk: Desk) -> None:
    """Let a job wait for the one that was submitted in a picture, and wait for the ends of
    others.
    """
    desk.submit("next", "-P", "a100", "-G", "4", "--qos", "short", "-t", "10m", "train.py")
    desk.wait_until("train", "RUNNING")
    for name in ("finetune", "evaluate"):
        desk.wait_until(name, "FAILED")


def hang(desk: Desk) -> None:
    """Submit a job of which one rank stops, and wait until it has been silent for a while."""
    desk.submit(
        "unet", "-P", "l40s", "-N", "2", "-G", "4", "-t", "4h", "--launcher", "srun", "unet.py"
    )
    desk.wait_until("unet", "RUNNING")
    time.sleep(60)


def end_hang(desk: Desk) -> None:
    """Free its nodes."""
    desk.cancel("unet")


def break_profile(desk: Desk) -> None:
    """Write a profile with mistakes."""
    folder = desk.project / ".hpcrun" / "profiles"
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text(
        "extends: [base/slurm, gpu/a100, fabric/infiniband-hrd]\n"
        "partition: gpu\ngpu:\n  per_nod: 4\n  directive: gress\nmemory:\n  per_node: lots\n"
    )
    desk.give(desk.project / ".hpcrun")


def bring_table(desk: Desk) -> None:
    """Lay down the times that a team has published, for a report."""
    shutil.copyfile(REPO / "tests/data/seeds/002.csv", desk.project / "guide.csv")
    desk.give(desk.project / "guide.csv")


def unplug(desk: Desk) -> None:
    """Pull two network cables: of a node that is idle, and of one that a job runs on."""
    desk.cluster.unplug("h100-2")
    desk.cluster.unplug("l40s-2")


def plug(desk: Desk) -> None:
    """Put the cables back when Slurm has given up the node."""
    desk.wait_until("pretrain", "NODE_FAIL", within_s=180)
    desk.cluster.plug("h100-2")
    desk.cluster.plug("l40s-2")


def end_sweep(desk: Desk) -> None:
    """Wait for all elements of the sweep."""
    desk.wait_until("lr", "COMPLETED", within_s=300)


def end_digits(desk: Desk) -> None:
    """Wait for the run that ends well: it takes two minutes, since of shorter ones Slurm samples no
    memory.
    """
    desk.wait_until("digits", "COMPLETED", within_s=300)


SCENES: tuple[Picture | Callable[[Desk], None], ...] = (
    picture("skill", "hpcrun skill --permissions"),
    fit_thrice,
    picture("compare", "hpcrun compare base noisy", columns=80),
    picture(
        "compare-wide",
        "hpcrun compare base fast noisy",
        "hpcrun compare fast noisy --code",
        columns=160,
    ),
    picture(
        "compare-png",
        "hpcrun compare base fast noisy --png compare.png",
        columns=80,
        drawn="compare.png",
    ),
    picture("wait", "hpcrun wait base fast noisy --timeout 100s", "echo $?", columns=80),
    forget_first_hour,
    bring_login_node,
    picture("login", "hpcrun login cluster", "hpcrun --on cluster status", host="laptop"),
    picture("fetch", "hpcrun --on cluster fetch last", "ls 20*", host="laptop"),
    picture(
        "dev",
        "hpcrun --on cluster dev -P a100 --gpus 1 --time 4h --code --yes",
        "hpcrun --on cluster status last",
        "hpcrun --on cluster dev last --idle 3h",
        host="laptop",
    ),
    bring_history,
    picture("history", "hpcrun history --since 4w", "hpcrun history --since 4w --by name"),
    track,
    picture(
        "open",
        "hpcrun open large",
        "hpcrun open --upload large",
        "hpcrun open large --url",
        host="login1",
    ),
    picture(
        "tensorboard", look_on("hpcrun open --tensorboard small large", "CTRL", 1), host="login1"
    ),
    forget_first_hour,
    bring_example,
    picture(
        "init",
        answered(
            "hpcrun init",
            ("GPU type [", "a100"),
            ("launcher [", ""),
            ("Folder of the runs", ""),
            ("Submit a test job", "y"),
        ),
    ),
    picture("first-submit", "hpcrun submit --gpus 4 --nodes 2 --follow digits.py"),
    picture("first-status", "hpcrun status"),
    end_classify,
    picture("share", "hpcrun share classify -o classify.html", page="classify.html"),
    forget_first_hour,
    receive,
    picture(
        "notify",
        "hpcrun notify --test ntfy://hpc-login:8025/me",
        "hpcrun submit -P l40s -N 2 -G 2 --launcher srun --notify ntfy://hpc-login:8025/me "
        "evaluate.py",
        lambda terminal: terminal.look_on(25),
        "cat inbox",
    ),
    begin,
    picture("import", "hpcrun import old.sbatch"),
    picture(
        "submit", "hpcrun submit -P a100 -N 2 -G 4 -t 10m -q short --requeue 2 train.py --steps 500"
    ),
    picture(
        "submit-dry-run",
        "hpcrun submit -P a100 -N 2 -G 8 -t 4h --dry-run train.py --lr 0.01 | head -20",
    ),
    picture(
        "sweep",
        "hpcrun submit -J lr -P cpu -G 0 -c 1 --sweep lr=1e-3,1e-2,1e-1,1 --max-parallel 2 "
        "train.py",
    ),
    picture("chain", "hpcrun submit -J long -P v100 -G 1 -t 12h --chain 3 train.py --steps 900"),
    fill,
    picture("status", "hpcrun status"),
    picture("status-narrow", "hpcrun status", columns=44),
    picture("status-waiting", "hpcrun status -v next"),
    picture("top", full_screen("hpcrun top", ("jjjj\x1b[C", "step="), ("j", "lr/1"))),
    picture(
        "top-metrics",
        full_screen("hpcrun top --filter 'train !pre'", ("\r", "RUNNING"), ("3", "ranks"), rows=24),
    ),
    picture("hold", "hpcrun hold next", "hpcrun status next", "hpcrun release next"),
    picture("status-watch", look_on("hpcrun status --watch train next", "next", 1)),
    picture("logs-follow", look_on("hpcrun logs -f -n 2 train", "loss", 4)),
    picture("logs-merge", "hpcrun logs --merge -n 8 train"),
    picture("explain-gpu-memory", "hpcrun explain finetune"),
    picture("explain-rank", "hpcrun explain evaluate"),
    picture(
        "top-run", full_screen("hpcrun top --filter evaluate", ("\r", "FAILED"), ("", "failed ("))
    ),
    picture("explain-waiting", "hpcrun explain next"),
    hang,
    picture("explain-stacks", "hpcrun explain unet --stacks"),
    end_hang,
    picture("gpu", "hpcrun status --gpus train"),
    picture(
        "shell",
        "hpcrun shell train --node a100-2",
        "echo job $SLURM_JOB_ID, GPUs $CUDA_VISIBLE_DEVICES",
        "exit",
    ),
    picture("where", "hpcrun where --gpus 8 --time 4h"),
    picture(
        "plan",
        "hpcrun scale plan --samples 1.2M --batch-size 1024 --lr 1e-3 --epoch-time 36m "
        "--also 2:1024=19m --gpus 1,2,4,8 -P h100",
    ),
    bring_table,
    picture(
        "report",
        "hpcrun scale report --from-csv guide.csv 2>&1 | head -24",
        drawn="report-guide/speedup_efficiency.png",
    ),
    picture("doctor", "hpcrun doctor -P a100"),
    picture("profile-list", "hpcrun profile list"),
    picture("profile-show", "hpcrun profile show a100 --origin"),
    picture("profile-diff", "hpcrun profile diff a100 h100"),
    picture("profile-env", "hpcrun profile env a100"),
    picture("profile-env-variable", "hpcrun profile env NCCL_IB_HCA"),
    break_profile,
    picture("trust", answering("hpcrun profile trust", "[y/N]", "y")),
    picture("profile-validate", "hpcrun profile validate lab"),
    picture("sweep-status", "hpcrun status lr"),
    end_sweep,
    picture("sweep-table", "hpcrun sweep lr", "hpcrun sweep lr --best loss"),
    picture("sweep-plot", "hpcrun sweep lr --plot"),
    picture("sweep-png", "hpcrun sweep lr --png sweep.png", drawn="sweep.png"),
    picture(
        "scale",
        "hpcrun scale run --gpus 1,2 --repeat 2 -J sizes -P v100 -t 10m train.py --steps 60",
    ),
    picture("note", "hpcrun note evaluate '#paper baseline'", "hpcrun status --filter paper"),
    picture("resubmit", "hpcrun resubmit evaluate -t 1h"),
    picture("cancel", "hpcrun cancel next long", "hpcrun status next"),
    picture(
        "errors",
        "hpcrun submit --gpu 4 train.py",
        "hpcrun submit -P a100 --gpus 3 --nodes 2 train.py",
        "hpcrun status trian",
    ),
    picture("preflight", "hpcrun preflight -P l40s -N 2 -G 4"),
    unplug,
    picture("preflight-bad-node", "hpcrun preflight -P l40s -N 2 -G 4"),
    plug,
    picture("explain-node", "hpcrun explain pretrain"),
    picture("nodes", "hpcrun nodes", "hpcrun nodes forget h100-2"),
    end_digits,
    picture("status-ended", "hpcrun status -v digits"),
    picture("status-running", "hpcrun status -v train"),
    picture("logs", "hpcrun logs -n 6 train"),
    picture("metrics", "hpcrun metrics train -n 6"),
    picture("metrics-plot", "hpcrun metrics train --plot -m loss"),
    picture("metrics-png", "hpcrun metrics train --png loss.png -m loss", drawn="loss.png"),
    picture("clean", answering("hpcrun clean --state failed", "[y/N]", "y")),
)
