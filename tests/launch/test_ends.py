"""How a job of real processes ends: statuses, records, who failed first, what is left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness import REPO, wait_for
from tests.launch.jobs import HOW, LAUNCH, command, descendants, job, python, send, wait_for_ends

# One agent per node, as torchrun's: it starts the ranks in sessions of their own, and clears away.
AGENT = """
import os, signal, subprocess, sys, time
per_node, node = int(sys.argv[1]), int(os.environ["HPCRUN_NODE_RANK"])
ranks = []
for local in range(per_node):
    env = {**os.environ, "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(per_node)}
    env["RANK"] = str(node * per_node + local)
    ranks.append(subprocess.Popen(sys.argv[2:], env=env, start_new_session=True))
while any(rank.poll() is None for rank in ranks):
    if any(rank.poll() for rank in ranks):
        for rank in ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, signal.SIGTERM)
        break
    time.sleep(0.02)
sys.exit(1 if any([rank.wait() for rank in ranks]) else 0)
"""


def agent(folder: Path, per_node: int) -> list[str]:
    path = folder / "agent.py"
    path.write_text(AGENT)
    return [*LAUNCH, "node", "--", sys.executable, str(path), str(per_node), *LAUNCH, "rank", "--"]


def on_rank(number: int, what: str, others: str = "time.sleep(900)") -> str:
    head = f"import os, signal, sys, time\nif os.environ['RANK'] == '{number}':\n"
    return f"{head}    time.sleep(0.5)\n    {what}\n{others}\n"


MANAGED = ("--grace", "60", "--requeue", "1")


@pytest.mark.parametrize(
    ("what", "status", "options"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, ()),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, MANAGED),
        ("sys.exit(7)", 7, MANAGED),
    ],
)
def test_the_status_is_that_of_the_rank_that_failed_first(
    tmp_path: Path, what: str, status: int, options: tuple[str, ...]
) -> None:
    program = python(tmp_path, on_rank(1, what))
    with job(tmp_path, program, nodes=2, chain=agent(tmp_path, 2), options=options) as running:
        assert running.end() == status
        assert running.rank(1)["status"] == status
        assert running.rank(1)["told"] == ""
        others = [running.rank(rank) for rank in (0, 2, 3)]
        assert [(other["status"], other["told"]) for other in others] == [(143, "cleared")] * 3
        assert running.record["status"] == status


def test_a_rank_that_is_cleared_away_may_save_first(tmp_path: Path) -> None:
    save = "(time.sleep(2), print('saved', flush=True), os._exit(3))"
    others = f"signal.signal(signal.SIGTERM, lambda *_: {save})\ntime.sleep(900)"
    with job(
        tmp_path, python(tmp_path, on_rank(1, "sys.exit(7)", others)), chain=agent(tmp_path, 2)
    ) as running:
        assert running.end() == 7
        assert running.out(0) == "saved\n"
        assert running.rank(0)["status"] == 3
        assert running.rank(0)["told"] == "cleared"


def test_a_program_that_slurm_ends_before_it_gets_to_the_wrapper_was_told(tmp_path: Path) -> None:
    """Slurm signals one process after another, and on a busy machine there is time between them."""
    with job(
        tmp_path, python(tmp_path, "import time\nprint('ready')\ntime.sleep(900)"), options=MANAGED
    ) as running:
        running.until("ready")
        nodes = running.processes()[1:]
        live = [
            pid for pid in nodes if command(pid)
        ]  # what has recorded the versions is reaped later
        (program,) = [pid for pid in live if "/hpcrun/in_job/launch" not in command(pid)]
        send(program, signal.SIGTERM)
        time.sleep(0.15)
        for pid in nodes:
            send(pid, signal.SIGTERM)
        assert running.end() == 143
        assert running.rank(0)["status"] == 143
        assert running.rank(0)["told"] == "TERM"
        assert os.listdir(running.attempt / "stop") == ["terminated"]


def test_a_rank_that_leaves_early_is_recorded_as_it_left(tmp_path: Path) -> None:
    program = python(tmp_path, on_rank(1, "sys.exit(0)", "time.sleep(2); sys.exit(9)"))
    with job(tmp_path, program, chain=agent(tmp_path, 2)) as running:
        assert running.end() == 9
        assert running.rank(1)["status"] == 0
        assert running.rank(1)["ended"] < running.rank(0)["ended"] - 1


def test_nothing_is_left(tmp_path: Path) -> None:
    with job(tmp_path, ["sh", "-c", "echo $HPCRUN_NODE_DIR; sleep 1"], nodes=2) as running:
        for rank in (0, 1):
            running.until("/", rank)
        pids = running.processes()
        folders = [Path(running.out(rank).strip()) for rank in (0, 1)]
        assert all(folder.is_dir() for folder in folders)
        assert running.end() == 0
        wait_for_ends(pids[1:])
        assert not any(folder.exists() for folder in folders)


def test_a_failed_program_leaves_no_process_of_its_group(tmp_path: Path) -> None:
    """It would hold memory and ports; Slurm ends it only where it tracks processes by cgroups."""
    with job(tmp_path, ["sh", "-c", "sleep 900 & echo $!; exit 3"]) as running:
        assert running.end() == 3
        wait_for_ends([int(running.out(0))])


@pytest.mark.parametrize("how", HOW)
def test_a_job_that_is_ended_before_a_rank_runs_is_over_at_once(tmp_path: Path, how: str) -> None:
    with job(tmp_path, [], chain=[*LAUNCH, "node", "--", "sleep", "900"]) as running:
        wait_for(
            lambda: any(command(pid).startswith("sleep") for pid in running.processes()),
            20,
            "the agent",
        )
        time.sleep(0.3)
        getattr(running, how)(signal.SIGTERM)
        assert running.end(10) == 143


SLEEPER = """
import os, signal, sys, time
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTERM):
    signal.signal(number, lambda *_: None)
