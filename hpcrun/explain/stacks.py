"""explain --stacks: what each rank of a running job is doing.

A step on the job's nodes, inside the allocation, reads the stacks.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shutil
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcrun.actions.runs.allocation import allocation_of, nodes_of
from hpcrun.errors import PlanError
from hpcrun.explain.diagnosis.nccl_report import ras_remarks
from hpcrun.explain.diagnosis.stack_groups import (
    RankStack,
    grouped,
    odd_ranks,
    own_work,
    parse_faulthandler,
    parse_py_spy,
    position_of,
    verdict,
    waits_for_worker,
)
from hpcrun.explain.diagnosis.traceback import Frame
from hpcrun.explain.evidence import Evidence
from hpcrun.explain.running import Remark, Running
from hpcrun.files.reading import (
    flag,
    list_of,
    matching,
    number,
    open_regular,
    parse_object,
    read_fields,
    text,
    whole,
)
from hpcrun.job.run_paths import RunFolder
from hpcrun.job.text.units import listed, rank_option, rank_text, ranks_text
from hpcrun.machine.process import Completed, run_command
from hpcrun.runs.silence import silence_limit_s

WITHIN_S = 8
"""The time in which the nodes must answer: the command as a whole may take 15 s."""
_MARK = "hpcrun-stacks "
_FIXES = {
    "no py-spy in the job's environment": "for Python stacks install py-spy where the job's Python "
    "is, or where hpcrun is: pip install py-spy",
    "py-spy may not read this process": "let the program call hpcrun_runtime.register_stacks(): "
    "py-spy may not read other processes here",
}
"""Two of the reasons for a missing stack, in the words of in_job/probe/rank_processes.py and
in_job/probe/py_spy.py → what to do.
"""
_MOST_GROUPS = 6
_MOST_FRAMES = 6
_MOST_NCCL = 6
_MOST_NODES = 5
_MOST_SOURCE = 4 << 20
_MOST_ANSWER = 9 << 20
_MOST_INFLATED = 1 << 28
_MOST_ANSWERS = 1 << 16
"""The bytes of an answer (in_job/probe/__main__.py prints at most 8 MB) and of all together; how
many answers are read.
"""
_WORD = matching(r".{0,300}", "a short text")
_FIELDS = {
    "rank": whole(),
    "pid": whole(),
    "busy": number,
    "gpu": flag,
    "stack": text,
    "workers": list_of(text),
    "ras": list_of(text),
    **dict.fromkeys(("node", "how", "state", "wchan", "lacks"), _WORD),
}
"""What ``in_job/probe/__main__.py`` prints; an answer with anything else in one of them is left
out.
"""
_PLACE = re.compile(r"(\d{1,6})/(\d{1,6})", re.ASCII)
_LONGEST_CODE = 80
# the first Python that starts there: that of the job, that of hpcrun, any; none of the current
# folder
_COMMAND = (
    'cd /; main=$0 folder=$1 spy=$2; shift 2; for python in "${@:2}"; do command -v "$python" '
    ">/dev/null || continue; "
    '"$python" -ISB "$main" "$folder" "$spy"; [ $? -lt 126 ] && exit; done; echo "no Python on '
    '$HOSTNAME" >&2'
)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of the nodes.

    Attributes:
        nodes: the nodes that answered; empty for a job of this machine.
        words: the error messages of the command.
        ras: the reports of NCCL's RAS.
        rank_of: process id → rank, of ids that only one rank has.
    """

    ranks: tuple[RankStack, ...]
    nodes: frozenset[str]
    words: str = ""
    ras: tuple[str, ...] = ()
    rank_of: Mapping[int, int] = field(default_factory=dict)


def take_stacks(running: Running, env: Mapping[str, str]) -> Remark:
    """Ask every node of a running job what its ranks are doing.

    No rank is stopped, and only a program that has called ``register_stacks()`` is signalled.

    Raises:
        PlanError: its folder has no program for this.
    """
    item = running.item
    program = RunFolder(item.folder).programs("probe") / "__main__.py"
    if not program.exists():
        raise PlanError(
            f"{item.run.run_id} was submitted by an older hpcrun that does not support --stacks",
            hint=f"hpcrun explain {item.run.job_id} shows its logs",
        )
    command = [
        "bash",
        "-c",
        _COMMAND,
        str(program.absolute()),
        str(running.attempt.folder.path.absolute()),
        _own_py_spy(env),
        *_pythons(item.run.plan),
    ]
    if item.run.scheduler == "local":
        answer = run_command(command, timeout_s=WITHIN_S, env=env)
    else:
        answer = allocation_of(item, env).on_every_node(command, WITHIN_S)
    return stacks_remark(
        running, read_answers(answer, running.attempt.folder.role_ranks), nodes_of(item)
    )


