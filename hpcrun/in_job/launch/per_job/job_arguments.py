"""The options of ``launch job``, which stand in front of ``--``.

--nodes N        no Slurm: the command is started N times on this machine, as N nodes
--gpus A,B;C,D   the GPUs of each of these nodes
--within HOST    it is an element of a pack on this node of Slurm's job: see pack.py
--came FD        a descriptor with the original environment of the script
--warn S         ranks that continue for S seconds after the warning are killed
--requeue N      Slurm may requeue the job N times
--restarts N     the step may be restarted N times in its allocation
--spares N       nodes of the allocation that replace failed nodes
--retry-on-failure, --exclude-bad-nodes
--preflight      CHECK runs on every node, and JUDGE decides whether STEP may start
--stage NAME/SRC data that is copied onto each node first: stage.py
--script         the command is a person's script, and the step is what it launches: script.py
--sample S       seconds between two samples of the use of each node; 0 for none
--cancel-idle S  the job ends if all of its GPUs are idle for so long
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from .. import environment
from ..job_step import JobStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..processes import OnSignal


def parse_options(arguments: list[str]) -> Namespace:
    """Return the options in front of ``--``."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--nodes", "--came", "--warn"):
        parser.add_argument(name, type=int)
    for name in ("--requeue", "--restarts", "--spares"):
        parser.add_argument(name, type=int, default=0)
    parser.add_argument("--stage", action="append", default=[])
    for name in ("--gpus", "--within"):
        parser.add_argument(name, default="")
    parser.add_argument("--sample", type=float, default=environment.SAMPLE_S)
    parser.add_argument("--cancel-idle", type=float, default=0.0)
    for name in ("--retry-on-failure", "--exclude-bad-nodes", "--preflight", "--script"):
        parser.add_argument(name, action="store_true")
    return parser.parse_args(arguments)


def step_of(options: Namespace, on_signal: OnSignal, tick: Callable[[], bool]) -> JobStep:
    """Return the step of a job: the given command, or what a person's script launches."""
    gpus = options.gpus.split(";") if options.gpus else []
    if not options.script:
        return JobStep(options.nodes, gpus, on_signal, tick)
    from ..batch.run_script import ScriptStep  # few jobs run a person's script

    return ScriptStep(options.nodes, gpus, on_signal, tick, managed=options.warn is not None)