print("up", flush=True)
while not os.path.exists(os.path.join(os.environ["HPCRUN_ATTEMPT_DIR"], "all-sent")):
    time.sleep(0.02)
os._exit(int(os.environ["RANK"]))  # at its own end Python would take the handlers away
"""


def environ_of_rank(folder: Path) -> dict[str, str]:
    """The environment of a wrapper of a rank without a job."""
    (folder / "stop").mkdir()
    return {
        **os.environ,
        "HPCRUN_ATTEMPT_DIR": str(folder),
        "HPCRUN_NODE": "n",
        "HPCRUN_JOB_ID": "1",
    }


def test_500_signals_at_random_moments_and_every_status_is_right(tmp_path: Path) -> None:
    chance, ranks = random.Random(1), range(1, 9)
    program = python(tmp_path, SLEEPER)
    env = environ_of_rank(tmp_path)
    argv = [*LAUNCH, "rank", "--", *program]
    wrappers = {
        rank: subprocess.Popen(argv, env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in ranks
    }
    wait_for(
        lambda: len([p for p in tmp_path.glob("rank-*.out") if p.read_text()]) == 8,
        20,
        "the programs",
    )
    below = {rank: descendants(wrappers[rank].pid) for rank in ranks}
    for _ in range(500):
        rank = chance.choice(list(ranks))
        number = chance.choice([signal.SIGUSR1, signal.SIGALRM, signal.SIGTERM])
        send(chance.choice(below[rank][:1] * 3 + below[rank]), number)
        time.sleep(0.004)
    (tmp_path / "all-sent").touch()
    for wrapper in wrappers.values():
        wrapper.wait(30)
    records = {
        rank: json.loads((tmp_path / f"rank-{rank}.exit").read_text())["status"] for rank in ranks
    }
    assert records == {rank: rank for rank in ranks}
    assert {rank: wrapper.returncode for rank, wrapper in wrappers.items()} == records


def test_a_program_whose_handler_ends_it_has_heard(tmp_path: Path) -> None:
    """Python takes its handlers away as it ends, so that it is looked at before; else this were a
    good end.
    """
    text = "import signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\n"
    text += "print('up', flush=True)\ntime.sleep(30)\n"
    with job(tmp_path, python(tmp_path, text), options=MANAGED) as running:
        running.until("up")
        time.sleep(1.5)  # it is looked at about every second
        os.kill(running.process.pid, signal.SIGUSR1)
        assert running.end() == 124
        assert running.rank(0)["heard"]
        assert running.record["reason"] == "time_limit"
        assert running.record["again"] is True


# A rank's wrapper has noted its program; the node's process hands SIGTERM on; only then does the
# wrapper look whether one came before.
MEETING = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from launch import node_folder, processes, rank, node_watch
wrapper = rank.Rank(0, is_task=False, contained=False)
program = processes.start(sys.argv[2:], os.environ, own_group=True)
wrapper._pid = program
wrapper._folder.claim(f"rank-0.{program}")
time.sleep(1)
if os.environ["FIRST"] == "node":
    node_watch.StopRequests(wrapper._folder, wrapper._canary).on_signal(signal.SIGTERM)
    wrapper._catch_up()
else:
    wrapper._folder.claim("stop-terminated")
    wrapper._catch_up()
    node_watch.StopRequests(wrapper._folder, wrapper._canary).on_signal(signal.SIGTERM)
time.sleep(1)
os.kill(program, signal.SIGKILL)
wrapper._canary.end()
"""


