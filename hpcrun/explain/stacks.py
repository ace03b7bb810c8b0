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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcrun.actions.runs.allocation import allocation_of, nodes_of
from hpcrun.errors import PlanError
from hpcrun.explain.diagnosis.nccl_report import ras_remarks
from hpcrun.explain.diagnosis.stack_groups import (
    Group,
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


def _pythons(plan: Mapping[str, Any]) -> list[str]:
    """Return the Pythons that may be on the nodes.

    In a container's plan, ``python`` is the Python of the container's image.
    """
    container = plan.get("container") or {}
    python = plan.get("python") or {}
    if container:
        planned = container.get("host_python")
    else:
        planned = python.get("executable")
    candidates = (planned, sys.executable, "python3")
    return list(dict.fromkeys(str(candidate) for candidate in candidates if candidate))


def read_answers(answer: Completed, role_ranks: Callable[[list[int]], list[int]] = list) -> Answers:
    """Return what the programs on the nodes printed: ``in_job/probe/__main__.py`` describes it.

    Strange answers are left out.
    """
    stacks: list[RankStack] = []
    nodes = set()
    ras: list[str] = []
    ranks_of_pid: dict[int, list[int]] = {}
    for fields in _read_answers(answer.stdout):
        if "rank" not in fields:
            nodes.add(fields.get("node", ""))
            ras += fields.get("ras", [])
            continue
        for rank in role_ranks([fields["rank"]]):
            stacks.append(rank_stack({**fields, "rank": rank}))
            if "pid" in fields:
                ranks_of_pid.setdefault(fields["pid"], []).append(rank)
    messages = [line.strip() for line in answer.stderr.splitlines() if line.strip()]
    return Answers(
        ranks=tuple(sorted(stacks, key=lambda stack: stack.rank)),
        nodes=frozenset(nodes),
        words="; ".join(dict.fromkeys(messages)),
        ras=tuple(ras),
        rank_of={pid: ranks[0] for pid, ranks in ranks_of_pid.items() if len(ranks) == 1},
    )


def _read_answers(stdout: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of the answers, as far as they may be read; strange ones are left out."""
    left = _MOST_INFLATED
    for packed in _whole_answers(stdout):
        if left <= 0:
            return
        try:
            record = _inflated(packed, min(left, _MOST_ANSWER))
            left -= len(record)
            fields, _ = read_fields(parse_object(record), _FIELDS)
        except (ValueError, binascii.Error, zlib.error):
            continue
        yield fields


def _whole_answers(stdout: str) -> Iterator[str]:
    """Yield the answers of which all parts have come, as they were printed."""
    parts: dict[tuple[str, str], dict[int, str]] = {}
    wanted: dict[tuple[str, str], int] = {}
    for line in stdout.splitlines():
        words = line.partition(_MARK)[2].split()
        if len(words) != 4:
            continue
        node, checksum, place, part = words
        match = _PLACE.fullmatch(place)
        if match is None or int(match[1]) >= int(match[2]):
            continue
        key = (node, checksum)
        if key in parts or len(parts) < _MOST_ANSWERS:
            parts.setdefault(key, {})[int(match[1])] = part
            wanted[key] = int(match[2])
    for key, of_answer in parts.items():
        if len(of_answer) == wanted[key]:
            yield "".join(of_answer[number] for number in sorted(of_answer))


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
    how = fields.get("how", "")
    stack = fields.get("stack", "")
    lacks = fields.get("lacks", "")
    frames: tuple[Frame, ...] = ()
    try:
        frames = parse_py_spy(stack) if how == "py-spy" else parse_faulthandler(stack)
    except ValueError as error:
        lacks = str(error)
    worker: tuple[Frame, ...] = ()
    if waits_for_worker(frames):
        worker = _busy_worker(fields.get("workers", []))
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


def _busy_worker(stacks: Iterable[str]) -> tuple[Frame, ...]:
    """Return the frames of the first DataLoader worker that runs code of its own; () if none."""
    for stack in stacks:
        with suppress(ValueError):
            frames = own_work(parse_py_spy(stack))
            if frames:
                return frames
    return ()


def stacks_remark(running: Running, answers: Answers, nodes: Sequence[str]) -> Remark:
    """Return the verdict from the stacks, with the groups of ranks as evidence."""
    silent_nodes = []
    if running.item.run.scheduler != "local":
        silent_nodes = [node for node in nodes if node not in answers.nodes]
    silent_s = running.newest_s
    is_quiet = silent_s > silence_limit_s(running.usual_s)
    code = source_lines(answers.ranks, running.attempt.started_s)
    odd = odd_ranks(answers.ranks)
    nccl = ras_remarks(answers.ras, answers.rank_of)
    sentence = _sentence(running, answers, silent_nodes, silent_s if is_quiet else None, code)
    if nccl and is_quiet and not odd:
        sentence += f"; {nccl[0]}"
    evidence = [_of_group(group, code) for group in grouped(answers.ranks)[:_MOST_GROUPS]]
    if nccl:
        evidence.append(Evidence("NCCL", None, tuple(nccl[:_MOST_NCCL])))
    is_stopped = any(stack.is_stopped for stack in answers.ranks)
    first_odd = odd[0].rank if odd else None
    return Remark(
        sentence,
        tuple(evidence),
        rank=first_odd,
        stuck=is_quiet or bool(silent_nodes) or is_stopped,
        fix=_fix(answers.ranks),
        next=_next_command(running, first_odd),
    )


def _sentence(
    running: Running,
    answers: Answers,
    silent_nodes: Sequence[str],
    silent_s: float | None,
    code: Mapping[Frame, str],
) -> str:
    """Return where the ranks are, and which nodes and ranks are missing.

    Args:
        running: the attempt.
        answers: the answers of its nodes.
        silent_nodes: the nodes that did not answer.
        silent_s: how long no rank has written, in seconds; None if this is usual.
        code: frame → its line of code.
    """
    ranks = {stack.rank for stack in answers.ranks}
    ranks.update(running.writes.ranks, running.node_of)
    of_stacks = verdict(answers.ranks, world=len(ranks), silent_s=silent_s, code=code)
    parts = [running.of_role(of_stacks)]
    if silent_nodes:
        names = listed(silent_nodes, _MOST_NODES)
        parts.append(f"no response from {names} within {WITHIN_S} s")
    parts.append(_missing(running, answers, silent_nodes))
    sentence = "; ".join(part for part in parts if part)
    if sentence:
        return sentence
    why = answers.words or "its ranks may be starting or ending"
    return f"no process of a rank was found: {why}"


def _fix(stacks: Iterable[RankStack]) -> str:
    """Return how to get the stacks that are missing; empty if that is unknown."""
    lacks = {stack.lacks for stack in stacks if not stack.frames}
    for lack, fix in _FIXES.items():
        if lack in lacks:
            return fix
    return ""


def _next_command(running: Running, rank: int | None) -> str:
    """Return the command that shows the log of a rank; empty if it has written nothing."""
    if rank is None or rank not in running.writes.ranks:
        return ""
    options = rank_option(rank, running.attempt.folder.role)
    return f"hpcrun logs {running.item.label} {options}"


def _missing(running: Running, answers: Answers, silent_nodes: Sequence[str]) -> str:
    """Return which ranks have no process on nodes that answered.

    Such a rank has just begun or ended, or was killed.
    """
    seen = {stack.rank for stack in answers.ranks}
    missing = []
    for rank in running.silent_s:
        if rank not in seen and running.node_of.get(rank) not in silent_nodes:
            missing.append(rank)
    if not seen or not missing:
        return ""
    return f"no process of {ranks_text(missing)} was found"


def _of_group(group: Group, code: Mapping[Frame, str]) -> Evidence:
    """Return the stack of a group of ranks.

    The stack has the frames of the user's code and the innermost frame.
    """
    first = group.ranks[0]
    state = f"state {first.state}"
    if len(group.ranks) == 1:
        who = rank_text(first.rank, first.node)
        if first.busy is not None:
            state += f", busy {first.busy:.0%}"
    else:
        who = ranks_text([stack.rank for stack in group.ranks])
    note = f"{state}, {first.how}" if first.how else state
    lines = [_frame_text(frame, code) for frame in _shown(first.frames)]
    for frame in _shown(first.worker)[-2:]:
        lines.append(f"DataLoader worker: {_frame_text(frame, code)}")
    if not lines:
        lines.append(first.lacks or "no stack")
    return Evidence(who, None, tuple(lines), note)


def _shown(frames: Sequence[Frame]) -> list[Frame]:
    """Return the user's frames and the innermost one, the outermost first."""
    of_user = [frame for frame in frames if frame.in_user_code]
    shown = of_user[-(_MOST_FRAMES - 1) :]
    if frames and frames[-1] not in shown:
        shown.append(frames[-1])
    return shown


def _frame_text(frame: Frame, code: Mapping[Frame, str]) -> str:
    """Return ``train.py:7 in step: loss.backward()``, a file of a library by its short name."""
    file = frame.file
    if not frame.in_user_code:
        file = frame.short.rpartition(":")[0]
    text = f"{file}:{frame.line} in {frame.function}"
    if frame in code:
        text += f": {code[frame]}"
    return text


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
    lines: dict[Frame, str] = {}
    for file, frames in wanted.items():
        lines.update(_lines_of(Path(file), frames, before_s))
    return lines


def _lines_of(path: Path, frames: Iterable[Frame], before_s: float) -> Iterator[tuple[Frame, str]]:
    """Yield frames of a file with their lines of code; nothing if the file may not be read."""
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
        if not 0 < frame.line <= len(lines):
            continue
        line = lines[frame.line - 1].strip()
        if len(line) > _LONGEST_CODE:
            line = f"{line[: _LONGEST_CODE - 1]}…"
        if line:
            yield frame, line
