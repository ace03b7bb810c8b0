"""The plan, and what came of it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from hpcrun.actions.jobs.git import WorkTree
from hpcrun.actions.jobs.new_run import Lineage
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.jobs.submission import SubmitResult
from hpcrun.job.batch.batch_script import read_batch_script
from hpcrun.job.plan.job_plan import Plan, Snapshot
from hpcrun.job.plan.roles import Role, SharedGpus
from hpcrun.job.plan.sweep import Sweep
from hpcrun.job.request.notify_options import Notify
from hpcrun.job.resources.container import Container
from hpcrun.job.resources.requeue import Requeue
from hpcrun.job.resources.shape import Shape
from hpcrun.views.plan_text import (
    again_text,
    chain_json,
    command_line,
    earlier_code,
    joined_json,
    link_line,
    look_line,
    plan_lines,
    prepared_json,
    script_size_text,
    submissions_json,
    submitted_json,
    submitted_lines,
    sweep_text,
)
from tests.unit import builders

PLAN = replace(builders.plan(gpus="4"), added=())
CHOICE = builders.plan(nodes="2,4", gpus_per_node="4")
LOCAL = replace(PLAN, scheduler="local", profile="here", local_gpus=(("0", "1", "2", "3"),))
SWEEP = Sweep(
    elements=((("lr", "1"), ("seed", "7")), (("lr", "2"), ("seed", "7")), (("lr", "2"),)),
    common=(),
    arguments=(("--lr", "1"), ("--lr", "2 3"), ()),
    chosen=(1, 2),
)
SERVER = Role(
    name="server",
    first_rank=0,
    ranks=2,
    first_node=0,
    nodes=2,
    on_exit="ignore",
    launcher="command",
    ready="",
    after=(),
    task=0,
    gpus=None,
    ready_timeout_s=600,
    env=(),
    command=("serve", "a b"),
)

SCRIPT = read_batch_script("x.sbatch", "#!/bin/bash\n#SBATCH -N 2\nmpirun x\n", ())


@pytest.mark.parametrize(
    ("directives", "launch", "size"),
    [
        ("-N 1", "python x.py", "1 node, one process started by the script"),
        ("-N 2 --gpus-per-node=4", "python x.py", "2 nodes × 4 GPUs, one process started by"),
        ("-N 2 --gpus-per-node=4", "srun python x.py", "2 nodes × 4 GPUs, 2 ranks by srun"),
        ("-N 2 -n 8", "srun python x.py", "2 nodes, 8 ranks by srun"),
        ("-n 8", "srun python x.py", "enough nodes for 8 tasks, 8 ranks by srun"),
        ("-n 4", "mpirun python x.py", "enough nodes for 4 tasks; its launch decides the ranks"),
        ("--gpus=8", "srun python x.py", "enough nodes for 8 GPUs; its launch decides the ranks"),
        ("-N 2", "srun -n $N python x.py", "2 nodes; its launch decides the ranks"),
        ("-N 1", "torchrun --nproc-per-node=gpu x.py", "1 node; its launch decides the ranks"),
        ("-N 1 -G 2", "torchrun --nproc-per-node=gpu x.py", "1 node × 2 GPUs, 2 ranks by torchrun"),
        ("-N 1 -G 2", "torchrun --nproc-per-node=$N x.py", "2 GPUs; its launch decides the ranks"),
        ("-N 2", "srun accelerate launch x.py", "2 tasks by srun, each of which decides its ranks"),
        ("-N 2", "deepspeed x.py", "2 nodes; its launch decides the ranks"),
        ("-N 1 --exclusive", "make", "1 node; the script starts its programs itself"),
    ],
)
def test_the_size_is_what_is_known(directives: str, launch: str, size: str) -> None:
    script = read_batch_script("x", f"#!/bin/bash\n#SBATCH {directives}\n{launch}\n", ())
    assert size in script_size_text(script, script.sizes)


def test_what_only_a_script_decides_is_null_in_json() -> None:
    shape = replace(PLAN.shape, launcher="command", gpus_per_node=0, procs_per_node=0)
    job = Prepared(
        cast("Any", None), cast("Any", None), replace(PLAN, batch=SCRIPT, shape=shape), ""
    )
    document = prepared_json(job)["plan"]
    assert document["world_size"] is None
    assert document["shape"]["gpus_per_node"] is None


COST = {"gpu_hours_at_most": 8.0, "gpu_hours_with_requeues": 8.0}


def submitted(remarks: str = "", **values: Any) -> SubmitResult:
    """A submission of the plan, with values of its run's record."""
    script = "#!/bin/bash\n#SBATCH --gpus=8 --time=60\n"
    prepared = Prepared(cast("Any", None), cast("Any", None), PLAN, script)
    return SubmitResult(prepared, builders.run("r1", **values), Path("/runs/r1"), remarks)


