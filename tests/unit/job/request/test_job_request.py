"""What a person typed, read into a request or refused with the option's name; and a request as a
line.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.errors import UsageError
from hpcrun.job.request.job_request import (
    JOB_FIELDS,
    GpuCount,
    given_fields,
    option_of,
)
from hpcrun.job.request.node_choice import NodeChoice
from hpcrun.job.request.parameters import cross, joined, side_by_side
from hpcrun.job.request.read_request import read_request
from hpcrun.job.request.request_line import (
    editable_line,
    of_one_element,
    option_groups,
    program_words,
    read_edited_line,
    sweep_options,
    with_named_secrets,
    with_remark,
)
from hpcrun.job.text.recognise_secrets import MASK
from tests.unit.builders import plan, request, script
from tests.unit.cli.test_options import parse


def test_a_time_limit_without_a_unit_is_minutes_as_in_sbatch() -> None:
    assert request(walltime_s="30").walltime_s == 1800
    assert request(walltime_s="1-12").walltime_s == 36 * 3600
    assert request(walltime_s=1800).walltime_s == 1800  # of a record


@pytest.mark.parametrize(
    ("typed", "fewest", "most"), [("2-4", 2, 4), ("2,4,8", 2, 8), ("1-15:4", 1, 13)]
)
def test_of_several_numbers_of_nodes_slurm_chooses(typed: str, fewest: int, most: int) -> None:
    nodes = request(nodes=typed).nodes
    assert isinstance(nodes, NodeChoice)
    assert (nodes.fewest, nodes, str(nodes)) == (fewest, most, typed)
    recorded = given_fields(request(nodes=typed))["nodes"]
    assert recorded == typed
    assert str(request(nodes=recorded).nodes) == typed
    assert not isinstance(request(nodes="3-3").nodes, NodeChoice)


def test_gpus_are_a_number_perhaps_of_a_type(subtests: pytest.Subtests) -> None:
    for typed, count, type_ in (
        ("4", 4, None),
        ("0", 0, None),
        ("a100:4", 4, "a100"),
        ("a100_40gb:1", 1, "a100_40gb"),
    ):
        with subtests.test(typed=typed):
            assert request(gpus=typed).gpus == GpuCount(count=count, type=type_)
            assert request(gpus_per_node=typed).gpus_per_node == GpuCount(count=count, type=type_)


@pytest.mark.parametrize(
    "typed", ["", "four", "-1", "4.5", ":4", "a100:", "a100", "a100:x", "²", "4 ", "1e1"]
)
def test_what_is_no_number_of_gpus_is_refused(typed: str) -> None:
    for field in ("gpus", "gpus_per_node"):
        words = f"^{option_of(field)}: .* is not a number of GPUs; write 4 or a100:4"
        with pytest.raises(UsageError, match=words):
            request(**{field: typed})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"nodes": 0}, "--nodes: must be greater than or equal to 1, not 0"),
        ({"nodes": "-1"}, "--nodes: must be greater than or equal to 1, not '-1'"),
        ({"nodes": "four"}, "--nodes: must be a valid integer, not 'four'"),
        ({"nodes": "4-2"}, "--nodes: '4-2' is not a number of nodes; write 4, 2-4 or 2,4,8"),
        ({"nodes": "2-"}, "--nodes: '2-' is not a number of nodes"),
        ({"nodes": "0-4"}, "--nodes: must be greater than or equal to 1, not '0-4'"),
        ({"cpus_per_task": -1}, "--cpus-per-task: must be greater than or equal to 1, not -1"),
        ({"nproc_per_node": 0}, "--nproc-per-node: must be greater than or equal to 1, not 0"),
        ({"account": "  "}, "--account: is empty"),
        ({"warn_s": "20"}, "--warn: '20' has no unit; write 20m for minutes, or 20s, 20h or 20d"),
        ({"walltime_s": "soon"}, "--time: 'soon' is not a time"),
        ({"walltime_s": "0"}, "--time: 0 means no limit in Slurm; hpcrun needs a limit"),
        ({"warn_s": "0"}, "--warn: must be longer than zero"),
        ({"requeue": "two"}, "--requeue: must be a valid integer, not 'two'"),
        ({"requeue": -1}, "--requeue: must be greater than or equal to 0, not -1"),
        ({"memory_mb": "lots"}, "--mem: 'lots' is not a memory size"),
        (
            {"launcher": "mpirun"},
            "--launcher: must be 'torchrun', 'srun', 'python', 'command' or 'ray', not 'mpirun'",
        ),
        ({"name": "é"}, "--name: 'é' cannot be a job's name"),
        ({"name": "hetjob"}, "--name: 'hetjob' cannot be a job's name"),
        ({"env": ["NCCL_DEBUG"]}, "--env: 'NCCL_DEBUG' has no '='; write NAME=VALUE"),
        ({"env": ["1A=b"]}, "--env: '1A' cannot be a variable's name"),
        ({"partition": ""}, "--partition: is empty"),
        ({"mail_user": ""}, "--mail-user: is empty"),
        ({"gpu": "4"}, "--gpu: "),
        *(
            ({name: 10**399}, f"{option_of(name)}: must be less than or equal to 1000000, not 1000")
            for name in "nodes nproc_per_node cpus cpus_per_task cpus_per_gpu max_parallel".split()
        ),
    ],
)
def test_a_value_that_cannot_be_read_is_refused_by_its_option(
    asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        request(**asked)
    assert refused.value.message.startswith(message)
    assert "\n" not in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("value", ["b", "", "b=c", " b\n", "\udcff"])
def test_a_variable_keeps_its_value_as_it_was_typed(value: str) -> None:
    assert request(env=[f"A={value}"]).env == (("A", value),)


@given(st.lists(st.text(st.characters(exclude_characters="\0"), max_size=20)))
def test_the_script_s_arguments_are_kept_as_they_are(args: list[str]) -> None:
    assert request(args=args).args == tuple(args)


@pytest.mark.parametrize("field", JOB_FIELDS)
def test_bytes_that_are_no_utf_8_are_taken_or_refused_in_words_in_every_option(
    field: str, subtests: pytest.Subtests
) -> None:
    for raw in ("a\udc85b=x", "\udcff", "a\udcff=1,\udc85", "\udcf0:\udcff"):
        with subtests.test(raw=raw):
            repeatable = isinstance(getattr(request(), field), tuple) and field != "elements"
            try:
                read_request({"script": "train.py", field: [raw] if repeatable else raw})
            except UsageError as refused:
                assert refused.message.isascii()


def test_bytes_that_are_no_utf_8_are_taken_for_the_script_and_not_where_sbatch_reads_them() -> None:
    raw = "\udcff\udc80"
    asked = request(raw, args=[raw], setup=[raw], python=raw, workdir=raw)
    assert asked.script == raw
    assert asked.args == (raw,)
    assert asked.setup == (raw,)
    assert asked.python == raw
    assert asked.workdir == raw
    with pytest.raises(UsageError, match="partition"):
        script(plan(partition="\udcff"))


def test_a_request_that_was_recorded_is_read_back_the_same() -> None:
    asked = read_request(dict(ALL))
    assert read_request(given_fields(asked)) == asked
    assert given_fields(request()) == {"script": "train.py"}


def test_the_size_of_a_snapshot_is_no_memory() -> None:
    assert request(snapshot_limit_mb="1G").snapshot_limit_mb == 1024
    with pytest.raises(
        UsageError, match="--snapshot-limit: '1K' is less than a megabyte; write it as 200M or 1G"
    ):
        request(snapshot_limit_mb="1K")


def test_all_values_that_cannot_be_read_are_named() -> None:
    with pytest.raises(UsageError) as raised:
        request(nodes=0, walltime_s="soon", gpus="many")
    assert [line.split(":")[0] for line in raised.value.message.splitlines()] == [
        "--gpus",
        "--nodes",
        "--time",
    ]


ALL: dict[str, Any] = {
    "script": "train.py",
    "cancel_idle_s": "90m",
    "args": ("--text", "a 'b' $c\n", "--lr", "{lr}"),
    "module": True,
    "gpus": "a100:4",
    "gpus_per_node": "2",
    "nodes": 2,
    "nproc_per_node": 2,
    "ntasks_per_node": 4,
    "ntasks": 8,
    "cpus": 8,
    "cpus_per_task": 4,
    "cpus_per_gpu": 2,
    "memory_mb": "0",
    "walltime_s": "1-02:03:04",
    "partition": "gpu,long",
    "account": "a",
    "qos": "high",
    "constraint": "ib&a100",
    "reservation": "r",
    "begin": "now+2hours",
    "exclude": "n1",
    "nodelist": "n[2-3]",
    "mail_user": "me@x.org",
    "mail_type": "END",
    "sbatch": ("a=b c", "exclusive"),
    "no_sbatch": ("mem",),
    "segment": 2,
    "launcher": "srun",
    "srun": ("mpi=pmix",),
    "torchrun": ("max-restarts=1",),
    "python": "/p y/python",
    "uv": True,
    "load": ("cuda/12", "gcc"),
    "setup": ("echo a; b",),
    "env": ["A=b=c", "EMPTY="],
    "secrets": ("TOKEN",),
    "container": "x.sif",
    "mounts": ("/data:/mnt:ro",),
    "workdir": "/w",
    "name": "n",
    "preflight": True,
    "requeue": 2,
    "restarts": 1,
    "spares": 1,
    "warn_s": "90s",
    "retry_on_failure": True,
    "exclude_bad_nodes": True,
    "stage": ("/a:b",),
    "keep": 7,
    "warm": True,
    "no_warm": True,
    "snapshot": True,
    "snapshot_limit_mb": "1G",
    "snapshot_include": (".env",),
    "notify": ("$HOOK", "mailto:me@x.org"),
    "notify_on": "failed,finished",
    "sweep": ("lr=1e-3,1e-4", "model=small,large"),
    "max_parallel": 2,
    "elements": "1,3",
    "pack": 2,
    "pack_memory": True,
}


def test_the_line_of_a_request_is_read_as_the_same_request() -> None:
    request = read_request(dict(ALL))
    assert set(ALL) == set(JOB_FIELDS) - {"sweep_file", "roles", "wrap", "array"}
    recorded = json.loads(json.dumps(given_fields(request)))
    words = [word for group in option_groups(recorded, "a100") for word in group]
    asked = parse(*words, *program_words(recorded))
    assert asked.pop("profile") == "a100"
    assert read_request(asked) == request


def test_only_what_was_given_is_on_the_line() -> None:
    groups = option_groups({"script": "a.py", "env": [], "requeue": 0, "module": False}, "x")
    assert groups == [("--profile", "x"), ("--requeue", "0")]


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
    assert named["env"] == [("A", "b")]
    assert named["secrets"] == ["X", "HF_TOKEN"]
    assert request["env"] == [["HF_TOKEN", MASK], ["A", "b"]]


def test_one_element_is_a_plain_job() -> None:
    request = {"script": "a.py", "args": ["{lr}"], "nodes": 2}
    swept = {**request, "sweep": [[["lr", "1"]]], "elements": [0], "max_parallel": 1}
    assert of_one_element(swept, ("1",)) == {**request, "args": ("1",)}


def test_an_edited_line_is_read_as_it_was_written() -> None:
    request = read_request(
        {**ALL, "args": ("#no comment", "a\n# b", "it's \\", "--x", "é", "\udcff")}
    )
    recorded = given_fields(request)
    text = editable_line(recorded, "a100", ["In /a\nhpcrun submit evil"])
    assert text.startswith("# In /a hpcrun submit evil\nhpcrun submit\n  --profile a100\n")
    words = read_edited_line(with_remark(with_remark(text, "first\nline"), "one --x"))
    assert read_edited_line(text) == words
    asked = parse(*words)
    assert asked.pop("profile") == "a100"
    assert read_request(asked) == request


def test_an_edited_line_has_comments_and_quotes_and_is_a_submission(
    subtests: pytest.Subtests,
) -> None:
    for text, words in (
        ("# a\n\n", ()),
        ("hpcrun submit \\\n --gpus 4 a.py\n", ("--gpus", "4", "a.py")),
        ("hpcrun submit a.py b#c", ("a.py", "b#c")),
        ("hpcrun submit a.py 'x\n# y'\n  # z\n", ("a.py", "x\n# y")),
    ):
        with subtests.test(text=text):
            assert read_edited_line(text) == words
    for text in ("hpcrun submit 'a", "rm -rf x", "hpcrun cancel x"):
        with pytest.raises(UsageError):
            read_edited_line(text)


def test_of_several_parameters_that_are_given_twice_the_first_by_name_is_named() -> None:
    rows = cross({"b": ["1"], "a": ["1"], "c": ["1"]})
    with pytest.raises(ValueError, match="'a' is given twice"):
        joined(rows, rows)
