"""Loading modules in a shell of their own; the module command is a function, as a login shell exports one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.schedulers.host import SCRIPT, ModuleFacts, try_modules
from tests.shellcheck import complaints
from tests.unit.given import write

# like Lmod's hierarchy: cuda is there once gcc is loaded
MODULE = """() {
  case $2 in
    gcc/*) LOADED=gcc ;;
    cuda/*) [ "${LOADED-}" = gcc ] || { echo "Lmod has detected the following error:  $2 is unknown" >&2; return 1; } ;;
    slow) exec sleep 60 ;;
    *) echo "unknown: $2" >&2; return 1 ;;
  esac
}"""
ENV = {"PATH": "/usr/bin:/bin", "BASH_FUNC_module%%": MODULE}


def test_modules_are_loaded_one_after_the_other() -> None:
    assert try_modules(["gcc/13", "cuda/12.6"], ENV) == ModuleFacts(True, {})
    assert try_modules(["cuda/12.6", "gcc/13"], ENV) == ModuleFacts(
        True, {"cuda/12.6": "Lmod has detected the following error: cuda/12.6 is unknown"}
    )


def test_a_name_is_a_name_and_no_shell() -> None:
    assert try_modules(["$(touch /tmp/x); a b"], ENV).failed == {
        "$(touch /tmp/x); a b": "unknown: $(touch /tmp/x); a b"
    }


def test_a_machine_without_a_module_command() -> None:
    if any(Path(file).exists() for file in ("/usr/share/lmod", "/usr/share/modules", "/etc/profile.d/modules.sh")):
        pytest.skip("this machine has one")
    assert try_modules(["gcc"], {"PATH": "/usr/bin:/bin"}) == ModuleFacts(False, {})


def test_one_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcrun.schedulers.host._ANSWER_WITHIN_S", 0.5)
    assert try_modules(["gcc/13", "slow"], ENV).problem == "timed out after 0.5 s"


def test_shellcheck_has_nothing_to_say_of_the_script(tmp_path: Path) -> None:
    path = write(tmp_path / "modules.sh", f"#!/bin/bash\n{SCRIPT}")
    assert complaints(path) == ""
