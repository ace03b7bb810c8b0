"""Hostile command lines: the values, the lines made of them, and the folders in which they run."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from hpcrun.cli.commands import COMMANDS
from hpcrun.cli.main import build_app

MARK = b"PWNED"
_CONTROL = (
    b"\x1b]0;PWNED\x07",  # sets the title of the terminal
    b"\x1b[31mPWNED",  # colours
    b"\x1b[2J\x1b[HPWNED",  # clears the screen
    b"\x1bcPWNED",  # resets the terminal
    b"\xc2\x9b31mPWNED",  # the same as ESC [ in one character, U+009B
    b"\x9b31mPWNED",  # and as a byte that is no UTF-8
    b"\xe2\x80\xaePWNED",  # U+202E: what follows is shown backwards
    b"\xe2\x81\xa7PWNED",  # U+2067
    b"\rPWNED",
    b"\x08\x08PWNED",
    b"\x7fPWNED",
)
_TEXT = (
    b"",
    b" ",
    b"-",
    b"--",
    b"--help=x",
    b"=",
    b",",
    b":",
    b"/",
    b"//",
    b"..",
    b"../..",
    b".",
    b"~",
    b"~root",
    b"*",
    b"?",
    b"[",
    b"]",
    b"{",
    b"}",
    b"{}",
    b"{0}",
    b"{lr}",
    b"%s%n",
    b"%j",
    b"%",
    b"\\",
    b"'",
    b'"',
    b"`id`",
    b"$(touch PWNED)",
    b"; touch PWNED",
    b"| touch PWNED",
    b"&& touch PWNED",
    b"> PWNED",
    b"$HOME",
    b"${IFS}",
    b"{{ 7 * 7 }}",
    b"{% raw %}",
    b"[red]PWNED[/red]",
    b"[/]",
    b"[link=x]",
    b"a\nb",
    b"\n",
    b"\n#SBATCH --wrap=PWNED",
    b"a\tb",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xc3",
    b"\xc3\xa9" * 40,
    b"\xf0\x9f\x92\xa5",
    b"a\xcc\x81" * 50,
    b"\xe2\x80\x8b",
    b"\xef\xbb\xbfx",
    b"=cmd|'/c calc'!A1",
    b"A" * 300,
    b"x/" * 300,
    b"(a+)+$",
    b"(",
    b"a{99999}",
    b"lr=",
    b"lr=1,",
    b"=1",
    b"lr=1,1,1",
    b"lr=range(1e9)",
    b"A=b=c",
    b"LD_PRELOAD=x",
    b"a\x85b=x",
    b"PATH=",
    b"1=2",
    b"gpu.type=\xff",
    b"partition=[a, b",
    b"name=&a [*a]",
    b"!!python/object:os.system x",
)
_NUMBERS = (
    b"0",
    b"-1",
    b"1.5",
    b"1e3",
    b"1e999",
    b"-1e999",
    b"nan",
    b"inf",
    b"-0",
    b"+1",
    b"0x10",
    b"1_000",
    b"007",
    b" 1 ",
    b"9" * 19,
    b"9" * 400,
    b"0." + b"3" * 400,
    b"1e-400",
    b"\xd9\xa1",
    b"\xc2\xb2",
    b"99999999",
    b"2147483648",
    b"18446744073709551616",
    b"1:00:00:00",
    b"1-1-1",
    b"-1:00",
    b"99999999-00:00:00",
    b"0:0:0",
    b"1e9h",
    b"9" * 400 + b"h",
    b"1T",
    b"99999999999999T",
    b"-5G",
    b"5g5",
    b"1,2,3",
    b"1-5",
    b"5-1",
    b"0-99999999",
    b"1-",
    b"-3-",
    b"1,,2",
    b"0-3:0",
    b"1%0",
)
_PATHS = (
    b"fifo",
    b"zero",
    b"socket",
    b"folder",
    b"folder/",
    b"loop",
    b"nowhere",
    b"link-to-precious",
    b"link-to-victim",
    b"broken.yaml",
    b"bomb.yaml",
    b"list.yaml",
    b"binary.yaml",
    b"deep.yaml",
    b"huge.csv",
    b"broken.csv",
    b"empty",
    b"noexec.sh",
    b"./train.py",
    b"missing.py",
    b"/dev/null",
    b"/dev/full",
    b"/dev/zero",
    b"/dev/stdin",
    b"/proc/self/mem",
    b"/proc/1/root",
    b"/",
    b"a/" * 2000,
    b"train.py/",
    b"../work/train.py",
    b"esc\x1b[31mPWNED.py",
    b"nl\nPWNED.py",
)
HOSTILE = (*_CONTROL, *_TEXT, *_NUMBERS, *_PATHS)

# What goes on as far as real use does, so that hostile values beside it are met by the code behind
# the first check.
_SANE: dict[str, tuple[bytes, ...]] = {
    "script": (b"train.py", b"train.py", b"fails.py", b"noexec.sh", b"esc\x1b[31mPWNED.py"),
    "args": (b"--lr", b"1e-3", b"{lr}", b"{batch_size}"),
    "run": (b"good", b"bad", b"last", b"L1", b"good/0", b"bad/7", b"20260102", b"esc"),
    "runs": (b"good", b"bad", b"last", b"L1", b"20260102"),
    "name": (b"local", b"a100", b"mine", b"new", b"NCCL_DEBUG"),
    "names": (b"local", b"a100", b"mine"),
    "left": (b"local", b"mine"),
    "right": (b"a100", b"mine"),
    "values": (b"partition=long", b"gpu.per_node=4", b"env.A=b", b"description=x"),
    "keys": (b"partition", b"gpu", b"env.A"),
    "profile": (b"local", b"local", b"a100", b"mine"),
    "gpus": (b"0", b"2", b"4", b"1,2,4"),
    "launcher": (b"python", b"srun", b"torchrun"),
    "nodes": (b"1", b"2"),
    "walltime_s": (b"10", b"1:00:00", b"36h"),
    "sweep": (b"lr=1,2,3", b"seed=0,1"),
    "sweep_file": (b"sweep.yaml",),
    "states": (b"COMPLETED", b"failed", b"pending"),
    "state": (b"COMPLETED", b"failed", b"pending"),
    "rank": (b"0", b"0-3"),
    "samples": (b"50000",),
    "batch_size": (b"256",),
    "epoch_time": (b"10m",),
    "from_csv": (b"study.csv",),
    "older_than": (b"0s", b"30d"),
    "grep": (b"loss", b"x*"),
    "since": (b"10m", b"2026-01-01"),
    "studies": (b"last", b"train"),
    "partition": (b"gpu",),
    "account": (b"lab",),
    "qos": (b"normal",),
    "constraint": (b"a100&nvlink",),
    "nodelist": (b"n[1-4]",),
    "exclude": (b"n1,n2",),
    "reservation": (b"course",),
    "mail_user": (b"me@example.org",),
    "mail_type": (b"END,FAIL",),
    "sbatch": (b"comment=x", b"nice=100"),
    "no_sbatch": (b"gres", b"mem"),
    "env": (b"A=1", b"OMP_NUM_THREADS=2"),
    "setup": (b"true", b"ulimit -c 0"),
    "load": (b"gcc/13",),
    "workdir": (b"folder", b"."),
    "python": (b"python3",),
    "snapshot_limit_mb": (b"10M",),
    "columns": (b"name,state", b"job,why"),
    "node": (b"here", b"0"),
    "png": (b"plot.png",),
    "out": (b"out", b"out.sh"),
    "output_dir": (b"out",),
    "write": (b"found",),
    "base": (b"a100", b"local"),
    "time": (b"1:00:00",),
    "gpus_per_node": (b"2", b"a100:4"),
    "gpu_type": (b"a100",),
    "max_time": (b"2-00:00:00",),
    "description": (b"a cluster",),
    "mode": (b"strong", b"weak"),
    "lr": (b"1e-3",),
    "optimizer": (b"adamw",),
    "epochs": (b"10",),
    "parameters": (b"25M",),
    "dtype": (b"bf16", b"fp32"),
    "overlap": (b"50%",),
    "tokens_per_sample": (b"197",),
    "price_per_gpu_hour": (b"2.5",),
    "also": (b"512:9m",),
    "reference_gpus": (b"1",),
    "warmup_epochs": (b"5",),
    "min_efficiency": (b"70",),
    "metrics": (b"loss",),
    "elements": (b"0-1",),
    "after": (b"good", b"L1"),
    "chain": (b"2",),
    "ranks": (b"1,2",),
    "dataset": (b"digits",),
    "resume": (b"last",),
    "shown": (b"last",),
    "memory_mb": (b"10G", b"0"),
    "warn_s": (b"5m",),
    "profiles": (b"a100", b"mine"),
}
_SANE_NUMBERS = (b"1", b"2", b"4")  # of every other option
WAITING = {"--watch", "-w", "--follow", "-f", "--wait", "shell"}


@dataclass(frozen=True)
class Command:
    """A command of the program: its words, its options and its arguments, as typer has them."""

    words: tuple[str, ...]
    options: tuple[Any, ...]
    arguments: tuple[Any, ...]


def all_commands() -> list[Command]:
    """Return every command of the program."""

    def walk(group: Any, words: tuple[str, ...]) -> Iterator[Command]:
        for name, command in sorted(group.commands.items()):
            if hasattr(command, "commands"):
                yield from walk(command, (*words, name))
                continue
            options = tuple(one for one in command.params if one.param_type_name == "option")
            arguments = tuple(one for one in command.params if one.param_type_name == "argument")
            yield Command((*words, name), options, arguments)

    return list(walk(typer.main.get_command(build_app(COMMANDS)), ()))


def command_line(commands: list[Command], seed: int, number: int) -> tuple[bytes, ...]:
    """Return the arguments of the numbered line: the same ones for the same seed and the same
    options.
    """
    pick = random.Random(f"{seed}:{number}")
    command = pick.choice(commands)
    hostility = pick.choice((0.1, 0.3, 0.6))
    options = [
        token
        for _ in range(pick.randint(0, 5))
        if command.options
        for token in _option(pick, command, hostility)
    ]
    arguments: list[bytes] = []
    for one in command.arguments:
        count = 1 if one.nargs == 1 else pick.randint(0, 3)
        if one.required or pick.random() < 0.8:
            arguments += [_value(pick, one.name, hostility) for _ in range(count)]
    words = [token.encode() for token in command.words]
    return (*words, *arguments, *options) if pick.random() < 0.2 else (*words, *options, *arguments)


def _option(pick: random.Random, command: Command, hostility: float) -> list[bytes]:
    option = pick.choice(command.options)
    name = pick.choice([*option.opts, *option.secondary_opts]).encode()
    if option.is_flag:
        return [name] if pick.random() < 0.95 else [name + b"=" + pick.choice(HOSTILE)]
    value = _value(pick, option.name, hostility)
    return (
        [name + b"=" + value] if name.startswith(b"--") and pick.random() < 0.3 else [name, value]
    )


def _value(pick: random.Random, name: str, hostility: float) -> bytes:
    if pick.random() > hostility:
        return pick.choice(_SANE.get(name, _SANE_NUMBERS))
    if pick.random() < 0.1:
        return pick.choice(HOSTILE) + pick.choice(HOSTILE)
    return pick.choice(HOSTILE)


def control_sequences(argv: tuple[bytes, ...]) -> list[bytes]:
    """Return the parts of a line that must not reach a terminal."""
    return [one for one in _CONTROL if any(one in argument for argument in argv)]


# --- the folders ---------------------------------------------------------------------------------


def make_folders(root: Path) -> None:
    """Make a home with a profile, a runs folder with three runs, a folder to work in, and a
    stranger's folder.
    """
    work, victim = root / "work", root / "victim"
    for folder in (
        work / "folder",
        victim,
        root / "tmp",
        root / "runs",
        root / "home/.config/hpcrun/profiles",
    ):
        folder.mkdir(parents=True)
    (victim / "precious").write_text("must stay\n")
    (root / "home/.config/hpcrun/profiles/mine.yaml").write_text("extends: a100\npartition: long\n")
    _work(work)
    for name, state in (("good", "COMPLETED"), ("bad", "FAILED"), ("esc", "COMPLETED")):
        _run(root / "runs", name, state)


def environment(root: Path, programs: Path) -> dict[str, str]:
    """Return the environment of a command line: nothing of the caller's, and no Slurm."""
    return {
        "HOME": f"{root}/home",
        "HPCRUN_RUNS": f"{root}/runs",
        "HPCRUN_SITE": f"{root}/site",
        "TMPDIR": f"{root}/tmp",
        "PATH": str(programs),
        "LANG": "C.UTF-8",
        "TERM": "xterm",
        "EDITOR": "true",
        "USER": "root",
    }


