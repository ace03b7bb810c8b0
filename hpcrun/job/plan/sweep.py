"""A sweep: one script, started once for each element with its own parameters. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcrun.errors import PlanError, UsageError, nearest
from hpcrun.job.request.job_request import JobRequest, option_of
from hpcrun.job.request.parameters import (
    Parameters,
    has_place,
    parameter_names,
    parse_array,
    tasks_of,
    with_parameters,
)
from hpcrun.job.request.request_line import of_one_element
from hpcrun.job.request.role_options import address_names, keep_addresses
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import index_ranges

_ARRAY_MAX = 4096  # characters of an #SBATCH line: hpcrun.job.text.quoting
_OF_SWEEPS = ("max_parallel", "elements", "pack", "pack_memory")


@dataclass(frozen=True, slots=True)
class Sweep:
    """The elements of a sweep."""

    elements: tuple[Parameters, ...]  # the parameters of each
    common: tuple[str, ...]  # the arguments that begin every element's command line
    arguments: tuple[tuple[str, ...], ...]  # of each element, the arguments after the common ones
    chosen: tuple[int, ...]  # numbers of the elements that run, in ascending order
    max_parallel: int | None = None  # how many may run at once, None for no limit
    # the element of task 0 of the array; Slurm limits the numbers of tasks (MaxArraySize)
    first: int = 0
    # how many of them share a task, and its node; None if each is a task of its own
    pack: int | None = None
    # the part of a GPU's memory that each of them is told to use; None for any
    memory_share: float | None = None
    # the ``--array`` of a person, whose task ids are the numbers of the elements
    typed_array: str | None = None

    @property
    def array(self) -> str:
        """The value of sbatch's ``--array``: as typed, if all of these elements run."""
        if self.typed_array and parse_array(self.typed_array) == (self.chosen, self.max_parallel):
            return self.typed_array
        tasks = set(tasks_of(self.chosen, self.first, self.pack).values())
        text = index_ranges(tasks)
        if self.max_parallel:
            text += f"%{self.max_parallel}"
        return text

    @property
    def tasks(self) -> int:
        """How many tasks the array has."""
        return -(-len(self.chosen) // (self.pack or 1))


def decide_sweep(request: JobRequest, array: str | None = None) -> Sweep | None:
    """Return the elements of a request and their command lines; None for an ordinary job.

    A parameter replaces ``{name}`` in the arguments; a parameter without a place is appended as
    ``--name value``.

    Args:
        request: the request of the job.
        array: its ``--array``, which a script may have, too; the elements have no parameters then.

    Raises:
        UsageError: if an option of sweeps is used without a sweep, if an element does not exist, if
            a parameter has the name of an address of a role, or if the elements need too many
            ranges for one array.
    """
    if array is not None:
        return _array_of_ids(request, array)
    if not request.sweep:
        _check_without_sweep(request)
        return None
    for index in request.elements:
        if index >= len(request.sweep):
            raise UsageError(
                f"{spell('elements')}: there is no element {index}",
                hint=f"the elements are 0 to {len(request.sweep) - 1}",
            )
    rows = request.sweep
    args = request.args
    if request.roles:
        names = address_names(request.roles)
        clash = parameter_names(rows).intersection(names)
        if clash:
            raise UsageError(
                f"--sweep: {{{min(clash)}}} is an address of a role", hint="choose another name"
            )
        rows = tuple(_keep_addresses_in(row, names) for row in rows)
        args = tuple(keep_addresses(argument, names) for argument in args)
    fixed = 0
    while fixed < len(args) and not has_place(args[fixed]):
        fixed += 1
    common = request.args[:fixed]
    rest = args[fixed:]
    arguments = tuple(element_arguments(rest, index, row) for index, row in enumerate(rows))
    chosen = request.elements or tuple(range(len(request.sweep)))
    sweep = Sweep(request.sweep, common, arguments, chosen, request.max_parallel, pack=request.pack)
    if len(sweep.array) > _ARRAY_MAX:
        raise UsageError(
            "--elements names too many separate elements for one array", hint="use ranges: 3,7-9"
        )
    return sweep


def _check_without_sweep(request: JobRequest) -> None:
    """Check that a request without a sweep has no option of sweeps.

    Raises:
        UsageError: if it has one.
    """
    for field in _OF_SWEEPS:
        if getattr(request, field):
            raise UsageError(
                f"{option_of(field)} has no effect without a sweep",
                hint=f"add {spell('sweep', 'NAME=VALUE,VALUE')}",
            )


def _array_of_ids(request: JobRequest, array: str) -> Sweep:
    """Return the elements of a request whose task ids a person has typed.

    Raises:
        UsageError: if an option needs parameters, or chooses an element that is no task id.
    """
    ids, at_once = parse_array(array)
    # a record of an older hpcrun has a sweep without parameters for a script with an array
    of_sweep = {
        "sweep": any(request.sweep),
        "pack": request.pack,
        "pack_memory": request.pack_memory,
    }
    for field, is_given in of_sweep.items():
        if is_given:
            raise UsageError(
                f"{spell('array', array)} cannot be combined with {option_of(field)}",
                hint="leave one out: the elements of a sweep are the tasks of an array",
            )
    unknown = set(request.elements).difference(ids)
    if unknown:
        raise UsageError(
            f"{spell('elements')}: there is no element {min(unknown)}",
            hint=f"the elements are {array}",
        )
    rows: tuple[Parameters, ...] = ((),) * (ids[-1] + 1)
    return Sweep(
        elements=rows,
        common=request.args,
        arguments=((),) * len(rows),
        chosen=request.elements or ids,
        max_parallel=request.max_parallel or at_once,
        typed_array=array,
    )


def _keep_addresses_in(row: Parameters, names: Sequence[str]) -> Parameters:
    return tuple((name, keep_addresses(text, names)) for name, text in row)


def element_arguments(args: Sequence[str], index: int, parameters: Parameters) -> tuple[str, ...]:
    """Return the arguments of a script for one element.

    The parameters are in their places, and the other parameters are appended.
    """
    row = dict(parameters)
    return with_parameters(args, row, index, lambda name: _unknown(name, index, row))


def one_element(request: Mapping[str, Any], index: int, row: Parameters) -> dict[str, Any]:
    """Return the recorded request of one element as that of a job of its own.

    Args:
        request: the request of a sweep, or of an array.
        index: the element, which in an array is a task id.
        row: the parameters of the element.
    """
    args = request.get("args", ())
    if any(request.get("sweep", ())):
        return of_one_element(request, element_arguments(args, index, row))
    return {**of_one_element(request, args), "array": str(index)}


def _unknown(name: str, index: int, row: Mapping[str, str]) -> UsageError:
    close = nearest(name, [*row, "element"])
    if close:
        hint = f"did you mean {{{close}}}?"
    else:
        hint = f"it has {', '.join(row)}; {{{{{name}}}}} stands for the text {{{name}}} itself"
    return UsageError(
        f"the arguments have {{{name}}}, but element {index} of the sweep has no such parameter",
        hint=hint,
    )


def parts_of(sweep: Sweep, most: int) -> list[Sweep]:
    """Return a sweep in parts with task numbers below ``most``, the limit of Slurm's arrays.

    Raises:
        PlanError: if --max-parallel is less than one element for each part.
    """
    if max(tasks_of(sweep.chosen, 0, sweep.pack).values()) < most:
        return [sweep]
    groups: list[list[int]] = []
    for index in sweep.chosen:
        if groups and _has_room(groups[-1], index, most, sweep.pack):
            groups[-1].append(index)
        else:
            groups.append([index])
    at_once = sweep.max_parallel
    if at_once is not None and at_once < len(groups):
        raise PlanError(
            f"{len(sweep.chosen)} elements need {len(groups)} arrays (MaxArraySize is {most}), "
            f"and --max-parallel {at_once} is less than one for each",
            hint=f"--max-parallel {len(groups)} or more, or submit part of it with --elements "
            f"0-{most - 1}",
        )
    parts = []
    for number, group in enumerate(groups):
        share = None
        if at_once is not None:
            # divided, so that the parts together keep the requested limit
            share = at_once // len(groups)
            if number < at_once % len(groups):
                share += 1
        parts.append(replace(sweep, chosen=tuple(group), first=group[0], max_parallel=share))
    return parts


def _has_room(group: Sequence[int], index: int, most: int, pack: int | None) -> bool:
    """Return whether an element can be a part of an array of ``most`` tasks, with a group."""
    if pack:
        return len(group) < most * pack
    return index - group[0] < most


def check_gpus(sweep: Sweep | None, local_gpus: Sequence[Sequence[str]]) -> None:
    """Raise PlanError for parallel elements on this machine's GPUs: each would use all of them.

    Raises:
        PlanError: if more than one element may run at once on these GPUs.
    """
    if sweep and sweep.max_parallel and sweep.max_parallel > 1 and local_gpus:
        raise PlanError(
            f"--max-parallel {sweep.max_parallel}: on this machine the elements share the GPUs and "
            "run one after the "
            "other",
            hint="leave --max-parallel out, or use --gpus 0, or a Slurm profile with -P",
        )
