"""docs/from-others.md: every line of hpcrun that it shows beside another program's is run here."""

from __future__ import annotations

import re

import pytest

from tests.docs.page import BLOCK
from tests.harness import RECIPES, REPO, Hpcrun

PAGE = (REPO / "docs/from-others.md").read_text()
SUBMIT = re.compile(r"`(hpcrun (?:submit|import) [^`]+)`(?: \|)?$", re.MULTILINE)
OF_RUN = re.compile(r"`(hpcrun (?:status|logs|shell|explain|cancel)[^`]*)` \|$", re.MULTILINE)
BATCH = '#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=4 --time=60\nsrun python train.py "$@"\n'
FUNCTION = "import submitit\n\ndef train(lr):\n    return 2 * lr\n\n"
HYDRA = """
import hydra
@hydra.main(version_base=None)
def main(config):
    print("lr", config.lr, flush=True)
main()
"""


def test_the_lines_that_submit_a_job(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    hpcrun.write("train.py", "print(1)\n")
    hpcrun.write("train.sbatch", BATCH)
    hpcrun.write("launch_all.sh", "for lr in 1 2; do sbatch train.sbatch $lr; done\n")
    hpcrun.shell("git init -q")
    lines = dict.fromkeys(SUBMIT.findall(PAGE))
    assert len(lines) > 15
    for line in lines:
        dry = line.replace("--dry-run ", "").replace("hpcrun submit", "hpcrun submit --dry-run")
        with subtests.test(line=line):
            done = hpcrun.shell(f"export HPCRUN_PROFILE=a100; {dry}")
            assert done.returncode == 0, done.stderr
            assert "#SBATCH" in done.stdout or "hpcrun import" in line


def test_the_lines_on_a_run(hpcrun: Hpcrun) -> None:
    hpcrun.write("train.py", "import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    hpcrun("submit", "-P", "local", "--gpus", "0", "train.py", check=True)
    lines = sorted(dict.fromkeys(OF_RUN.findall(PAGE)), key=lambda line: "cancel" in line)
    follow = next(line for line in lines if "-f" in line)
    lines.remove(follow)
    assert len(lines) >= 6
    for line in (*lines, follow):
        done = hpcrun.shell(f"{line} </dev/null")
        assert done.returncode == 0, (line, done.stderr)
    assert done.stdout.startswith("here")


def test_the_lines_for_submitit(hpcrun: Hpcrun) -> None:
    (block,) = [match["body"] for match in BLOCK.finditer(PAGE) if match["language"] == "python"]
    program = FUNCTION + block.replace("gpus_per_node=1", "gpus_per_node=0")
    done = hpcrun.run(
        f"{hpcrun.venv}/bin/python", "-c", program, env={"HPCRUN_PROFILE": "local"}, check=True
    )
    assert done.stdout == "[0.002, 0.0002]\n"


@pytest.mark.recipes
def test_the_keys_for_hydra(hpcrun: Hpcrun) -> None:
    hpcrun.write("train.py", HYDRA)
    plugin = "hydra_plugins/hpcrun_launcher.py"
    hpcrun.write(plugin, (REPO / "examples" / plugin).read_text())
    (line,) = re.findall(r"\| now \| `(.+)` \|", PAGE)
    python = f"HPCRUN_PROFILE=local {RECIPES}/bin/python train.py --multirun"
    started = hpcrun.shell(f"{python} {line} hydra.launcher.gpus_per_node=0 +lr=1,2")
    assert started.returncode == 0, started.stderr
    for number in (0, 1):
        log = hpcrun("logs", f"last/{number}", check=True).stdout
        assert f"lr {number + 1}" in log.splitlines()
    wrong = hpcrun.shell(f"{python} hydra/launcher=hpcrun hydra.launcher.partitoin=gpu +lr=1")
    assert wrong.returncode == 1
    assert "no parameter 'partitoin'\nhint: did you mean 'partition'?" in wrong.stderr
