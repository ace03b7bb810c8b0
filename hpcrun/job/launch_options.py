"""Options of sbatch, srun, torchrun, accelerate and others. Pure.

The module says which options may be passed on, and what to use instead of others. Names of sbatch
are those of sbatch(1) of Slurm 22.05 to 26.11, without the leading dashes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Literal

from hpcrun.errors import UsageError, did_you_mean, nearest
from hpcrun.job.text.quoting import quote_bash, quote_directive
from hpcrun.job.text.spelling import spell, spell_row
from hpcrun.job.text.units import table_rows

Program = Literal["sbatch", "srun", "torchrun"]
# name → value, None for a flag; names without leading dashes
Options = tuple[tuple[str, str | None], ...]
Directives = dict[str, str | None]

# Whose options | names | what a user writes instead. hpcrun sets the options of sbatch (s), srun
# (r) and torchrun (t) itself; it has the others (-), of accelerate launch (1.14), deepspeed,
# lightning, mpirun and more, in another form.
_ADVICE = """
s | array | use --array IDS, or --sweep NAME=VALUE,VALUE
s | batch | the batch script runs on the first node
s | clusters | leave it out: hpcrun submits to the cluster of this machine
sr | chdir | use --workdir DIR
sr | cpus-per-gpu cpus-per-task | use --cpus-per-task or --cpus-per-gpu; OMP_NUM_THREADS follows
sr | error output | \
  use --output-dir; every rank has its own log there, and `hpcrun logs RUN` shows it
sr | exclude nodelist | use --exclude or --nodelist: the ranks need every node
sr | export export-file | use --env NAME=VALUE; other variables are exported
sr | gpus gpus-per-node gpus-per-socket gres | \
  use --gpus N or TYPE:N; a step without options has all GPUs of the job
sr | gpus-per-task tres-per-task | \
  use --gpus, one rank per GPU; per-task binding hides the GPUs of other ranks
sr | het-group | submit one job for each group
sr | input | give the file to the script as an argument
s | job-name | use --name
sr | nodes | use --nodes N
s | no-kill | \
  use --restarts N --spares K: with no-kill, a job whose head node fails idles until its time limit
s | no-requeue | leave it out: it is set for jobs without --requeue
sr | ntasks ntasks-per-gpu ntasks-per-node | \
  use --gpus, one rank per GPU, or --nproc-per-node; of a batch script, --ntasks-per-node
r | ntasks-per-core ntasks-per-socket ntasks-per-tres relative | \
  use --gpus, --nodes and --nproc-per-node
s | open-mode | leave it out: hpcrun appends
sr | overcommit | use --cpus N for fewer CPUs: the ranks of a node would share the CPUs of one task
s | parsable quiet | use --parsable, or --json
s | requeue | \
  use --requeue N: N further attempts; for --requeue=expedite, requeue.expedite of the profile
sr | signal | use --warn
sr | test-only | use --dry-run
s | wait | use --wait
s | wrap | use --wrap COMMAND
r | \
  account begin clusters constraint deadline dependency hold jobid no-allocate nodefile partition \
  qos reservation time | the step uses the job's allocation: use hpcrun's option, or --sbatch
r | preserve-env | use --env NAME=VALUE; other variables are exported
r | bcast help multi-prog usage version | srun would not start the ranks
r | pty | submit the job, then `hpcrun shell RUN` opens a shell in it
t | nnodes | use --nodes N
t | nproc-per-node | use --gpus or --nproc-per-node
t | standalone | leave it out: hpcrun sets it for jobs on one node
t | no-python | leave it out: a program that is no .py file is run as it is
t | run-path | hpcrun starts the program of each rank itself
t | module | use --module
t | local-addr node-rank | leave it out: hpcrun sets it on each node
t | master-addr master-port | \
  leave it out: hpcrun sets them, or use --torchrun rdzv-endpoint=HOST:PORT
t | duplicate-stderr-filters duplicate-stdout-filters local-ranks-filter redirects tee | \
  leave it out: every rank has its own log, and `hpcrun logs RUN` shows it
