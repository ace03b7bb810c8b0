"""The variables of NCCL, torch and CUDA that hpcrun knows, and errors in those of a job."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from hpcrun.errors import ProfileError
from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.yaml_file import parse_yaml

Kind = Literal["system", "debugging", "torch", "process", "efa", "renamed", "deprecated", "unread"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# A variable with another beginning belongs to a program, and may have any name.
PREFIXES = (
    "NCCL_",
    "TORCH_NCCL_",
    "TORCH_FR_",
    "TORCH_DIST_",
    "TORCH_DISTRIBUTED_",
    "GLOO_",
    "FI_",
    "RDMAV_",
    "PYTORCH_",
    "OMP_",
    "CUDA_",
)
# How alike two names must be for one to be the other misspelt: real names differ by a word
# (MIN_CTAS, MAX_CTAS).
_ALIKE = 0.88
_NOWHERE: frozenset[str] = frozenset()


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Values(_Entry):
    """The values that a variable can have; each of the three may be unset."""

    one_of: tuple[str, ...] = ()
    # the least and the most of an integer; None for no limit
    range: tuple[int | None, int | None] = (None, None)
    pattern: str | None = None  # a regular expression for the whole value

    def allow(self, value: str) -> bool:
        """Return whether the value is possible.

        Words are compared without regard to case, as in NCCL.
        """
        least, most = self.range
        if self.one_of:
            return value.upper() in self.one_of
        if self.pattern is not None:
            return re.fullmatch(self.pattern, value) is not None
        if least is None and most is None:
            return True
        try:
            number = int(value, 0)
        except ValueError:
            return False
        if least is not None and number < least:
            return False
        return most is None or number <= most

    def in_words(self) -> str:
        """Return the values as text; empty if all are allowed or only a pattern defines them."""
        least, most = self.range
        if self.one_of or least is None:
            return ", ".join(self.one_of)
        if most is None:
            return f"{least} or more"
        return f"{least} to {most}"


NETWORKS = frozenset({"infiniband", "roce", "efa", "ethernet"})
ONE_NODE = "one-node"


class Harmful(_Entry):
    """The values that are harmful on some GPUs or networks, or doubtful everywhere, and why."""

    values: str
    why: str
    on: tuple[str, ...] = ()  # types of GPUs, or kinds of network; empty for all


class Variable(_Entry):
    """One variable of the catalogue, with its description."""

    name: str
    kind: Kind
    meaning: str
    source: str
    default: str | None = None
    set_when: str | None = None
    trap: str | None = None  # when not to set it
    instead: str | None = None  # what works
    hpcrun: str | None = None  # the value that every job's script sets, in words
    renamed_to: str | None = None  # the name that replaces it
    since: str | None = None  # the version from which a variable is deprecated
    values: Values = Values()
    off: tuple[str, ...] = ()  # values with the same effect as an unset variable
    # where the variable has no effect: kinds of network, or ``one-node``
    no_effect_on: tuple[str, ...] = ()
    harmful: tuple[Harmful, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with a variable of a job, and what works instead."""

    name: str
    value: str | None  # None if only a running shell knows it
    problem: str
    instead: str | None = None
    # no program can use this value as intended: the job must not be submitted with it
    impossible: bool = False

    @property
    def advice(self) -> str:
        """The problem and what works instead, in one line."""
        if self.instead:
            return f"{self.problem}; instead: {self.instead}"
        return self.problem

    def text(self, place: str = "") -> str:
        """Return the finding in one line, with the variable and the place that sets it."""
        text = self.name if self.value is None else f"{self.name}={self.value}"
        if place:
            text += f" ({place})"
        return f"{text}: {self.advice}"


def _finding(variable: Variable, value: str | None, where: frozenset[str]) -> Finding | None:
    """Return the problem with a variable of a job; None if there is none."""
    is_read = variable.kind not in ("unread", "renamed")
    if is_read and value is not None and not variable.values.allow(value):
        problem = "this value cannot be"
        allowed = variable.values.in_words()
        if allowed:
            problem += f"; it takes {allowed}"
        return Finding(variable.name, value, problem, variable.instead, impossible=True)
    text = _problem(variable, value, where)
    if text is None:
        return None
    return Finding(variable.name, value, text, variable.instead)


