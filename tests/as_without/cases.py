"""The cases: batch scripts, and what a person has around them.

``scripts/made`` has what was found to run otherwise under hpcrun, and what else may.

``scripts/public`` has 25 scripts in the words of this project, each after a public one that its
first comment names: the same directives, constructs, order and launch, with sizes that the
development cluster has. They were drawn by chance, with seed 37: twelve from repositories whose
names have "pretrain" or "distributed-train" (39 that could train something, shuffled; of each the
first script with #SBATCH lines and a launch, chosen among several by the seed, and three of one
repository that has a hundred); thirteen from 20 searches for "#SBATCH" with three random words of
launchers and habits (the 42 scripts that the answers named, shuffled).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

FOLDER = Path(__file__).parent / "scripts"

MODULE = '() {  echo "module $*";\n export LOADED="${LOADED:+$LOADED:}$2"\n}'
"""A site's shell function, as bash writes it."""
CALLER = {"BASH_FUNC_module%%": MODULE, "BASH_FUNC_ml%%": '() {  module load "$@"\n}'}

CONDA = """conda() { echo "conda $*"; export CONDA_DEFAULT_ENV=$2 CONDA_PREFIX=$PWD/envs/$2; }
"""
FILES = {
    "conda.sh": CONDA,
    "venv/bin/activate": "export VIRTUAL_ENV=$PWD/venv PATH=$PWD/venv/bin:$PATH\n",
}
"""What every case finds in its folder."""

PROGRAMS = """
    torchrun python python3 accelerate deepspeed mpirun composer uv jaxhpc singularity apptainer
    probe singularity_wrapper
""".split()
"""What the recorder stands for on PATH, in every case."""
COMMANDS = {"nvidia-smi": "echo 'GPU 0: made up'"}
"""Further programs on PATH. hpcrun too calls this one."""


@dataclass(frozen=True, slots=True)
class Around:
    """What is around a script.

    Args:
        arguments: of the script.
        variables: of the caller; None takes one away.
        files: further files of the folder: name → text.
        signal: what scancel sends when the ranks have started: its options.
        fails: rank or task → exit status.
        seconds: how long each program works.
        endless: scripts that work until a signal ends them.
        recorders: programs below the folder, for which the recorder stands.
    """

    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str | None] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    signal: tuple[str, ...] | None = None
    fails: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.1
    endless: tuple[str, ...] = ()
    recorders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A batch script, what is around it, and the options of ``hpcrun submit``."""

    path: Path
    around: Around
    options: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The script's text."""
        return self.path.read_text("utf-8")

    @property
    def partitions(self) -> frozenset[str]:
        """The partitions that the script requests, if there are several."""
        several = re.search(r"^#SBATCH (?:-p |--partition=)(\S+,\S+)", self.text, re.MULTILINE)
        return frozenset(several[1].split(",")) if several else frozenset()

    @property
    def programs(self) -> list[str]:
        """What the script starts below its folder; the recorder stands for it."""
        names = re.findall(r"(?<![\w$}/.{-])(?:\./)?((?:[\w-]+/)*[\w-]+\.py)\b", self.text)
        return sorted({*names, *self.around.recorders})


LONG_S = 4.0
"""How long a program works that something is to happen to."""
ENV = """MINICONDA_SH=conda.sh
CONDA_FILE=conda.sh
ENVIRONMENT=tower
PROJECT=.
WANDB_ID=
"""

AROUND: dict[str, Around] = {
    "canvit_export": Around(
        files={"slurm/env.sh": "export INDICES=$PWD FEATURES=$PWD/features\n", "in21k.parquet": ""}
    ),
    "cancelled": Around(signal=(), seconds=LONG_S),
    "continued_pretraining": Around(files={"models/transferred/weights": ""}),
    "cpu_ddp": Around(recorders=("pt_cpu/bin/torchrun",)),
    "ct_signal": Around(recorders=("experimental/interrupt.py",)),
    "flow_segmentation": Around(arguments=("--lr", "1e-3", "two words", "*")),
    "geo_two_nodes": Around(recorders=("open_clip/run_train.py", "open_clip/extract_data.py")),
    "locale": Around(variables={"LANG": None, "LC_ALL": None}),
    "kills_group": Around(seconds=LONG_S, endless=("monitor.py",)),
    "mahti_deepspeed": Around(arguments=("train.py", "--steps", "5")),
    "olmo_pretrain": Around(
        arguments=("configs/small.yaml",),
        files={"olmo/envs/olmo-env/bin/README": ""},
        recorders=("olmo/scripts/train.py",),
    ),
    "one_task_fails": Around(fails={"1": 3}, seconds=LONG_S),
    "other_folder": Around(files={"sub/data": ""}),
    "plain_sh": Around(
        arguments=("--text", "two  words"),
        files={"site.sh": "conda() { echo conda; }\nconda activate\n"},
    ),
    "replaced": Around(signal=("--batch", "--signal=TERM"), seconds=LONG_S),
    "sdacd": Around(arguments=("config.yaml", "left-out")),
    "sharpness_tokens": Around(files={"utils/README": ""}),
    "tower_llm": Around(
        recorders=("pretrain_gpt.py",),
        files={
            "configs/.env": ENV,
            "configs/small.yaml": "training:\n  num_layers: 2\n  seq_length: 128\n",
        },
    ),
    "variables": Around(
        variables={
            "NNODES": "4",
            "NPROC_PER_NODE": "8",
            "MASTER_PORT": "31000",
            "SLURM_MY_EXPERIMENT": "mine",
            "SUBMITIT_X": "also mine",
            "PYTHONSTARTUP": "start.py",
            "TMPDIR": "/tmp",
        }
    ),
    "warned": Around(signal=("--batch", "--signal=USR1"), seconds=LONG_S),
}
MANAGED = {
    "piped": ("--requeue", "1"),
    "transformer": ("--requeue", "1", "--retry-on-failure"),
    "fsdp_llama": ("--restarts", "1"),
}
"""Options that change nothing as long as nothing fails."""


def read_cases() -> dict[str, Case]:
    """Return all cases by name."""
    cases = {}
    for path in sorted([*FOLDER.glob("*/*.sbatch"), *FOLDER.glob("*/*.py")]):
        cases[path.stem] = Case(path, AROUND.get(path.stem, Around()))
    for name, options in MANAGED.items():
        cases[f"{name} {' '.join(options)}"] = replace(cases[name], options=options)
    return cases


def is_public(case: Case) -> bool:
    """Whether a case is written after a public script."""
    return case.path.parent.name == "public"
