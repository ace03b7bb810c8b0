"""Notes on a program that the launcher may not suit: its --local_rank, JAX, MPI, uv run. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

from hpcrun.job.launcher.known_launchers import ONCE_PER_NODE, SHELLS, named_launcher, program_of
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.resources.shape import Shape, decide_shape
from hpcrun.job.text.quoting import bash_line, quote_bash


@dataclass(frozen=True, slots=True)
class Here:
    """What is known of a submission besides its request."""

    # hpcrun's subcommand and its options as typed; empty without a command line
    typed: tuple[str, ...]
    # returns the text of a file by its name as written, nothing if it has none
    read_text: Callable[[str], str]
    # returns the types of ``srun --mpi=list`` of which a job needs one; none if the cluster has a
    # default
    mpi_types: Callable[[], tuple[str, ...]]


_IMPORTS = r"^[ \t]*(?:import[ \t]+(?:[\w.]+(?:[ \t]+as[ \t]+\w+)?[ \t]*,[ \t]*)*|from[ \t]+)({})\b"


_MPI_LIBRARIES = {"pmix": "Open MPI", "pmi2": "MPICH, Intel MPI"}


@dataclass(frozen=True, slots=True)
class ProgramNote:
    """A note on Python scripts that a launcher does not suit."""

    source: str  # an expression that the text of the script matches
    unless: str  # one that the text and the arguments, each on a line of its own, do not match
    launchers: tuple[str, ...]  # the launchers it is about
    # the note, with the fields that ``program_notes`` fills in; the first group of ``source`` is
    # {0}
    note: str
    ranks: int = 2  # the fewest ranks of a job it is about
    # whether its ranks are one MPI job; None if that does not matter
    one_mpi_job: bool | None = None


NOTES = (
    # a script from the time of torch.distributed.launch, which gave each process its local rank as
    # an option
    ProgramNote(
        r"""["'](--local[_-]rank)["']""",
        r"LOCAL_RANK|^--local[_-]rank",
        ("torchrun", "srun"),
        "{script} has an option {0}, which {launcher} does not give it: read "
        'int(os.environ["LOCAL_RANK"]) instead',
    ),
    # jax.distributed reads Slurm's variables, and has a task for each rank only under srun
    ProgramNote(
        _IMPORTS.format("jax|flax"),
        _IMPORTS.format("torch"),
        ("torchrun",),
        "{script} imports {0}, which cannot join the ranks of torchrun: add --launcher "
        "{without_torchrun}",
        ranks=1,
    ),
    # MPI_Init without PMI makes each process a job of one rank
    ProgramNote(
        _IMPORTS.format("mpi4py"),
        r"(?!)",
        ("torchrun", "srun"),
        "{script} imports {0}, and each of the {ranks} ranks would be an MPI job of its own: {mpi}",
        one_mpi_job=False,
    ),
    # Python's end calls MPI_Finalize, which waits for all ranks; mpi4py/run.py calls MPI_Abort
    # after an exception
    ProgramNote(
        _IMPORTS.format("mpi4py"),
        r"\bAbort\(|\bexcepthook\b",
        ("srun",),
        "{script} imports {0}: a rank that raises an exception waits at its end for the others, "
        "and the job hangs; "
        "-m mpi4py {script} ends all ranks",
        one_mpi_job=True,
    ),
)


def program_notes(request: JobRequest, profile: Profile, here: Here) -> Iterator[str]:
    """Return the notes on a program that starts no ranks itself."""
    if request.module:
        return
    words = (request.script, *request.args)
    program = program_of(words)
    name = None if request.launcher in ONCE_PER_NODE else named_launcher(words)
    if name:
        yield (
            f"{request.script} has `{name}` among its arguments, and runs once per rank: if it "
            f"calls `{name}`, "
            "add --launcher command, which runs it once per node"
        )
    yield from _uv_run(words, program, here.typed)
    shape = decide_shape(request, profile)
    yield from _shell_script(request, shape)
    text = here.read_text(program[0]) if program[0].endswith(".py") else ""
    for row in NOTES:
        if shape.launcher not in row.launchers or shape.world_size < row.ranks:
            continue
        if re.search(row.unless, "\n".join((text, *program[1:])), re.MULTILINE):
            continue
        match = re.search(row.source, text, re.MULTILINE)
        if match is None:
            continue
        mpi = None
        if row.one_mpi_job is not None:
            mpi = _mpi(program[0], request, profile, shape, here)
            is_one_job = mpi is None
            if row.one_mpi_job != is_one_job:
                continue
        without_torchrun = "srun" if profile.scheduler == "slurm" else "python"
        yield row.note.format(
            match[1],
            script=program[0],
            launcher=shape.launcher,
            ranks=shape.world_size,
            without_torchrun=without_torchrun,
            mpi=mpi,
        )


def _mpi(
    script: str, request: JobRequest, profile: Profile, shape: Shape, here: Here
) -> str | None:
    """Return what makes the ranks one MPI job; None if they are one already."""
    if profile.scheduler != "slurm":
        return f"the program to give is mpirun -np {shape.world_size} python {quote_bash(script)}"
    types = () if has_mpi_type(request, profile) else here.mpi_types()
    if shape.launcher == "srun":
        return f"add {mpi_options(types)}" if types else None
    return f"add --launcher srun {mpi_options(types)}".rstrip()


def has_mpi_type(request: JobRequest, profile: Profile) -> bool:
    """Return whether the request or the profile sets srun's MPI type."""
    return "mpi" in profile.srun or any(item.startswith("mpi=") for item in request.srun)


def mpi_options(types: tuple[str, ...]) -> str:
    """Return the options for each MPI type, with the libraries that need it."""
    return " or ".join(f"--srun mpi={type_} ({_MPI_LIBRARIES[type_]})" for type_ in types)


def _uv_run(
    words: tuple[str, ...], program: tuple[str, ...], typed: tuple[str, ...]
) -> Iterator[str]:
    if PurePath(words[0]).name != "uv" or program == words:
        return
    end = len(words) - len(program)
    if program[0] == "-m":
        end += 1
    options = [text for text in words[2:end] if text.startswith("--")]
    without = f", but without {' '.join(options)}" if options else ""
    line = bash_line(("hpcrun", *(typed or ("submit",)), "--uv", *program))
    yield (
        "`uv run` syncs the environment in every rank; --uv installs uv.lock once on each "
        f"node{without}: {line}"
    )


def _shell_script(request: JobRequest, shape: Shape) -> Iterator[str]:
    """Return a note if a shell script runs more than once on a node.

    The note is about a script that starts no ranks itself.
    """
    if request.launcher is not None or shape.launcher == "command" or shape.procs_per_node < 2:
        return
    first = "".join(request.args[:1])
    if PurePath(request.script).name in SHELLS and not first.startswith("-"):
        name = " ".join((request.script, *request.args[:1]))
    elif request.script.endswith((".sh", ".bash")):
        name = request.script
    else:
        return
    yield (
        f"`{name}` runs {shape.world_size} times, once per rank (RANK tells them apart); "
        "--launcher command runs it once per node"
    )
