"""How long ``hpcrun scale report STUDY`` takes for a study of 10,000 ended runs, in a runs folder
with 10,000 others.

`python benchmarks/study.py`; it needs no Slurm. It exits with 1 where a demand is not met.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from measure import CommandFailedError, Contender, Place, race

from hpcrun.features.scaling.studies import Study, StudyPoint, StudyStore
from hpcrun.runs.record import LastStatus, Run, run_to_json, status_to_json
from hpcrun.runs.store import RunStore

SIZES, REPEATS, EPOCHS, OTHERS = (1, 2, 4, 8, 16), 2000, 10, 10_000
WITHIN_S, ROUNDS = 5.0, 3
BEGAN_S = 1_700_000_000.0
HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))


def main() -> int:
    """Measure and print; returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="hpcrun-bench-") as name:
        folder = Path(name)
        store = RunStore(folder / "runs")
        store.root.mkdir(mode=0o700)
        study = make_study(store)
        for number in range(OTHERS):
            make_run(
                store,
                f"20261122-{number // 3600:02}{number // 60 % 60:02}{number % 60:02}"
                f"-other-{number:04x}",
                1,
            )
        place = Place(folder, {**os.environ, "HPCRUN_RUNS": str(store.root), "MPLCONFIGDIR": name})
        contender = Contender("the next times", [HPCRUN, "scale", "report", study.study_id])
        try:
            began = time.perf_counter()
            place.run(contender.argv)
            first_s = time.perf_counter() - began
            race([contender], place=place, rounds=ROUNDS)
        except CommandFailedError as error:
            print(error, file=sys.stderr)
            return 2
    met = contender.median < WITHIN_S
    print(f"hpcrun scale report, {len(study.points):,} runs of a study among {OTHERS:,} others")
    print(f"  the first time, every run is read: {first_s:5.1f} s")
    print(
        f"  the next times, median of {ROUNDS}:       {statistics.median(contender.seconds):5.1f} s"
    )
    print(f"  demanded: less than {WITHIN_S:g} s, {'met' if met else 'NOT MET'}")
    return 0 if met else 1


def make_study(store: RunStore) -> Study:
    """Write a study whose runs are all over."""
    points = tuple(
        StudyPoint(
            gpus,
            1,
            repeat,
            f"20261121-120000-train-g{gpus}-r{repeat}-{repeat:04x}",
            1024,
            submitted=True,
        )
        for repeat in range(1, REPEATS + 1)
        for gpus in SIZES
    )
    study = Study(
        "20261121-120000-train-0000",
        "train",
        BEGAN_S,
        "a100",
        "/",
        request={"script": "train.py"},
        points=points,
    )
    StudyStore(store.root).save(study)
    for point in points:
        attempt = make_run(store, point.run_id, point.gpus) / "elements/0/attempts/0"
        attempt.mkdir(parents=True)
        (attempt / "start").write_text(
            json.dumps({"job_id": "1", "host": "here", "started": BEGAN_S})
        )
        (attempt / "exit").write_text(
            json.dumps({"status": 0, "signal": "", "ended": BEGAN_S + 900})
        )
        epoch_s = 60 / point.gpus**0.9 * (1 + point.repeat % 7 / 100)
        (attempt / "rank-0.metrics").write_text(
            "".join(
                json.dumps(
                    {
                        "time": BEGAN_S + 30 + epoch_s * step,
                        "step": step,
                        "epoch_time": epoch_s,
                        "samples_per_s": 60_000 / epoch_s,
                        "val_accuracy": 0.9,
                        "loss": 0.5,
                        "samples": 60_000,
                    }
                )
                + "\n"
                for step in range(1, EPOCHS + 1)
            )
        )
    return study


def make_run(store: RunStore, run_id: str, gpus: int) -> Path:
    """Write a run that is over; not by the store, whose files wait for the disk."""
    run = Run(
        run_id=run_id,
        name=run_id[16:-5],
        scheduler="slurm",
        cluster="alpha",
        host=os.uname().nodename,
        created_s=BEGAN_S,
        job_id="1",
        profile="a100",
        nodes=1,
        gpus_per_node=gpus,
        world_size=gpus,
        walltime_s=3600,
    )
    folder = store.folder(run_id)
    folder.mkdir(mode=0o700)
    (folder / "run.json").write_text(run_to_json(run), "utf-8")
    (folder / "status.json").write_text(
        status_to_json(LastStatus("COMPLETED", BEGAN_S, final=True, elapsed_s=900, exit_status=0)),
        "utf-8",
    )
    return folder


if __name__ == "__main__":
    sys.exit(main())
