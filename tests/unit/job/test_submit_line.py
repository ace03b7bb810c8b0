"""A request as a command line: what is read from that line is the request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hpcrun.errors import UsageError
from hpcrun.job.parameters import cross, side_by_side
from hpcrun.job.request import (
    JobRequest,
    editable_line,
    of_one_element,
    option_groups,
    program_words,
    read_edited_line,
    read_request,
    sweep_options,
    with_named_secrets,
    with_remark,
)
from hpcrun.job.secrets import MASK
from tests.unit.cli.test_options import parse

ALL: dict[str, Any] = {
    "script": "train.py", "cancel_idle_s": "90m", "args": ("--text", "a 'b' $c\n", "--lr", "{lr}"), "module": True,
    "gpus": "a100:4", "gpus_per_node": "2", "nodes": 2, "nproc_per_node": 2, "cpus": 8, "cpus_per_task": 4,
    "cpus_per_gpu": 2, "memory_mb": "0", "walltime_s": "1-02:03:04", "partition": "gpu,long", "account": "a",
    "qos": "high", "constraint": "ib&a100", "reservation": "r", "exclude": "n1", "nodelist": "n[2-3]",
    "mail_user": "me@x.org", "mail_type": "END", "sbatch": ("a=b c", "exclusive"), "no_sbatch": ("mem",), "segment": 2,
    "launcher": "srun", "srun": ("mpi=pmix",), "torchrun": ("max-restarts=1",), "python": "/p y/python", "uv": True,
    "load": ("cuda/12", "gcc"), "setup": ("echo a; b",), "env": ["A=b=c", "EMPTY="], "secrets": ("TOKEN",),
    "container": "x.sif", "mounts": ("/data:/mnt:ro",), "workdir": "/w", "name": "n", "preflight": True,
    "requeue": 2, "restarts": 1, "spares": 1, "warn_s": "90s", "retry_on_failure": True, "exclude_bad_nodes": True,
    "snapshot": True, "snapshot_limit_mb": "1G", "snapshot_include": (".env",),
    "notify": ("$HOOK", "mailto:me@x.org"), "notify_on": "failed,finished",
    "sweep": ("lr=1e-3,1e-4", "model=small,large"), "max_parallel": 2, "elements": "1,3",
}  # fmt: skip


def test_the_line_of_a_request_is_read_as_the_same_request() -> None:
    request = read_request(dict(ALL))
    assert set(ALL) == set(JobRequest.model_fields) - {"sweep_file"}
    recorded = json.loads(json.dumps(request.model_dump(exclude_defaults=True)))
    words = [word for group in option_groups(recorded, "a100") for word in group]
    asked = parse(*words, *program_words(recorded))
    assert asked.pop("profile") == "a100"
    assert read_request(asked) == request


def test_only_what_was_given_is_on_the_line() -> None:
    assert option_groups({"script": "a.py", "env": [], "requeue": 0, "module": False}, "x") == [
        ("--profile", "x"),
        ("--requeue", "0"),
    ]


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (cross({"lr": ["1", "2"], "m": ["a"]}), [("--sweep", "lr=1,2"), ("--sweep", "m=a")]),
        (side_by_side({"lr": ["1", "2"], "m": ["a", "b"]}), None),
        (cross({"lr": ["1,2", "3"]}), None),
        (cross({"lr": ["", "3"]}), None),
        (((("a", "1"),), (("b", "1"),)), None),
    ],
)
def test_a_sweep_is_a_product_or_needs_its_file(rows: Any, options: Any) -> None:
    assert sweep_options(rows) == options
    as_json: Any = [[list(pair) for pair in row] for row in rows]
    assert sweep_options(as_json) == options


def test_masked_variables_are_named_as_secrets() -> None:
    request = {"script": "a.py", "env": [["HF_TOKEN", MASK], ["A", "b"]], "secrets": ["X"]}
    named = with_named_secrets(request)
    assert (named["env"], named["secrets"]) == ([("A", "b")], ["X", "HF_TOKEN"])
    assert request["env"] == [["HF_TOKEN", MASK], ["A", "b"]]


def test_one_element_is_a_plain_job() -> None:
    request = {
        "script": "a.py",
        "args": ["{lr}"],
        "sweep": [[["lr", "1"]]],
        "elements": [0],
        "max_parallel": 1,
        "nodes": 2,
    }
    assert of_one_element(request, ("1",)) == {"script": "a.py", "args": ("1",), "nodes": 2}


def test_an_edited_line_is_read_as_it_was_written() -> None:
    request = read_request({**ALL, "args": ("#no comment", "a\n# b", "it's \\", "--x", "é", "\udcff")})
    recorded = request.model_dump(exclude_defaults=True)
    text = editable_line(recorded, "a100", ["In /a\nhpcrun submit evil"])
    assert text.startswith("# In /a hpcrun submit evil\nhpcrun submit\n  --profile a100\n")
    words = read_edited_line(with_remark(with_remark(text, "first\nline"), "one --x"))
    assert read_edited_line(text) == words
    asked = parse(*words)
    assert asked.pop("profile") == "a100"
    assert read_request(asked) == request


@pytest.mark.parametrize(
    ("text", "words"),
    [("# a\n\n", ()), ("hpcrun submit \\\n --gpus 4 a.py\n", ("--gpus", "4", "a.py")),
     ("hpcrun submit a.py b#c", ("a.py", "b#c")), ("hpcrun submit a.py 'x\n# y'\n  # z\n", ("a.py", "x\n# y"))],
)  # fmt: skip
def test_an_edited_line_has_comments_and_quotes(text: str, words: tuple[str, ...]) -> None:
    assert read_edited_line(text) == words


@pytest.mark.parametrize("text", ["hpcrun submit 'a", "rm -rf x", "hpcrun cancel x"])
def test_what_is_no_submission_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_edited_line(text)
