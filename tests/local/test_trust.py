"""What a project, a site and a current folder cannot make hpcrun do; and hpcrun profile trust."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.harness import Hpcrun, answer, at_end, trust
from tests.unit.builders import write

EVIL = "EVIL-WAS-HERE"
DRY = ("submit", "-P", "local", "--gpus", "0", "--dry-run", "true")


def hostile(folder: Path) -> Path:
    """A folder of configuration that has its say in every job that it can."""
    write(folder / "templates/job.sh.j2", f"#!/bin/bash\n# {EVIL}\n")
    write(folder / "profiles/ours.yaml", f"extends: local\nsetup: [{EVIL}]\npython: ./{EVIL}\n")
    write(folder / "profiles/local.yaml", f"extends: local\nsetup: [{EVIL}]\n")
    write(folder / "config.yaml", "runs: ../elsewhere\nprofile: ours\n")
    write(folder / "rules.yaml", f"{EVIL}: {{log: x, says: x}}\n")
    return folder


@pytest.fixture
def clone(hpcrun: Hpcrun) -> Path:
    """A project that was cloned, and that nobody has trusted."""
    return hostile(hpcrun.folder / "clone/.hpcrun").parent


def test_a_clone_is_not_used_and_that_is_said(hpcrun: Hpcrun, clone: Path) -> None:
    done = hpcrun("status", cwd=clone, env={"HPCRUN_RUNS": None}, check=True)
    assert "elsewhere" not in done.stdout
    said = (
        f"hpcrun: {clone}/.hpcrun is not used: you have not trusted it: config.yaml, "
        "rules.yaml, profiles/local.yaml, "
    )
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == 2  # and that there are no runs
    dry = hpcrun("submit", "-P", "a100", "--dry-run", "-t", "5m", "hostname", cwd=clone, check=True)
    assert EVIL not in dry.stdout
    assert dry.stderr.startswith(said)
    for name in ("local", "ours"):  # the shipped local is not what this name means here
        refused = hpcrun("submit", "-P", name, "--gpus", "0", "--dry-run", "true", cwd=clone)
        assert (refused.returncode, refused.stdout) == (3, "")
        # the failure says it, and no remark besides
        assert refused.stderr.count("not trusted it") == 1
        assert (
            f"profile '{name}' is {clone}/.hpcrun/profiles/{name}.yaml, and you have not trusted it"
            in refused.stderr
        )
        assert "to review and trust the files: hpcrun profile trust" in refused.stderr
        # where there is another of this name below it
        assert ("to use the other: hpcrun profile trust --never" in refused.stderr) == (
            name == "local"
        )


def test_a_clone_that_is_trusted_is_used_until_it_changes(hpcrun: Hpcrun, clone: Path) -> None:
    trust(hpcrun, clone)
    done = hpcrun(*DRY, cwd=clone, check=True)
    assert (EVIL in done.stdout, done.stderr.count("not used")) == (True, 0)
    assert (
        f"{clone}/.hpcrun is already trusted"
        in hpcrun("profile", "trust", cwd=clone, check=True).stdout
    )
    write(clone / ".hpcrun/rules.yaml", "")
    write(clone / ".hpcrun/templates/launch/python.sh.j2", "")
    done = hpcrun(
        "submit", "-P", "a100", "--dry-run", "-t", "5m", "hostname", cwd=clone, check=True
    )
    assert EVIL not in done.stdout
    assert (
        "it changed since you trusted it: rules.yaml (changed), templates/launch/python.sh.j2 (new)"
        in done.stderr
    )
    document = hpcrun.document("profile", "trust", "--list")
    assert document["folders"] == [{"path": str(clone / ".hpcrun"), "state": "changed", "files": 5}]
    hpcrun("profile", "trust", "--revoke", cwd=clone, check=True)
    assert "you have not trusted it" in hpcrun("profile", "list", cwd=clone, check=True).stderr
    assert hpcrun("profile", "trust", "--list", check=True).stdout == "nothing is trusted\n"


def test_nothing_is_trusted_without_a_terminal_or_a_yes(hpcrun: Hpcrun, clone: Path) -> None:
    done = hpcrun("profile", "trust", cwd=clone, stdin="y\ny\n")
    assert done.returncode == 2
    assert "profiles/ours.yaml" in done.stdout
    assert "set-up commands, Python: extends, setup, python" in done.stdout
    assert "hpcrun: cannot ask without a terminal; nothing was trusted" in done.stderr
    assert f"hint: run `hpcrun profile trust {clone}/.hpcrun` in a terminal" in done.stderr
    terminal = hpcrun.terminal("profile", "trust", cwd=str(clone))
    answer(terminal, r"\[y/N\] ", "")
    assert at_end(terminal)[0] == 1
    assert hpcrun("profile", "trust", "--list", check=True).stdout == "nothing is trusted\n"


def test_the_text_of_every_file_is_shown_before_it_is_trusted_and_later(
    hpcrun: Hpcrun, clone: Path
) -> None:
    write(clone / ".hpcrun/rules.yaml", "a: \x1b[2J\n\n  b: \u202ec\n")
    before = hpcrun("profile", "trust", cwd=clone).stdout
    assert f"templates/job.sh.j2:\n    #!/bin/bash\n    # {EVIL}\n" in before
    assert "rules.yaml:\n    a: \\x1b[2J\n\n      b: \\u202ec\n" in before
    trust(hpcrun, clone)
    after = hpcrun("profile", "trust", cwd=clone, check=True).stdout
    assert f"profiles/ours.yaml:\n    extends: local\n    setup: [{EVIL}]\n" in after
    assert after.endswith(f"{clone}/.hpcrun is already trusted\n")
    # of what is trusted, only the changes are shown again
    write(clone / ".hpcrun/rules.yaml", "d: 1\n")
    changed = hpcrun("profile", "trust", cwd=clone).stdout
    assert "rules.yaml:\n    d: 1\n" in changed
    assert "# EVIL" not in changed


def test_never_is_never_and_silent(hpcrun: Hpcrun, clone: Path) -> None:
    hpcrun("profile", "trust", "--never", cwd=clone, check=True)
    done = hpcrun(*DRY, cwd=clone, check=True)
    assert (EVIL in done.stdout, done.stderr.count("hpcrun:")) == (False, 0)
    assert "never" in hpcrun("profile", "trust", "--list", check=True).stdout
    refused = hpcrun("submit", "-P", "ours", "--gpus", "0", "--dry-run", "true", cwd=clone)
    assert (
        f"{clone}/.hpcrun/profiles/ours.yaml, in a folder that you set to never use"
        in refused.stderr
    )
    assert "hint: to undo: hpcrun profile trust --revoke" in refused.stderr


def test_a_site_that_others_can_write_is_not_used(hpcrun: Hpcrun) -> None:
    site = hostile(hpcrun.folder / "site")
    assert EVIL in hpcrun(*DRY, check=True).stdout  # its owner is this user
    (site / "templates").chmod(0o777)
    done = hpcrun(
        "submit", "-P", "cpu", "--gpus", "0", "--dry-run", "-t", "5m", "hostname", check=True
    )
    assert EVIL not in done.stdout
    assert f"other users can write to {site}/templates (mode 0777)" in done.stderr
    assert hpcrun(*DRY).returncode == 3


def test_a_profile_named_by_its_path_is_one_s_own_word_where_it_is_one_s_own(
    hpcrun: Hpcrun, clone: Path
) -> None:
    file = write(hpcrun.folder / "mine.yaml", f"extends: cpu\nsetup: [{EVIL}]\n")
    dry = ("submit", "-P", str(file), "--gpus", "0", "--dry-run", "hostname")
    assert EVIL in hpcrun(*dry, check=True).stdout
    file.chmod(0o666)
    refused = hpcrun(*dry)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert f"{file} is not used: other users can write to {file} (mode 0666)" in refused.stderr
    assert "hint: check its contents, then: chmod go-w" in refused.stderr


# --- the current folder --------------------------------------------------------------------------


@pytest.mark.parametrize("module", [True, False], ids=["python -m hpcrun", "hpcrun"])
def test_no_module_of_the_current_folder_is_imported(hpcrun: Hpcrun, module: bool) -> None:
    for name in (
        "typer.py",
        "jinja2/__init__.py",
        "submitit.py",
        "platformdirs.py",
        "torch/__init__.py",
        "ruamel.py",
    ):
        write(hpcrun.folder / name, f"open({str(hpcrun.folder / EVIL)!r}, 'w')\n")
    argv = hpcrun.argv() if module else [f"{hpcrun.venv}/bin/hpcrun"]
    assert hpcrun.run(*argv, *DRY).stdout.startswith("#!/bin/bash")
    assert not (hpcrun.folder / EVIL).exists()


# --- umask 000 -----------------------------------------------------------------------------------


def test_whatever_the_umask_nobody_else_can_write(hpcrun: Hpcrun, clone: Path) -> None:
    def loose(*args: str, **more: str) -> None:
        before = os.umask(0)
        try:
            hpcrun(*args, env=more, cwd=clone.parent, check=True)
        finally:
            os.umask(before)

    loose("profile", "new", "mine", "--from", "local")
    loose("profile", "set", "cpu", "qos=x")
    loose("profile", "edit", "h100", EDITOR="sed -i s/x/x/")
    loose("profile", "trust", "--never", str(clone))
    loose("submit", "-P", "local", "--gpus", "0", "--wait", "true")
    loose(
        "scale",
        "report",
        "--from-csv",
        str(write(hpcrun.folder / "t.csv", "gpus,samples_per_s\n1,100\n2,190\n")),
    )
    made = [
        *hpcrun.home.rglob("*"),
        *clone.parent.glob("report-*"),
        *clone.parent.glob("report-*/*"),
    ]
    # a library's list of fonts
    made = [path for path in made if not {"matplotlib", ".cache"} & set(path.parts)]
    made += hpcrun.runs.glob("2*")
    assert len(made) > 10
    writable = [
        str(path)
        for path in made
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o022
    ]
    assert writable == []
