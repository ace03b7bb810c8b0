"""Times, sizes, numbers and lists as text and back, and phrases of many messages.

The texts are those that options take. Pure.

Slurm's time forms are those of sbatch(1) ``--time``: ``minutes``, ``minutes:seconds``,
``hours:minutes:seconds``, ``days-hours``, ``days-hours:minutes`` and
``days-hours:minutes:seconds``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpcrun.job.text.spelling import spell

if TYPE_CHECKING:
    from hpcrun.job.run_paths import RoleRanks

TIME_FORMS = "90m, 36h, 1d12h, 1:30:00 or 1-12:00:00"
MEMORY_FORMS = "64G, 500M, 1.5T or 0 for all of a node's memory"

_SLURM_TIME = re.compile(r"(?:(?P<days>\d{1,6})-)?(?P<rest>\d{1,9}(?::\d{1,9}){0,2})", re.ASCII)
_ZERO_TIME = re.compile(r"0[0:\-.wdhms]*")
_MEMORY = re.compile(
    r"(?P<number>\d{1,12}(?:\.\d{1,6})?)(?:(?P<unit>[KMGT])(?:i?B)?)?", re.IGNORECASE
)
_UNIT_MB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}

COUNT_FORMS = "1200000, 1.2M or 500k (k, M, G: a thousand, a million, 10⁹; B is G)"

_NUMBER = r"\d{1,15}(?:\.\d{1,9})?"
_COUNT = re.compile(rf"(?P<number>{_NUMBER})(?P<unit>[kKMGB]?)", re.ASCII)
_UNIT_COUNT = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
_UNIT_S = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:({_NUMBER}){unit})?" for unit in _UNIT_S), re.ASCII)


def parse_duration(text: str) -> float:
    """Return a duration in seconds, from ``36h``, ``1d12h``, ``42.3s`` or a form of Slurm.

    Slurm's forms here have ``:`` or ``-``. A number without a unit is refused: sbatch reads minutes
    in --time and seconds in --signal, and most people think of days for the age of a run.

    Raises:
        ValueError: if the text is no duration, has no unit, or is zero.
    """
    typed = text.strip().lower()
    if _ZERO_TIME.fullmatch(typed):
        raise ValueError("must be longer than zero")
    if re.fullmatch(_NUMBER, typed, re.ASCII):
        raise ValueError(
            f"{typed!r} has no unit; write {typed}m for minutes, or {typed}s, {typed}h or {typed}d"
        )
    seconds = slurm_seconds(typed)
    if seconds is not None:
        return seconds
    parts = _DURATION.fullmatch(typed)
    if not typed or parts is None:
        raise ValueError(f"{text!r} is not a time; write it as {TIME_FORMS}")
    total_s = 0.0
    for part, unit_s in zip(parts.groups(), _UNIT_S.values(), strict=True):
        total_s += float(part or 0) * unit_s
    return total_s


def parse_time(text: str) -> int:
    """Return a duration in whole seconds; it reads, and refuses, what ``parse_duration`` does."""
    return math.ceil(parse_duration(text))


def parse_slurm_time(text: str) -> int:
    """Return a time limit in seconds as sbatch reads it: a number without a unit is minutes.

    This is the rule for files, directives, variables and ``--time``.
    """
    typed = text.strip()
    if re.fullmatch(r"\d{1,9}", typed, re.ASCII):
        typed += "m"
    return parse_time(typed)


def parse_walltime(text: str) -> int:
    """Return a job's time limit in seconds, as ``parse_slurm_time`` does.

    Raises:
        ValueError: if the time is zero, which means no limit for sbatch(1).
    """
    if _ZERO_TIME.fullmatch(text.strip().lower()):
        raise ValueError(
            f"{text.strip()} means no limit in Slurm; hpcrun needs a limit: set {spell('time')}, "
            f"or use {spell('no-sbatch', 'time')} for the partition's default"
        )
    return parse_slurm_time(text)


def slurm_seconds(text: str) -> int | None:
    """Return the seconds of a time in one of Slurm's forms.

    The result is None for UNLIMITED, NOT_SET and other texts.
    """
    match = _SLURM_TIME.fullmatch(text)
    if match is None:
        return None
    parts = [int(part) for part in match["rest"].split(":")]
    # days-hours[:minutes[:seconds]], hours:minutes:seconds, or minutes[:seconds]
    if not match["days"] and len(parts) < 3:
        parts.insert(0, 0)
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    return ((int(match["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def format_time(seconds: int) -> str:
    """Return seconds in Slurm's form: ``HH:MM:SS`` or ``D-HH:MM:SS``."""
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    clock = f"{h:02d}:{m:02d}:{s:02d}"
    return f"{days}-{clock}" if days else clock