@pytest.mark.parametrize("first", ["node", "rank"])
def test_a_program_that_begins_as_the_job_is_ended_hears_of_it_once(
    tmp_path: Path, first: str
) -> None:
    text = (
        "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: print('told', "
        "flush=True))\ntime.sleep(60)\n"
    )
    env = {**environ_of_rank(tmp_path), "FIRST": first, "HPCRUN_ATTEMPT": "0"}
    argv = [sys.executable, "-c", MEETING, str(REPO / "hpcrun/in_job"), *python(tmp_path, text)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("told\n", "")


def test_the_request_to_a_node_of_a_job_that_gives_up_does_not_look_like_an_end_from_outside(
    tmp_path: Path,
) -> None:
    text = (
        "import signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: print('told', flush=True))\n"
    )
    program = python(
        tmp_path, f"{text}print('ready', flush=True)\nwhile True:\n    time.sleep(0.1)\n"
    )
    with job(tmp_path, program, options=("--grace", "2", "--requeue", "1")) as running:
        running.until("ready")
        running.process.send_signal(signal.SIGUSR1)
        running.until("told")
        # what the node writes when the job ends it: on a busy machine before the job has gone on
        (running.attempt / "stop" / "terminated").touch()
        running.end()
        assert running.record["reason"] == "time_limit"
        assert running.record["again"] is True


def test_a_full_quota_and_a_judge_that_hangs_are_one_message_each(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with job(tmp_path / "full", ["true"], env={"HPCRUN_ATTEMPT_DIR": "/proc/none"}) as running:
        assert running.end() == 1
    err = capfd.readouterr().err
    assert (
        "hpcrun: it cannot use its run's folder: [Errno 2] No such file or directory: '/proc/none"
        in err
    )
    assert "Traceback" not in err

    folder = tmp_path / "hangs"
    programs = folder / "run/programs/preflight"
    programs.mkdir(parents=True)
    (programs / "node.py").touch()
    command, env = ["true", "&&", "sleep", "600", "&&", "true"], {"HPCRUN_PREFLIGHT_S": "1"}
    with job(folder, [], chain=command, options=("--preflight",), env=env) as running:
        assert running.end() == 1
    assert (
        running.record["message"]
        == "the preflight was not judged: the Python of the job does not respond"
    )
