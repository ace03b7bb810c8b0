"""hpcrun.read_runs, read_status and read_metrics, in a program of somebody else's."""

from __future__ import annotations

import json

from tests.harness import Hpcrun

TRAIN = """
from hpcrun_runtime import log_metrics
import sys
for step in range(3):
    log_metrics(step=step, loss=float(sys.argv[1]) / (step + 1))
log_metrics(step=3, note="=SUM(1)")
"""


def told(hpcrun: Hpcrun, code: str) -> str:
    """Return what a program prints; one for all that a test asks, since each imports pandas."""
    return program(
        hpcrun, f"import hpcrun, pandas\npandas.set_option('display.width', 200)\n{code}"
    )


def program(hpcrun: Hpcrun, code: str) -> str:
    """Return what a program prints."""
    return hpcrun.run(f"{hpcrun.venv}/bin/python", "-c", code).stdout


def test_the_numbers_of_a_run_are_a_table(hpcrun: Hpcrun) -> None:
    hpcrun.write("train.py", TRAIN)
    hpcrun("submit", "-P", "local", "--gpus", "0", "--wait", "train.py", "6", check=True)
    code = (
        "print(hpcrun.read_metrics('train').drop(columns='time').to_json(orient='records'))\n"
        "print(hpcrun.read_metrics(ranks='all')['loss'].min())\n"
        "print(len(hpcrun.read_metrics(ranks=[7])))"
    )
    found, least, none = told(hpcrun, code).splitlines()
    assert json.loads(found) == [
        *(
            {"rank": 0, "attempt": 0, "step": step, "loss": 6 / (step + 1), "note": None}
            for step in range(3)
        ),
        {"rank": 0, "attempt": 0, "step": 3, "loss": None, "note": "=SUM(1)"},
    ]
    assert least == "2.0"
    assert none == "0"


def test_a_sweep_has_its_parameters_in_front_and_is_ranked_by_a_metric(hpcrun: Hpcrun) -> None:
    hpcrun.write("train.py", TRAIN.replace("step=step,", "step=step, epoch=1,"))
    hpcrun(
        "submit",
        "-P",
        "local",
        "--gpus",
        "0",
        "--sweep",
        "lr=2,4",
        "--wait",
        "train.py",
        "{lr}",
        check=True,
    )
    code = (
        "table = hpcrun.read_metrics('last'); print(*table.columns); "
        "print(*table.groupby('lr')['loss'].min())\n"
        "print(*hpcrun.read_metrics('last/1')['loss'].dropna())\n"
        "print(hpcrun.read_status('last/0', 'last/1').to_json(orient='records'))"
    )
    columns, least, second, states = told(hpcrun, code).splitlines()
    # it tells where, and not how well
    assert columns == "element lr rank attempt step time loss note epoch"
    assert "by loss, smallest first" in hpcrun("sweep", check=True).stderr
    assert least == f"{2 / 3} {4 / 3}"
    assert second == f"4.0 2.0 {4 / 3}"
    assert [(row["state"], row["exit_status"]) for row in json.loads(states)] == [
        ("COMPLETED", 0)
    ] * 2


def test_several_calls_of_a_function_have_their_number_in_front(hpcrun: Hpcrun) -> None:
    code = """
def train(lr):
    from hpcrun_runtime import log_metrics
    log_metrics(step=0, loss=lr)
executor = hpcrun.Executor(profile="local", gpus=0)
jobs = executor.map_array(train, [3.0, 4.0])
for job in jobs: job.result()
table = hpcrun.read_metrics()
print(*table["element"], *table["loss"], *hpcrun.read_metrics(jobs[1].job_id)["loss"])
"""
    assert told(hpcrun, code) == "0 1 3.0 4.0 4.0\n"
    assert [line.split()[0] for line in hpcrun("metrics", check=True).stdout.splitlines()] == [
        "ELEMENT",
        "0",
        "1",
    ]
    assert hpcrun("metrics", "last/2").returncode == 6


def test_all_runs_are_a_table_with_the_columns_of_the_csv_and_no_such_run_is_an_error(
    hpcrun: Hpcrun,
) -> None:
    for status in ("0", "3"):
        hpcrun(
            "submit",
            "-P",
            "local",
            "--gpus",
            "0",
            "--wait",
            "-J",
            f"job{status}",
            "sh",
            "-c",
            f"exit {status}",
        )
    code = (
        "import sys\ntry: hpcrun.read_metrics('nope')\n"
        "except Exception as error: print(type(error).__name__, 'submitit' in sys.modules)\n"
        "table = hpcrun.read_status(); print(*table.columns, sep=',')\n"
        "print(table[['name', 'state']].to_csv(index=False))"
    )
    error, columns, *rows = told(hpcrun, code).splitlines()
    assert error == "NotFoundError False"
    assert columns == hpcrun("status", "--csv", check=True).stdout.splitlines()[0]
    assert rows[1:3] == ["job0,COMPLETED", "job3,FAILED"]


def test_runs_are_dictionaries_with_the_fields_of_the_json(hpcrun: Hpcrun) -> None:
    hpcrun("submit", "-P", "local", "--gpus", "0", "--wait", "-J", "bad", "sh", "-c", "exit 3")
    hpcrun.write("train.py", "")
    sweep = ("--sweep", "lr=1,2", "--wait", "train.py", "{lr}")
    hpcrun("submit", "-P", "local", "--gpus", "0", *sweep, check=True)
    code = (
        "import hpcrun, json, sys\n"
        "print(json.dumps(hpcrun.read_runs()))\nprint(json.dumps(hpcrun.read_runs('last/1')))\n"
        "print('pandas' in sys.modules, 'submitit' in sys.modules)"
    )
    everything, element, imported = program(hpcrun, code).splitlines()
    assert json.loads(everything) == hpcrun.document("status", "--all")["runs"]
    assert json.loads(element) == hpcrun.document("status", "last/1")["runs"]
    assert imported == "False False"


def test_without_pandas_a_table_is_one_sentence_with_what_to_install(hpcrun: Hpcrun) -> None:
    hpcrun("submit", "-P", "local", "--gpus", "0", "--wait", "true", check=True)
    code = (
        "import sys; sys.modules['pandas'] = None\nimport hpcrun\n"
        "for read in (hpcrun.read_status, hpcrun.read_metrics):\n"
        "    try: read()\n"
        "    except hpcrun.errors.HpcrunError as error: print(error.message, error.hint)\n"
        "print(len(hpcrun.read_runs()))"
    )
    status, metrics, number = program(hpcrun, code).splitlines()
    assert status.startswith(
        "tables need pandas, which is not installed in this Python pip install"
    )
    assert metrics == status
    assert number == "1"