def row(plan: Plan, label: str) -> str | None:
    """The text of a row of a plan; None if the plan has no such row."""
    rows = dict(line.split(maxsplit=1) for line in plan_lines(plan))
    return rows.get(label)


def test_submissions_stand_in_the_columns_of_the_plan_and_idle_messages_need_a_limit() -> None:
    plan = builders.plan(gpus="4")
    result = SubmitResult(cast("Prepared", None), builders.run(), Path("/runs/it"))
    lines = [*plan_lines(plan), *submitted_lines(result)]
    assert {line[9:11] for line in lines} == {"  "}
    assert all(line[11] != " " for line in lines)
    plan = replace(plan, notify=Notify(("$A",), ("failed", "idle")))
    assert "to $A: failed" in [line.split("  ")[-1].strip() for line in plan_lines(plan)]
    assert any(
        "to $A: failed, idle" in line for line in plan_lines(replace(plan, cancel_idle_s=1800))
    )
    assert any(
        "none without" in line
        for line in plan_lines(replace(plan, notify=Notify(("$A",), ("idle",))))
    )


def test_ray_runs_one_program_and_sets_the_threads_of_its_tasks_itself() -> None:
    lines = "\n".join(plan_lines(builders.plan(gpus="8", nodes=2, launcher="ray")))
    assert "GPUs, the program on the head node of a Ray cluster" in lines
    assert "OMP_NUM_THREADS" not in lines


FULL = replace(
    PLAN,
    memory_mb=2048,
    walltime_s=5400,
    snapshot=Snapshot(".", ()),
    sweep=SWEEP,
    container=Container("apptainer", "/i.sif", (), gpus=False, host_python="/usr/bin/python3"),
    stage=(("d", "/x y", None), ("e", "/z", 500)),
    keep_days=7,
    requeue=Requeue(0, 60),
    cancel_idle_s=1800,
    srun=(("mpi", "pmix"),),
    torchrun=(("max-restarts", "0"),),
    preflight="first",
    modules=("cuda", "gcc"),
    setup=("ulimit -c 0",),
    env=(("TOKEN", None), ("A", "x y")),
    added=(("B", "$C"),),
    notify=Notify(("$ME", "$YOU"), ("failed", "idle")),
    notes=("first", "second\x1b"),
)


def test_a_plan_with_everything_has_its_rows_in_this_order() -> None:
    assert plan_lines(FULL, [("after", "r0 (4710)"), ("again", "")]) == [
        "train      1 node × 4 a100 GPUs, 4 ranks by torchrun",
        "sweep      2 elements (lr 1 value, seed 1 value)",
        "command    /opt/venv/bin/python -u train.py --lr '2 3'",
        "after      r0 (4710)",
        "CPUs       4 per node, OMP_NUM_THREADS=1",
        "memory     2G per node",
        "time       01:30:00",
        "where      the default partition (profile big)",
        "python     /opt/venv/bin/python (virtual environment)",
        "container  /i.sif by apptainer",
        "code       a snapshot of the current code",
        "stage      copied to each node: '/x y' as $HPCRUN_STAGE/d, /z as $HPCRUN_STAGE/e (500B); "
        "left there for later jobs (7 days)",
        "stop       SIGUSR1 60 s before the time limit",
        "idle       ends if all of its GPUs are idle for 00:30:00",
        "srun       --mpi=pmix",
        "torchrun   --max-restarts=0",
        "preflight  before the ranks start (at most 30 s)",
        "modules    cuda gcc",
        "set-up     1 command",
        "env        TOKEN=*** A='x y' B='$C'",
        "messages   to $ME, $YOU: failed, idle",
        "note       first",
        "note       second?",
    ]


def test_a_plan_has_no_row_for_what_is_not_requested() -> None:
    labels = [line.split()[0] for line in plan_lines(PLAN)]
    assert labels == ["train", "command", "CPUs", "memory", "time", "where", "python"]


def test_the_longest_label_sets_the_column_of_the_texts() -> None:
    name, *_, last = plan_lines(replace(PLAN, notes=("text",)), [("continued from", "r0")])
    assert name.startswith("train           1 node")
    assert last == "note            text"


