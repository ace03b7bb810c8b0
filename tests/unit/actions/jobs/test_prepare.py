"""From a request to a script: which profile, what SBATCH_* says, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.prepare import Prepared, choose_profile, prepare
from hpcrun.errors import HpcrunError, PlanError, ProfileError, UsageError
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.text.quoting import job_name_from
from hpcrun.machine.command_log import logged_to
from hpcrun.profiles.config import Config
from hpcrun.views.plan_text import plan_lines, prepared_lines
from tests.unit.builders import request, surroundings, write

NO_SLURM = "there is no sbatch on PATH"


def prepared(
    folder: Path,
    profile: str = "site",
    env: dict[str, str] | None = None,
    env_: list[str] | None = None,  # --env
    config: Config | None = None,
    **asked: Any,
) -> Prepared:
    write(folder / "train.py", "")
    own = folder / "own"
    if not (own / "profiles/site.yaml").exists():
        write(
            own / "profiles/site.yaml",
            "partition: theirs\ntime: {default: 1h}\ngpu: {type: a100, per_node: 4}\n",
        )
    around = surroundings(
        folder, {"PATH": "/usr/bin:/bin", **(env or {})}, own=(own,), config=config
    )
    asked |= {"env": env_} if env_ else {}
    return prepare(request(**asked), profile, around, lambda: Machine(cpus=4))


@pytest.mark.parametrize(
    ("env", "asked", "partition", "time"),
    [
        ({"SBATCH_PARTITION": "debug"}, {}, "debug", "01:00:00"),
        ({"SBATCH_TIMELIMIT": "1-00:00:00"}, {}, "theirs", "1-00:00:00"),
        (
            {"SBATCH_PARTITION": "env", "SBATCH_TIMELIMIT": "30"},
            {"partition": "flag", "walltime_s": "2h"},
            "flag",
            "02:00:00",
        ),
        ({"SBATCH_PARTITION": ""}, {}, "theirs", "01:00:00"),
        # those of an enclosing job are passed over
        (
            {"SBATCH_PARTITION": "env", "SBATCH_EXPORT": "NONE", "SLURM_JOB_ID": "1"},
            {},
            "theirs",
            "01:00:00",
        ),
    ],
)
def test_sbatch_s_variables_come_after_the_flags_and_before_the_profile(
    env: dict[str, str], asked: dict[str, Any], partition: str, time: str, tmp_path: Path
) -> None:
    plan = prepared(tmp_path, env=env, **asked).plan
    assert plan.directive("partition") == partition
    assert plan.directive("time") == time
    assert plan.notes == () or (partition, time) != ("theirs", "01:00:00")
    assert prepared(tmp_path, env={"SBATCH_ACCOUNT": "proj"}).plan.directive("account") == "proj"


@pytest.mark.parametrize(
    ("configured", "most", "asked", "time"),
    [
        (7200, "1h", {}, "01:00:00"),
        (1800, "1h", {}, "00:30:00"),
        (7200, None, {}, "02:00:00"),
        (7200, "1h", {"walltime_s": "10m"}, "00:10:00"),
    ],
    ids=["over the limit", "under the limit", "no limit", "typed"],
)
def test_a_configured_time_is_cut_to_the_limit_of_the_profile(
    configured: int, most: str | None, asked: dict[str, Any], time: str, tmp_path: Path
) -> None:
    limit = f"time: {{max: {most}}}\n" if most else ""
    write(tmp_path / "own/profiles/site.yaml", f"partition: theirs\n{limit}")
    config = Config(walltime_s=configured)
    assert prepared(tmp_path, config=config, **asked).plan.directive("time") == time


def test_a_time_limit_that_cannot_be_read_is_refused_by_its_variable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="SBATCH_TIMELIMIT: 'soon' is not a time"):
        prepared(tmp_path, env={"SBATCH_TIMELIMIT": "soon"})
    assert prepared(tmp_path, "local", env={"SBATCH_TIMELIMIT": "soon"}).plan.walltime_s is None


@pytest.mark.parametrize(
    ("asked", "env", "config", "no_slurm", "chosen"),
    [
        ("flag", {"HPCRUN_PROFILE": "env"}, "config", None, "flag"),
        (None, {"HPCRUN_PROFILE": "env"}, "config", None, "env"),
        (None, {}, "config", None, "config"),
        (None, {}, None, NO_SLURM, "local"),
        (None, {}, None, None, "detected"),
        (None, {}, "detected", NO_SLURM, "local"),
        ("detected", {}, None, NO_SLURM, "detected"),
    ],
)
def test_the_profile_is_the_first_that_is_named(
    asked: str | None,
    env: dict[str, str],
    config: str | None,
    no_slurm: str | None,
    chosen: str,
    tmp_path: Path,
) -> None:
    assert (
        choose_profile(asked, surroundings(tmp_path, env, config=Config(config)), lambda: no_slurm)
        == chosen
    )


@pytest.mark.parametrize(
    ("asked", "exit_code"),
    [
        ({"gpus": "3", "nodes": 2}, 2),
        ({"gpus": "8", "nodes": 1}, 4),
        ({"profile": "sit"}, 3),
        ({"sbatch": ["output=/x"]}, 2),
        ({"gpus": "h100:4"}, 2),
        ({"script": "none.py"}, 2),
        ({"sbatch": ["comment=a\nb"]}, 2),
    ],
)
def test_bad_input_has_the_exit_code_of_its_kind(
    asked: dict[str, Any], exit_code: int, tmp_path: Path
) -> None:
    with pytest.raises(HpcrunError) as refused:
        prepared(tmp_path, **asked)
    assert refused.value.exit_code == exit_code


@pytest.mark.parametrize(
    "text",
    [
        "sbatch: {output: /x}\n",
        "sbatch: {a b: c}\n",
        'sbatch: {comment: "a\\nb"}\n',
        'setup: ["a\\0b"]\n',
    ],
)
def test_a_mistake_of_the_profile_s_own_is_a_profile_error(text: str, tmp_path: Path) -> None:
    write(tmp_path / "own/profiles/site.yaml", text)
    with pytest.raises(ProfileError):
        prepared(tmp_path)


def test_what_is_wrong_with_a_variable_is_a_note_of_the_plan(tmp_path: Path) -> None:
    write(tmp_path / "own/profiles/site.yaml", "extends: l40s\nenv: {NCCL_P2P_LEVEL: NVL}\n")
    notes = prepared(tmp_path, gpus="2", env_=["NCCL_TIMEOUT=7200", "MY_OWN=1"]).plan.notes
    assert [note.partition(": ")[0] for note in notes] == [
        "NCCL_P2P_LEVEL=NVL (profile site)",
        "NCCL_TIMEOUT=7200 (--env)",
    ]
    assert "turns direct transfers off" in notes[0]


def test_the_gpus_of_the_job_decide_what_is_harmful(tmp_path: Path) -> None:
    notes = prepared(tmp_path, "h100", gpus="2", env_=["NCCL_P2P_LEVEL=NVL"]).plan.notes
    assert "for debugging" in notes[0]
    assert prepared(tmp_path, "h100", gpus="2").plan.notes == ()
    secrets = ["NCCL_DEBUG_KEY=s3cr3t", "NCCL_SOCKET_TOKEN=s3cr3t"]
    assert prepared(tmp_path, env_=secrets).plan.notes == ()


def test_an_impossible_value_is_refused_at_its_file_and_line_or_by_its_option(
    tmp_path: Path,
) -> None:
    base = write(tmp_path / "own/profiles/base.yaml", "env:\n  A: x\n  NCCL_IB_RETRY_CNT: 13\n")
    write(tmp_path / "own/profiles/site.yaml", "extends: base\n")
    with pytest.raises(ProfileError, match="0 to 7") as refused:
        prepared(tmp_path)
    assert refused.value.message.startswith(f"{base}:3: env.NCCL_IB_RETRY_CNT=13: ")
    # --env lies over it, and is judged instead
    assert prepared(tmp_path, env_=["NCCL_IB_RETRY_CNT=7"]).plan.notes == ()
    with pytest.raises(UsageError, match=r"--env NCCL_IB_RETRY_CNT=13: .* 0 to 7") as typed:
        prepared(tmp_path, env_=["NCCL_IB_RETRY_CNT=13"])
    assert typed.value.hint == "hpcrun profile env NCCL_IB_RETRY_CNT explains it"


def test_one_s_own_template_is_used(tmp_path: Path) -> None:
    write(tmp_path / "own/templates/job.sh.j2", "#!/bin/bash\necho {{ plan.name | q }}\n")
    assert prepared(tmp_path).script == "#!/bin/bash\necho train\n"


NO_EFFECT = " (--env): no effect: hpcrun sets it to "
OF_GPUS = (
    "a job without GPUs on partition theirs, whose nodes have 4 GPUs; choose another with "
    "--partition"
)


@pytest.mark.parametrize(
    ("env", "env_", "asked", "note"),
    [
        (
            {"OMP_NUM_THREADS": "9"},
            None,
            {},
            "OMP_NUM_THREADS=9 of your shell is ignored: the job sets 1; to keep yours: --env "
            "OMP_NUM_THREADS=9",
        ),
        (
            {},
            ["OMP_NUM_THREADS=9"],
            {},
            "OMP_NUM_THREADS=9 (--env): a rank has 1 CPU",
        ),
        ({"OMP_NUM_THREADS": "1"}, None, {}, None),
        ({}, ["OMP_NUM_THREADS=1"], {}, None),
        ({"OMP_NUM_THREADS": "9", "SLURM_JOB_ID": "1"}, None, {}, None),
        # every launcher sets both for its ranks: in_job/launch/start_ranks.py,
        # in_job/launch/rank.py, torchrun
        (
            {},
            ["MASTER_PORT=29511"],
            {},
            f"MASTER_PORT=29511{NO_EFFECT}a free port, another one for each job",
        ),
        ({}, ["MASTER_ADDR=localhost"], {}, f"MASTER_ADDR=localhost{NO_EFFECT}the first node"),
        ({}, None, {"gpus": "0"}, OF_GPUS),
        (
            {},
            None,
            {"gpus": "4", "restarts": 1, "spares": 1},
            "a spare node does not help if the job's first node fails, where its script runs: "
            "--requeue N lets Slurm requeue the job then",
        ),
        ({}, None, {"gpus": "4", "restarts": 1, "spares": 1, "requeue": 1}, None),
        ({}, None, {"gpus": "0", "partition": "cpu"}, None),
    ],
)
def test_what_has_no_effect_or_is_probably_not_meant_is_noted(
    env: dict[str, str],
    env_: list[str] | None,
    asked: dict[str, Any],
    note: str | None,
    tmp_path: Path,
) -> None:
    assert prepared(tmp_path, env=env, env_=env_, **asked).plan.notes == ((note,) if note else ())


C10D = "any user of the nodes' network can make the job run code as you: torch's c10d rendezvous"
RESTARTS = (
    f"{C10D} of --torchrun max-restarts unpickles what is sent to its port; safer: "
    "--restarts 2 --retry-on-failure"
)


@pytest.mark.parametrize(
    ("options", "notes"),
    [
        ({"nodes": "2", "torchrun": ["max-restarts=2"]}, (RESTARTS,)),
        (
            {"nodes": "2", "torchrun": ["rdzv-endpoint=n1:29400"]},
            (f"{C10D} unpickles what is sent to its port",),
        ),
        ({"nodes": "2", "torchrun": ["max-restarts=0"]}, ()),
        ({"nodes": "1", "torchrun": ["max-restarts=2"]}, ()),
    ],
)
def test_a_rendezvous_that_unpickles_what_others_send_is_noted(
    options: dict[str, Any], notes: tuple[str, ...], tmp_path: Path
) -> None:
    asked = {"gpus": "2", "launcher": "torchrun", **options}
    assert prepared(tmp_path, **asked).plan.notes == notes


def test_a_script_that_waits_for_local_rank_in_an_option_is_noted(tmp_path: Path) -> None:
    write(tmp_path / "old.py", "parser.add_argument('--local_rank', type=int)\n")
    export, local = prepared(
        tmp_path, env={"SBATCH_EXPORT": "NONE"}, script="old.py", gpus="2"
    ).plan.notes
    assert local.startswith("old.py has an option --local_rank, which torchrun does not give it")
    assert export.startswith("SBATCH_EXPORT=NONE of your shell is ignored")


def test_the_plan_shows_the_threads_that_a_rank_will_have(tmp_path: Path) -> None:
    lines = plan_lines(prepared(tmp_path, env_=["OMP_NUM_THREADS=9"]).plan)
    (line,) = [line for line in lines if line.startswith("CPUs")]
    assert line.split(maxsplit=1)[1] == "1 per node, OMP_NUM_THREADS=9"


def test_the_plan_shows_the_variables_that_hpcrun_does_not_add(tmp_path: Path) -> None:
    site = "extends: l40s\nenv: {SITE: '1', NCCL_DEBUG: INFO}\nsecrets: [TOKEN]\n"
    write(tmp_path / "own/profiles/site.yaml", site)
    for profile, shown in (
        ("site", ["env        NCCL_DEBUG=INFO SITE=1 MINE=2 TOKEN=***"]),
        ("l40s", ["env        MINE=2"]),
    ):
        job = prepared(tmp_path, profile, gpus="2", env_=["MINE=2"])
        assert [line for line in prepared_lines(job) if line.startswith("env")] == shown
    assert not [line for line in prepared_lines(prepared(tmp_path, "l40s")) if "NCCL" in line]


def test_the_plan_shows_the_variables_of_a_batch_script(tmp_path: Path) -> None:
    write(tmp_path / "job.sbatch", "#!/bin/bash\n#SBATCH --export=ALL,MINE=2\nsrun true\n")
    lines = prepared_lines(prepared(tmp_path, "l40s", script="job.sbatch"))
    assert [line for line in lines if line.startswith("env")] == ["env        MINE=2"]


def test_the_log_has_every_variable(tmp_path: Path) -> None:
    with logged_to(tmp_path / "log", "submit"):
        prepared(tmp_path, "l40s", gpus="2")
    text = (tmp_path / "log").read_text()
    assert "env NCCL_DEBUG=WARN" in text
    assert "TORCH_FR_BUFFER_SIZE=" in text


def test_a_sweep_s_file_is_looked_for_from_where_hpcrun_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "rows.yaml", "- {lr: 0.1}\n- {lr: 0.01}\n")
    write(tmp_path / "home/rows.yaml", "- {lr: 5}\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def rows(path: str) -> list[dict[str, str]]:
        found = prepared(tmp_path, sweep_file=path)
        # a resubmission takes the rows, whatever the file says by then
        assert found.request.sweep_file is None
        assert found.plan.sweep is not None
        return [dict(row) for row in found.plan.sweep.elements]

    assert rows("rows.yaml") == [{"lr": "0.1"}, {"lr": "0.01"}]
    assert rows(str(tmp_path / "rows.yaml")) == [{"lr": "0.1"}, {"lr": "0.01"}]
    assert rows("~/rows.yaml") == [{"lr": "5"}]
    with pytest.raises(UsageError, match="--sweep and --sweep-file cannot be combined"):
        prepared(tmp_path, sweep=["lr=1,2"], sweep_file="rows.yaml")


def test_the_image_of_a_container_is_looked_for_from_here_and_may_alone_have_the_program(
    tmp_path: Path,
) -> None:
    write(tmp_path / "torch.sif", "")
    decided = prepared(tmp_path, gpus="4", container="torch.sif")
    assert decided.request.container == str(tmp_path / "torch.sif")
    assert decided.plan.container is not None
    assert decided.plan.container.image == str(tmp_path / "torch.sif")
    assert " -- apptainer exec --nv " in decided.script
    for program in ("/opt/app/bin/train", "train-model"):
        made = prepared(tmp_path, script=program, gpus="4", container="torch.sif", launcher="srun")
        assert made.plan.command == (program,)


def test_an_image_that_is_not_there_is_refused_before_the_job_waits(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=f"there is no container image {tmp_path}/torch.sif\n"
    ) as refused:
        prepared(tmp_path, gpus="4", container="torch.sif")
    hint = "pull it: apptainer pull torch.sif docker://...; or use another image: --container IMAGE"
    assert refused.value.hint == hint
    write(tmp_path / "own/profiles/boxed.yaml", "extends: site\ncontainer: {image: /no/such.sif}\n")
    with pytest.raises(
        UsageError, match=r"there is no container image /no/such.sif, which profile 'boxed' names"
    ):
        prepared(tmp_path, "boxed", gpus="4")
    assert prepared(tmp_path, "boxed", gpus="4", container="none").plan.container is None


def test_a_runtime_that_this_machine_lacks_is_said_before_a_job_of_this_machine(
    tmp_path: Path,
) -> None:
    write(
        tmp_path / "own/profiles/here.yaml",
        "scheduler: local\ncontainer: {runtime: podman, image: docker.io/x}\n",
    )
    with pytest.raises(PlanError, match="podman is not on PATH here"):
        prepared(tmp_path, "here", {"PATH": str(tmp_path)}, gpus="0")


@pytest.mark.parametrize(
    ("asked", "excluded"),
    [
        ({}, "a-1,a-2"),
        ({"exclude": "a-7"}, "a-7,a-1,a-2"),
        ({"nodelist": "a-[1-2]"}, None),
        ({"exclude_bad_nodes": False}, None),
    ],
)
def test_a_submission_leaves_out_the_failed_nodes(
    asked: dict[str, Any], excluded: str | None, tmp_path: Path
) -> None:
    write(tmp_path / "train.py", "")
    caller = replace(surroundings(tmp_path), failed_nodes=lambda: ("a-1", "a-2"))
    typed = request(
        **{"gpus": "1", "exclude_bad_nodes": True, "requeue": 1, "walltime_s": "1h", **asked}
    )
    plan = prepare(typed, "a100", caller, lambda: Machine(cpus=1)).plan
    assert plan.directive("exclude") == excluded
    assert any(
        "excludes a-1, a-2, which failed in the last 24 hours" in note for note in plan.notes
    ) == bool(excluded)


@pytest.mark.parametrize("given", ["my job", "47", "last"])
@pytest.mark.parametrize("head", [None, "#SBATCH -J '{}'\n#SBATCH --dependency=singleton\n"])
def test_slurm_has_the_name_as_given_and_the_run_one_made_from_it(
    given: str, head: str | None, tmp_path: Path
) -> None:
    if head is None:
        plans = [prepared(tmp_path, name=given).plan]
        plans.append(prepared(tmp_path, env={"SBATCH_JOB_NAME": given}).plan)
    else:
        write(tmp_path / "x.sbatch", f"#!/bin/bash\n{head.format(given)}python train.py\n")
        plans = [prepared(tmp_path, script="x.sbatch").plan]
    for plan in plans:
        assert plan.directive("job-name") == given
        assert plan.name == job_name_from(given)
        assert sum("the run's name is" in note for note in plan.notes) == 1


def test_the_preflight_of_a_script_whose_launch_decides_the_ranks_starts_one(
    tmp_path: Path,
) -> None:
    write(tmp_path / "x.sbatch", "#!/bin/bash\n#SBATCH -N 2\nmpirun python x.py\n")
    job = prepared(tmp_path, script="x.sbatch", preflight="first")
    assert 'programs/preflight/node.py" 1 0 ' in job.script
    assert "its script decides the ranks" in job.script