def _problem(variable: Variable, value: str | None, where: frozenset[str]) -> str | None:
    """Return the problem with a possible value of a variable, in words; None if there is none."""
    if variable.kind == "unread":
        return "no program reads this variable"
    if variable.kind == "renamed":
        return f"its name is now {variable.renamed_to}"
    if value is None or not where.isdisjoint(variable.no_effect_on):
        return None
    for harmful in variable.harmful:
        if not re.fullmatch(harmful.values, value):
            continue
        if not harmful.on:
            return harmful.why
        matches = where.intersection(harmful.on)
        if matches:
            what = "GPU" if matches.isdisjoint(NETWORKS) else "network"
            return f"harmful on this {what}: {harmful.why}"
    if value.upper() in variable.off:
        return None
    if variable.kind == "deprecated":
        text = f"deprecated since {variable.since}"
        if variable.renamed_to:
            text += f" in favour of {variable.renamed_to}"
        return text
    if variable.kind == "debugging":
        symptom = f" ({variable.set_when})" if variable.set_when else ""
        return f"for debugging{symptom}, and slows down training when left on"
    return None


# A key at the left margin begins a piece, which ends at the next key.
_PIECE = re.compile(r"^(\w+):\n((?:[ \t#].*\n|\n)*)", re.MULTILINE)
_OTHERS = "others"


@dataclass(frozen=True)
class Catalogue(Mapping[str, Variable]):
    """Every variable that hpcrun knows, by name; each is read from its text on first use."""

    path: Path
    texts: dict[str, str]  # name → the YAML of the variable
    others: frozenset[str]  # names that are correct, without a description
    _read: dict[str, Variable] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Variable:
        if name not in self._read:
            data = parse_yaml(self.texts[name], self.path).data[name]
            try:
                self._read[name] = Variable(name=name, **data)
            except (TypeError, ValidationError) as error:
                raise ProfileError(f"{self.path}: {name}: {error}") from None
        return self._read[name]

    def __contains__(self, name: object) -> bool:  # the inherited method would read it
        return name in self.texts

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def check(
        self, env: Mapping[str, str], gpu: str = "", place: frozenset[str] = _NOWHERE
    ) -> list[Finding]:
        """Return the problems with the variables of a job, at most one for each variable.

        See ``judge``.
        """
        judged = (self.judge(name, value, gpu, place) for name, value in env.items())
        return [finding for finding in judged if finding is not None]

    def judge(
        self, name: str, value: str | None, gpu: str = "", place: frozenset[str] = _NOWHERE
    ) -> Finding | None:
        """Return the problem with a variable of a job, None if there is none.

        Args:
            name: the variable.
            value: its value; None if only a running shell knows it. An empty value counts as unset.
            gpu: the type or name of the job's GPUs, such as ``l40s``, ``nvidia_l40s`` or
                ``NVIDIA L40S 48 GB``.
            place: the kind of network between the nodes, and ``one-node`` for a job on one node.
        """
        if name not in self:
            return self._misspelt(name, value)
        if value == "":
            return None
        # sites write l40s, nvidia_l40s, a100-40gb
        words = re.split(r"[^a-z0-9]+", gpu.lower())
        return _finding(self[name], value, place.union(words))

    def _misspelt(self, name: str, value: str | None) -> Finding | None:
        """Return that an unknown variable has almost the name of a known one, if it has."""
        if name in self.others or not name.startswith(PREFIXES):
            return None
        close = difflib.get_close_matches(name, [*self, *self.others], n=1, cutoff=_ALIKE)
        if not close:
            return None
        return Finding(name, value, f"unknown variable; did you mean {close[0]}?")


def load_catalogue(path: Path | None = None) -> Catalogue:
    """Return the catalogue of variables; the shipped one unless a path is given.

    Raises:
        ProfileError: the file cannot be read, or is not UTF-8 text.
    """
    path = path or shipped_folder("cluster_profiles") / "variables" / "variables.yaml"
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"the list of variables {path} cannot be read: {error}") from None
    texts = {match[1]: match[0] for match in _PIECE.finditer(text)}
    others = re.findall(r"^ +- (\w+)$", texts.pop(_OTHERS, ""), re.MULTILINE)
    return Catalogue(path, texts, frozenset(others))