def _own_py_spy(env: Mapping[str, str]) -> str:
    """Return hpcrun's py-spy, an empty text if there is none.

    A relative or empty entry of the PATH means the current folder, and is left out.
    """
    folders = [os.path.dirname(sys.executable), *env.get("PATH", "").split(os.pathsep)]
    return shutil.which("py-spy", path=os.pathsep.join(filter(os.path.isabs, folders))) or ""


def _pythons(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the Pythons that may be on the nodes.

    In a container's plan, ``python`` is the Python of the container's image.
    """
    container = plan.get("container") or {}
    python = plan.get("python") or {}
    if container:
        named = container.get("host_python")
    else:
        named = python.get("executable")
    yield from dict.fromkeys(str(each) for each in (named, sys.executable, "python3") if each)


def read_answers(answer: Completed, role_ranks: Callable[[list[int]], list[int]] = list) -> Answers:
    """Read what the programs on the nodes printed: ``in_job/probe/__main__.py`` describes it.

    Strange answers are left out.
    """
    ranks = []
    nodes = set()
    ras = []
    pids = []
    left = _MOST_INFLATED
    for packed in _whole_answers(answer.stdout):
        if left <= 0:
            break
        with suppress(ValueError, binascii.Error, zlib.error):
            record = _inflated(packed, min(left, _MOST_ANSWER))
            left -= len(record)
            fields, _ = read_fields(parse_object(record), _FIELDS)
            if "rank" in fields:
                numbers = role_ranks([fields["rank"]])
                ranks += [rank_stack({**fields, "rank": rank}) for rank in numbers]
                pids += [(fields.get("pid"), rank) for rank in numbers]
            else:
                ras += fields.get("ras", [])
                nodes.add(fields.get("node", ""))
    words_ = "; ".join(
        dict.fromkeys(line.strip() for line in answer.stderr.splitlines() if line.strip())
    )
    often = Counter(pid for pid, _ in pids)
    rank_of = {pid: rank for pid, rank in pids if often[pid] == 1 and pid is not None}
    return Answers(
        tuple(sorted(ranks, key=lambda each: each.rank)),
        frozenset(nodes),
        words_,
        tuple(ras),
        rank_of,
    )


def _whole_answers(stdout: str) -> Iterator[str]:
    """Yield the answers of which all parts have come, as they were printed."""
    parts: dict[tuple[str, str], dict[int, str]] = {}
    wanted: dict[tuple[str, str], int] = {}
    for line in stdout.splitlines():
        words = line.partition(_MARK)[2].split()
        place = _PLACE.fullmatch(words[2]) if len(words) == 4 else None
        if place is None or int(place[1]) >= int(place[2]):
            continue
        key = (words[0], words[1])
        if key in parts or len(parts) < _MOST_ANSWERS:
            parts.setdefault(key, {})[int(place[1])] = words[3]
            wanted[key] = int(place[2])
    for key, mine in parts.items():
        if len(mine) == wanted[key]:
            yield "".join(mine[place] for place in sorted(mine))


def _inflated(text: str, most: int) -> bytes:
    """Return what was compressed in a text: a few kilobytes may stand for a gigabyte.

    Raises:
        ValueError: if the text is not valid base64, or what it holds is cut off or longer than
            ``most``.
        zlib.error: if the text is not compressed.
    """
    inflate = zlib.decompressobj()
    record = inflate.decompress(base64.b64decode(text, validate=True), most)
    if not inflate.eof:
        raise ValueError("it is cut off, or too long")
    return record


def rank_stack(fields: Mapping[str, Any]) -> RankStack:
    """Return the stack of a rank from a node's answer."""
    how, stack, lacks = (fields.get(name, "") for name in ("how", "stack", "lacks"))
    frames: tuple[Frame, ...] = ()
    try:
        if how == "py-spy":
            frames = parse_py_spy(stack)
        else:
            frames = parse_faulthandler(stack)
    except ValueError as error:
        lacks = str(error)
    worker: tuple[Frame, ...] = ()
    for each in fields.get("workers", []) if waits_for_worker(frames) else []:
        with suppress(ValueError):
            worker = worker or own_work(parse_py_spy(each))
    return RankStack(
        fields["rank"],
        fields.get("node", ""),
        frames,
        state=fields.get("state", ""),
        waits_in=fields.get("wchan", ""),
        busy=fields.get("busy"),
        gpu=fields.get("gpu", False),
        worker=worker,
        how=how if frames else "",
        lacks=lacks,
    )


def stacks_remark(running: Running, answers: Answers, nodes: Sequence[str]) -> Remark:
    """Return the verdict from the stacks, with the groups of ranks as evidence."""
    is_local = running.item.run.scheduler == "local"
    if is_local:
        silent = []
    else:
        silent = [node for node in nodes if node not in answers.nodes]
    silent_s = running.newest_s
    is_quiet = silent_s > silence_limit_s(running.usual_s)
    code = source_lines(answers.ranks, running.attempt.started_s)
    world = len({*running.writes.ranks, *running.node_of, *(each.rank for each in answers.ranks)})
    sentence = running.of_role(
        verdict(answers.ranks, world=world, silent_s=silent_s if is_quiet else None, code=code)
    )
    if silent:
        no_response = f"no response from {listed(silent, _MOST_NODES)} within {WITHIN_S} s"
    else:
        no_response = ""
    sentence = "; ".join(filter(None, (sentence, no_response, _missing(running, answers, silent))))
    sentence = (
        sentence
        or "no process of a rank was found: "
        f"{answers.words or 'its ranks may be starting or ending'}"
    )
    odd = odd_ranks(answers.ranks)
    nccl = ras_remarks(answers.ras, answers.rank_of)
    if nccl and is_quiet and not odd:
        sentence = f"{sentence}; {nccl[0]}"
    named_rank = odd[0].rank if odd else None
    options = rank_option(named_rank or 0, running.attempt.folder.role)
    lacks = {each.lacks for each in answers.ranks if not each.frames}
    label = running.item.label
    return Remark(
        sentence,
        (
            *_evidence(answers.ranks, code),
            *([Evidence("NCCL", None, tuple(nccl[:_MOST_NCCL]))] if nccl else []),
        ),
        rank=named_rank,
        stuck=is_quiet or bool(silent) or any(each.is_stopped for each in answers.ranks),
        # how to get the stacks that are missing
        fix=next((fix for lack, fix in _FIXES.items() if lack in lacks), ""),
        next=f"hpcrun logs {label} {options}" if named_rank in running.writes.ranks else "",
    )


def _missing(running: Running, answers: Answers, away: Sequence[str]) -> str:
    """Return which ranks have no process on nodes that answered.

    Such a rank has just begun or ended, or was killed.
    """
    seen = {each.rank for each in answers.ranks}
    lost = [
        rank
        for rank in running.silent_s
        if rank not in seen and running.node_of.get(rank) not in away
    ]
    if not seen or not lost:
        return ""
    return f"no process of {ranks_text(lost)} was found"


def _evidence(ranks: Sequence[RankStack], code: Mapping[Frame, str]) -> Iterator[Evidence]:
    """Yield the stack of each group of ranks.

    The stack has the frames of the user's code and the innermost frame.
    """
    for group in grouped(ranks)[:_MOST_GROUPS]:
        first = group.ranks[0]
        numbers = [each.rank for each in group.ranks]
        if len(numbers) == 1:
            who = rank_text(first.rank, first.node)
        else:
            who = ranks_text(numbers)
        if first.busy is not None and len(numbers) == 1:
            busy = f", busy {first.busy:.0%}"
        else:
            busy = ""
        note = ", ".join(filter(None, (f"state {first.state}{busy}", first.how)))
        lines = [_frame_text(frame, code) for frame in _shown(first.frames)]
        lines += [
            f"DataLoader worker: {_frame_text(frame, code)}" for frame in _shown(first.worker)[-2:]
        ]
        yield Evidence(who, None, tuple(lines or [first.lacks or "no stack"]), note)


def _shown(frames: Sequence[Frame]) -> list[Frame]:
    """Return the user's frames and the innermost one, the outermost first."""
    chosen = [frame for frame in frames if frame.in_user_code][-(_MOST_FRAMES - 1) :]
    return [*chosen, *(frame for frame in frames[-1:] if frame not in chosen)]


def _frame_text(frame: Frame, code: Mapping[Frame, str]) -> str:
    line = f": {code[frame]}" if frame in code else ""
    if frame.in_user_code:
        file = frame.file
    else:
        file = frame.short.rpartition(":")[0]
    return f"{file}:{frame.line} in {frame.function}{line}"


def source_lines(ranks: Iterable[RankStack], before_s: float) -> dict[Frame, str]:
    """Return the lines of code of the user's frames.

    Only files that did not change since the start of the job are read.
    """
    wanted: dict[str, set[Frame]] = {}
    for stack in ranks:
        shown = {*_shown(stack.frames), *_shown(stack.worker)}
        user = position_of(stack).user
        if user is not None:
            shown.add(user)
        for frame in shown:
            if frame.in_user_code:
                wanted.setdefault(frame.file, set()).add(frame)
    return {
        frame: line
        for file, frames in wanted.items()
        for frame, line in _lines_of(Path(file), frames, before_s)
    }


def _lines_of(path: Path, frames: Iterable[Frame], before_s: float) -> Iterator[tuple[Frame, str]]:
    try:
        path = path.resolve(strict=True)
        if path.suffix != ".py":  # a program can give its code any file's name
            return
        with open_regular(path, links=False) as file:
            status = os.fstat(file.fileno())
            if status.st_mtime > before_s or status.st_size > _MOST_SOURCE:
                return
            lines = file.read(_MOST_SOURCE).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links in a circle
        return
    for frame in frames:
        if 0 < frame.line <= len(lines) and (line := lines[frame.line - 1].strip()):
            yield frame, line if len(line) <= _LONGEST_CODE else f"{line[: _LONGEST_CODE - 1]}…"