@pytest.mark.parametrize(
    ("plan", "label", "text"),
    [
        (LOCAL, "train", "1 node × 4 a100 GPUs, 4 ranks by torchrun"),
        (replace(LOCAL, local_gpus=()), "train", "1 node × no GPU, 4 ranks by torchrun"),
        (
            replace(LOCAL, shape=Shape(2, 1, None, "command", 1)),
            "train",
            "2 nodes (all this machine) × 1 GPU, the command once per node",
        ),
        (
            replace(PLAN, shape=Shape(2, 0, "a100", "srun", 4)),
            "train",
            "2 nodes × no GPU, 8 ranks by srun",
        ),
        (replace(PLAN, preflight="only"), "command", None),
        (replace(PLAN, preflight="only"), "preflight", None),
        (replace(PLAN, batch=SCRIPT), "CPUs", "as the script requests"),
        (
            replace(PLAN, cpus_per_node=None),
            "CPUs",
            "the site's default, divided among the ranks of a node (OMP_NUM_THREADS)",
        ),
        (PLAN, "memory", "the site's default"),
        (LOCAL, "memory", None),
        (PLAN, "time", "the partition's default"),
        (replace(PLAN, walltime_s=1800), "time", "00:30:00 (30 min)"),
        (CHOICE, "train", "2,4 nodes × 4 a100 GPUs, 8-16 ranks by torchrun"),
        (
            CHOICE,
            "nodes",
            "Slurm chooses when the job starts: 2 nodes with 8 GPUs to 4 nodes with 16 GPUs",
        ),
        (LOCAL, "time", "no limit"),
        (LOCAL, "where", "this machine, as a background job (profile here)"),
        (
            replace(
                PLAN,
                directives=(
                    ("exclude", "a-1"),
                    ("nodelist", "a-2"),
                    ("reservation", "r"),
                    ("constraint", "ib"),
                    ("qos", "short"),
                    ("account", "lab"),
                    ("partition", "gpu"),
                ),
            ),
            "where",
            "partition gpu, account lab, qos short, constraint ib, reservation r, nodelist a-2, "
            "exclude a-1 (profile big)",
        ),
        (
            replace(PLAN, container=Container("podman", "i", ("/a:/a", "/b:/b:ro"), True, "")),
            "container",
            "i by podman, with GPUs, with /a:/a /b:/b:ro",
        ),
        (
            replace(PLAN, snapshot=Snapshot("src", ())),
            "code",
            "a snapshot of the current code, starting in src",
        ),
        (
            replace(PLAN, requeue=Requeue(1, 60, True, True, True, 2, 1)),
            "stop",
            "SIGUSR1 60 s before the time limit, requeued up to 1 time, restarted in the same "
            "allocation up to 2 times with 1 spare node, also after a failure of the program, "
            "expedited after a node failure",
        ),
        (
            replace(PLAN, requeue=Requeue(0, 60, restarts=1)),
            "stop",
            "SIGUSR1 60 s before the time limit, restarted in the same allocation up to 1 time",
        ),
    ],
)
def test_a_row_of_a_plan(plan: Plan, label: str, text: str | None) -> None:
    assert row(plan, label) == text


def test_each_role_has_its_size_command_start_and_check_in_place_of_the_command() -> None:
    trainer = replace(
        SERVER,
        name="trainer",
        gpus=SharedGpus(1, 3, 4),
        ranks=3,
        launcher="torchrun",
        after=("server", "cache"),
        ready="tcp:{port}",
    )
    plan = replace(PLAN, roles=(SERVER, trainer))
    assert row(plan, "train") == "1 node × 4 a100 GPUs, 4 ranks in 2 roles"
    assert row(plan, "command") is None
    assert row(plan, "server") == "2 nodes: serve 'a b'"
    assert row(plan, "trainer") == (
        "3 GPUs, 3 ranks by torchrun, after server and cache, ready by tcp:{port}: serve 'a b'"
    )


@pytest.mark.parametrize(
    ("changes", "scheduler", "text"),
    [
        ({"chosen": (0, 1, 2)}, "slurm", "3 elements (lr 2 values, seed 1 value)"),
        ({"chosen": (2,)}, "slurm", "1 element (lr 1 value)"),
        (
            {"pack": 2, "max_parallel": 1},
            "slurm",
            "2 elements (lr 1 value, seed 1 value), 1 task of 2, at most 1 at once",
        ),
        ({"pack": 2}, "local", "2 elements (lr 1 value, seed 1 value)"),
    ],
)
def test_a_sweep_in_words(changes: dict[str, Any], scheduler: str, text: str) -> None:
    assert sweep_text(replace(SWEEP, **changes), scheduler) == text


