"""submit train.sbatch: the programs of a script get what sbatch gives them, and faults in this are
noticed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.job.batch.batch_script import read_batch_script
from tests.batch_harness import Case, Machine, differences
from tests.harness import REPO, Hpcrun, at_end

SCRIPTS = sorted((REPO / "tests/data/batch").iterdir())
FAULTS = {
    "failing": [r"^\|exit \$STATUS"],
    "bash-c": [r"--wait=60 "],
    "megatron": [
        r" --mpi=pmix",
        r" NCCL_DEBUG=WARN",
        r" && cd data",
        r"^\|module purge; module load cuda/12.4",
        r'"\$@" ',
    ],
    "launcher-variable": [r"^\|export OMP_NUM_THREADS=4"],
    "function": [r"^\|trap .*"],
    "copies": [r"^\|set -e$"],
}
"""What may get lost of the job's text, so that the harness notices."""


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_does_by_hpcrun_what_it_does_by_sbatch(hpcrun: Hpcrun, path: Path) -> None:
    machine = Machine(hpcrun)
    case = Case(path.read_text(), ("7", "a  b"), name=path.name)
    by_sbatch = machine.by_sbatch(case)
    assert by_sbatch.events or path.stem == "copies"
    assert differences(by_sbatch, machine.by_hpcrun(case)) == []
    script = read_batch_script(case.name, case.text, case.arguments)
    assert script.is_complete == (path.stem != "two-trainings"), script.missing
    for fault in FAULTS.get(path.stem, []):

        def spoil(text: str, fault: str = fault) -> str:
            changed = re.sub(fault, "", text, flags=re.MULTILINE)
            assert changed != text
            return changed

        assert differences(by_sbatch, machine.by_hpcrun(case, spoil)), fault


@pytest.mark.parametrize(
    "body",
    [
        "umask 002\ntorchrun train.py",
        "ulimit -n 128; ulimit -c 0\nsrun python train.py",
        "renice -n 5 $$ >/dev/null\ntorchrun train.py",
        "trap '' INT HUP\ntorchrun train.py",
        "python train.py & wait",
        "export LANG=C\nsrun python train.py",
        "set -x\nfalse\nsrun python train.py",
        "uv run train.py",
        "#SBATCH --export=NONE\nset -x\nsrun python train.py",
        "#SBATCH --export=NONE\nsrun python train.py | cat",
        "#SBATCH --export=ALL,X=1\nX=2\nsrun python train.py",
        '#SBATCH -J "it\'s" --comment="say \\"hi\\" # no"\npython train.py',
    ],
)
def test_what_the_shell_has_set_reaches_the_program(hpcrun: Hpcrun, body: str) -> None:
    machine = Machine(hpcrun)
    case = Case(f"#!/bin/bash\n#SBATCH --nodes=1\n{body}\n", (), {"PS4": "+ "})
    by_sbatch = machine.by_sbatch(case)
    assert by_sbatch.events
    assert differences(by_sbatch, machine.by_hpcrun(case)) == []


def test_no_difference_of_random_scripts_is_silent() -> None:
    # some of what make fuzz tries; each worker has a server of commands
    argv = [sys.executable, "-m", "dev.hostile.fuzz_scripts", "--count", "15", "--workers", "1"]
    done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) same", done.stdout)[0]) >= 12


@pytest.mark.parametrize(
    ("tasks", "launch", "is_remarked"),
    [
        ("--ntasks=4", "srun torchrun --nnodes=1 --nproc_per_node=4", True),
        ("-N 2 --ntasks-per-node=4", "srun torchrun --nnodes=2 --nproc_per_node=4", True),
        (
            "-N 2 --ntasks-per-node=4",
            "srun --ntasks-per-node=1 torchrun --nnodes=2 --nproc_per_node=4",
            False,
        ),
        (
            "-N 2 --ntasks-per-node=4",
            "srun --ntasks=$SLURM_NNODES torchrun --nnodes=2 --nproc_per_node=4",
            False,
        ),
        ("-N 2 --ntasks-per-node=4", "srun torchrun --nnodes=8 --nproc_per_node=1", False),
        (
            "-N 2 --ntasks-per-node=4",
            "srun torchrun --nnodes=$SLURM_NTASKS --nproc_per_node=1",
            False,
        ),
        ("--ntasks=4", "torchrun --nproc_per_node=4", False),
        ("--ntasks=4", "srun python", False),
    ],
)
def test_srun_that_starts_too_many_torchruns_is_remarked(
    tasks: str, launch: str, is_remarked: bool
) -> None:
    script = read_batch_script(
        "x", f"#!/bin/bash\n#SBATCH --gpus-per-node=4 {tasks}\n{launch} train.py\n", ()
    )
    assert (
        any("starts torchrun 4 times on a node" in habit for habit in script.habits) == is_remarked
    )


