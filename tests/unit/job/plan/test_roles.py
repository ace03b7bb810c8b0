"""Several programs in one job: the roles as typed, their ranks and nodes, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hpcrun.actions.jobs.new_run import _plan_record
from hpcrun.errors import HpcrunError, UsageError
from hpcrun.job.plan.job_plan import Plan, build_plan
from hpcrun.job.plan.plan_notes import plan_notes
from hpcrun.job.plan.roles import SharedGpus, requests_of
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest, given_fields
from hpcrun.job.request.read_request import read_request
from hpcrun.job.request.request_line import (
    editable_line,
    option_groups,
    program_words,
    read_edited_line,
)
from hpcrun.job.request.role_options import read_role
from hpcrun.job.resources.cpus_memory_time import Machine
from tests.unit.builders import PYTHON, cpu_cluster, laptop, slurm_profile
from tests.unit.cli.test_options import parse

SERVER = "server:1 'vllm serve M --port {port}'"


def typed(line: str, **more: Any) -> JobRequest:
    """The request of a line behind ``hpcrun submit``."""
    words = read_edited_line(f"hpcrun submit {line}")
    return read_request({**parse(*words), **more})


def planned(
    line: str, profile: Profile | None = None, cpus: int = 8, gpu_ids: tuple[str, ...] = ()
) -> Plan:
    """The plan of such a line, by default on a cluster without GPUs."""
    profile = profile or cpu_cluster(gpu={"per_node": 0})
    return build_plan(
        typed(line), profile, python=PYTHON, machine=Machine(cpus=cpus, gpu_ids=gpu_ids)
    )


@pytest.mark.parametrize(
    ("word", "plain"),
    [
        ("server.url", "server.url"),
        ("http://server.host:80/in", "server.host"),
        ("{server.url}/in", None),
        ("my-server.url", None),
        ("server.url.example.org", None),
    ],
)
def test_an_address_without_braces_is_noted(word: str, plain: str | None) -> None:
    plan = planned(f"--role {SERVER} --role trainer:1 train.py {word}")
    notes = [note for note in plan_notes(plan, cpu_cluster(), {}) if "plain text" in note]
    if plain is None:
        assert not notes
    else:
        (note,) = notes
        assert note.startswith(f"role trainer: {plain} is plain text; the address is '{{{plain}}}'")


def test_a_role_is_a_range_of_ranks_and_of_nodes() -> None:
    plan = planned(
        f"--gpus-per-node 2 --role {SERVER} --role trainer:3 train.py --url {{server.url}}",
        slurm_profile(),
    )
    server, trainer = plan.roles
    assert server.first_rank == 0
    assert server.ranks == 1
    assert server.first_node == 0
    assert server.nodes == 1
    assert trainer.first_rank == 1
    assert trainer.ranks == 6
    assert trainer.first_node == 1
    assert trainer.nodes == 3
    assert server.launcher == "command"
    assert dict(server.env)["NPROC_PER_NODE"] == "2"
    assert trainer.launcher == "torchrun"
    assert server.on_exit == "fail"
    assert trainer.on_exit == "end"
    assert server.ready == "tcp:{port}"
    assert trainer.ready == ""
    assert trainer.after == ("server",)
    assert server.command == ("vllm", "serve", "M", "--port", "{port}")
    assert plan.command[-3:] == ("train.py", "--url", "{server.url}")
    assert plan.shape.nodes == 4
    assert plan.shape.world_size == 7
    assert plan.directive("nodes") == "4"
    assert plan.name == "train"


def test_the_record_has_the_roles_of_a_job_and_nothing_of_them_for_another_job() -> None:
    record = json.loads(
        json.dumps(_plan_record(planned(f"--role {SERVER} --role trainer:2 train.py"), ()))
    )
    keys = ("name", "first_rank", "ranks", "first_node", "nodes", "on_exit", "launcher")
    assert [[role[key] for key in keys] for role in record["roles"]] == [
        ["server", 0, 1, 0, 1, "fail", "command"],
        ["trainer", 1, 2, 1, 2, "end", "python"],
    ]
    assert "roles" not in _plan_record(planned("train.py"), ())


@pytest.mark.parametrize(
    ("server", "trainer", "after"),
    [
        ("server:1,ready=file:/x", "trainer:1", ("server",)),
        ("server:1", "trainer:1", ()),
        ("server:1,ready=file:/x", "trainer:1,after=", ()),
    ],
    ids=["a check", "no check", "after none"],
)
def test_a_role_waits_for_roles_before_it_that_have_a_check(
    server: str, trainer: str, after: tuple[str, ...]
) -> None:
    line = f"--role logger:1 log --role {server} serve --role {trainer} train.py"
    assert [role.after for role in planned(line).roles] == [(), (), after]


def test_roles_share_the_gpus_and_cpus_of_one_node() -> None:
    line = f"--cpus 16 --role {SERVER.replace('1', '1gpu', 1)} --role trainer:3gpus train.py"
    for profile, gpus in ((slurm_profile(), ()), (laptop(), ("a", "b", "c", "d"))):
        plan = planned(line, profile, cpus=16, gpu_ids=gpus)
        server, trainer = plan.roles
        assert plan.shape.nodes == 1
        assert plan.shape.gpus_per_node == 4
        assert plan.shape.tasks_per_node == 2
        assert server.gpus == SharedGpus(0, 1, 4)
        assert trainer.gpus == SharedGpus(1, 3, 4)
        assert server.task == 0
        assert trainer.task == 1
        assert trainer.first_node == 0
        assert trainer.ranks == 3
        assert dict(server.env)["OMP_NUM_THREADS"] == dict(trainer.env)["OMP_NUM_THREADS"] == "4"
        assert plan.cpus_per_node == 16


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("--role server:1 --role t:1 a.py", "'server:1' has no program", "--role NAME:NODES"),
        ("--role server:x a.py", "'x' is not a size", "--role NAME:NODES"),
        ("--role server a.py --role t:1 b.py", "'server': '' is not a size", "--role NAME:NODES"),
        ("--role server:1 a.py", "there is one", "SCRIPT without it"),
        ("--role server:1 a.py --role t:1", "role t has no program", "--role NAME:NODES"),
        ("--role 1st:1 a.py --role t:1 b.py", "'1st' cannot be a role's name", None),
        (
            "--role s:1 a.py --role S:1 b.py",
            "2 roles have this name in variables: HPCRUN_ROLE_S_PORT",
            "different",
        ),
        (
            "--role s:1,redy=tcp:{port} a.py --role t:1 b.py",
            "'redy' is not known here",
            "did you mean 'ready'",
        ),
        ("--role s:1,ready=80 a.py --role t:1 b.py", "'80' is not a check; write tcp:{port}", None),
        (
            "--role s:1,on-exit=stop a.py --role t:1 b.py",
            "on_exit: must be 'end', 'fail' or 'ignore'",
            None,
        ),
        ("--role s:1 'a \"b' --role t:1 b.py", "a quote is not closed", None),
        (
            "--role s:1 a.py --role t:1 b.py {serve.url}",
            "no address {serve.url}",
            "did you mean 's.url'?",
        ),
        (
            "--role server:1 a.py --role t:1 b.py {serve.url}",
            "no address {serve.url}",
            "did you mean 'server.url'?",
        ),
        (
            "--role s:1 a.py --role t:1,after=x b.py",
            "role t: it cannot wait for 'x'",
            "the roles are: s, t",
        ),
        (
            "--role s:1 a {t.url} --role t:1 b.py {s.url}",
            "wait for each other: s → t → s",
            "after= for none",
        ),
        ("--role s:1 a --role t:1,on-exit=fail b", "no role ends the job", "on-exit=end"),
        (
            "--role s:1gpu a --role t:1 b",
            "share the GPUs of one node: 1gpu + 1",
            "all sizes in GPUs",
        ),
        (
            "--nodes 3 --role s:1 a --role t:1 b",
            "--nodes 3 contradicts the roles, which have 1 + 1",
            "leave it out",
        ),
        (
            "--gpus 2 --role s:1gpu a --role t:3gpus b",
            "--gpus 2 contradicts the roles, which have 1gpu + 3gpu",
            "out",
        ),
        (
            "--role s:1 a --role t:1,launcher=srun b",
            "launcher: must be 'torchrun', 'python' or 'once'",
            None,
        ),
        (
            "--sweep port=1,2 --role s:1 a --role t:1 b",
            "{port} is an address of a role",
            "another name",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(
    line: str, message: str, hint: str | None
) -> None:
    with pytest.raises(HpcrunError) as refused:
        planned(line, slurm_profile() if "gpu" in line else None)
    assert message in refused.value.message
    assert (hint or "") in (refused.value.hint or "")


def test_a_type_in_one_of_two_options_of_gpus_does_not_contradict_the_roles() -> None:
    line = "--gpus 4 --gpus-per-node a100:4 --role s:1gpu a --role t:3gpus b.py"
    plan = planned(line, slurm_profile())
    assert plan.shape.gpus_per_node == 4
    assert plan.shape.gpu_type == "a100"


def test_of_several_launchers_that_roles_cannot_have_the_first_is_named() -> None:
    line = "--launcher srun --role s:1 a.py --role t:1 b.py"
    with pytest.raises(UsageError) as refused:
        planned(line, cpu_cluster(launcher="ray", gpu={"per_node": 0}))
    assert refused.value.message == "a role cannot have the launcher ray"


def test_a_profile_with_srun_lets_torchrun_start_the_ranks_of_a_role() -> None:
    line = "--gpus-per-node 4 --role s:1 a.py --role t:1 b.py"
    assert [role.launcher for role in planned(line, slurm_profile(launcher="srun")).roles] == [
        "torchrun",
        "torchrun",
    ]


def test_a_secret_in_a_command_or_in_the_variables_of_a_role_is_refused() -> None:
    roles = [{"name": "a", "command": "x", "env": {"API_TOKEN": "abcdefgh"}}, {"name": "b"}]
    request = read_request({"script": "train.py", "roles": roles, "gpus": "0"})
    with pytest.raises(UsageError, match="role a: env has a secret, API_TOKEN"):
        build_plan(request, cpu_cluster(), python=PYTHON, machine=Machine(cpus=1))


def test_a_variable_of_a_shell_is_no_address() -> None:
    server, _ = planned("--role server:1 'bash -c \"serve ${X} ${port}\"' --role t:1 b.py").roles
    assert server.command[-1] == "serve ${X} ${port}"
    assert server.ready == ""


def test_parameters_of_a_sweep_and_addresses_stand_in_one_command() -> None:
    line = "--sweep lr=1,{port} --role s:1 a.py --role t:1 b.py {s.url} {lr} {{s.url}} {{x}}"
    plan = planned(line)
    assert plan.sweep is not None
    assert plan.command[-1:] == ("b.py",)
    assert plan.sweep.arguments == (
        ("{s.url}", "1", "{{s.url}}", "{x}"),
        ("{s.url}", "{{port}}", "{{s.url}}", "{x}"),
    )
    with pytest.raises(UsageError, match=r"arguments have \{rl\}"):
        planned("--sweep lr=1,2 --role s:1 a.py --role t:1 b.py {s.url} {rl}")


def test_the_line_of_a_request_with_roles_is_read_as_the_same_request() -> None:
    request = typed(
        "--gpus 0 --role 'server:1,ready=http:{port}/x,timeout=90s,on-exit=ignore' 'a b' -m x "
        "--role w:2,after= -m m.w "
        "--role trainer:3,after=server+w train.py --x 1"
    )
    recorded = json.loads(json.dumps(given_fields(request)))
    assert read_request(dict(recorded)) == request
    words = [word for group in option_groups(recorded, "p") for word in group]
    again = parse(*words, *program_words(recorded))
    assert again.pop("profile") == "p"
    assert read_request(again) == request
    edited = parse(*read_edited_line(editable_line(recorded, "p", ["x"])))
    assert edited.pop("profile") == "p"
    assert read_request(edited) == request


def test_a_job_without_roles_has_no_request_of_a_role() -> None:
    assert requests_of(typed("--gpus 4 --snapshot train.py")) == []


@pytest.mark.parametrize("command", [[["train.py"]], ["sleep", 5], ["a\0b"]])
def test_a_word_of_a_command_is_a_text(command: list[object]) -> None:
    with pytest.raises(UsageError, match="is no text; write it in quotes"):
        read_role("--roles roles.yaml", {"name": "server", "command": command})
