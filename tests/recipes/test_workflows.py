"""Programs that start jobs themselves: Hydra with the launcher of examples/, Snakemake and Make."""

from __future__ import annotations

import json

import pytest

from tests.harness import REPO, Completed, Hpcrun

pytestmark = [pytest.mark.slurm, pytest.mark.recipes]

PLUGIN = "hydra_plugins/hpcrun_launcher.py"
HYDRA = """
import hydra
from hydra.core.hydra_config import HydraConfig
@hydra.main(version_base=None)
def main(config):
    print(HydraConfig.get().job.num, "lr", config.lr, flush=True)
    if config.lr == 3:
        {}["recall"]
main()
"""
UPPER = """
import sys
source, target = sys.argv[1:]
text = open(source).read()
if text == "b\\n":
    {}["recall"]
open(target, "w").write(text)
"""
SUBMIT = "hpcrun submit -P a100 --gpus 0 --cpus 1 --wait --json upper.py"
SNAKEFILE = f"""
rule source:
    output: "{{name}}.in"
    shell: "echo {{wildcards.name}} >{{output}}"
rule upper:
    input: "{{name}}.in"
    output: "{{name}}.out"
    log: "{{name}}.json"
    shell: "{SUBMIT} {{input}} {{output}} >{{log}}"
"""
MAKEFILE = f"""
%.in:
	echo $* >$@
%.out: %.in
	{SUBMIT} $< $@ >$*.json
"""


def multirun(person: Hpcrun, values: str) -> Completed:
    options = {"profile": "a100", "gpus_per_node": 0, "cpus_per_task": 1, "timeout_min": 10}
    words = ["--multirun", "hydra/launcher=hpcrun", f"+lr={values}"]
    words += [f"hydra.launcher.{name}={value}" for name, value in options.items()]
    return person.run("python", "train.py", *words, check=False, timeout=240)


def test_a_multirun_of_hydra_is_one_array_and_its_failure_is_named(person: Hpcrun) -> None:
    person.write("train.py", HYDRA)
    person.write(PLUGIN, (REPO / "examples" / PLUGIN).read_text())
    done = multirun(person, "1,2")
    assert done.returncode == 0, done.stderr
    run = person.status()
    assert [element["state"] for element in run["elements"]] == ["COMPLETED"] * 2
    for number in (0, 1):
        assert f"{number} lr {number + 1}" in person("logs", f"last/{number}").stdout.splitlines()
    assert len(list(person.folder.glob("multirun/*/*/[01]/.hydra/config.yaml"))) == 2
    failed = multirun(person, "2,3")
    assert (failed.returncode, "KeyError: 'recall'" in failed.stderr) == (1, True)
    assert (
        "failed first: KeyError: 'recall' at " in person("explain", "last").stdout.splitlines()[0]
    )


@pytest.mark.parametrize("tool", ["snakemake", "make"])
def test_a_rule_waits_for_its_job_and_fails_with_it(person: Hpcrun, tool: str) -> None:
    person.write("Snakefile", SNAKEFILE)
    person.write("Makefile", MAKEFILE)
    person.write("upper.py", UPPER)
    argv = (
        ("snakemake", "--jobs", "2")
        if tool == "snakemake"
        else ("make", "--jobs=2", "--keep-going")
    )
    done = person.run(*argv, "a.out", "c.out", check=False)
    assert done.returncode == 0, done.stderr
    runs = [json.loads((person.folder / f"{name}.json").read_text()) for name in "ac"]
    assert [(person.folder / f"{name}.out").read_text() for name in "ac"] == ["a\n", "c\n"]
    assert [run["state"] for run in runs] == ["COMPLETED"] * 2
    failed = person.run(*argv, "b.out", check=False)
    assert failed.returncode != 0
    assert (
        "rank 0 on cpu-1 failed first: KeyError: 'recall' at upper.py:6"
        in failed.stdout + failed.stderr
    )
    assert not (person.folder / "b.out").exists()