def parse_memory(text: str, forms: str = MEMORY_FORMS) -> int:
    """Return a memory size in MB, Slurm's own unit of 1024 × 1024 bytes.

    0 is all of a node's memory.

    Raises:
        ValueError: if the text is no memory size, or is less than a megabyte; the message shows
            ``forms``, in which a size may be written.
    """
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a memory size; write it as {forms}")
    megabytes = float(match["number"]) * _UNIT_MB[(match["unit"] or "M").upper()]
    if 0 < megabytes < 1:
        raise ValueError(f"{text!r} is less than a megabyte; write it as {forms}")
    return round(megabytes)


def format_memory(megabytes: int) -> str:
    """Return MB in sbatch's form: in gigabytes if the number is whole, else in megabytes."""
    if megabytes and megabytes % 1024 == 0:
        return f"{megabytes // 1024}G"
    return f"{megabytes}M" if megabytes else "0"


def format_size(size: float) -> str:
    """Return a number of bytes in GB of 1024³ bytes, in MB or in kB.

    Examples are ``16.0 GB``, ``340 MB`` and ``2 kB``.
    """
    megabytes = size / (1 << 20)
    if megabytes >= 1024:
        return f"{megabytes / 1024:.1f} GB"
    if megabytes >= 1:
        return f"{megabytes:.0f} MB"
    return f"{math.ceil(size / 1024)} kB"


def format_rate(bytes_per_s: float) -> str:
    """Return a rate in GB/s of 10⁹ bytes, in MB/s or in kB/s."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6)):
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.2f} {unit}"
    return f"{bytes_per_s / 1e3:.1f} kB/s"


def format_age(seconds: float) -> str:
    """Return an age in the largest unit that fits.

    A negative age is 0 s, since the clocks of hosts differ.
    """
    return f"{format_span(seconds, least=1)} ago"


def format_span(seconds: float, least: int = 2) -> str:
    """Return a length of time in the largest unit of which there are at least two.

    Examples are ``95 s`` and ``12 min``. ``least`` is the smallest number of a unit, two by
    default.
    """
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= least * length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def parse_count(text: str) -> int:
    """Return a number of samples or parameters, from ``1.2M`` or ``25000000``.

    Raises:
        ValueError: if the text is no number, or the number is zero or a fraction.
    """
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a number; write it as {COUNT_FORMS}")
    whole, _, part = match["number"].partition(".")
    # in integers: 1.2M as a float is a little less, or more
    digits = int(whole + part) * _UNIT_COUNT[match["unit"].upper()]
    number, rest = divmod(digits, int(10 ** len(part)))
    if number == 0 or rest:
        raise ValueError(f"{text!r} is not a whole number from 1 on; write it as {COUNT_FORMS}")
    return number


def parse_positive(text: str) -> float:
    """Return a number above zero that is neither infinite nor absurdly large or small.

    Raises:
        ValueError: if the text is not such a number.
    """
    number = math.nan
    if text.isascii() and "_" not in text:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
    if not 1e-12 <= number <= 1e12:  # NaN is not, either
        raise ValueError(f"{text!r} is not a number above zero; write it as 0.001, 1e-3 or 2.5")
    return number


def table_rows(table: str) -> list[list[str]]:
    """Return the cells of each row of a table in a text: ``name | other``."""
    rows = [row for row in table.splitlines() if row.strip()]
    return [[cell.strip() for cell in row.split(" | ")] for row in rows]


_LONGEST_RANKS = 40
_NUMBERED = re.compile(r"(?P<name>.*?)(?P<number>0|[1-9]\d{0,8})", re.ASCII)


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return ``a, b, c``; of more names than ``most`` the first: ``a, b, c and 4 more``."""
    text = ", ".join(names[:most])
    if len(names) > most:
        text += f" and {len(names) - most} more"
    return text


