"""Reads the dumps of torch's flight recorder in an attempt's folder."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from hpcrun.explain.diagnosis.flight.dump import Dump, DumpError, DumpReader
from hpcrun.explain.diagnosis.flight.meetings import Flight, judge
from hpcrun.explain.diagnosis.flight.plain_pickle import MOST_BYTES
from hpcrun.job.layout import AttemptFolder
from hpcrun.reading import read_bytes
from hpcrun.runs.attempt import names_in

_NAME = re.compile(r"\D*(?P<rank>0|[1-9]\d{0,6})(?:\.(?:json|pickle|pkl|bin))?")
"""launch/environment.py has torch write ``rank_3``; a program may name it so too."""
_MOST_READ, _MOST_READ_QUICKLY = 512 << 20, 4 << 20
"""Bytes of all dumps: those of 512 ranks have 200 MB or more, and take some seconds."""

_MOST_REMARKS = 8


def read_flight(folder: AttemptFolder, ranks: Collection[int], unread: list[str], *, quick: bool) -> Flight | None:
    """Return what the dumps of an attempt show; None if there are none.

    Args:
        ranks: the ranks of the job, as far as they are known.
        unread: gets a remark for each of the first dumps that cannot be read, and the number of the others.
        quick: only if they are small.
    """
    files = {int(match["rank"]): name for name in sorted(names_in(folder.flight)) if (match := _NAME.fullmatch(name))}
    if not files or (quick and sum(_size(folder.flight / name) for name in files.values()) > _MOST_READ_QUICKLY):
        return None
    reader, dumps = DumpReader(), dict[int, Dump]()
    left, bad = _MOST_READ, list[str]()
    for rank, name in sorted(files.items()):
        path = folder.flight / name
        shown = path.relative_to(folder.run)
        left -= min(_size(path), MOST_BYTES)  # a sparse file may have terabytes, of which nothing is read
        if left < 0:
            bad.append(f"{shown} and the dumps after it: only the first 512 MB were read")
            break
        try:
            dumps[rank] = reader.read(read_bytes(path, MOST_BYTES))
        except DumpError as error:
            bad.append(f"{shown}: {error}")
        except OSError as error:
            bad.append(f"{shown}: {error.strerror}")
    unread += bad[:_MOST_REMARKS]
    if bad[_MOST_REMARKS:]:
        unread.append(f"{folder.flight.relative_to(folder.run)}: {len(bad) - _MOST_REMARKS} more dumps")
    return judge(dumps, ranks) if dumps else None


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
