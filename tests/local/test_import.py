"""hpcrun import: a script is read and never run, and the page's commands show what the page says."""

from __future__ import annotations

import json
import re

import pytest

from tests.docs.page import File, steps
from tests.docs.test_guides import type_command
from tests.harness import REPO, Hpcrun

WHOLE = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=4 --gres=gpu:4 -p gpu -t 2:00:00\nsrun python train.py --lr 1\n"


def test_the_page(hpcrun: Hpcrun) -> None:
    for step in steps((REPO / "docs/import.md").read_text()):
        if isinstance(step, File):
            (hpcrun.folder / step.name).write_text(step.text)
        else:
            type_command(hpcrun, step, 0, may_fail=False)


def test_the_command_of_a_whole_script_makes_the_script_that_was_shown(hpcrun: Hpcrun) -> None:
    (hpcrun.folder / "old.sbatch").write_text(WHOLE)
    (hpcrun.folder / "train.py").touch()
    done = hpcrun("import", "old.sbatch", "--write", "site")
    assert done.returncode == 0, done.stderr
    typed = re.sub(r" \\\n\s*", " ", done.stdout).split("\n")[2]
    rendered = hpcrun(*typed.split()[1:2], "--dry-run", *typed.split()[2:], check=True).stdout
    assert "#SBATCH --partition=gpu\n" in rendered
    assert {line for line in rendered.splitlines() if line.startswith("#SBATCH --n")} == {
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=4",
        "#SBATCH --no-requeue",
    }
    assert "#SBATCH --time=02:00:00\n" in rendered


def test_nothing_of_a_script_is_run(hpcrun: Hpcrun) -> None:
    lines = [
        "touch a",
        "x=$(touch b)",
        "export Y=`touch c`",
        "source d",
        "python $(touch e) t.py",
        "[[ -n $(touch f) ]]",
    ]
    (hpcrun.folder / "d").write_text("touch d2\n")
    (hpcrun.folder / "old.sbatch").write_text("#!/bin/bash\n" + "\n".join(lines) + "\n")
    hpcrun("import", "old.sbatch", "--diff", "--lines")
    assert sorted(path.name for path in hpcrun.folder.iterdir() if len(path.name) < 3) == ["d"]


def test_a_script_that_is_converted_in_part_says_so(hpcrun: Hpcrun) -> None:
    (hpcrun.folder / "old.sbatch").write_text(f"{WHOLE}./upload results\n")
    done = hpcrun("import", "old.sbatch")
    assert done.returncode == 4
    assert "4  ./upload results" in done.stdout
    assert "converted in part, 1 of 3 statements not understood" in done.stderr
    assert "hint: `hpcrun import old.sbatch --lines` shows each line" in done.stderr
    document = json.loads(hpcrun("import", "old.sbatch", "--json").stdout)
    assert document["verdict"] == "part"
    assert [one["first"] for one in document["lines"] if one["verdict"] == "unknown"] == [4]
    assert document["error"]["exit_code"] == 4


def test_what_a_script_holds_cannot_change_the_terminal_or_the_profile(hpcrun: Hpcrun) -> None:
    (hpcrun.folder / "old.sbatch").write_text(
        '#!/bin/bash\n#SBATCH --account="a: [b, \x1b[2J" --partition=x\\"y\n'
        "export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567\nmodule load 'x\n y'\npython t.py\n"
    )
    done = hpcrun("import", "old.sbatch", "--write", "site", "--lines", "--diff")
    assert "0123456789abcdef" not in done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert "--secret WANDB_API_KEY" in done.stdout
    assert hpcrun("profile", "validate", "site").returncode == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["none.sbatch"], "cannot read"),
        (["."], "is not a regular file"),
        (["train.py", "--force"], "--force has no effect"),
        (["train.py"], "train.py is a Python program without #SBATCH lines"),
        (["train.py"], "hint: hpcrun submit train.py"),
        (["old.sbatch", "--write", "a/b"], "cannot be a profile's name"),
        (["old.sbatch", "--write", "local"], "hpcrun itself uses the profile local"),
        (["old.sbatch", "--write", "detected", "--force"], "hpcrun itself uses the profile detected"),
        (["old.sbatch", "-P", "none"], "there is no profile"),
    ],
)
def test_bad_input_is_one_clear_message(hpcrun: Hpcrun, args: list[str], says: str) -> None:
    (hpcrun.folder / "old.sbatch").write_text(WHOLE)
    (hpcrun.folder / "train.py").write_text("print(1)\n")
    done = hpcrun("import", *args)
    assert done.returncode in (2, 3)
    assert says in done.stderr


def test_a_submitted_batch_script_leads_here(hpcrun: Hpcrun) -> None:
    (hpcrun.folder / "old.sh").write_text(WHOLE)
    (hpcrun.folder / "old.sh").chmod(0o755)
    assert "hpcrun import old.sh" in hpcrun("submit", "-P", "a100", "old.sh").stderr
