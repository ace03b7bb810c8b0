"""A stub in place of Ray: it listens, and then does what a test wants."""

from __future__ import annotations

from pathlib import Path

RAY = """
import os
def is_initialized():
    return True
def nodes():
    return [{"NodeName": os.environ["HPCRUN_NODE"], "Alive": True}]
"""
START = """
import socket, sys, time
def main():
    print("\\n".join(sys.argv[1:]), flush=True)
    port = next(word for word in sys.argv if word.startswith("--port="))
    with socket.create_server(("", int(port.partition("=")[2]))):
        {then}
"""


def write_ray(packages: Path, then: str) -> None:
    """Write the package ``ray`` into a folder of packages.

    Args:
        packages: the folder.
        then: the statements of Ray once it listens.
    """
    texts = {"__init__": RAY, "scripts/__init__": "", "scripts/scripts": START}
    for name, text in texts.items():
        path = packages / f"ray/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{then}", then))