def joined(names: Sequence[str], most: int = 3) -> str:
    """Return names in one text: ``a``, ``a and b`` or ``a, b and c``.

    Of more names than ``most`` only the first are shown: ``a, b, c and 4 more``.
    """
    if len(names) > most:
        return listed(names, most)
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def rank_text(rank: int, node: str | None = None, role: RoleRanks | None = None) -> str:
    """Return the name of a rank, such as ``rank 3 on node-1``.

    The text is ``rank 3`` if the node is unknown, and ``trainer rank 3`` for a role; a role with
    one rank has its name alone, ``server``.
    """
    name = role.name if role and role.ranks == 1 else ranks_text([rank], role)
    return f"{name} on {node}" if node else name


def ranks_text(ranks: Sequence[int], role: RoleRanks | None = None) -> str:
    """Return ``rank 3`` or ``ranks 0-2, 5``, after the name of their role.

    Of many ranges only the first are shown.
    """
    front = f"{role.name} " if role else ""
    ranges = index_ranges(ranks).replace(",", ", ")
    if len(ranges) > _LONGEST_RANKS:
        ranges = ranges[:_LONGEST_RANKS].rpartition(",")[0] + f", ... ({len(ranks)} ranks)"
    if len(ranks) == 1:
        return f"{front}rank {ranges}"
    return f"{front}ranks {ranges}"


def rank_option(rank: int, role: RoleRanks | None) -> str:
    """Return the options of ``hpcrun logs`` that show a rank.

    Examples are ``--rank 3`` and ``--role trainer --rank 3``.
    """
    if role is None:
        return f"--rank {rank}"
    if role.ranks > 1:
        return f"--role {role.name} --rank {rank}"
    return f"--role {role.name}"


def host_list(names: Iterable[str]) -> str:
    """Return the names of nodes as squeue shows them: ``a100-[1-2],login``."""
    numbers: dict[str, list[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match:
            numbers.setdefault(match["name"], []).append(int(match["number"]))
        else:
            numbers.setdefault(name, [])
    texts = []
    for name, indices in numbers.items():
        text = index_ranges(indices)
        texts.append(f"{name}[{text}]" if len(indices) > 1 else f"{name}{text}")
    return ",".join(texts)


def count(number: int, noun: str) -> str:
    """Return ``1 rank`` or ``7 ranks``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def cut_at_word(text: str, most: int) -> str:
    """Return at most so many characters of a text: whole words and ``…``.

    Of a single long word the result is a part.
    """
    if len(text) <= most:
        return text
    head = text[: most - 1]
    if not text[most - 1].isspace():
        whole = head.rpartition(" ")[0]
        if len(whole) > most // 2:
            head = whole
    return f"{head.rstrip()}…"


_DETAIL = re.compile(r", (?:unable|got) .*| or instance of .*")


def error_words(detail: Mapping[str, Any]) -> str:
    """Return one of pydantic's errors in words, without the value itself.

    An example is ``must be a valid integer``.
    """
    message = _DETAIL.sub("", str(detail["msg"]).removeprefix("Value error, "))
    return (
        message.replace("Input should be", "must be")
        .replace("tuple", "list")
        .replace("dictionary", "section")
    )


def index_ranges(indices: Iterable[int]) -> str:
    """Write numbers of elements as Slurm does: ``0-2,5``."""
    parts: list[list[int]] = []
    for index in sorted(indices):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
