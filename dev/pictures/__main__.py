"""Take the pictures of the docs: ``python -m dev.pictures [NAME...]``, as root; all of them where none is named."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from dev.pictures.desk import HOME, Desk, desk
from dev.pictures.scenes import SCENES, Picture
from dev.pictures.svg import svg_text
from dev.pictures.terminal import TerminalError
from tests.harness import REPO, Cluster, cluster_error, cluster_sh, only_session_on_cluster

FOLDER = REPO / "docs" / "pictures"


def main(names: Sequence[str]) -> None:
    known = [scene.name for scene in SCENES if isinstance(scene, Picture)]
    if unknown := set(names) - set(known):
        sys.exit(f"no such picture: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if os.geteuid() != 0:
        sys.exit(f"the development cluster and {HOME} want root")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, no program hears Ctrl-C
    with ExitStack() as at_end:
        at_end.enter_context(only_session_on_cluster())
        if cluster_error("status"):
            cluster_sh("up")
            at_end.callback(cluster_sh, "down")
        cluster = Cluster.running()
        at_end.callback(cluster.restore, keep=cluster.jobs())
        if failures := play(at_end.enter_context(desk(cluster)), set(names or known)):
            sys.exit("\n\n".join(failures))


def play(at: Desk, wanted: set[str]) -> list[str]:
    """Play all scenes in their order, keep the pictures that are wanted, and return what went wrong with others."""
    failures = []
    for scene in SCENES:
        if not isinstance(scene, Picture):
            scene(at)
            continue
        try:
            take(scene, at, keep=scene.name in wanted)
        except TerminalError as error:
            failures.append(f"{scene.name}: {error}")
    return failures


def take(picture: Picture, at: Desk, *, keep: bool) -> None:
    """Type what the picture shows, which later ones may build on, and keep the screen where it is wanted.

    Raises:
        TerminalError: a command does not end, or the screen shows what is this machine's alone.
    """
    with at.terminal(picture.columns) as terminal:
        for step in picture.steps:
            terminal.type(step) if isinstance(step, str) else step(terminal)
        lines = terminal.lines()
    text = "\n".join(line.plain for line in lines)
    if found := re.search(rf"/(work|root|tmp)\b|{re.escape(os.uname().nodename)}", text):
        raise TerminalError(f"the screen shows {found[0]}, which is this machine's:\n{text}")
    if not keep:
        return
    if picture.drawn:
        shutil.copyfile(at.project / picture.drawn, FOLDER / Path(picture.drawn).name)
    svg = svg_text(lines, name=picture.name, title="hpcrun", columns=picture.columns)
    (FOLDER / f"{picture.name}.svg").write_text(svg, "utf-8")
    print(f"{picture.name}: {len(lines)} lines", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