t | signals-to-handle | hpcrun forwards signals to the ranks
t | virtual-local-rank | hpcrun identifies the ranks of a node by LOCAL_RANK
t | help | torchrun would not start the ranks
- | after dependency | use --after RUN, RUN:any or RUN:fail
- | container-workdir | use --workdir DIR
- | container-image container-name image singularity | use --container IMAGE
- | bind container-mounts volume | use --mount SRC:DST
- | np num-proc num-processes | use --gpus, one rank per GPU, or --nproc-per-node
- | gpu-model gpu-type gpus-type | write the type in --gpus: --gpus a100:4
- | nproc | use --nproc-per-node N
- | mem-per-node memory | use --mem SIZE
- | timelimit walltime | use --time TIME
- | queue | use --partition NAME
- | project | use --account NAME
- | jobname | use --name NAME
- | interactive | submit the job, then `hpcrun shell RUN` opens a shell in it
- | module-load modules | use --load MODULE
- | conda venv | activate the environment, or use --python PATH
- | num-machines num-nodes | use --nodes N
- | local-rank machine-rank | leave it out: hpcrun numbers the nodes
- | main-address main-port main-process-ip main-process-port | \
  leave it out: hpcrun sets MASTER_ADDR and MASTER_PORT
- | log-dir | leave it out: every rank has its own log, and `hpcrun logs RUN` shows it
- | use-env | leave it out: LOCAL_RANK is always set
- | devices num-gpus | use --gpus N
- | gpu-ids visible-devices | use --gpus N: Slurm chooses the GPUs
- | multi-gpu same-network use-mps-device | leave it out: --gpus and --nodes decide it
- | \
  config-file deepspeed-config-file dynamo-backend gradient-accumulation-steps \
  main-training-function mixed-precision use-deepspeed use-fsdp | \
  write the program as `accelerate launch ...` after hpcrun's options: it then runs once per node
- | num-cpu-threads-per-process | use --cpus-per-task N, or --env OMP_NUM_THREADS=N
- | accelerator deepspeed precision strategy trainer | if the script takes it, write it after SCRIPT
- | hostfile | leave it out: Slurm chooses the nodes; --nodelist names them
"""


def advice_for(whose: str) -> dict[str, str]:
    """Return what a user writes instead of each option of a program.

    The programs are sbatch (``s``), srun (``r``), torchrun (``t``), or others.
    """
    advice_of: dict[str, str] = {}
    for letters, names, advice in table_rows(_ADVICE):
        if whose in letters:
            advice_of |= dict.fromkeys(names.split(), advice)
    return advice_of


OWNED: dict[str, str] = advice_for("s")

# Directives that have an option of hpcrun, and that --sbatch may set, too.
OPTIONS: dict[str, str] = {
    **{name: name for name in "account constraint partition qos reservation segment".split()},
    "mail-type": "mail_type",
    "mail-user": "mail_user",
    "mem": "memory_mb",
    "time": "walltime_s",
}

# The other long options of sbatch, to find the nearest name of a misspelt one. Do not divide a word
# at a line's end.
KNOWN: tuple[str, ...] = tuple(
    """
    acctg-freq bb bbf begin bell burst-buffer chdir cluster-constraint comment
    consolidate-segments container container-id container-type contiguous core-spec cores-per-socket
    cpu-freq deadline delay-boot dependency distribution exclusive extra extra-node-info
    get-user-env gid gpu-bind gpu-freq gres-flags hint hold ignore-pbs immediate kill-on-invalid-dep
    licenses mcs-label mem-bind mem-per-cpu mem-per-gpu mem-update mincpus network nice no-kill
    nodefile ntasks-per-core ntasks-per-socket oom-kill-step oversubscribe power prefer priority
    profile propagate reboot resources resv-ports runtime segment sockets-per-node spread-job
    spread-segments stepmgr switches thread-spec threads-per-core time-min tmp tres-bind uid
    use-min-nodes verbose wait-all-nodes wckey
    """.split()
)

# Options that NVIDIA's pyxis plugin adds to sbatch on sites that have it (its args.c).
PYXIS: tuple[str, ...] = tuple(
    """
    container-entrypoint container-entrypoint-log container-env container-image container-mount-home
    container-mounts container-name container-readonly container-remap-root container-save
    container-workdir container-writable no-container-entrypoint no-container-mount-home
    no-container-remap-root
    """.split()
)

# sbatch(1) of 22.05 to 26.05: the letters of its options, in the order of the manual page.
LETTERS: dict[str, str] = dict(
    pair.split("=")
    for pair in (
        "A=account a=array B=extra-node-info b=begin C=constraint c=cpus-per-task D=chdir "
        "d=dependency e=error "
        "F=nodefile G=gpus H=hold I=immediate i=input J=job-name k=no-kill L=licenses M=clusters "
        "m=distribution N=nodes "
        "n=ntasks O=overcommit o=output p=partition Q=quiet q=qos S=core-spec s=oversubscribe "
        "t=time v=verbose W=wait "
        "w=nodelist x=exclude"
    ).split()
)

# Options without a value, or with one that follows =.
FLAGS = frozenset(
    "consolidate-segments container-mount-home container-readonly container-remap-root "
    "container-writable contiguous "
    "exclusive get-user-env hold ignore-pbs immediate nice no-container-entrypoint "
    "no-container-mount-home "
    "no-container-remap-root no-kill no-requeue overcommit oversubscribe parsable propagate quiet "
    "reboot requeue "
    "spread-job spread-segments test-only use-min-nodes verbose wait".split()
)

NAMES = frozenset((*KNOWN, *PYXIS, *OPTIONS, *OWNED))

# Older names of options, which sbatch and srun still take.
ALIASES = {"tasks-per-node": "ntasks-per-node", "cpus": "cpus-per-task", "workdir": "chdir"}

# These exclude each other: setting one removes the others (sbatch(1)).
EXCLUSIVE = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})

# Without these the script could not find its nodes or its log.
ESSENTIAL = frozenset(
    {
        "array",
        "job-name",
        "nodes",
        "ntasks-per-node",
        "no-requeue",
        "open-mode",
        "requeue",
        "signal",
    }
)


def normalise_key(key: str) -> str:
    """Return a directive's name as sbatch lists it: without leading dashes, with dashes inside."""
    return key.strip().lstrip("-").replace("_", "-")


