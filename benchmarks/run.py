"""hpcrun beside torchx on the same Slurm: how long a submission and a look at the jobs take,
--version and --help, and what is imported.

`make cluster`, then `make bench`. It exits with 1 where a demand is not met.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import sysconfig
import tempfile
from dataclasses import replace
from datetime import date
from pathlib import Path

from cluster import (
    NoClusterError,
    cancel_jobs,
    cluster_env,
    cluster_to_oneself,
    hold_jobs,
    occupy_a100_nodes,
    wait_for,
)
from measure import CommandFailedError, Contender, Place, race, ratio_range
from torchx_venv import torchx_command

import hpcrun

HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))
SUBMIT_AT_MOST = 0.8
STATUS_AT_MOST = 0.3
VERSION_AT_MOST = 1.5
HELP_AT_MOST = 2.0
RUNS_SHOWN = 10
NAME = f"hpcrun-bench-{os.getpid()}"
SCRIPT = f"{NAME}.py"

FLOOR_IMPORTS = "import submitit, typer, jinja2, pydantic, ruamel.yaml"
MODELS = ("hpcrun.job.request.role_options", "hpcrun.job.profile_model")
MUST_NOT_IMPORT = {
    "--help": ("torch", "pandas", "submitit", "jinja2", *MODELS),
    "status": ("torch", "pandas", "submitit", "jinja2"),
}
_IMPORTED = re.compile(r"^import time:.*\|\s*(\S+)$", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=10, metavar="N", help="how often each is timed (default 10)"
    )
    parser.add_argument(
        "--torchx", metavar="PATH", help="a torchx that is installed already, instead of one's own"
    )
    options = parser.parse_args()
    try:
        slurm = cluster_env()
        torchx = options.torchx or str(torchx_command())
        with cluster_to_oneself(), tempfile.TemporaryDirectory(prefix="hpcrun-bench-") as folder:
            place = make_place(Path(folder), slurm)
            try:
                return measure_all(place, torchx, options.rounds)
            finally:
                cancel_jobs(NAME, place)
    except (NoClusterError, CommandFailedError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


def make_place(folder: Path, slurm: dict[str, str]) -> Place:
    """Return a folder with a script that ends at once, and an environment without anybody's own
    configuration.
    """
    (folder / SCRIPT).write_text("pass\n", "ascii")
    for name in ("bin", "home", "runs"):
        (folder / name).mkdir()
    hold_jobs(folder / "bin")
    kept = {
        name: os.environ[name]
        for name in ("LANG", "LC_ALL", "USER", "TMPDIR")
        if name in os.environ
    }
    env = {
        **kept,
        **slurm,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "HPCRUN_RUNS": str(folder / "runs"),
    }
    return Place(folder, env)


def measure_all(place: Place, torchx: str, rounds: int) -> int:
    """Measure and print everything; returns the exit status."""
    print(describe(place, torchx, rounds), flush=True)
    met = [
        measure_submit(place, torchx, rounds),
        measure_status(place, torchx, rounds),
        measure_start(place, rounds),
        check_imports(place),
    ]
    print()
    print("every demand is met" if all(met) else "a demand is NOT MET")
    return 0 if all(met) else 1


def describe(place: Place, torchx: str, rounds: int) -> str:
    """Say what is compared and on what.

    Raises:
        CommandFailedError: the two run on different Pythons, whose speed would be compared instead.
    """
    ask = (
        "import sys, importlib.metadata as m; print(m.version('torchx'), m.version('torch'), "
        "sys.version, sep='|')"
    )
    answer = place.run([str(Path(torchx).with_name("python")), "-c", ask]).stdout.strip()
    its_version, torch, its_python = answer.split("|")
    if its_python != sys.version:
        raise CommandFailedError(
            f"torchx runs on Python {its_python}, hpcrun on {sys.version}: not a fair race"
        )
    slurm = place.run(["sbatch", "--version"]).stdout.split()[-1]
    return (
        f"hpcrun {hpcrun.__version__} beside torchx {its_version} with torch {torch}: "
        f"Python {platform.python_version()}, Slurm {slurm}, {os.cpu_count()} CPUs, "
        f"{date.today()}\n"
        f"median of {rounds} rounds after one to warm up"
    )


def measure_submit(place: Place, torchx: str, rounds: int) -> bool:
    """Time the submission of two nodes with two GPUs each; returns whether the demand is met."""
    ours = Contender(
        "hpcrun submit -P a100 --gpus 4 --nodes 2",
        [HPCRUN, "submit", "-P", "a100", "--gpus", "4", "--nodes", "2", SCRIPT],
    )
    theirs = Contender(
        "torchx run -s slurm dist.ddp -j 2x2 --gpu 2",
        [torchx, "run", "-s", "slurm", "dist.ddp", "-j", "2x2", "--gpu", "2", "--script", SCRIPT],
    )
    imports = Contender(
        "floor: Python and hpcrun's libraries", [sys.executable, "-c", FLOOR_IMPORTS]
    )
    bare = Contender(
        "floor: one bare sbatch",
        ["sbatch", f"--job-name={NAME}", "--output=/dev/null", "--wrap=true"],
    )
    submitted = 0

    def cancel() -> None:
        nonlocal submitted
        submitted += cancel_jobs(NAME, place)

    race([ours, theirs, imports, bare], place=place, rounds=rounds, between=cancel)
    if submitted != 3 * (rounds + 1):
        raise CommandFailedError(
            f"{submitted} jobs came of {3 * (rounds + 1)} submissions: not all of them submitted"
        )
    return show("submit", ours, theirs, [imports, bare], at_most=SUBMIT_AT_MOST)


def measure_status(place: Place, torchx: str, rounds: int) -> bool:
    """Time a look at the same jobs; returns whether the demand is met."""
    place = replace(place, env={**place.env, "PATH": os.environ["PATH"]})  # these jobs are not held
    ours = Contender("hpcrun status", [HPCRUN, "status"])
    theirs = Contender("torchx list -s slurm", [torchx, "list", "-s", "slurm"])
    python = Contender("floor: Python and typer", [sys.executable, "-c", "import typer"])
    bare = Contender("floor: one bare squeue", ["squeue", "--me"])
    occupy_a100_nodes(f"{NAME}-occupied", place)
    for _ in range(RUNS_SHOWN):
        place.run([HPCRUN, "submit", "-P", "a100", "--gpus", "4", "--nodes", "2", SCRIPT])

    def waiting_in(contender: Contender) -> int:
        return place.run(contender.argv).stdout.count(" PENDING")

    # the first look of hpcrun also learns that the runs of the timed submissions are over
    wait_for(lambda: waiting_in(ours) == RUNS_SHOWN, f"hpcrun to show {RUNS_SHOWN} waiting jobs")
    wait_for(lambda: waiting_in(theirs) >= RUNS_SHOWN, f"torchx to show {RUNS_SHOWN} waiting jobs")
    race([ours, theirs, python, bare], place=place, rounds=rounds)
    # torchx waits for the accounting database most of its time: Python with typer alone takes a
    # third of its CPU time
    title = f"status of {RUNS_SHOWN} waiting jobs"
    met = show(title, ours, theirs, [python, bare], at_most=STATUS_AT_MOST, cpu_too=False)
    listed = place.run(theirs.argv).stdout.count("slurm://")
    print(f"  torchx lists all that the accounting database has of this user: {listed} jobs")
    return met


def measure_start(place: Place, rounds: int) -> bool:
    """Time what only hpcrun's start takes; returns whether the demands are met."""
    version = Contender("hpcrun --version", [HPCRUN, "--version"])
    help_ = Contender("hpcrun --help", [HPCRUN, "--help"])
    floor = Contender("import typer", [sys.executable, "-c", "import typer"])
    race([version, help_, floor], place=place, rounds=rounds)
    return all(
        [
            show("the start", version, floor, [], at_most=VERSION_AT_MOST),
            show("the list of commands", help_, floor, [], at_most=HELP_AT_MOST),
        ]
    )


