"""The sending side of rsync that answers what it likes: a list of files, then bytes without end.

It speaks protocol 29 (rsync's io.c, flist.c and sender.c). Its folder has ``list.json``: name, mode
and size of each file that it names. The dry run, which asks for sizes, is rsync's own answer.
"""

import json
import os
import struct
import sys
import threading
from pathlib import Path

PROTOCOL = 29
LONG_NAME = 1 << 6
TOP = 1 << 0
CHUNK = bytes(32_000)


def send(data: bytes) -> None:
    """Write a message of data in rsync's multiplexed stream."""
    header = struct.pack("<I", (7 << 24) | len(data))
    sys.stdout.buffer.write(header + data)
    sys.stdout.buffer.flush()


def drain() -> None:
    while os.read(0, 1 << 16):
        pass


def entry(name: bytes, mode: int, size: int) -> bytes:
    flags = LONG_NAME | TOP
    return (
        bytes([flags])
        + struct.pack("<I", len(name))
        + name
        + struct.pack("<iii", size, 1_700_000_000, mode)
    )


def main() -> None:
    if "n" in sys.argv[3].partition("e.")[0]:
        os.execv("/usr/bin/rsync", ["rsync", *sys.argv[1:]])
    sys.stdout.buffer.write(struct.pack("<ii", PROTOCOL, 1))  # and the seed of the checksums
    sys.stdout.buffer.flush()
    threading.Thread(target=drain, daemon=True).start()
    files = json.loads((Path(__file__).parent / "list.json").read_text())
    for name, mode, size in files:
        send(entry(os.fsencode(name), mode, size))
    send(b"\0" + struct.pack("<i", 0))
    number = sum(1 for _, mode, _ in files if mode < 0o100000)
    send(struct.pack("<iH", number, 1 << 15) + struct.pack("<iiii", 0, 700, 16, 0))
    while True:
        send(struct.pack("<i", len(CHUNK)) + CHUNK)


try:
    main()
except BrokenPipeError:
    os._exit(0)