_SLURM = set(
    """
        sbatch squeue sacct sacctmgr scontrol sinfo scancel srun sstat sprio sshare sdiag salloc
    """.split()
)


def make_programs(folder: Path, python: str) -> None:
    """Link to the machine's programs, without Slurm's and ssh: what a line says may not depend on a
    cluster, nor how long it takes on a network.
    """
    folder.mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name not in (*_SLURM, "ssh"):
            (folder / program.name).symlink_to(program)
    for name in ("python", "python3"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(python)


def _work(work: Path) -> None:
    os.mkfifo(work / "fifo")
    for link, target in (("zero", "/dev/zero"), ("loop", "loop"), ("nowhere", "missing/x")):
        (work / link).symlink_to(target)
    (work / "link-to-precious").symlink_to("../victim/precious")
    (work / "link-to-victim").symlink_to("../victim")
    aliases = "".join(f"b{i}: &b{i} [*{f'b{i - 1}' if i else 'a'}, *a]\n" for i in range(40))
    texts = {
        "train.py": "print('loss 0.5')\n",
        "fails.py": "raise KeyError('recall')\n",
        "noexec.sh": "echo hello\n",
        "empty": "",
        "sweep.yaml": "- {lr: 1, seed: 2}\n- {lr: 3, seed: 4}\n",
        "broken.yaml": "a: [1, {b\n\t- c: }\n",
        "bomb.yaml": f"a: &a [x, x]\n{aliases}",
        "list.yaml": "[1, [2, {}], null]\n",
        "deep.yaml": "[" * 5000,
        "huge.csv": "gpus,epoch_time\n" + "1,2\n" * 20000,
        "broken.csv": 'gpus,"epoch\n1,"2\x00\n',
        "study.csv": "gpus,epoch_time,batch_size\n1,100,64\n2,60,64\n4,40,64\n",
        "esc\x1b[31mPWNED.py": "print('loss 0.5')\n",
        "nl\nPWNED.py": "print('loss 0.5')\n",
    }
    for name, text in texts.items():
        (work / name).write_text(text)
    (work / "binary.yaml").write_bytes(bytes(range(256)) * 8)


def _run(runs: Path, name: str, state: str) -> None:
    run_id = f"20260102-030405-{name}-0a1b"
    attempt = runs / run_id / "elements/0/attempts/0"
    attempt.mkdir(parents=True)
    record = {
        "schema": 1,
        "run_id": run_id,
        "name": name,
        "scheduler": "local",
        "cluster": None,
        "host": "here",
        "created_s": 1_700_000_000,
        "job_id": "L1",
        "profile": "local",
        "nodes": 1,
        "gpus_per_node": 0,
        "world_size": 2,
        "walltime_s": None,
        "request": {},
        "plan": {},
    }
    status = 0 if state == "COMPLETED" else 1
    (runs / run_id / "run.json").write_text(json.dumps(record))
    (runs / run_id / "status.json").write_text(
        json.dumps({"state": state, "asked_s": 1_700_000_000, "final": True})
    )
    (attempt / "start").write_text(
        json.dumps({"job_id": "L1", "host": "here", "started": 1_700_000_000})
    )
    (attempt / "exit").write_text(
        json.dumps({"status": status, "signal": "", "ended": 1_700_000_050, "message": ""})
    )
    for rank in range(2):
        (attempt / f"rank-{rank}.out").write_text(f"rank {rank}\nepoch 1: loss 0.5\n")
        (attempt / f"rank-{rank}.err").write_text("KeyError: 'recall'\n" if status else "")


def fresh_copy(template: Path, live: Path) -> None:
    """Put a copy of the folders where the last line ran, so that a line does not depend on those
    before it.
    """
    shutil.rmtree(live, ignore_errors=True)
    shutil.copytree(template, live, symlinks=True, ignore=shutil.ignore_patterns("fifo"))
    os.mkfifo(live / "work/fifo")
