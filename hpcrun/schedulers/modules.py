"""Whether this machine knows a profile's environment modules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcrun.schedulers.environment import clean_env
from hpcrun.schedulers.process import run_command

_ANSWER_WITHIN_S = 10.0
_MARK = re.compile(r"^hpcrun-module (\d+) (ok|failed)$", re.MULTILINE)
_NO_COMMAND = 3

# The same files, and the same sequence of `module load`, as in templates/job.sh.j2: a module may exist only after
# another one is loaded (Lmod's hierarchy). The shell ends after this command, and with it the loaded modules.
SCRIPT = r"""
if ! command -v module >/dev/null; then
  for init in /etc/profile.d/{z00_lmod,lmod,modules}.sh /usr/share/{lmod/lmod,modules}/init/bash; do
    # shellcheck disable=SC1090
    if [ -r "$init" ]; then . "$init" && break; fi
  done
fi
command -v module >/dev/null || exit 3
number=0
for name; do
  if module load "$name" 2>&1; then result=ok; else result=failed; fi
  printf '\nhpcrun-module %s %s\n' "$number" "$result"
  number=$((number + 1))
done
"""


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """The result of loading modules in order.

    Attributes:
        command: whether there is a module command.
        failed: module → its error message.
        problem: why there is no result.
    """

    command: bool
    failed: dict[str, str]
    problem: str | None = None


def try_modules(names: Sequence[str], env: Mapping[str, str]) -> ModuleFacts:
    """Load modules in a separate shell, like the job's script."""
    argv = ["bash", "-c", SCRIPT, "hpcrun", *names]
    answer = run_command(argv, timeout_s=_ANSWER_WITHIN_S, env=clean_env(env))
    if answer.status == _NO_COMMAND and not _MARK.search(answer.stdout):
        return ModuleFacts(False, {})
    if not answer.ok:
        return ModuleFacts(True, {}, " ".join(answer.stderr.split()) or f"exit status {answer.status}")
    return ModuleFacts(True, parse_loads(answer.stdout, names))


def parse_loads(text: str, names: Sequence[str]) -> dict[str, str]:
    """Return the modules that could not be loaded → the error message, from the script's output."""
    failed = {}
    start = 0
    for mark in _MARK.finditer(text):
        if mark[2] == "failed" and int(mark[1]) < len(names):
            failed[names[int(mark[1])]] = " ".join(text[start : mark.start()].split())
        start = mark.end()
    return failed