# --wait and --kill-on-bad-exit of srun may be set, for a training that continues with fewer ranks.
_OWNED: dict[Program, dict[str, str]] = {
    "sbatch": OWNED,
    "srun": advice_for("r"),
    "torchrun": advice_for("t"),
}
_KNOWN: dict[Program, tuple[str, ...]] = {
    "sbatch": (*KNOWN, *PYXIS, *OPTIONS),
    "srun": (
        *KNOWN,
        *"accel-bind cpu-bind exact ignore-signals job-name kill-on-bad-exit label mpi overlap "
        "prolog epilog quit-on-interrupt send-libs slurmd-debug task-epilog task-prolog threads "
        "unbuffered wait wait-for-children".split(),
    ),
    "torchrun": tuple(
        "event-log-handler log-dir log-line-prefix-template logs-specs max-restarts "
        "monitor-interval "
        "numa-binding rdzv-backend rdzv-conf rdzv-endpoint rdzv-id role shutdown-timeout "
        "start-method".split()
    ),
}
_TORCHRUN_FLAGS = frozenset(
    "module no-python run-path standalone use-env virtual-local-rank help".split()
)
# For each program: the letters of its options, their long names, and those without a value, or with
# one that follows =. srun(1) of Slurm 22.05 to 26.05 is sbatch(1) but for these; torchrun's are
# those of torch/distributed/run.py (2.13).
_TABLES: dict[Program, tuple[Mapping[str, str], frozenset[str], frozenset[str]]] = {
    "sbatch": (LETTERS, NAMES | {*LETTERS.values(), *ALIASES, "uid", "hetjob", "packjob"}, FLAGS),
    "srun": (
        {letter: name for letter, name in LETTERS.items() if letter not in "aF"}
        | {
            "E": "preserve-env",
            "K": "kill-on-bad-exit",
            "l": "label",
            "r": "relative",
            "T": "threads",
            "u": "unbuffered",
            "V": "version",
            "X": "disable-status",
            "Z": "no-allocate",
        },
        NAMES
        | {*_OWNED["srun"], *_KNOWN["srun"], *ALIASES}
        | {
            *"async compress disable-status external-launcher interactive msg-timeout treewidth "
            "whole x11".split()
        },
        (FLAGS - {"wait"})
        | frozenset(
            "async bcast compress disable-status exact external-launcher help interactive "
            "kill-on-bad-exit label "
            "multi-prog no-allocate overlap preserve-env pty quit-on-interrupt send-libs "
            "unbuffered usage version wait-for-children "
            "whole x11".split()
        ),
    ),
    "torchrun": (
        {"m": "module", "r": "redirects", "t": "tee", "h": "help"},
        frozenset({*_OWNED["torchrun"], *_KNOWN["torchrun"]}) | _TORCHRUN_FLAGS,
        _TORCHRUN_FLAGS,
    ),
}
_LEAST_SHUTDOWN_S = 30
"""When another rank has failed, hpcrun gives a rank 25 s before SIGKILL, and then records its end.
"""


