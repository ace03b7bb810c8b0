"""Which commands a shell script calls."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpcrun.job.shell_text import read_commands


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("torchrun a.py", ["torchrun a.py"]),
        ("# srun a", []),
        ("echo a # srun b", ["echo a"]),
        ("echo a#b srun", ["echo a#b srun"]),
        ("echo 'x\nsrun a' \"srun b $(srun c)\"", ["echo x\nsrun a srun b $"]),
        ("cat <<EOF\nsrun a\nEOF\nsrun b", ["cat", "srun b"]),
        ("cat <<-'EOF' | sh\n\tsrun a\n\tEOF\nb", ["cat", "sh", "b"]),
        ("a && b || c; d | e & f", ["a", "b", "c", "d", "e", "f"]),
        ("torchrun \\\n  --nproc-per-node 2 \\\n  a.py", ["torchrun --nproc-per-node 2 a.py"]),
        ("if a; then b; else c; fi", ["a", "b", "c"]),
        ("for x in srun sbatch; do $x a; done", ["$x a"]),
        ("case $1 in\n srun) a ;;\n sbatch) b ;;\nesac", ["a", "b"]),
        ("srun() { a; }", ["a"]),
        ("A=1 B='x y' srun a", ["srun a"]),
        ("ip=$(srun hostname) && b", ["srun hostname", "b"]),
        ("echo `srun hostname` c", ["echo `srun hostname` c", "srun hostname"]),
        ("echo $(date) srun", ["echo $(date) srun", "date"]),
        ("(a; b) && c", ["a", "b", "c"]),
        ("L='accelerate launch --x'\n$L a.py", ["accelerate launch --x a.py"]),
        ("L=(torchrun --x\n --y)\n\"${L[@]}\" a.py", ["torchrun --x --y a.py"]),
        ("echo $((1 + 2)) ${a#srun} b", ["echo $ $ b"]),
        ("echo \"an open quote\nsrun a", ["echo"]),
    ],
)  # fmt: skip
def test_the_commands_of_a_script(text: str, commands: list[str]) -> None:
    assert [" ".join(command.words) for command in read_commands(text)] == commands


def test_each_command_has_its_line() -> None:
    text = "#!/bin/bash\n\ncat <<E\nx\nE\na \\\n b\nc; d\n"
    assert [(command.line, command.words[0]) for command in read_commands(text)] == [
        (3, "cat"),
        (6, "a"),
        (8, "c"),
        (8, "d"),
    ]


@example("a=;$a")
@given(st.text(alphabet="ab '\"\\\n\t;&|()<>`$#{}=!*x", max_size=80))
def test_any_text_has_commands_of_words(text: str) -> None:
    assert all(command.words and command.line <= text.count("\n") + 1 for command in read_commands(text))


@pytest.mark.parametrize("piece", ["'", '"', "$(", "`", "(", "<<a\n", "\\", "a=(", "#", "${", "'\"", "a "])
def test_the_longest_script_that_is_read_takes_no_time(piece: str) -> None:
    """A regular expression that tries again at each character would need minutes for 64 KiB."""
    import time

    start = time.process_time()
    read_commands(piece * (65536 // len(piece)))
    assert time.process_time() - start < 30
