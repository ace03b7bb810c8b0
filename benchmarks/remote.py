"""What ``hpcrun --on HOST`` costs beside plain ssh over the same connection, and how long changed
code travels.

`python benchmarks/remote.py`: it needs sshd and rsync, and no cluster. It exits with 1 where a
demand is not met.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from measure import CommandFailedError, Contender, Place, race

from hpcrun.features.remote.code import send_code
from hpcrun.features.remote.run_on_host import opened
from tests.remote import laptop, login_node

PAIRS, MORE_AT_MOST_S = 9, 0.060
FILES, CHANGED, SENT_WITHIN_S = 50_000, 500, 3.0
SCRIPTS = sysconfig.get_path("scripts")
HPCRUN = str(Path(SCRIPTS, "hpcrun"))


def main() -> int:
    """Measure and print; returns the exit status."""
    try:
        with tempfile.TemporaryDirectory(prefix="hpcrun-bench-") as name:
            folder = Path(name)
            home = folder / "there"
            home.mkdir()
            (home / ".profile").write_text(f"export PATH={SCRIPTS}:$PATH\n")
            server = login_node(home / "sshd", {"HOME": str(home)}, user="root")
            with server as node, laptop(folder / "laptop", far=node) as here:
                place = Place(folder, here.environ)
                place.run([HPCRUN, "login", "far"])
                met = [measure_cost(place), measure_code(place, folder / "code")]
    except CommandFailedError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if all(met) else 1


def measure_cost(place: Place) -> bool:
    """Time `status` through hpcrun and through ssh; returns whether the demand is met."""
    control = f"ControlPath={place.env['XDG_RUNTIME_DIR']}/hpcrun/far"
    plain = Contender("ssh", ["ssh", "-o", control, "far", f"cd; {HPCRUN} status"])
    through = Contender("hpcrun --on", [HPCRUN, "--on", "far", "status"])
    race([plain, through], place=place, rounds=PAIRS)
    more_s = statistics.median(
        one - other for one, other in zip(through.seconds, plain.seconds, strict=True)
    )
    print(
        f"status: ssh {plain.median * 1000:.0f} ms, hpcrun --on {through.median * 1000:.0f} ms, "
        f"{more_s * 1000:.0f} ms more (at most {MORE_AT_MOST_S * 1000:.0f})"
    )
    return more_s <= MORE_AT_MOST_S


def measure_code(place: Place, project: Path) -> bool:
    """Time how long changed files travel; returns whether the demand is met."""
    files = [
        project / f"part{number // CHANGED}" / f"module{number}.py" for number in range(FILES - 1)
    ]
    for number, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"x = {number}\n" * 50)
    (project / "train.py").write_text("print(1)\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message=code"]):
        subprocess.run([*git, *command], cwd=project, check=True)
    os.environ.update(place.env)
    os.chdir(project)
    connection, _ = opened("far")
    send_code(connection, "submit", [])
    took = []
    for turn in range(3):
        for file in files[turn :: FILES // CHANGED]:
            file.write_text(f"y = {turn}\n" * 50)
        began = time.perf_counter()
        send_code(connection, "submit", [])
        took.append(time.perf_counter() - began)
    print(
        f"{CHANGED} changed files of {FILES:,}: {statistics.median(took):.1f} s (at most "
        f"{SENT_WITHIN_S:g} s)"
    )
    return statistics.median(took) <= SENT_WITHIN_S


if __name__ == "__main__":
    sys.exit(main())