def test_a_script_without_a_launch_names_only_the_line_that_failed(hpcrun: Hpcrun) -> None:
    text = "#!/bin/bash\n#SBATCH --time=5\nset -e\nfor i in 1; do python3 train.py $i; done\n"
    (hpcrun.folder / "plain.sbatch").write_text(text)
    ended = hpcrun("submit", "-P", "local", "--gpus", "0", "--wait", "plain.sbatch")
    assert (
        "plain.sbatch ended with status 2: line 4: python3 train.py $i"
        in ended.stdout + ended.stderr
    )


def test_a_script_has_the_environment_of_its_caller_and_what_was_asked_for(hpcrun: Hpcrun) -> None:
    hpcrun.write("env.sbatch", "#!/bin/bash\n#SBATCH --time=5\nenv -0 >env.txt\npython3 t.py\n")
    hpcrun.write("t.py", "import os\nprint(os.environ['WANDB_TAGS'])\n")
    options = ("submit", "-P", "local", "--gpus", "0", "--env", "A=1", "--wait", "env.sbatch")
    caller = {"NNODES": "4", "SLURM_X": "1", "RANK": "7", "BASH_FUNC_f%%": "() {  echo\n}"}
    hpcrun(*options, env={**caller, "SBATCH_QOS": "q"}, check=True)
    items = (hpcrun.folder / "env.txt").read_text().split("\0")
    env = dict(item.split("=", 1) for item in items if item)
    by_hpcrun = {name for name in env if name.startswith("HPCRUN_")}
    of_shell = {"PWD", "SHLVL", "_", "OLDPWD"}
    assert {*env} - by_hpcrun - {*hpcrun.environ} - of_shell == {*caller, "SBATCH_QOS", "A"}
    assert caller.items() <= env.items()
    assert env["HPCRUN_PUT_A"] == "1"  # for a submission by the script


LOCAL = ("-P", "local", "--gpus", "0")


KILLS_CANARY = r"""
import os, signal, time
until = time.monotonic() + 20
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
def line(pid):
    return open(f"/proc/{pid}/cmdline").read().split("\0")
pid = os.getpid()
while "job" not in line(pid):
    pid = parent(pid)
def canaries():
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and parent(name) == pid and line(name) == line(pid):
                yield int(name)
        except OSError:  # another process has ended meanwhile
            pass
found = set()
while not found and time.monotonic() < until:
    before = set(canaries())
    time.sleep(0.05)
    found = before & set(canaries())  # a fork before its exec is there but once
for canary in found:
    os.kill(canary, signal.SIGKILL)
    print("killed")
time.sleep(3)
"""


def test_what_the_job_starts_meanwhile_does_not_hold_the_pipe_of_a_launch(hpcrun: Hpcrun) -> None:
    text = "python3 t.py | cat >copied; echo behind >>copied"
    hpcrun.write("piped.sbatch", f"#!/bin/bash\n#SBATCH --time=5\n{text}\n")
    hpcrun.write("t.py", KILLS_CANARY)
    hpcrun("submit", *LOCAL, "--wait", "piped.sbatch", check=True, timeout=120)
    copied = (hpcrun.folder / "copied").read_text()
    assert copied.startswith("killed\n")
    assert copied.endswith("behind\n")