def show(
    title: str,
    ours: Contender,
    theirs: Contender,
    floors: list[Contender],
    *,
    at_most: float,
    cpu_too: bool = True,
) -> bool:
    """Print one comparison; returns whether the demand is met, in wall-clock time and, ``cpu_too``,
    in CPU time.
    """
    other = theirs.label.split(" -")[0]
    print(f"\n{title:<46}{'median':>8}  × {other:<13}{'CPU':>8}  × {other}")
    for one in (ours, theirs, *floors):
        wall = f"{one.median * 1000:>5.0f} ms  {one.median / theirs.median:<15.2f}"
        print(
            f"  {one.label:<44}{wall}{one.cpu_median * 1000:>5.0f} ms  "
            f"{one.cpu_median / theirs.cpu_median:.2f}"
        )
    met = ours.median <= at_most * theirs.median
    cpu_met = ours.cpu_median <= at_most * theirs.cpu_median
    cpu = f", in CPU time {verdict(cpu_met)}" if cpu_too else ""
    least, most = ratio_range(ours, theirs)
    print(
        f"  demanded: at most {at_most:.1f}, {verdict(met)}{cpu}; single rounds from {least:.2f} "
        f"to {most:.2f}",
        flush=True,
    )
    return met and (cpu_met or not cpu_too)


def check_imports(place: Place) -> bool:
    """Look at what commands import; returns whether nothing of it is forbidden."""
    print("\nimports")
    met = True
    for command, forbidden in MUST_NOT_IMPORT.items():
        argv = [sys.executable, "-X", "importtime", "-m", "hpcrun", command]
        imported = set(_IMPORTED.findall(place.run(argv).stderr))
        heavy = sorted(imported.intersection(forbidden))
        none = ", ".join(name for name in forbidden if name not in heavy)
        print(f"  hpcrun {command}: {len(imported)} modules, none of {none}: {verdict(not heavy)}")
        if heavy:
            print(f"    but {', '.join(heavy)}")
        met = met and not heavy
    return met


def verdict(met: bool) -> str:
    return "met" if met else "NOT MET"


if __name__ == "__main__":
    sys.exit(main())
