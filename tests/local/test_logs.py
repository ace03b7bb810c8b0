"""hpcrun logs, as a person sees it: on a terminal, in a pipe, of many ranks, and of folders that
are not in order.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Hpcrun, at_end, wait_for
from tests.local.recorded import record


def seen(hpcrun: Hpcrun, *args: str, begun: tuple[str, Path] | None = None, **more: Any) -> str:
    """What a terminal is sent; ``begun`` is a text to wait for and then a file to make, before what
    is returned.
    """
    terminal = hpcrun.terminal("logs", *args, **more)
    if begun:
        terminal.expect_exact(begun[0])
        begun[1].touch()
    return at_end(terminal)[1].replace("\r\n", "\n")


# --- which ---------------------------------------------------------------------------------------


def test_ranks_nodes_attempts_and_lines_are_chosen(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    many, twice, lines, both = (record(hpcrun, name) for name in ("many", "twice", "lines", "both"))
    for rank in range(4):
        many.log(f"I am {rank}\n", rank)
    for node, first in (("a100-1", 0), ("a100-2", 2)):
        start = f'{{"node": "{node}", "first_rank": {first}, "ranks": 2, "started": 1}}'
        (many.attempt() / f"node-{node}.start").write_text(start)
    for number, text in enumerate(("first\n", "second\n")):
        twice.log(text, attempt=number)
    lines.log("loss 3\nother\nloss 2\rloss 1\n")
    both.log("99\n100\n")
    both.log("problem\n", stream="err")
    for words, status, shown, message in (
        ("many --rank 3", 0, "I am 3\n", ""),
        ("many --rank 0-1,3", 0, "[rank 0] I am 0\n[rank 1] I am 1\n[rank 3] I am 3\n", ""),
        ("many --node a100-2", 0, "[rank 2] I am 2\n[rank 3] I am 3\n", ""),
        ("many --rank 2-9", 6, "", "hpcrun: the job has no rank 9\nhint: its ranks are 0 to 3\n"),
        ("many --rank 2-", 2, "", "--rank"),
        ("many --rank 1 --batch", 2, "", "--batch"),
        ("many --node a100-3", 6, "", "its nodes: a100-1, a100-2"),
        ("twice", 0, "second\n", "hpcrun: showing attempt 2 of 2; the first: --attempt 1\n"),
        ("twice --attempt 1", 0, "first\n", ""),
        ("twice --attempt 2", 0, "second\n", ""),
        ("twice --attempt 3", 6, "", "has no attempt 3\nhint: its attempts: 1-2\n"),
        ("twice --attempt 0", 2, "", "--attempt 0: must be 1 or more"),
        ("lines --grep loss", 0, "loss 3\nloss 1\n", ""),  # of a progress bar its last state
        ("lines --grep loss -n 1", 0, "loss 1\n", ""),
        ("lines --grep never", 0, "", "hpcrun: no line matches"),
        ("lines --grep (", 2, "", "regular expression"),
        ("both -n 1", 0, "==> rank 0 stdout <==\n100\n\n==> rank 0 stderr <==\nproblem\n", ""),
        ("both --err", 0, "problem\n", ""),
    ):
        with subtests.test(words=words):
            done = hpcrun("logs", *words.split())
            assert (done.returncode, done.stdout, message in done.stderr) == (
                status,
                shown,
                True,
            ), (
                words,
                done.stderr,
            )
            assert ("showing attempt" in done.stderr) == (words == "twice")


def test_since(hpcrun: Hpcrun) -> None:
    run = record(hpcrun)
    old, new = (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - ago)) for ago in (7200, 60)
    )
    run.log(f"{old} old\nwith this\n{new} new\nwith that\n")
    assert hpcrun("logs", "--since", "10m").stdout == f"{new} new\nwith that\n"
    without = run.log("no time\n")
    error = without.with_suffix(".err")
    error.unlink(missing_ok=True)
    for more in ((), ("--merge",)):
        shown = hpcrun("logs", "--since", "10m", *more)
        assert shown.stdout.endswith("no time\n")
        assert "has no timestamps: all its lines are shown" in shown.stderr
        error.unlink(missing_ok=True)
        error.symlink_to("/etc/passwd")  # which hpcrun does not read
    error.unlink()
    os.utime(without, (time.time() - 7200, time.time() - 7200))
    assert hpcrun("logs", "--since", "10m").stdout == ""
    assert hpcrun("logs", "--since", "soon").returncode == 2


def test_ranks_merged_by_time(hpcrun: Hpcrun) -> None:
    run = record(hpcrun, ranks=2)
    run.log("2026-01-02 10:00:01 a\n  its traceback\n2026-01-02 10:00:05 d\n", 0)
    run.log("[2026-01-02 10:00:02,500] b\n[rank1]:[E0102 10:00:04.1 Process.cpp:1] c\n", 1)
    lines = [line.split() for line in hpcrun("logs", "--merge").stdout.splitlines()]
    assert [(line[1], line[-1]) for line in lines] == [
        ("0]", "a"),
        ("0]", "traceback"),
        ("1]", "b"),
        ("1]", "c"),
        ("0]", "d"),
    ]
    assert hpcrun("logs", "--merge", "-n", "1").stdout == "[rank 0] 2026-01-02 10:00:05 d\n"
    assert hpcrun("logs", "--merge", "--rank", "1", "--grep", "E0102").stdout.startswith(
        "[rank 1] [rank1]:[E0102"
    )
    many = record(hpcrun, "many", ranks=100)
    for rank in range(100):
        many.log(f"10:00:{rank % 60:02d} rank {rank}\n", rank)
    # open files
    done = hpcrun.run(
        "bash", "-c", f"ulimit -n 40; {shlex.join(hpcrun.argv('logs', 'many', '--merge'))}"
    )
    clocks = [line.split()[2] for line in done.stdout.splitlines()]
    assert len(clocks) == 100
    assert clocks == sorted(clocks)


# --- how -----------------------------------------------------------------------------------------


def test_a_pipe_gets_every_byte(hpcrun: Hpcrun) -> None:
    binary = bytes(range(256)) + b"\r50%\r100%\nno end"
    record(hpcrun).log(binary)
    done = subprocess.run(
        hpcrun.argv("logs", "train"), env=hpcrun.environ, capture_output=True, cwd=hpcrun.folder
    )
    assert (done.stdout, done.stderr) == (binary, b"")


def test_a_terminal_gets_the_last_state_of_a_bar_and_nothing_that_acts_on_it(
    hpcrun: Hpcrun,
) -> None:
    record(hpcrun).log(
        b"\r 10%\r 50%\r100%\nnext\r\n\x1b]0;title\x07\x1b[31mred\nplain\x00\x1b[2J\xff\n\x1b[5n"
    )
    assert seen(hpcrun, "train") == "100%\nnext\n\x1b[31mred\x1b[0m\nplain\ufffd\n\n"
    assert seen(hpcrun, "train", env={"NO_COLOR": "1"}) == "100%\nnext\nred\nplain\ufffd\n\n"
    assert seen(hpcrun, "train", "--grep", "e", size=(24, 20)) == "next\n\x1b[31mred\x1b[0m\n"
    text = "safe \u202etxt.exe\u2066 \u200bhidden\u2069 👩\u200d💻\n"  # what turns or hides text
    record(hpcrun, "turns").log(text)
    assert hpcrun("logs", "turns", check=True).stdout == text
    assert "safe txt.exe hidden 👩\u200d💻" in seen(hpcrun, "turns")


def test_a_reader_that_goes_away_is_no_failure(hpcrun: Hpcrun) -> None:
    record(hpcrun).log("line\n" * 1_000_000)
    done = hpcrun.run("bash", "-c", f"{shlex.join(hpcrun.argv('logs', 'train'))} | head -n 1")
    assert (done.stdout, done.stderr) == ("line\n", "")


def test_a_line_without_an_end_takes_no_memory(hpcrun: Hpcrun) -> None:
    log = record(hpcrun).log("")
    with log.open("wb") as file:
        # 400 MiB of NUL in one line, and no more than 390 for all that hpcrun is
        file.truncate(400 << 20)
    measured = hpcrun.run(
        "bash", "-c", f"ulimit -v 400000; {shlex.join(hpcrun.argv('logs', '-n', '1'))} | wc -c"
    )
    assert measured.stdout.strip() == str(400 << 20)


# --- while it is written -------------------------------------------------------------------------


def test_a_bar_is_drawn_again_in_its_place_and_ctrl_c_leaves_the_job_alone(hpcrun: Hpcrun) -> None:
    script = r"""