def is_own_option(program: Program, name: str) -> bool:
    """Return whether hpcrun sets an option itself."""
    return name in _OWNED[program]


def check_option(program: Program, key: str, value: str | None, where: str) -> str:
    """Return the normalised name of an option that may be set.

    Raises:
        UsageError: hpcrun sets the option itself, or the option breaks the job.
    """
    name = normalise_key(key)
    owned = _OWNED[program]
    of = "" if program == "sbatch" else f"{program}'s "
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]+", name):
        raise UsageError(
            f"{where}: {key!r} cannot be an option of {program}",
            hint="write KEY=VALUE or KEY, with the long name: cpu-bind=cores",
        )
    if name in owned:
        raise UsageError(
            f"{where}: hpcrun sets {of}{spell(name)} itself", hint=spell_row(owned[name])
        )
    for longer in owned:  # every program accepts an abbreviated name
        if longer.startswith(name) and name not in _KNOWN[program]:
            raise UsageError(
                f"{where}: {program} takes {spell(name)} for {spell(longer)}, which hpcrun sets",
                hint=spell_row(owned[longer]),
            )
    _check_option_value(program, name, value, where)
    return name


def _check_option_value(program: Program, name: str, value: str | None, where: str) -> None:
    """Check that a value of an option does not break the job.

    Raises:
        UsageError: the value does.
    """
    if value is not None and "\0" in value:
        raise UsageError(f"{where}: a NUL character cannot stand in a script")
    if program == "srun" and value in ("help", "list"):
        raise UsageError(
            f"{where}: srun would print a list and exit", hint=f"srun --{name}={value} shows it"
        )
    if name == "rdzv-backend" and value == "static":
        raise UsageError(
            f"{where}: hpcrun chooses it itself where it suffices", hint="leave it out"
        )
    if name == "shutdown-timeout" and value and re.fullmatch(r"\d+", value, re.ASCII):
        if int(value) < _LEAST_SHUTDOWN_S:
            raise UsageError(
                f"{where}: hpcrun gives a rank 25 s to end",
                hint=f"shutdown-timeout={_LEAST_SHUTDOWN_S} or more",
            )


def unknown_note(name: str) -> str | None:
    """Return a note on a directive that hpcrun does not know, or None if hpcrun knows it."""
    if name in NAMES:
        return None
    note = f"sbatch option {name!r} is unknown"
    hint = did_you_mean(name, sorted(NAMES))
    return f"{note}; {hint}" if hint else note


def set_directive(directives: Directives, key: str, value: str | None) -> None:
    """Set one directive, and remove those that exclude it."""
    if key in EXCLUSIVE:
        for other in EXCLUSIVE - {key}:
            directives.pop(other, None)
    directives[key] = value


def remove_directive(directives: Directives, key: str) -> None:
    """Remove one directive by name.

    Raises:
        UsageError: the script needs the directive, or the directive is not set.
    """
    name = normalise_key(key)
    if name in ESSENTIAL:
        raise UsageError(f"{spell('no-sbatch', name)}: the script needs it")
    if name not in directives:
        free = sorted(set(directives) - ESSENTIAL)
        hint = did_you_mean(name, free, f"set are: {', '.join(free)}")
        raise UsageError(f"{spell('no-sbatch', name)}: it is not set", hint=hint)
    del directives[name]


def directive_line(key: str, value: str | None) -> str:
    """Return ``--key`` or ``--key=value`` for an ``#SBATCH`` line.

    Raises:
        UsageError: sbatch cannot read the value.
    """
    if value is None:
        return f"--{key}"
    try:
        return f"--{key}={quote_directive(value)}"
    except ValueError as error:
        raise UsageError(f"directive {key!r}, value {value!r}: {error}") from None


