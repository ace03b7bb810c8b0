"""Slurm by its commands: what each question and each change is, with programs that answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.errors import SchedulerError
from hpcrun.job.job_states import OverLimit
from hpcrun.machine.process import SlurmSite
from hpcrun.schedulers import client, slurm
from hpcrun.schedulers.job_steps import Allocation, plain_job_id
from hpcrun.schedulers.pending_and_usage import SlurmQueue
from hpcrun.schedulers.protocol import ArrayLimits, JobRef
from hpcrun.schedulers.slurm import SlurmScheduler
from hpcrun.schedulers.slurm_text import SEPARATOR
from tests.unit.builders import write

FOLDER = Path("/r/20260102-030405-train-0a1b")
LINE = f"/r/{FOLDER.name}/.submission_file_0123abcd.sh"


class Site:
    """A folder with programs of Slurm; each writes down how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "SLURM_CONF": f"{folder}/none"}

    def answers(self, command: str, text: str = "", status: int = 0) -> None:
        """Let a command print a text, and end with a status."""
        answer = write(self.folder / f"{command}.answer", text)
        calls = self.folder / f"{command}.calls"
        program = f'#!/bin/sh\necho "$*" >>{calls}\ncat {answer}\nexit {status}\n'
        write(self.folder / "bin" / command, program).chmod(0o755)

    def calls(self, command: str) -> list[str]:
        """How a command was called."""
        return (self.folder / f"{command}.calls").read_text().splitlines()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def jobs(*job_ids: str, shares: bool = False) -> list[JobRef]:
    return [JobRef(FOLDER, job_id, shares=shares) for job_id in job_ids]


@pytest.mark.parametrize(
    ("verb", "command", "call"),
    [
        ("cancel", "scancel", "--quiet 7 8"),
        ("hold", "scontrol", "hold 7,8"),
        ("release", "scontrol", "release 7,8"),
    ],
)
def test_several_jobs_are_changed_by_one_command(
    site: Site, verb: str, command: str, call: str
) -> None:
    site.answers(command)
    SlurmScheduler(site.env).change(verb, jobs("7", "8"))  # type: ignore[arg-type]
    assert site.calls(command) == [call]


def test_a_refused_change_is_an_error(site: Site) -> None:
    site.answers("scontrol", status=1)
    with pytest.raises(SchedulerError, match="scontrol hold failed") as refused:
        SlurmScheduler(site.env).change("hold", jobs("7"))
    assert refused.value.hint == "hpcrun status shows what is held"


def test_an_element_that_shares_its_task_cannot_be_held(site: Site) -> None:
    with pytest.raises(SchedulerError, match="task 7_1 runs other elements, too") as refused:
        SlurmScheduler(site.env).change("hold", jobs("7_1", shares=True))
    assert refused.value.hint == "scontrol hold 7_1, or hpcrun hold RUN"


def test_nothing_is_asked_to_cancel_what_shares_its_task(site: Site) -> None:
    SlurmScheduler({"PATH": ""}).change("cancel", jobs("7_1", shares=True))


@pytest.mark.parametrize(
    ("text", "known"),
    [("JobId=7 Requeue=1 x", True), ("JobId=7 Requeue=0 x", False), ("", None)],
)
def test_whether_slurm_may_requeue_a_job(site: Site, text: str, known: bool | None) -> None:
    site.answers("scontrol", text)
    assert SlurmScheduler(site.env).may_requeue("7") is known
    assert site.calls("scontrol") == ["--oneliner show job 7"]


def accounted(job_id: str, exit_code: str, submitted: str) -> str:
    fields = [job_id, "FAILED", exit_code, "5", "10", "n1", "None", submitted, LINE]
    return SEPARATOR.join(fields) + "\n"


def test_the_signal_is_that_of_the_last_submission(site: Site) -> None:
    first = accounted("7", "0:9", "2026-01-02T00:00:00")
    second = accounted("7", "0:15", "2026-01-03T00:00:00")
    site.answers("sacct", second + first + accounted("8", "0:6", "2026-01-04T00:00:00"))
    assert SlurmScheduler(site.env).end_signal("7") == 15
    assert SlurmScheduler(site.env).end_signal("") is None


def test_the_states_of_nodes_are_none_without_an_answer(site: Site) -> None:
    site.answers("sinfo", "n1 idle\nn2 down*\nodd\n")
    assert SlurmScheduler(site.env).node_states("n[1-2]") == {"n1": "idle", "n2": "down*"}
    site.answers("sinfo", "n1 idle\n", status=1)
    assert SlurmScheduler(site.env).node_states("n[1-2]") == {}


def test_the_name_of_the_cluster_is_asked_for_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "_CONF_FILES", ())
    site.answers("scontrol", "ClusterName = Alpha\n")
    scheduler = SlurmScheduler(site.env)
    assert [scheduler.cluster(), scheduler.cluster()] == ["alpha", "alpha"]
    assert site.calls("scontrol") == ["show config"]


def test_the_file_of_slurm_has_the_name_of_the_cluster(site: Site) -> None:
    write(site.folder / "none", "# of the site\nClusterName=Beta # comment\n")
    assert SlurmScheduler(site.env).cluster() == "beta"


