"""Slurm's answers, read as records: jobs, arrays, and the ids on a command line."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.job.job_states import JobInfo
from hpcrun.job.text.units import slurm_seconds
from hpcrun.schedulers.slurm_text import (
    SEPARATOR,
    element_ids,
    in_parts,
    node_states_command,
    parse_cluster_name,
    parse_node_states,
    parse_requeue,
    parse_sacct,
    parse_squeue,
    parse_submitted,
    refusal_hint,
    sacct_command,
    sacct_lines_command,
    squeue_command,
    submission_is_uncertain,
)

FIELD = st.text(max_size=12) | st.sampled_from(
    [
        "",
        "RUNNING",
        "1:00",
        "1-00:00:00",
        "UNLIMITED",
        "NOT_SET",
        "(null)",
        "0:0",
        "0:15",
        ":",
        "-1",
        "²",
        "4711_[1-3]",
    ]
)


def line(*fields: str) -> str:
    return SEPARATOR.join(fields) + "\n"


def test_squeue_s_answer_is_read() -> None:
    text = line(
        "4711",
        "RUNNING",
        "None",
        "1:05",
        "2-00:00:00",
        "node[1-2]",
        "/runs/a/script.sh",
        "2026-01-02T09:00",
    )
    text += line(
        "4712", "PENDING", "Resources", "0:00", "UNLIMITED", "", "/runs/b/script.sh", "N/A"
    )
    text += line("1", "TELEPORTING", "", "", "", "", "", "")  # a state never seen before
    text += line("4713", "PENDING", "Priority", "0:00", "1:00", "", "(null)", "2026-01-02T09:00:00")
    text += f"\nslurm_load_jobs error: Unable to contact\na b c\n{SEPARATOR}"  # no answer
    assert parse_squeue(text) == [
        JobInfo("4711", "RUNNING", None, 65, 172800, "node[1-2]", script="/runs/a/script.sh"),
        JobInfo("4712", "PENDING", "Resources", 0, None, None, script="/runs/b/script.sh"),
        JobInfo("1", "TELEPORTING"),
        JobInfo("4713", "PENDING", "Priority", 0, 60, start_s=datetime(2026, 1, 2, 9).timestamp()),
    ]


def test_sacct_s_answer_is_read() -> None:
    text = line(
        "4712",
        "CANCELLED by 1000",
        "0:15",
        "5",
        "UNLIMITED",
        "None assigned",
        "",
        "2026-01-02T10:00:00",
        "",
    )
    text += line(
        "4711",
        "FAILED",
        "3:0",
        "65",
        "60",
        "node[1-2]",
        "None",
        "2026-01-02T09:00:00",
        "sbatch x.sh",
    )
    text += f"\nslurm_load_jobs error: Unable to contact\na b c\n{SEPARATOR}"  # no answer
    assert parse_sacct(text) == [
        JobInfo(
            "4711",
            "FAILED",
            None,
            65,
            3600,
            "node[1-2]",
            exit_status=3,
            script="sbatch x.sh",
            archived=True,
        ),
        JobInfo("4712", "CANCELLED", None, 5, None, None, exit_status=0, signal=15, archived=True),
    ]


def test_the_questions_ask_for_as_many_fields_as_the_answers_have_from_a_minute_before() -> None:
    squeue = next(item for item in squeue_command(1000) if item.startswith("--format="))
    assert squeue.count(SEPARATOR) == 7
    sacct = next(item for item in sacct_command(["1", "2"]) if item.startswith("--format="))
    assert sacct.count(",") == 8
    assert "--user=1000" in squeue_command(1000)
    assert "--jobs=1,2" in sacct_command(["1", "2"])
    (start,) = [word for word in sacct_lines_command(120.0) if word.startswith("--starttime=")]
    assert datetime.fromisoformat(start.removeprefix("--starttime=")) == datetime.fromtimestamp(
        60.0
    )


@given(
    st.text()
    | st.lists(st.lists(FIELD, min_size=7, max_size=9).map(lambda items: line(*items))).map("".join)
)
def test_any_answer_is_read_without_a_fault(text: str) -> None:
    for job in (*parse_squeue(text), *parse_sacct(text)):
        assert isinstance(job.state, str)
        assert job.state
    parse_submitted(text)
    parse_cluster_name(text)
    slurm_seconds(text)
    submission_is_uncertain(text)


def test_a_clock_is_read() -> None:
    clocks: dict[str, int | None] = {"0:00": 0, "1:05": 65, "1:00:00": 3600, "2-03:04:05": 183845}
    clocks |= dict.fromkeys(("UNLIMITED", "NOT_SET", "INVALID", ""))
    assert {text: slurm_seconds(text) for text in clocks} == clocks


def test_the_job_id_is_read_from_sbatch_and_a_failure_that_may_have_submitted_is_known() -> None:
    assert parse_submitted("Submitted batch job 4711 on cluster beta\n") == "4711"
    assert parse_submitted("Welcome! Your quota is 80% used.\nSubmitted batch job 4711\n") == "4711"
    assert parse_submitted("sbatch: error: invalid partition\n") is parse_submitted("") is None
    failed = "sbatch: error: Batch job submission failed:"
    assert submission_is_uncertain(f"{failed} Socket timed out on send/recv operation")
    assert submission_is_uncertain("sbatch: error: Zero Bytes were transmitted or received")
    assert not submission_is_uncertain(f"{failed} Invalid partition name specified")
    assert not submission_is_uncertain(
        f"{failed} Unable to contact slurm controller (connect failure)"
    )
    assert not submission_is_uncertain("")


def test_the_cluster_s_name_is_found() -> None:
    names = {
        "# ClusterName=old\n clustername = Alpha # ours\n": "alpha",
        "ClusterName             = alpha\nSlurmctldHost=x\n": "alpha",
        "#ClusterName=old\n": None,
        "": None,
    }
    assert {conf: parse_cluster_name(conf) for conf in names} == names


@pytest.mark.parametrize(
    ("job", "may_requeue"),
    [
        ("JobId=7 JobName=Requeue=1 JobState=PENDING Requeue=0 Restarts=0", False),
        ("JobId=7 JobName=a JobState=PENDING Requeue=1 Restarts=0", True),
        ("slurm_load_jobs error: Invalid job id specified", None),
    ],
)
def test_whether_a_job_may_be_requeued_is_known_from_slurm_alone(
    job: str, may_requeue: bool | None
) -> None:
    assert parse_requeue(job) is may_requeue


def test_a_node_has_one_state_however_many_partitions_it_has() -> None:
    text = (
        "a100-1 completing*\na100-1 completing*\na100-2 idle\n\nslurm_load_node error: no answer\n"
    )
    assert parse_node_states(text) == {"a100-1": "completing*", "a100-2": "idle"}
    assert node_states_command("a100-[1-2]")[-2:] == ["--nodes=a100-[1-2]", "--format=%N %T"]


def test_advice_for_a_refusal(subtests: pytest.Subtests) -> None:
    for stderr, hint in (
        ("sbatch: error: Invalid qos specification", "choose one with --qos"),
        ("sbatch: unrecognized option '--segment=4'", "segments need Slurm 23.11"),
        ("sbatch: unrecognized option '--runtime=crun'", "runtime needs Slurm 26.11"),
        ("sbatch: unrecognized option '--container-type=x'", "Slurm 26.11 calls it runtime"),
        ("sbatch: unrecognized option '--resources=x'", "this needs Slurm 25.11"),
        ('sbatch: error: "2,4" is not a valid node count', "lists such as 2,4,8 need Slurm 23.11"),
        (
            "sbatch: error: Invalid job array specification",
            "`scontrol show config | grep MaxArraySize`",
        ),
        (
            "sbatch: error: Unable to contact slurm controller (connect failure)",
            "nothing was submitted",
        ),
    ):
        with subtests.test(stderr=stderr):
            assert hint in (refusal_hint(stderr) or "")
    assert refusal_hint("sbatch: error: something new") is None


def test_an_id_stands_for_elements() -> None:
    elements = {
        "7": ["7"],
        "7_4": ["7_4"],
        "7_[2-4]": ["7_2", "7_3", "7_4"],
        "7+1": ["7+1"],
        "7_[0,5,8-9%2]": ["7_0", "7_5", "7_8", "7_9"],
    }
    assert {job_id: element_ids(job_id) for job_id in elements} == elements


def test_ids_are_asked_for_in_parts_that_a_command_line_can_hold() -> None:
    ids = [str(10**9 + number) for number in range(20_000)]
    parts = in_parts(ids)
    assert [item for part in parts for item in part] == ids
    assert len(parts) == 3
    assert max(len(word) for part in parts for word in sacct_command(part)) < 128 * 1024
    assert in_parts([]) == []
