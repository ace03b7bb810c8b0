"""Notes on a job, in one line each: what a user may not expect of a plan, or of a program under its launcher. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from hpcrun.job.command_words import SHELLS, program_of
from hpcrun.job.launchers import named_launcher
from hpcrun.job.plan import Plan
from hpcrun.job.profile import Profile
from hpcrun.job.quoting import bash_line, quote_bash
from hpcrun.job.request import JobRequest
from hpcrun.job.shape import Shape, decide_shape

_THREADS = "OMP_NUM_THREADS"
_MEETING = {"MASTER_ADDR": "the first node", "MASTER_PORT": "a free port, another one for each job"}
"""What every launcher sets, whatever the job's environment says (launch/node.py, launch/rank.py, torchrun)."""


def threads_of(plan: Plan) -> str | None:
    """Return a rank's OMP_NUM_THREADS: the profile's or --env's, else its share of the CPUs; None if unset."""
    share = plan.cpus_per_rank
    return dict(plan.env).get(_THREADS) or (None if share is None else str(share))


def plan_notes(plan: Plan, profile: Profile, env: Mapping[str, str]) -> Iterator[str]:
    """Return notes on a plan, for the profile of its GPU type and the environment of hpcrun's caller."""
    if plan.preflight == "only":
        return
    partition = plan.directive("partition")
    if profile.gpu.per_node and plan.scheduler == "slurm" and not plan.shape.gpus and partition == profile.partition:
        where = f"partition {partition}" if partition else "the default partition"
        yield (
            f"a job without GPUs on {where}, whose nodes have {profile.gpu.per_node} GPUs; choose another with -p "
            "PARTITION"
        )
    given, share, threads = dict(plan.env).get(_THREADS), plan.cpus_per_rank, threads_of(plan)
    if given and share is not None and given != str(share):
        yield f"{_THREADS}={given} is set by --env or the profile, but a rank has {share} CPUs"
    of_shell = env.get(_THREADS)
    if of_shell and threads and "SLURM_JOB_ID" not in env and of_shell != threads:
        yield (
            f"{_THREADS}={of_shell} of your shell is ignored: the job sets {threads}; "
            f"to keep yours: --env {_THREADS}={of_shell}"
        )
    for name, value in plan.env:
        if name in _MEETING:
            yield (
                f"{name}{'' if value is None else f'={value}'} of --env or the profile has no effect: hpcrun sets it "
                f"to {_MEETING[name]}"
            )


ReadText = Callable[[str], str]
MpiTypes = Callable[[], tuple[str, ...]]
"""Returns the types of ``srun --mpi=list`` of which a job needs one; none if the cluster has a default."""
READ_LOCAL_RANK = 'read int(os.environ["LOCAL_RANK"])'
_IMPORTS = r"^[ \t]*(?:import[ \t]+(?:[\w.]+(?:[ \t]+as[ \t]+\w+)?[ \t]*,[ \t]*)*|from[ \t]+)({})\b"
_MPI_LIBRARIES = {"pmix": "Open MPI", "pmi2": "MPICH, Intel MPI"}


@dataclass(frozen=True, slots=True)
class ProgramNote:
    """A note on Python scripts that a launcher does not suit."""

    source: str  # an expression that the text of the script matches
    unless: str  # one that the text and the arguments, each on a line of its own, do not match
    launchers: tuple[str, ...]  # the launchers it is about
    note: str  # the note, with the fields of ``_fields``; the first group of ``source`` is {0}
    ranks: int = 2  # the fewest ranks of a job it is about


# A script from the time of torch.distributed.launch, which gave each process its local rank as an option.
LOCAL_RANK = ProgramNote(
    r"""["'](--local[_-]rank)["']""",
    r"LOCAL_RANK|^--local[_-]rank",
    ("torchrun", "srun"),
    f"{{script}} has an option {{0}}, which {{launcher}} does not give it: {READ_LOCAL_RANK} instead",
)
NOTES = (
    LOCAL_RANK,
    # jax.distributed reads Slurm's variables, and has a task for each rank only under srun
    ProgramNote(
        _IMPORTS.format("jax|flax"),
        _IMPORTS.format("torch"),
        ("torchrun",),
        "{script} imports {0}, which cannot join the ranks of torchrun: add --launcher {without_torchrun}",
        ranks=1,
    ),
    # MPI_Init without PMI makes each process a job of one rank
    ProgramNote(
        _IMPORTS.format("mpi4py"),
        r"(?!)",
        ("torchrun", "srun"),
        "{script} imports {0}, and each of the {ranks} ranks would be an MPI job of its own: {mpi}",
    ),
)