ON_STDIN = '#!/bin/sh\n#SBATCH --time=5\necho "$HPCRUN_ELEMENT: $*"\n'


@pytest.mark.parametrize(
    ("words", "arguments"), [((), ""), (("-",), ""), (("-", "a", "b  c"), " a 'b  c'")]
)
def test_stdin_is_the_script_of_submit_as_of_sbatch(
    hpcrun: Hpcrun, words: tuple[str, ...], arguments: str
) -> None:
    done = hpcrun("submit", "-P", "a100", "--dry-run", *words, stdin=ON_STDIN, check=True)
    assert "#SBATCH --job-name=sbatch\n" in done.stdout
    assert "\nunset SLURM_JOB_NAME " in done.stdout
    assert "#SBATCH --time=5\n" in done.stdout
    assert f'\ncommand=(/bin/sh "$script"{arguments})\n' in done.stdout


@pytest.mark.parametrize(
    ("words", "stdin", "message"),
    [
        ("-", "", "stdin is empty"),
        ("-", " \n", "stdin is empty"),
        ("", "", "Missing argument 'SCRIPT'"),
        ("", "import torch\n", "a Python program must be in a file: hpcrun submit train.py"),
        ("-", ON_STDIN.replace("\n", "\r\n"), "CR line ends"),
        ("-", ON_STDIN + "x" * 1_000_000, "stdin is larger than 1 MB"),
        ("-", ON_STDIN + "\udcff", "stdin is no UTF-8 text"),
        ("-", ON_STDIN + "\0", "NUL"),
        ("- --gpus 4", ON_STDIN, 'its text has no "--gpus"'),
        ("--nproc-per-node 2 -", ON_STDIN, "no effect on stdin"),
        ("--role a:1 - --role b:1 true", ON_STDIN, "- is no program here"),
        ("--wrap true train.py", ON_STDIN, "--wrap is the whole program, and train.py is one more"),
        ("--wrap true -m", ON_STDIN, "--wrap is the whole program, and --module is one more"),
        ("--wrap HF_TOKEN=hf_0123456789abcdefghijklmnopqrstuvwx", "", "--wrap holds"),
    ],
)
def test_what_stdin_or_wrap_cannot_be_is_one_message(
    hpcrun: Hpcrun, words: str, stdin: str, message: str
) -> None:
    done = hpcrun("submit", *LOCAL, *words.split(), stdin=stdin)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert not list(hpcrun.runs.glob("2*"))


def test_a_terminal_is_waited_for(hpcrun: Hpcrun) -> None:
    terminal = hpcrun.terminal("submit", *LOCAL, "-")
    terminal.expect("waiting for a batch script on stdin; Ctrl-D ends it")
    terminal.sendintr()
    status, shown = at_end(terminal)
    assert (status, "interrupted" in shown) == (130, True)


def output_of(hpcrun: Hpcrun, *words: str, stdin: str = "") -> str:
    """What the job of a submit or resubmit has printed."""
    command, *rest = words
    job_id = hpcrun(command, "--parsable", *rest, stdin=stdin, check=True).stdout.strip()
    hpcrun.ended(job_id)
    return hpcrun("logs", job_id, check=True).stdout


def test_a_script_on_stdin_is_kept_for_resubmit(hpcrun: Hpcrun) -> None:
    assert output_of(hpcrun, "submit", *LOCAL, "-", "a", stdin=ON_STDIN) == "0: a\n"
    assert output_of(hpcrun, "resubmit", "last") == "0: a\n"
    assert output_of(hpcrun, "resubmit", "last", "--", "b  c") == "0: b  c\n"
    assert hpcrun.status()["name"] == "sbatch"
    secret = ON_STDIN + "export HF_TOKEN=hf_0123456789abcdefghijklmnopqrstuvwx\n"
    output_of(hpcrun, "submit", *LOCAL, "-", stdin=secret)
    assert "one with a secret is not kept" in hpcrun("resubmit", "last").stderr


