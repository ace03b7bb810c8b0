"""The words of a script's launch, as the script has them."""

from __future__ import annotations

import pytest

from hpcrun.in_job.launch.batch.launch_words import trace_as_written

PROGRAM = "/runs/a b/hpcrun_launch"


@pytest.mark.parametrize(
    ("traced", "written"),
    [
        ("srun -N2 ::: torchrun --x 1 :: t.py 'a b' ::", "srun -N2 torchrun --x 1 t.py 'a b' ::"),
        (":: python t.py ::: x", "python t.py ::: x"),
        ("::: torchrun :: t.py", "torchrun t.py"),
    ],
)
def test_the_last_trace_of_a_launch_shows_the_words_of_the_script(
    traced: str, written: str
) -> None:
    before = f"+ echo {PROGRAM}\n+ '{PROGRAM}' srun :: python a.py\n+ "
    log = f"{before}'{PROGRAM}' {traced}\n".encode()
    place, text = trace_as_written(log, PROGRAM)
    shown = log[:place] + text + log[place + len(text) :]
    assert len(shown) == len(log)
    assert shown.decode().rstrip() == f"{before}{written}"


def test_a_log_without_a_trace_stays() -> None:
    assert trace_as_written(b"+ srun python t.py\n", PROGRAM) == (0, b"")
