"""The options of ``launch job``, which stand in front of ``--``.

--nodes N        no Slurm: the command is started N times on this machine, as N nodes
--gpus A,B;C,D   the GPUs of each of these nodes
--within HOST    it is an element of a pack on this node of Slurm's job: see pack.py
--came FD        a descriptor with the original environment of the script
--grace S        ranks that continue for S seconds after the warning are killed
--requeue N      Slurm may requeue the job N times
--restarts N     the step may be restarted N times in its allocation
--spares N       nodes of the allocation that replace failed nodes
--retry-on-failure, --exclude-bad-nodes
--preflight      CHECK runs on every node, and JUDGE decides whether STEP may start
--stage NAME/SRC data that is copied onto each node first: stage.py
--keep D         these copies stay for later jobs; those older than D days are removed first
--warm PROGRAM   compiled files of this program are kept: warm_start.py
--warm-variable NAME  a further variable of compilers, for --warm
--script         the command is a person's script, and the step is what it launches: run_script.py
--srun=OPTION    an option of the script's srun, which its own options override
--add NAME=VALUE a variable of the ranks of a script, which the script itself does not get
--sample S       seconds between two samples of the use of each node; 0 for none
--cancel-idle S  the job ends if all of its GPUs are idle for so long
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from .. import rank_environment
from ..job_step import JobStep
from .why_ended import Rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..processes import OnSignal


class JobOptions(Namespace):
    """The options, and what follows from them."""

    nodes: int | None
    gpus: str
    within: str
    came: int | None
    grace: int | None  # seconds
    requeue: int
    restarts: int
    spares: int
    retry_on_failure: bool
    exclude_bad_nodes: bool
    preflight: bool
    stage: list[str]
    keep: int
    warm: str
    warm_variable: list[str]
    script: bool
    srun: list[str]
    add: list[str]
    sample: float
    cancel_idle: float

    @property
    def is_managed(self) -> bool:
        """Whether the job may be warned or requeued."""
        return self.grace is not None

    @property
    def is_local(self) -> bool:
        """Whether this process starts the nodes of the step itself, without srun."""
        return self.nodes is not None

    @property
    def in_slurm(self) -> bool:
        """Whether this process is part of a Slurm job."""
        return not self.is_local or bool(self.within)

    @property
    def rules(self) -> Rules:
        """How often the job may continue."""
        return Rules(self.requeue, self.restarts, self.retry_on_failure)

    @property
    def sample_s(self) -> float:
        """The seconds between two samples.

        Six samples are written at a time: a short limit on idle GPUs needs them sooner.
        """
        if not self.cancel_idle:
            return self.sample
        return min(self.sample, self.cancel_idle / 10)


def parse_options(arguments: list[str]) -> JobOptions:
    """Return the options in front of ``--``."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--nodes", "--came", "--grace"):
        parser.add_argument(name, type=int)
    for name in ("--requeue", "--restarts", "--spares", "--keep"):
        parser.add_argument(name, type=int, default=0)
    for name in ("--stage", "--srun", "--add", "--warm-variable"):
        parser.add_argument(name, action="append", default=[])
    for name in ("--gpus", "--within", "--warm"):
        parser.add_argument(name, default="")
    parser.add_argument("--sample", type=float, default=rank_environment.SAMPLE_S)
    parser.add_argument("--cancel-idle", type=float, default=0.0)
    for name in ("--retry-on-failure", "--exclude-bad-nodes", "--preflight", "--script"):
        parser.add_argument(name, action="store_true")
    return parser.parse_args(arguments, JobOptions())


def step_of(options: JobOptions, on_signal: OnSignal, tick: Callable[[], bool]) -> JobStep:
    """Return the step of a job: the given command, or what a person's script launches."""
    gpus = options.gpus.split(";") if options.gpus else []
    if not options.script:
        return JobStep(options.nodes, gpus, on_signal, tick)
    from ..batch.run_script import ScriptRules, ScriptStep  # few jobs run a person's script

    how = ScriptRules(
        managed=options.is_managed,
        together=options.retry_on_failure or options.restarts > 0,
        srun=options.srun,
        added=options.add,
    )
    return ScriptStep(options.nodes, gpus, on_signal, tick, how)
