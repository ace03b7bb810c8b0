"""Places in line, and what jobs have used, from Slurm's own words."""

from __future__ import annotations

from hpcrun.schedulers.queue import parse_usage, places
from hpcrun.schedulers.slurm_text import SEPARATOR


def lines(*rows: str) -> str:
    return "\n".join(row.replace("|", SEPARATOR) for row in rows)


def test_the_place_in_line_is_by_priority_then_age() -> None:
    text = lines(
        "9|gpu|100|N/A|Priority|normal",
        "7|gpu|100|2030-01-02T03:04:05|Resources|normal",
        "12|gpu|900|2030-01-02T03:04:05|Resources|normal",
        "3|gpu|999|N/A|JobHeldUser|normal",
        "20|cpu|999|N/A|Priority|normal",
        "30_[0-3%2]|cpu,gpu|1|N/A|Priority|normal",
        "no line of squeue",
    )
    found = places(text, ["7", "9", "3", "30", "404"])
    assert {job: (it.partition, it.place, it.of) for job, it in found.items()} == {
        "7": ("gpu", 2, 4),
        "9": ("gpu", 3, 4),
        "3": ("gpu", None, 4),
        "30": ("cpu", 2, 2),
    }
    assert found["7"].start_s is not None
    assert found["9"].start_s is None


def test_usage_is_that_of_the_largest_step() -> None:
    # Slurm 22.05.8
    text = lines(
        "2008|19|00:24.527|64|billing=64,cpu=64,gres/gpu=4,mem=500G,node=2||2||sbatch /r/run/.submission_file_a.sh",
        "2008.batch|19|00:00.185|32|cpu=32,gres/gpu=2,mem=250G,node=1|12240K|1|1|srun --label",
        "2008.0|18|00:24.341|64|cpu=64,gres/gpu=4,mem=500G,node=2|1075772K|2|2|srun --label",
        "1930|1|00:00.906|64|cpu=64,gres/gpu=4,mem=500G,node=2||2||sbatch /r/run/.submission_file_a.sh",
        "1930.0|1|00:00.863|64|cpu=64,gres/gpu=4,mem=500G,node=2|40M|2|4|srun --label",
        "235|0|00:00.070|32|billing=32,cpu=32||2||sbatch /r/run/.submission_file_a.sh",
        "1976|0|00:00:00|0|||0||sbatch /r/run/.submission_file_a.sh",
        "9|90061|1-01:01:01|1|cpu=1||1||sbatch /r/run/.submission_file_a.sh",
        "9.0|90061|1-01:01:01|1|cpu=1|1G|1|1|srun --label",
    )
    found = parse_usage(text)
    first = found["run", "2008"]
    assert (first.elapsed_s, first.nodes, first.cpus, first.gpus, first.cpu_s) == (19, 2, 64, 4, 24.0)
    assert (first.memory_mb, round(first.used_mb or 0)) == (250 * 1024, 1051)
    assert found["run", "1930"].used_mb == 80  # two tasks on each node
    assert (found["run", "235"].used_mb, found["run", "235"].cpu_s) == (None, None)
    assert found["run", "1976"].nodes == 1
    assert found["run", "9"].cpu_s == 90061


def test_all_times_that_a_job_was_requeued_count() -> None:
    text = lines(
        "7|100|00:20.000|4|cpu=4,gres/gpu:a100=4,mem=8G||1||sbatch /r/run/.submission_file_a.sh",
        "7.0|100|00:20.000|4|cpu=4,mem=8G|300M|1|1|srun --label",
        "7|10|00:02.000|4|cpu=4,gres/gpu:a100=2,mem=8G||1||sbatch /r/run/.submission_file_a.sh",
        "7.0|10|00:02.000|4|cpu=4,mem=8G|200M|1|1|srun --label",
    )
    usage = parse_usage(text)["run", "7"]
    assert (usage.elapsed_s, usage.gpus, usage.gpu_s) == (110, 2, 4 * 100 + 2 * 10)
    assert (usage.cpu_s, usage.used_mb) == (22.0, 300.0)


def test_usage_of_another_job_of_the_same_id_is_not_the_run_s() -> None:
    text = lines(
        "7|10|00:01.000|1|cpu=1||1||sbatch /r/old/.submission_file_a.sh",
        "7.0|10|00:01.000|1|cpu=1|10M|1|1|srun --label",
        "7|20|00:01.000|1|cpu=1||1||sbatch --wrap true",
        "7.batch|20|00:01.000|1|cpu=1|99M|1|1|",
        "7|30|00:01.000|1|cpu=1||1||sbatch /r/new/.submission_file_b.sh",
    )
    found = parse_usage(text)
    assert {key: (usage.elapsed_s, usage.used_mb) for key, usage in found.items()} == {
        ("old", "7"): (10, 10.0), ("new", "7"): (30, None)}  # fmt: skip