def test_the_limits_of_arrays_are_those_of_the_configuration(site: Site) -> None:
    site.answers("scontrol", "MaxArraySize = 1001\nMaxJobCount = 10000\n")
    assert SlurmScheduler(site.env).array_limits() == ArrayLimits(1001, 10000)
    site.answers("scontrol", "MaxArraySize = 0\nMaxJobCount = 10000\n")
    assert SlurmScheduler(site.env).array_limits() is None


def test_without_sbatch_slurm_is_unavailable(site: Site) -> None:
    assert SlurmScheduler({"PATH": ""}).unavailable() is not None
    site.answers("sbatch")
    assert SlurmScheduler(site.env).unavailable() is None


QOS = f"""QOS=normal(1)
    User Limits
      {os.getuid()}
        MaxJobsPU=9(1)
        MaxTRESPU=cpu=N(1),gres/gpu=2(0)
"""


def test_a_job_over_a_limit_is_asked_about_once_for_each_reason(site: Site) -> None:
    request = ["7", "normal", "lab", "gpu", "1:00:00", "cpu=4,gres/gpu=4", ""]
    site.answers("squeue", SEPARATOR.join(request) + "\n")
    site.answers("scontrol", QOS)
    scheduler = SlurmScheduler(site.env)
    reasons = {"7": "QOSMaxGRESPerUser"}
    over = OverLimit("QOS normal", "gres/gpu", 4.0, 2.0, "you")
    assert [scheduler.over_limits(reasons) for _ in range(2)] == [{"7": over}] * 2
    assert len(site.calls("squeue")) == 1
    assert scheduler.over_limits({"7": "QOSMaxCpuPerUserLimit"}) == {}
    assert len(site.calls("squeue")) == 2


def test_a_job_that_slurm_no_longer_lists_is_over_no_limit(site: Site) -> None:
    site.answers("squeue")
    assert SlurmScheduler(site.env).over_limits({"7": "QOSMaxGRESPerUser"}) == {}


def test_the_queue_is_asked_only_about_jobs(site: Site) -> None:
    site.answers("squeue")
    queue = SlurmQueue(site.env)
    assert queue.waiting([]) == {}
    assert not (site.folder / "squeue.calls").exists()
    assert queue.waiting(["7"]) == {}
    assert site.calls("squeue")[0].startswith("--states=PENDING --noheader --format=%i")


def test_the_use_of_arrays_is_asked_by_their_ids(site: Site) -> None:
    row = ["7_1", "600", "00:10:00", "4", "cpu=4,mem=8G,gres/gpu=2", "", "1", "", LINE]
    step = ["7_1.0", "600", "00:10:00", "4", "cpu=4", "2G", "1", "2", ""]
    site.answers("sacct", "".join(SEPARATOR.join(fields) + "\n" for fields in (row, step)))
    use = SlurmQueue(site.env).usage(["7_1", "7_2", "8"])
    assert "--jobs=7,8 " in site.calls("sacct")[0]
    job = use[FOLDER.name, "7_1"]
    assert (job.elapsed_s, job.gpus, job.gpu_s, job.cpu_s) == (600, 2, 1200, 600)
    assert (job.memory_mb, job.used_mb) == (8192, 4096)


def test_the_jobs_of_all_need_an_answer(site: Site) -> None:
    site.answers("squeue", status=1)
    with pytest.raises(SchedulerError, match="Slurm does not respond"):
        SlurmQueue(site.env).jobs()


def test_a_ping_without_a_server_has_the_words(site: Site) -> None:
    site.answers("scontrol", "Slurmctld(primary) at head1 is UP\n")
    answer = client.ping(SlurmSite(site.env))
    assert not answer.away
    assert answer.took_s < 30
    site.answers("scontrol", status=3)
    silent = client.ping(SlurmSite(site.env))
    assert silent.away
    assert silent.words == "no response to scontrol ping: exit status 3"


def test_the_version_is_that_of_an_answer(site: Site) -> None:
    site.answers("sinfo", "slurm 24.11.1\n")
    assert client.ask_version(SlurmSite(site.env)) == "24.11.1"
    site.answers("sinfo", "slurm 24.11.1\n", status=1)
    assert client.ask_version(SlurmSite(site.env)) is None


def test_partitions_are_offered_once(site: Site) -> None:
    site.answers("sinfo", "gpu\ncpu\ngpu\n")
    assert client.partition_names(site.env) == ["gpu", "cpu"]
    site.answers("sinfo", "gpu\n", status=1)
    assert client.partition_names(site.env) == []


@pytest.mark.parametrize(
    ("text", "status", "shown"), [("12\n", 0, "12"), ("12\n", 1, "7_3"), ("odd\n", 0, "7_3")]
)
def test_srun_has_the_plain_number_of_an_element(
    site: Site, text: str, status: int, shown: str
) -> None:
    site.answers("squeue", text, status)
    assert plain_job_id("7_3", site.env) == shown
    assert plain_job_id("7", site.env) == "7"


def test_a_command_runs_once_on_each_node_and_is_ended_in_time(site: Site) -> None:
    site.answers("srun", "hello\n")
    allocation = Allocation("7", 2, 8, site.env)
    assert allocation.on_every_node(["hostname"]).stdout == "hello\n"
    [call] = site.calls("srun")
    assert call.startswith("--jobid=7 --overlap --mem=0 --nodes=2 --ntasks=2 ")
    assert call.endswith(" hostname")
    assert "--cpus-per-task" not in call
