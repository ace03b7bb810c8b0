"""Making hostile text safe: for bash, for ``#SBATCH`` lines, for job names.

Scripts are pure ASCII, so that neither a locale nor an editor can change what a rank receives.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable

_BASH_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_NAME_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_DIRECTIVE_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./*\[\]&|!()^~-]+")
# What chooses a run where a name could stand: last, a job's id, an element of an array, a run's id.
_CHOOSES_A_RUN = re.compile(r"last|L?\d+(_\d+)?|\d{8}-\d{6}-.+-[0-9a-f]{4}", re.ASCII)
_MOUNT = re.compile(r"(/[^:,\x00-\x1f]*)(:/[^:,\x00-\x1f]*(:r[ow])?)?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words by which sbatch separates the parts of a heterogeneous job. Some versions find them anywhere
# on an #SBATCH line (esm-tools/esm_tools#934), although 22.05.8 accepts them in a name. So hpcrun
# never allows them in a name.
_HETJOB_WORDS = ("hetjob", "packjob")
# sbatch copies a directive's value into a buffer of BUFSIZ (8192) bytes: src/sbatch/opt.c.
_DIRECTIVE_MAX = 4096


def quote_bash(text: str) -> str:
    """Return one bash word, in printable ASCII, that expands to exactly ``text``.

    Undecodable bytes are surrogates, as in ``sys.argv``.

    Raises:
        ValueError: the text has a NUL character.
    """
    raw = os.fsencode(text)
    if b"\0" in raw:
        raise ValueError("a NUL character cannot stand in an argument or a variable")
    if _BASH_SAFE.fullmatch(text) and not text.startswith("="):  # a leading = has a meaning for zsh
        return text
    if all(0x20 <= byte < 0x7F for byte in raw):
        return "'" + text.replace("'", "'\\''") + "'"
    # always two digits: bash reads at most two, so it never reads the next character as a digit
    plain = (chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in raw)
    quoted = "".join("\\" + char if char in ("\\", "'") else char for char in plain)
    return f"$'{quoted}'"


def bash_line(words: Iterable[str]) -> str:
    """Return words as one line of bash."""
    return " ".join(map(quote_bash, words))


def quote_directive(value: str) -> str:
    """Return ``value`` as sbatch reads the value after ``#SBATCH --key=``.

    Raises:
        ValueError: sbatch cannot read the value.
    """
    if any(not 0x20 <= ord(char) < 0x7F for char in value):
        raise ValueError("only printable ASCII can stand in an #SBATCH line")
    if len(value) > _DIRECTIVE_MAX:
        raise ValueError(f"longer than {_DIRECTIVE_MAX} characters")
    for separator in _HETJOB_WORDS:
        if separator in value:
            raise ValueError(
                f"sbatch reads the word {separator!r} as the start of a heterogeneous job"
            )
    if _DIRECTIVE_SAFE.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def check_job_name(name: str) -> str:
    """Return ``name`` if sbatch takes ``name`` for a job's name.

    Raises:
        ValueError: sbatch cannot have the name.
    """
    try:
        if not name.strip():
            raise ValueError("it is empty")
        quote_directive(name)
    except ValueError as error:
        proposed = job_name_from(name)
        raise ValueError(f"{name!r} cannot be a job's name: {error}; {proposed!r} could") from None
    return name


def run_name_note(name: str, scheduler: str = "slurm") -> str | None:
    """Return a note that a run cannot have a job's name; None if it has the name."""
    of_run = job_name_from(name)
    if of_run == name:
        return None
    reason = "which can be a part of file names"
    if _CHOOSES_A_RUN.fullmatch(name):
        reason = f"since `hpcrun status {name}` means a job id, or another run"
    note = f"the run's name is {of_run}, {reason}"
    return f"{note}; Slurm's is {name}" if scheduler == "slurm" else note


def job_name_from(text: str) -> str:
    """Return a run's name made from any text: a job's name in Slurm, or a script's file name.

    The name can be a part of a file name and a word on a terminal.
    """
    has_words = any(separator in text for separator in _HETJOB_WORDS)
    is_plain = _NAME_SAFE.fullmatch(text) is not None and not has_words
    if is_plain and not _CHOOSES_A_RUN.fullmatch(text):
        return text
    name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", text)
    for separator in _HETJOB_WORDS:
        name = name.replace(separator, f"{separator[:-3]}-{separator[-3:]}")
    name = with_ending(name.strip("-.+"), "") or "job"
    return with_ending(f"job-{name}", "") if _CHOOSES_A_RUN.fullmatch(name) else name


def with_ending(name: str, ending: str) -> str:
    """Return a job's name with an ending, cut so that it is not longer than a name may be."""
    return name[: 100 - len(ending)] + ending


def check_env_name(name: str) -> str:
    """Return ``name`` if ``name`` can be the name of a shell variable.

    Raises:
        ValueError: the name cannot be a variable's name.
    """
    if _ENV_NAME.fullmatch(name) is None:
        raise ValueError(
            f"{name!r} cannot be a variable's name: letters, digits and _, no digit first"
        )
    return name


def check_mount(text: str) -> str:
    """Return a folder for a container, ``SOURCE[:TARGET[:ro]]``.

    Raises:
        ValueError: the text has another form.
    """
    if _MOUNT.fullmatch(text) is None:
        raise ValueError(
            f"{text!r} is no folder for a container; write /data, /data:/mnt or /data:/mnt:ro"
        )
    return text


def assignments(variables: Iterable[tuple[str, str | None]]) -> str:
    """Return variables in shell syntax; ``***`` stands for the value of a secret, which is None."""
    words = []
    for name, value in variables:
        shown = "***" if value is None else shlex.quote(value)
        words.append(f"{name}={shown}")
    return " ".join(words)