for i in 1 2 3; do
  printf '\r%s of 3 steps are done' $i
  until [ -e watched ]; do sleep 0.1; done
  sleep 0.7
done
echo"""
    hpcrun("submit", "-P", "local", "--gpus", "0", "-J", "bar", "bash", "-c", script, check=True)
    following = hpcrun.terminal("logs", "-f", "bar")
    following.expect("1 of 3")
    following.sendintr()
    status, shown = at_end(following)
    assert status == 130
    assert "the job is not affected" in shown
    assert "hpcrun logs -f bar" in shown
    shown = seen(hpcrun, "-f", size=(24, 20), begun=("1 of 3", hpcrun.folder / "watched"))
    # no wider than the terminal, or it could not be drawn again
    assert "\r\x1b[K3 of 3 steps are do" in shown
    assert shown.endswith("\r\x1b[K3 of 3 steps are done\n")


# --- folders that are not in order ---------------------------------------------------------------


def test_half_a_record_leaves_the_logs(hpcrun: Hpcrun) -> None:
    run = record(hpcrun)
    run.log("still here\n")
    path = run.folder / "run.json"
    path.write_text(path.read_text()[:200])
    shown = hpcrun("logs")
    assert shown.stdout == "still here\n"
    assert "run.json cannot be read" in shown.stderr
    # nobody can say whether it runs: what is there
    assert hpcrun("logs", "-f").stdout == "still here\n"
    refused = hpcrun("metrics")
    assert refused.returncode == 6
    assert f"hpcrun logs {run.folder.name} shows its logs" in refused.stderr


def test_without_a_run_the_newest_is_named(hpcrun: Hpcrun) -> None:
    record(hpcrun, "older").log("one\n")
    record(hpcrun, "newer").log("two\n")
    for command in ("logs", "explain"):
        line = "the newest of all runs: newer, job L1"
        assert hpcrun.screen(command).splitlines()[0] == line
        assert hpcrun(command).stderr.splitlines()[0] == line
        assert "newest" not in hpcrun(command, "newer").stderr


def test_a_log_or_a_folder_that_was_deleted_and_a_file_among_the_runs(hpcrun: Hpcrun) -> None:
    log = record(hpcrun).log("a run\n")
    (hpcrun.runs / "zzz-notes.txt").write_text("mine")
    assert hpcrun("logs", check=True).stdout == "a run\n"
    (hpcrun.runs / "20260102-030500-gone-0a1b").symlink_to(hpcrun.folder / "nowhere")
    assert hpcrun("logs", "zzz-notes.txt").returncode == 6
    gone = hpcrun("logs", "gone")
    assert (gone.returncode, "there is no run '20260102-030500-gone-0a1b'" in gone.stderr) == (
        6,
        True,
    )
    assert "train" in hpcrun("status").stdout
    log.unlink()
    shown = hpcrun("logs", "train")
    assert shown.stdout == ""
    assert f"there is no log {log}: never written, or deleted" in shown.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read as somebody else")
def test_a_log_that_one_may_not_read(hpcrun: Hpcrun) -> None:
    run = record(hpcrun)
    log = run.log("secret\n")
    os.chown(log, 65534, 65534)
    log.chmod(0o600)
    # root without the power to read everything; another user could not reach a checkout below
    # root's home
    argv = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *hpcrun.argv("logs")]
    done = hpcrun.run(*argv, check=False)
    assert (done.stdout, done.returncode) == ("", 6), done.stderr
    assert "rank-0.out cannot be read: Permission denied" in done.stderr


def test_what_is_written_after_rotation_is_shown(hpcrun: Hpcrun) -> None:
    """logrotate renames the file, and a new one takes its name."""
    gate = hpcrun.folder / "gate"
    script = f"echo one; until [ -e {gate} ]; do sleep 0.1; done; sleep 1.2"
    hpcrun("submit", "-P", "local", "--gpus", "0", "bash", "-c", script, check=True)
    argv = hpcrun.argv("logs", "-f")
    following = subprocess.Popen(argv, env=hpcrun.environ, stdout=subprocess.PIPE, text=True)
    assert following.stdout is not None
    assert following.stdout.readline() == "one\n"
    log = wait_for(
        lambda: next(hpcrun.runs.glob("2*/elements/0/attempts/0/rank-0.out"), None), 10, "the log"
    )
    log.rename(log.with_name("rank-0.out.1"))
    log.write_text("two\n")
    gate.touch()
    assert following.communicate(timeout=20)[0] == "two\n"
