"""The batch script on stdin."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hpcrun.cli.stdin_script import is_piped, read_stdin
from hpcrun.errors import UsageError

Stdin = Callable[[bytes], None]


@pytest.fixture
def stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stdin]:
    """Return a function that lets a file with these bytes be stdin."""
    with ExitStack() as opened:

        def let(data: bytes) -> None:
            (tmp_path / "stdin").write_bytes(data)
            file = opened.enter_context((tmp_path / "stdin").open())
            monkeypatch.setattr(sys, "stdin", file)

        yield let
        monkeypatch.undo()


def test_the_script_is_read(stdin: Stdin) -> None:
    stdin(b"#!/bin/bash\necho \xc3\xa9\n")
    assert is_piped()
    assert read_stdin() == "#!/bin/bash\necho é\n"


def test_a_script_has_at_most_a_megabyte(stdin: Stdin) -> None:
    stdin(b"x" * 1_000_000)
    assert len(read_stdin()) == 1_000_000
    stdin(b"x" * 1_000_001)
    with pytest.raises(UsageError, match="stdin is larger than 1 MB"):
        read_stdin()


def test_what_is_no_text_is_refused(stdin: Stdin) -> None:
    stdin(b"ab\xff")
    with pytest.raises(UsageError, match="stdin is no UTF-8 text") as refused:
        read_stdin()
    assert refused.value.hint == "give a batch script: hpcrun submit - <train.sbatch"


def test_a_closed_stdin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert not is_piped()
    with pytest.raises(UsageError, match="stdin is closed"):
        read_stdin()


def test_a_file_with_text_is_not_waited_for(
    stdin: Stdin, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(b"echo\n")
    read_stdin()
    assert capsys.readouterr().err == ""
