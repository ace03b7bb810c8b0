"""The test of the guides can fail: a page that shows what is not so, or what nobody runs, is found
out.
"""

from __future__ import annotations

import pytest

from tests.docs.page import Command, File, is_shown, steps

PAGE = """
# A page

```python
# train.py
print("loss 0.5")
```

```console
$ hpcrun submit --gpus 2 \\
    train.py
submitted  job 4711, run 20261121-093012-train-3f2a

$ false
$ echo $?
1
```

```console slurm
$ squeue
```

```text
a picture
```
"""


def test_a_page_s_files_and_commands() -> None:
    assert list(steps(PAGE)) == [
        File("train.py", '# train.py\nprint("loss 0.5")\n'),
        Command(
            "hpcrun submit --gpus 2 train.py",
            ("submitted  job 4711, run 20261121-093012-train-3f2a", ""),
            slurm=False,
        ),
        Command("false", (), slurm=False),
        Command("echo $?", ("1",), slurm=False),
        Command("squeue", (), slurm=True),
    ]


@pytest.mark.parametrize(
    "block", ["```python\nprint(1)\n```", "```sh\nhpcrun submit\n```", "```\nx\n```"]
)
def test_a_block_that_nobody_runs_is_refused(block: str) -> None:
    with pytest.raises(ValueError, match="neither a file nor commands"):
        list(steps(f"{block}\n"))


ALIKE = (
    (
        "submitted  job 4711, run 20261121-093012-train-3f2a",
        "submitted job 37, run 20270101-000000-train-ffff",
    ),
    ("job L4711 COMPLETED after 00:00:21", "job L8 COMPLETED after 1:00:02"),
    ("1740 samples/s", "90 samples/s"),
    ("epoch 2: loss 0.512", "epoch 2: loss 12.1"),
    ("rank-1.err:17", "rank-1.err:3"),
    ("note: ... it", "note: leave it"),
    ("folder  /home/me/runs, here", "folder  /tmp/x-1/runs, here"),
    ("a  b", "a                b"),
    ("first\n...", "first\nsecond"),
    ("first\n\nlast", "first\nlast"),
    ("...\nlast", "first\nsecond\nlast"),
)
DIFFERENT = (
    ("2 ranks", "3 ranks"),
    ("epoch 2: loss 0.512", "epoch 2: loss nan"),
    ("job 4711", "job L4711"),
    ("run 20261121-093012-train-3f2a", "run 20261121-093012-test-3f2a"),
    ("first", "first\nsecond"),
    ("first\nsecond", "first"),
    ("...\nlast", "first"),
    ("first\n...\nlast", "last\nfirst"),
    ("a.b", "axb"),
)


def test_what_looks_alike_is_shown_and_nothing_else() -> None:
    for pairs, alike in ((ALIKE, True), (DIFFERENT, False)):
        for shown, printed in pairs:
            assert is_shown(tuple(shown.splitlines()), f"{printed}\n") is alike, shown