def test_the_lines_after_a_submission_have_no_commit() -> None:
    code = WorkTree(Path("/src"), "0123456789abcdef", 0).record()
    assert submitted_lines(submitted(code=code)) == submitted_lines(submitted())


def test_the_lines_after_a_submission() -> None:
    code = {"files": 3, "bytes": 2048, "root": "/src", "commit": "", "changes": ""}
    look = "look       hpcrun status 4711 | hpcrun logs -f 4711 | hpcrun cancel 4711"
    assert submitted_lines(submitted()) == [
        "submitted  job 4711, run r1",
        "folder     /runs/r1",
        look,
    ]
    assert submitted_lines(submitted("one\nt\two", code=code)) == [
        "submitted  job 4711, run r1",
        "           one",
        "           t?wo",
        "code       3 files, 2 kB of /src",
        "folder     /runs/r1",
        look,
    ]
    sweep = submitted(plan={"sweep": {"indices": "2-4", "first": 0}})
    assert submitted_lines(sweep)[-1] == (
        "look       hpcrun status 4711 | hpcrun sweep 4711 | hpcrun logs -f 4711/2 | "
        "hpcrun cancel 4711"
    )
    link = submitted("one", chain={"link": 2, "links": 3, "first": "r0"})
    assert link_line(link) == ["submitted  2/3: job 4711, run r1", "           one"]
    assert link_line(submitted()) == ["submitted  None/None: job 4711, run r1"]
    assert look_line([submitted(), submitted(job_id="8")]) == [
        "folder     /runs/r1, and its checkpoints",
        "look       hpcrun status 4711 8 | hpcrun cancel 4711 8",
    ]


def test_a_repeated_run_says_whose_checkpoints_it_continues(tmp_path: Path) -> None:
    fresh = Lineage(resubmitted_from="r0")
    assert again_text(fresh, "/src") == "of r0, new checkpoints, in /src"
    resumed = replace(fresh, checkpoints=tmp_path / "r0")
    empty = "of r0, which has left nothing in $HPCRUN_CHECKPOINT_DIR, in /src"
    assert again_text(resumed, Path("/src")) == empty
    builders.write(tmp_path / "r0/elements/2/checkpoints/step-1/model.pt", "")
    assert again_text(resumed, Path("/src")) == empty
    assert again_text(resumed, "/src", (1, 2)) == "of r0, checkpoints of r0, in /src"


def test_earlier_code_has_its_run_and_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    code = earlier_code(builders.run("r1", job_id="59", created_s=1000.0))
    assert code == "that of run 59, copied 1970-01-01 00:16; --snapshot takes today's"
    rows = plan_lines(FULL, instead={"code": code, "command": ""})
    assert f"code       {code}" in rows
    assert not [line for line in rows if line.startswith("command")]


def test_submissions_as_json() -> None:
    result = submitted("a remark", after=[{"run_id": "r0"}])
    document = submitted_json(result)
    plan = document.pop("plan")
    assert document == {
        "kind": "submitted",
        "run_id": "r1",
        "job_id": "4711",
        "scheduler": "slurm",
        "cluster": "alpha",
        "folder": Path("/runs/r1"),
        "remarks": "a remark",
        **COST,
    }
    assert plan["command_line"] == command_line(PLAN)
    assert plan["world_size"] == 4
    assert plan["cpus_per_rank"] == 1
    assert plan["name"] == "train"
    prepared = replace(result.prepared, plan=replace(PLAN, preflight="only"))
    checked = prepared_json(prepared)
    assert checked["kind"] == "plan"
    assert checked["script"] == prepared.script
    assert prepared_json(prepared, links=3)["gpu_hours_at_most"] == 24
    assert checked["plan"]["command_line"] == ""
    assert chain_json([result]) == {
        "kind": "chain",
        "links": [
            {
                "run_id": "r1",
                "job_id": "4711",
                "name": "r1",
                "after": [{"run_id": "r0"}],
                "folder": Path("/runs/r1"),
                "remarks": "a remark",
            }
        ],
        **COST,
    }
    assert submissions_json([result]) == submitted_json(result)
    parts = [{"a": 1, **COST}, {"a": 2, **COST}]
    both = {name: 2 * hours for name, hours in COST.items()}
    assert joined_json(parts) == {"a": 1, **both, "parts": parts}