def takes_value(program: Program, option: str) -> tuple[str, bool] | None:
    """Return an option's long name, and whether the next word is its value.

    The result is None if the option is not known. The option comes without ``=VALUE``:
    ``--nproc_per_node`` or a unique beginning of that name, or a letter with its value behind the
    letter.
    """
    letters, known, bare = _TABLES[program]
    if option.startswith("--"):
        plain = normalise_key(option)
        longer = [plain]
        if plain not in known:
            longer = [name for name in known if name.startswith(plain)]
        names = {ALIASES.get(name, name) for name in longer}
    elif option.startswith("-") and option[1:2] in letters:
        names = {letters[option[1]]}
    else:
        return None
    if len(names) != 1:
        return None
    name = names.pop()
    return name, name not in bare


def similar_option(program: Program, name: str) -> str | None:
    """Return the known option that a misspelt one may mean."""
    return nearest(name, list(_KNOWN[program]))


_NO_VALUE = FLAGS | {"pty", "multi-gpu", "standalone", "same-network", "use-env", "no-python"}
# (command, option) → what that command has instead; "" for every command
_OF_COMMAND = {
    (
        "resubmit",
        "resume",
    ): "leave it out: resubmit continues from the checkpoints; --fresh starts without them",
    (
        "explain",
        "rank",
    ): "explain finds the rank itself; `hpcrun logs RUN --rank N` shows the output of one",
    ("logs", "tail"): "use -n N",
    ("logs", "stderr"): "use --err",
    ("status", "user"): "leave it out: status shows your own runs",
    ("status", "job"): "write the job id without an option: hpcrun status 4711",
    ("status", "jobs"): "write the job id without an option: hpcrun status 4711",
    ("cancel", "name"): "write the name without an option: hpcrun cancel train",
    ("", "on"): "write it before the command: hpcrun --on HOST COMMAND",
    ("cancel", "all"): "use --state pending,running",
}


def takes_no_value(option: str) -> bool:
    """Return whether an option of another program is known to be a flag."""
    return _name(option) in _NO_VALUE


def instead_of(
    option: str, value: str | None, command: str, options: Collection[str]
) -> str | None:
    """Return what to write instead of an option that a command of hpcrun does not have.

    The result is None if hpcrun does not know.

    Args:
        option: the option as typed, without its value: ``--array`` or ``-a``.
        value: what stood behind ``=``, if anything.
        command: the name of the command of hpcrun.
        options: the options of the command.
    """
    name = _name(option)
    if f"--{name}" in options:  # --nproc_per_node, and sbatch's letters
        return f"did you mean --{name}?"
    advice = _OF_COMMAND.get((command, name)) or _OF_COMMAND.get(("", name))
    if advice is None and "--sbatch" in options:
        of_launchers = _of_launchers(name, value)
        first = re.search(r"(?<!\w)--[a-z][a-z-]+", of_launchers or "")
        if first is None or first[0] in options:
            advice = of_launchers
    if advice:
        return advice
    close = nearest(option, sorted(options))
    if option.startswith("--") and len(option) > 4:
        longer = [known for known in options if known.startswith(option)]
        if len(longer) == 1:
            close = longer[0]
    return f"did you mean {close}?" if close else None


def _name(option: str) -> str:
    letter = "n" if option == "-np" else option[1:]  # mpirun(1)
    return LETTERS.get(letter, normalise_key(option))


def _of_launchers(name: str, value: str | None) -> str | None:
    """Return what hpcrun has instead of an option of sbatch, srun, torchrun or another launcher."""
    advice = {**OWNED, **advice_for("-")}.get(name)
    if advice:
        return advice
    if name in (*KNOWN, *PYXIS):
        return f"use --sbatch {_assignment(name, value)}"
    programs: tuple[Program, ...] = ("torchrun", "srun")
    for program in programs:
        advice = _OWNED[program].get(name)
        if advice:
            return advice
        if name in _KNOWN[program]:
            return f"use --{program} {_assignment(name, value)}"
    return None


def _assignment(name: str, value: str | None) -> str:
    if value is not None:
        return quote_bash(f"{name}={value}")
    return name if name in _NO_VALUE else f"{name}=VALUE"