def test_a_wrapped_command_is_a_script_of_sh_without_directives(hpcrun: Hpcrun) -> None:
    command = "#SBATCH --nodes=7\necho $((1 + 1))"
    assert output_of(hpcrun, "submit", *LOCAL, "--wrap", command) == "2\n"
    assert output_of(hpcrun, "resubmit", "last") == "2\n"
    assert hpcrun.status()["name"] == "wrap"
    edit = hpcrun.program("editor.sh", 'sed -i "s/1 + 1/1 + 2/" "$1"')
    change = {"EDITOR": str(edit), "VISUAL": None}
    hpcrun("resubmit", "last", "--edit", env=change, check=True)
    hpcrun.ended()
    assert hpcrun("logs", "last").stdout == "3\n"
    launch = ("submit", "-P", "a100", "--nodes", "2", "--dry-run", "--wrap", "srun python3 x.py")
    assert '|"$HPCRUN_LAUNCH" srun :: python3 x.py\n' in hpcrun(*launch, check=True).stdout


def test_parsable_prints_the_job_id_alone(hpcrun: Hpcrun) -> None:
    done = hpcrun("submit", *LOCAL, "--parsable", "--wait", "true", check=True)
    assert done.stdout == f"{hpcrun.status()['job_id']}\n"
    assert "submitted  job" in done.stderr
    for other in ("--json", "--follow", "--dry-run"):
        refused = hpcrun("submit", *LOCAL, "--parsable", other, "true")
        assert refused.returncode == 2
        assert f"--parsable and {other} cannot be combined" in refused.stdout + refused.stderr


def test_import_reads_stdin(hpcrun: Hpcrun) -> None:
    done = hpcrun("import", "-", stdin="#!/bin/bash\nsrun python train.py\n", check=True)
    assert "\nhpcrun submit -\n" in done.stdout


def test_array_replaces_the_task_ids_of_a_script_and_gives_a_program_some(hpcrun: Hpcrun) -> None:
    script = ON_STDIN.replace("--time=5", "--time=5 --array=0-1")
    dry_run = ("submit", "-P", "a100", "--dry-run")
    for ids, words in (("0-1", ()), ("7-11:2%1", ("--array", "7-11:2%1"))):
        shown = hpcrun(*dry_run, *words, "-", "{x}", stdin=script, check=True)
        assert f"#SBATCH --array={ids}\n" in shown.stdout
        assert f"elements (--array={ids})" in shown.stderr
        assert """ "$script" '{x}')\n""" in shown.stdout
    hpcrun.write("train.py", "")
    shown = hpcrun(*dry_run, "--gpus", "1", "-a", "0-3%2", "train.py", check=True)
    assert "#SBATCH --array=0-3%2\n" in shown.stdout


def test_failed_elements_of_an_array_keep_their_ids(hpcrun: Hpcrun) -> None:
    script = '#!/bin/sh\n#SBATCH --array=1,3\ntest "$HPCRUN_ELEMENT" = 1\n'
    hpcrun.write("tasks.sbatch", script)
    hpcrun("submit", *LOCAL, "--wait", "tasks.sbatch")
    for _ in range(2):  # a second time, too
        hpcrun("resubmit", "last", "--failed", "--wait")
        assert [element["element"] for element in hpcrun.status()["elements"]] == [3]
    hpcrun("resubmit", "last", "--array", "5-6", "--wait")
    assert [element["element"] for element in hpcrun.status()["elements"]] == [5, 6]


def test_logs_show_the_output_of_a_script_whose_ranks_print_nothing(hpcrun: Hpcrun) -> None:
    (hpcrun.folder / "quiet.py").write_text("pass")
    script = "#!/bin/bash\n#SBATCH -N 1\necho set up\npython3 quiet.py\n"
    (hpcrun.folder / "x.sbatch").write_text(script)
    hpcrun("submit", "-P", "local", "--wait", "x.sbatch", check=True)
    done = hpcrun("logs", "last", check=True)
    assert done.stdout == "set up\n"
    assert "this is the output of x.sbatch" in done.stderr
    assert hpcrun("logs", "last", "--rank", "0").stdout == ""
    assert "1 node, one process" in hpcrun("submit", "-P", "local", "--dry-run", "x.sbatch").stderr