def source_match(row: ProgramNote, text: str, args: tuple[str, ...] = ()) -> re.Match[str] | None:
    """Return the place in a script's text that a note is about."""
    if re.search(row.unless, "\n".join((text, *args)), re.MULTILINE):
        return None
    return re.search(row.source, text, re.MULTILINE)


def program_notes(
    request: JobRequest, profile: Profile, typed: tuple[str, ...], read_text: ReadText, mpi_types: MpiTypes
) -> Iterator[str]:
    """Return the notes on a program that starts no ranks itself.

    Args:
        typed: hpcrun's subcommand and its options as typed.
        read_text: returns the text of a file by its name as written, nothing if it is no readable text.
        mpi_types: is called for programs with MPI only.
    """
    if request.module:
        return
    words = (request.script, *request.args)
    program = program_of(words)
    if request.launcher not in ("python", "command") and (name := named_launcher(words)):
        yield (
            f"{request.script} has `{name}` among its arguments, and runs once per rank: if it calls `{name}`, "
            "add --launcher command, which runs it once per node"
        )
    yield from _uv_run(words, program, typed)
    shape = decide_shape(request, profile)
    yield from _shell_script(request, shape)
    text = read_text(program[0]) if program[0].endswith(".py") else ""
    for row in NOTES:
        if shape.launcher not in row.launchers or shape.world_size < row.ranks:
            continue
        if match := source_match(row, text, program[1:]):
            mpi = _mpi(program[0], request, profile, shape, mpi_types) if "{mpi}" in row.note else ""
            if mpi is None:
                continue
            without_torchrun = "srun" if profile.scheduler == "slurm" else "python"
            yield row.note.format(match[1], script=program[0], launcher=shape.launcher, ranks=shape.world_size,
                                  without_torchrun=without_torchrun, mpi=mpi)  # fmt: skip


def _mpi(script: str, request: JobRequest, profile: Profile, shape: Shape, mpi_types: MpiTypes) -> str | None:
    """Return what makes the ranks one MPI job; None if they are one already."""
    if profile.scheduler != "slurm":
        return f"the program to give is mpirun -np {shape.world_size} python {quote_bash(script)}"
    types = () if has_mpi_type(request, profile) else mpi_types()
    if shape.launcher == "srun":
        return f"add {mpi_options(types)}" if types else None
    return f"add --launcher srun {mpi_options(types)}".rstrip()


def has_mpi_type(request: JobRequest, profile: Profile) -> bool:
    """Return whether the request or the profile sets srun's MPI type."""
    return "mpi" in profile.srun or any(item.startswith("mpi=") for item in request.srun)


def mpi_options(types: tuple[str, ...]) -> str:
    """Return the options for each MPI type, with the libraries that need it."""
    return " or ".join(f"--srun mpi={type_} ({_MPI_LIBRARIES[type_]})" for type_ in types)


def _uv_run(words: tuple[str, ...], program: tuple[str, ...], typed: tuple[str, ...]) -> Iterator[str]:
    if PurePath(words[0]).name != "uv" or program == words:
        return
    options = [text for text in words[2 : len(words) - len(program) + (program[0] == "-m")] if text.startswith("--")]
    without = f", but without {' '.join(options)}" if options else ""
    line = bash_line(("hpcrun", *(typed or ("submit",)), "--uv", *program))
    yield f"`uv run` syncs the environment in every rank; --uv installs uv.lock once on each node{without}: {line}"


def _shell_script(request: JobRequest, shape: Shape) -> Iterator[str]:
    """Return a note if a shell script, which starts no ranks itself, runs more than once on a node."""
    by_shell = PurePath(request.script).name in SHELLS and not "".join(request.args[:1]).startswith("-")
    is_shell = by_shell or request.script.endswith((".sh", ".bash"))
    if request.launcher is not None or not is_shell or shape.launcher == "command" or shape.procs_per_node < 2:
        return
    name = " ".join((request.script, *request.args[:1])) if by_shell else request.script
    yield (
        f"`{name}` runs {shape.world_size} times, once per rank (RANK tells them apart); --launcher command runs it "
        "once per node"
    )
