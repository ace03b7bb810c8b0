"""The profile commands, as a person types them: layers, editing in a terminal, mistakes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Completed, Hpcrun, answer, at_end, fill, full_disk, trust
from tests.unit.builders import write


def own(hpcrun: Hpcrun, name: str = "a100") -> Path:
    return hpcrun.home / ".config/hpcrun/profiles" / f"{name}.yaml"


def shown(hpcrun: Hpcrun, name: str = "a100", **more: Any) -> dict[str, Any]:
    return dict(hpcrun.document("profile", "show", name, check=True, **more)["profile"])


def refused(done: Completed, status: int = 3) -> str:
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stderr.startswith("hpcrun: ")
    assert "Traceback" not in done.stderr
    return done.stderr


def leftovers(hpcrun: Hpcrun) -> list[str]:
    """Locks and half-written files."""
    folder = own(hpcrun).parent
    return (
        [path.name for path in folder.iterdir() if path.name.startswith(".")]
        if folder.exists()
        else []
    )


# --- layers --------------------------------------------------------------------------------------


def test_each_layer_lies_over_the_one_below(hpcrun: Hpcrun) -> None:
    site, project = hpcrun.folder / "site", hpcrun.folder / ".hpcrun"
    write(
        site / "profiles/a100.yaml",
        "extends: a100\npartition: site\nqos: site\naccount: site\nconstraint: site\n",
    )
    write(own(hpcrun), "extends: a100\nqos: user\naccount: user\nconstraint: user\n")
    write(project / "profiles/a100.yaml", "extends: a100\naccount: project\nconstraint: project\n")
    trust(hpcrun, project)
    file = write(hpcrun.folder / "mine.yaml", "extends: a100\nconstraint: file\n")
    found = shown(hpcrun, "./mine.yaml")
    assert found["gpu"]["type"] == "a100"
    assert [found[key] for key in ("partition", "qos", "account", "constraint")] == [
        "site",
        "user",
        "project",
        "file",
    ]
    env = {"SBATCH_QOS": "env", "SBATCH_ACCOUNT": "env"}
    script = hpcrun(
        "submit", "-P", str(file), "--dry-run", "-A", "flag", "true", env=env, check=True
    ).stdout
    assert {f"#SBATCH --{each}" for each in ("qos=env", "account=flag", "constraint=file")} <= {
        *script.splitlines()
    }
    folders = hpcrun("profile", "path", check=True).stdout.splitlines()
    order = [line.split()[1] for line in folders if line.startswith("profiles")]
    assert order[:3] == [
        str(path) for path in (project / "profiles", own(hpcrun).parent, site / "profiles")
    ]


def test_a_configured_time_and_account_lie_between_profile_and_environment(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    write(hpcrun.folder / "site/config.yaml", "profile: a100\ntime: 2h\naccount: site\n")
    write(hpcrun.home / ".config/hpcrun/config.yaml", "account: user\n")
    write(own(hpcrun, "short"), "extends: a100\ntime: {max: 1h}\n")
    env = {"SBATCH_TIMELIMIT": "30", "SBATCH_ACCOUNT": "env"}
    for args, more, time, account in (
        ((), {}, "02:00:00", "user"),
        ((), env, "00:30:00", "env"),
        (("--time", "3h"), env, "03:00:00", "env"),
        (("-P", "short"), {}, "01:00:00", "user"),
    ):
        with subtests.test(args=args):
            script = hpcrun("submit", "--dry-run", *args, "true", env=more, check=True).stdout
            assert f"#SBATCH --account={account}\n" in script
            assert f"#SBATCH --time={time}\n" in script
    # a job on this machine goes on until it ends, as before
    local = hpcrun("submit", "--dry-run", "-P", "local", "--json", "true", check=True)
    assert json.loads(local.stdout)["plan"]["walltime_s"] is None


def test_use_sets_the_default_and_keeps_every_other_line(hpcrun: Hpcrun) -> None:
    config = hpcrun.home / ".config/hpcrun/config.yaml"
    done = hpcrun("profile", "use", "a100", check=True)
    assert done.stdout == f"written  {config}\ndefault  a100\n"
    assert config.read_text() == "profile: a100\n"
    write(config, "# mine\nprofile: v100 # for now\nruns: /scratch/me # large\n")
    assert (
        hpcrun("profile", "use", "h100", check=True).stdout == f"changed  {config}\ndefault  h100\n"
    )
    assert config.read_text() == "# mine\nprofile: h100 # for now\nruns: /scratch/me # large\n"
    assert any(
        line.split()[:2] == ["*", "h100"]
        for line in hpcrun("profile", "list", check=True).stdout.splitlines()
    )
    assert "did you mean 'h100'?" in refused(hpcrun("profile", "use", "h10"))
    hidden = hpcrun("profile", "use", "h100", env={"HPCRUN_PROFILE": "local"}, check=True)
    assert (
        hidden.stderr
        == "hpcrun: HPCRUN_PROFILE sets the profile local here, and takes precedence\n"
    )
    write(config, "acount: x\n")
    assert "acount: unknown key" in refused(hpcrun("profile", "use", "h100"))
    assert config.read_text() == "acount: x\n"


def test_every_value_with_its_file_and_line(hpcrun: Hpcrun) -> None:
    path = write(own(hpcrun), "extends: a100\npartition: long\nmodules: [cuda/12]\nenv:\n  A: x\n")
    write(hpcrun.folder / ".hpcrun/profiles/a100.yaml", "extends: a100\nmodules+:\n  - nccl\n")
    trust(hpcrun, hpcrun.folder)
    shown = hpcrun("profile", "show", "a100", "--origin").stdout.splitlines()
    lines = {line.split()[0]: line.split() for line in shown if line}
    assert lines["partition"] == ["partition", "long", "user:", "a100.yaml:2"]
    assert lines["env.A"][3] == "a100.yaml:5"
    assert lines["modules.0"][3] == "a100.yaml:3"
    assert lines["modules.1"] == ["modules.1", "nccl", "project:", "a100.yaml:3"]
    assert lines["user:"] == ["user:", str(path.parent)]
    document = hpcrun.document("profile", "show", "a100", "--origin")
    assert document["origins"]["partition"] == {"value": "long", "file": str(path), "line": 2}
    # each line does say the value's last key, or is an item of a list
    for origin in document["origins"].values():
        assert Path(origin["file"]).read_text().splitlines()[origin["line"] - 1].strip()
    write(
        path,
        "extends: a100\nenv: {A_RATHER_LONG_NAME_OF_A_VARIABLE: and a value that is longer than "
        "long}\n",
    )
    table = hpcrun.screen("profile", "show", "a100", "--origin").split("\r\n\r\n")[0].splitlines()
    assert all(len(line) <= 80 for line in table)
    assert any(re.search(r"shipped: \S+\.yaml:\d+$", line.rstrip()) for line in table)


# --- set and unset -------------------------------------------------------------------------------


def test_set_makes_a_copy_that_extends_and_keeps_what_is_written_in_it(hpcrun: Hpcrun) -> None:
    assert hpcrun(
        "profile", "set", "a100", "partition=long", "gpu.per_node=8", check=True
    ).stdout.startswith("written")
    path = own(hpcrun)
    path.write_text("# mine\n" + path.read_text() + "# the end\n")
    lists = ("modules=[cuda/12.6]", "modules+=nccl")
    words = ("env.NCCL_DEBUG=null", "sbatch.exclusive=true", "env.A=true")
    hpcrun("profile", "set", "a100", *lists, *words, check=True)
    found = shown(hpcrun)
    assert found["partition"] == "long"
    assert found["gpu"]["per_node"] == 8
    assert found["gpu"]["type"] == "a100"
    assert found["modules"] == ["cuda/12.6", "nccl"]
    assert found["sbatch"] == {"exclusive": True}
    assert found["env"]["A"] == "true"
    assert "NCCL_DEBUG" not in found["env"]
    text = path.read_text()
    assert text.startswith("# mine\n")
    assert text.endswith("# the end\n")
    hpcrun("profile", "unset", "a100", "gpu.per_node", "env.NCCL_DEBUG", check=True)
    assert shown(hpcrun)["gpu"]["per_node"] == 4
    assert "NCCL_DEBUG" in shown(hpcrun)["env"]
    assert leftovers(hpcrun) == []


def test_show_set_and_edit_without_a_name_take_the_default_profile(hpcrun: Hpcrun) -> None:
    local = hpcrun("profile", "show", env={"HPCRUN_PROFILE": "local"}, check=True).stdout
    assert local == hpcrun("profile", "show", "local", check=True).stdout
    write(own(hpcrun, "mine"), "extends: a100\n")
    hpcrun("profile", "use", "mine", check=True)
    hpcrun("profile", "set", "qos=high", "time.default=2h", check=True)
    assert own(hpcrun, "mine").read_text() == "extends: a100\nqos: high\ntime:\n  default: 2h\n"
    hpcrun("profile", "edit", env={"EDITOR": "sed -i s/high/low/"}, check=True)
    assert hpcrun.document("profile", "show")["profile"]["qos"] == "low"
    assert "hint: hpcrun profile set a100 KEY=VALUE" in refused(hpcrun("profile", "set", "a100"), 2)


def test_set_extends_a_list_of_the_profile_below_and_takes_text_as_it_was_typed(
    hpcrun: Hpcrun,
) -> None:
    write(hpcrun.folder / "site/profiles/big.yaml", "modules: [site]\n")
    hpcrun("profile", "set", "big", "modules+=mine", "setup+=[ -d /x ] && echo y", check=True)
    found = shown(hpcrun, "big")
    assert found["modules"] == ["site", "mine"]
    assert found["setup"] == ["[ -d /x ] && echo y"]
    typed = (
        "extends=[local, a100]",
        "account=0042",
        "constraint=[a|b]",
        "env.A=a: b # c",
        "description=",
    )
    hpcrun("profile", "set", "a100", *typed, check=True)
    found = shown(hpcrun)
    assert found["account"] == "0042"
    assert found["constraint"] == "[a|b]"
    assert found["env"]["A"] == "a: b # c"
    assert "extends: [local, a100]" in own(hpcrun).read_text()


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ("set a100 gpu.typ=x", 3, "unknown key 'gpu.typ'; did you mean 'gpu.type'?"),
        ("set a100 modules=[x", 2, "not a list"),
        ("set a100 sbatch.output=/x", 3, "hpcrun sets --output itself"),
        ("set a100 partition", 2, "'partition' is not KEY=VALUE"),
        ("set a100 =x", 2, "is not KEY=VALUE"),
        ("set a100 requeue.warn=90", 2, "requeue.warn=90 has no unit\nhint: write 90m for minutes"),
        ("set a100 time.max=30m", 3, "time: default 01:00:00 is longer than max 00:30:00"),
        ("set a10 partition=x", 3, "did you mean 'a100'?"),
        ("unset a100 partition", 3, "nothing to remove"),
        ("new a/b --from a100", 2, "cannot be a profile's name"),
        ("new x", 2, "--from detected"),
        ("new x --from a10", 3, "did you mean 'a100'?"),
        ("new x --from a100 gpu.per_node=many", 3, "gpu.per_node"),
        ("diff a100 h10", 3, "did you mean"),
        ("validate ./none.yaml", 3, "no such file"),
        ("edit a100", 2, "there is no terminal"),
    ],
)
def test_what_cannot_be_leaves_nothing_behind(
    hpcrun: Hpcrun, words: str, status: int, says: str
) -> None:
    assert says in refused(hpcrun("profile", *words.split()), status)
    assert leftovers(hpcrun) == []
    assert not own(hpcrun).exists()
    assert not own(hpcrun, "x").exists()


def test_a_broken_file_is_not_made_worse(hpcrun: Hpcrun) -> None:
    path = write(own(hpcrun), "extends: a100\npartition: x\npartition: y\n")
    assert f"{path}:3: the key 'partition' appears twice here" in refused(
        hpcrun("profile", "set", "a100", "qos=x")
    )
    write(path, "extends: a100\npartitoin: x\n")
    assert f"{path}:2: unknown key 'partitoin'" in refused(
        hpcrun("profile", "set", "a100", "qos=x")
    )
    assert path.read_text() == "extends: a100\npartitoin: x\n"
    hpcrun("profile", "unset", "a100", "partitoin", check=True)  # which puts it right


def test_a_profile_of_the_project_hides_the_copy_and_that_is_said(hpcrun: Hpcrun) -> None:
    project = write(hpcrun.folder / ".hpcrun/profiles/a100.yaml", "extends: a100\n")
    only = write(hpcrun.folder / ".hpcrun/profiles/ours.yaml", "extends: a100\n")
    trust(hpcrun, hpcrun.folder)
    assert (
        f"{project} takes precedence"
        in hpcrun("profile", "set", "a100", "qos=x", check=True).stderr
    )
    assert str(only) in refused(hpcrun("profile", "set", "ours", "qos=x"))
    hpcrun("profile", "set", str(only), "qos=x", check=True)
    assert only.read_text() == "extends: a100\nqos: x\n"
    assert shown(hpcrun, "ours")["qos"] == "x"  # what hpcrun has written itself stays trusted


def test_sets_at_once_lose_nothing(hpcrun: Hpcrun) -> None:
    write(own(hpcrun), "extends: a100\n")
    argvs = [hpcrun.argv("profile", "set", "a100", f"env.V{number}=x") for number in range(3)]
    programs = [
        subprocess.Popen(argv, env=hpcrun.environ, cwd=hpcrun.folder, stdout=-3) for argv in argvs
    ]
    assert [program.wait(60) for program in programs] == [0] * 3
    assert {"V0", "V1", "V2"} <= set(shown(hpcrun)["env"])
    assert leftovers(hpcrun) == []


def test_a_profile_only_another_user_may_read(hpcrun: Hpcrun) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can run as another user")
    path = write(own(hpcrun), "extends: a100\n")
    path.chmod(0o600)
    for folder in (*path.parents[:4], hpcrun.folder):
        folder.chmod(0o755)
    probe = (
        "import sys; from pathlib import Path; from hpcrun.profiles.load import load_profile\n"
        "from hpcrun.errors import ProfileError\nimport os; os.setuid(65534)\n"
        "try: load_profile(sys.argv[1], [])\nexcept ProfileError as e: print(e.message, '|', "
        "e.hint)"
    )
    # pytest's folders are closed to others: the file is opened from within
    done = subprocess.run(
        [sys.executable, "-c", probe, "./a100.yaml"],
        cwd=path.parent,
        capture_output=True,
        text=True,
    )
    assert (
        done.stdout
        == "a100.yaml: you may not read it | its owner can allow it: chmod a+r a100.yaml\n"
    ), done.stderr


# --- validate and diff ---------------------------------------------------------------------------


def test_validate_tells_all_mistakes_of_all_and_remarks_on_doubtful_variables(
    hpcrun: Hpcrun,
) -> None:
    text = "extends: l40s\ngpu: {typ: x}\nenv:\n  NCCL_IB_RETRY_CNT: 13\n  NCCL_TIMEOUT: 60\n"
    mine = write(own(hpcrun, "mine"), text.replace("gpu: {typ: x}\n", ""))
    done = hpcrun("profile", "validate", "mine")
    assert (done.returncode, done.stdout) == (3, "error  mine\n")
    wrong, remark, hint = done.stderr.splitlines()
    assert wrong.startswith(
        f"{mine}:3: env.NCCL_IB_RETRY_CNT=13: this value cannot be; it takes 0 to 7"
    )
    assert remark.startswith(
        f"warning: {mine}:4: env.NCCL_TIMEOUT=60: no program reads this variable"
    )
    assert hint == "hint: hpcrun profile env NCCL_IB_RETRY_CNT explains it"
    (found,) = hpcrun.document("profile", "validate", "mine")["profiles"]
    seen = [
        (item["file"], item["line"], item["key"])
        for item in (*found["mistakes"], *found["remarks"])
    ]
    assert seen == [(str(mine), 3, "env.NCCL_IB_RETRY_CNT"), (str(mine), 4, "env.NCCL_TIMEOUT")]
    other = write(hpcrun.folder / "other.yaml", "partition: x\nqos: true\n")
    write(mine, text.replace("env:", "time: {max: soon}\nenv:"))
    done = hpcrun("profile", "validate", "mine", "a100", "./other.yaml")
    assert done.returncode == 3
    assert done.stdout.splitlines() == ["error  mine", "ok     a100", "error  ./other.yaml"]
    places = {line.split(": ")[0] for line in done.stderr.splitlines() if ".yaml:" in line}
    assert {f"{mine}:2", f"{mine}:3", "other.yaml:2"} <= places
    other.unlink()
    write(mine, "extends: l40s\nenv: {NCCL_P2P_LEVEL: NVL}\n")  # a remark alone fails nothing
    done = hpcrun("profile", "validate", check=True)
    assert "ok     mine\n" in done.stdout
    assert done.stderr.startswith(f"warning: {mine}:2: env.NCCL_P2P_LEVEL=NVL: harmful on this GPU")


def test_diff_shows_what_differs_once_read(hpcrun: Hpcrun) -> None:
    write(own(hpcrun, "mine"), "extends: a100\ntime: {max: 48h}\npartition: long\nqos: x\n")
    lines = hpcrun("profile", "diff", "a100", "mine", check=True).stdout.splitlines()
    table = [["KEY", "a100", "mine"], ["partition", "gpu", "long"], ["qos", "-", "x"]]
    assert [line.split() for line in lines] == table
    found = hpcrun.document("profile", "diff", "a100", "mine")["differences"]
    assert found == [
        {"key": "partition", "values": ["gpu", "long"]},
        {"key": "qos", "values": [None, "x"]},
    ]
    assert "have the same values" in hpcrun("profile", "diff", "a100", "a100", check=True).stderr


# --- new -----------------------------------------------------------------------------------------


def test_new_takes_values_without_a_terminal(hpcrun: Hpcrun) -> None:
    done = hpcrun(
        "profile", "new", "mine", "--from", "a100", "partition=long", "gpu.per_node=8", check=True
    )
    assert str(own(hpcrun, "mine")) in done.stdout
    found = shown(hpcrun, "mine")
    assert found["partition"] == "long"
    assert found["gpu"]["per_node"] == 8
    assert found["gpu"]["type"] == "a100"
    assert "#   account" in own(hpcrun, "mine").read_text()
    assert "already exists" in refused(hpcrun("profile", "new", "mine", "--from", "h100"), 2)


@pytest.mark.parametrize(
    ("typed", "status", "says"),
    [(b"\x03", 130, "hpcrun: interrupted"), (b"\xff\n", 3, r"no profile '\udcff'")],
)
def test_new_that_is_interrupted_or_answered_with_no_text_writes_nothing(
    hpcrun: Hpcrun, typed: bytes, status: int, says: str
) -> None:
    terminal = hpcrun.terminal("profile", "new", "mine", env={"PYTHONIOENCODING": "utf-8:strict"})
    terminal.expect("Which profile is closest")
    terminal.setecho(False)
    os.write(terminal.child_fd, typed)
    ended, text = at_end(terminal)
    assert (ended, says in text) == (status, True), text
    assert not own(hpcrun, "mine").exists()


def test_new_asks_on_a_terminal(hpcrun: Hpcrun) -> None:
    terminal = hpcrun.terminal("profile", "new", "mine")
    for question, text in (
        ("Which profile is closest", "h100"),
        ("description", "Ours"),
        ("partition", "long"),
        ("account", ""),
        ("qos", ""),
        (r"gpu\.type", ""),
        (r"gpu\.per_node", "4"),
        (r"time\.default", ""),
        (r"time\.max", "12h"),
    ):
        answer(terminal, question, text)
    status, text = at_end(terminal)
    assert status == 0, text
    found = shown(hpcrun, "mine")
    assert found["description"] == "Ours"
    assert found["partition"] == "long"
    assert found["gpu"]["per_node"] == 4
    assert found["time"]["max"] == 12 * 3600
    assert "account" not in found


# --- edit ----------------------------------------------------------------------------------------


def editor(hpcrun: Hpcrun, text: str) -> str:
    """An editor: a shell script that is called with the file."""
    return str(hpcrun.program("editor.sh", text))


def test_the_first_edit_makes_a_copy_that_extends_the_shipped_one(hpcrun: Hpcrun) -> None:
    write(hpcrun.folder / "site/profiles/a100.yaml", "extends: a100\n")
    done = hpcrun("profile", "edit", "a100", env={"EDITOR": "true"}, check=True)
    # no file of one's own that the site's could hide
    assert ("unchanged" in done.stdout, done.stderr, own(hpcrun).exists()) == (True, "", False)
    appends = editor(hpcrun, 'cp "$1" seen; echo "partition: mine" >> "$1"')
    done = hpcrun("profile", "edit", "h100", env={"EDITOR": "false", "VISUAL": appends}, check=True)
    assert done.stdout == f"written  {own(hpcrun, 'h100')}\n"
    found = shown(hpcrun, "h100")
    assert found["partition"] == "mine"
    assert found["gpu"]["type"] == "h100"
    seen = (hpcrun.folder / "seen").read_text()
    assert "\nextends: h100\n" in seen
    assert "\n# gpu:\n#   type: h100\n" in seen


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        ('echo "x: y" >> "$1"; exit 3', 3, "the editor ended with exit status 3; {} is unchanged"),
        ('rm "$1"', 3, "the editor removed the file; {} is unchanged"),
        (
            'echo "gpu: {typ: x}" >> "$1"',
            3,
            "{}:2: unknown key 'gpu.typ'; did you mean 'gpu.type'?",
        ),
        (r'printf "\\377" > "$1"', 3, "not UTF-8 text"),
        (None, 2, "cannot be started"),
    ],
)
def test_an_editor_that_fails_leaves_the_old_file(
    hpcrun: Hpcrun, text: str | None, status: int, says: str
) -> None:
    path = write(own(hpcrun), "extends: a100 # mine\n")
    done = hpcrun(
        "profile", "edit", "a100", env={"EDITOR": editor(hpcrun, text) if text else "/no/such"}
    )
    assert says.replace("{}", str(path)) in refused(done, status)
    assert path.read_text() == "extends: a100 # mine\n"
    assert leftovers(hpcrun) == []


def test_a_text_that_cannot_be_saved_is_kept(hpcrun: Hpcrun) -> None:
    with full_disk(own(hpcrun).parent) as disk:
        path = write(own(hpcrun), "extends: a100\n")
        both = editor(hpcrun, f'echo "qos: other" >> {path}; echo "qos: mine" >> "$1"')
        for edit, says, draft, left in (
            (
                both,
                "was changed by another program while you edited it",
                "qos: mine\n",
                "qos: other\n",
            ),
            (
                "sed -i s/other/mine/",
                "cannot be saved: No space left on device",
                "qos: mine\n",
                "qos: other\n",
            ),
        ):
            done = hpcrun(
                "profile", "edit", "a100", env={"EDITOR": edit, "TMPDIR": str(hpcrun.folder)}
            )
            assert says in refused(done)
            (kept,) = re.findall(r"your text is saved in (\S+)", done.stderr)
            assert Path(kept).read_text() == f"extends: a100\n{draft}"
            assert path.read_text() == f"extends: a100\n{left}"
            fill(disk)
        assert "; the file is unchanged" in refused(hpcrun("profile", "set", "a100", "qos=x"))
        assert sorted(path.name for path in disk.iterdir()) == ["a100.yaml", "filler"]


def test_a_mistake_is_shown_at_its_line_in_the_editor_and_can_be_put_right(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    path = write(own(hpcrun), "extends: a100\nqos: x\n")
    # a mistake at first; the second time what it saw is kept, and the mistake corrected
    once = 'if grep -q "hpcrun:" "$1"; then cp "$1" seen; sed -i "s/typ:/type:/" "$1"; else'
    errs = editor(hpcrun, f'{once} printf "gpu:\\n  typ: mine\\n" >> "$1"; fi')
    for typed, status in (("n\n", 3), ("\x03", 130), ("y\n", 0)):
        with subtests.test(typed=typed):
            terminal = hpcrun.terminal("profile", "edit", "a100", env={"EDITOR": errs})
            terminal.expect("a100.yaml:4: unknown key 'gpu.typ'; did you mean 'gpu.type'")
            terminal.expect("Edit it again")
            assert path.read_text() == "extends: a100\nqos: x\n"
            terminal.send(typed)
            ended, text = at_end(terminal)
            assert (ended, "Traceback" in text) == (status, False), text
    assert (hpcrun.folder / "seen").read_text() == (
        "extends: a100\nqos: x\ngpu:\n#!! hpcrun: unknown key 'gpu.typ'; did you mean "
        "'gpu.type'?\n  typ: mine\n"
    )
    assert path.read_text() == "extends: a100\nqos: x\ngpu:\n  type: mine\n"


@pytest.mark.needs("vi")
def test_a_real_editor_of_the_whole_screen(hpcrun: Hpcrun) -> None:
    """vi, found without $EDITOR."""
    path = write(own(hpcrun), "extends: a100\n")
    terminal = hpcrun.terminal("profile", "edit", "a100", size=(24, 80))
    terminal.expect("extends")
    terminal.send("opartition: vi\x1b:wq\r")
    status, text = at_end(terminal)
    assert status == 0, text
    assert path.read_text() == "extends: a100\npartition: vi\n"


# --- completion ----------------------------------------------------------------------------------


def test_completion(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    write(own(hpcrun, "mine"), "extends: a100\n")
    hpcrun("submit", "-P", "local", "--gpus", "0", "-J", "trial", "--wait", "true", check=True)
    program = Path(hpcrun.venv) / "bin" / "hpcrun"
    start = "import sys; from hpcrun.cli.main import main; sys.argv = ['hpcrun']; main()"
    argv = [str(program)] if program.exists() else [sys.executable, "-c", start]
    sinfo = hpcrun.shims(sinfo='printf "gpu\\nlong\\ngpu\\ngpu-dev\\n"; echo broken >&2')
    failing = hpcrun.shims("failing", sinfo="echo gpu; exit 1")
    config = hpcrun.home / ".config/hpcrun/config.yaml"
    for line, offers, env in (
        ("submit --profile mi", ["mine"], {}),
        ("profile set a100 part", ["partition="], {}),
        ("profile set a100 gp", ["gpu."], {}),
        ("profile unset a100 gpu.ty", ["gpu.type", "gpu.types."], {}),
        ("status tri", ["trial"], {}),
        ("submit -P a100 -p gp", ["gpu", "gpu-dev"], sinfo),
        ("where --partition gpu,lo", ["gpu,long"], sinfo),
        ("submit -p gp", [], failing),
        ("profile show mi", ["mine"], {"": None}),  # which needs no configuration
    ):
        with subtests.test(line=line):
            if "" in env:
                write(config, "broken\n")
            number = len(line.split(" "))
            asked = {
                "_HPCRUN_COMPLETE": "complete_bash",
                "COMP_WORDS": f"hpcrun {line}",
                "COMP_CWORD": str(number),
            }
            done = hpcrun.run(*argv, env={**env, **asked}, check=False)
            assert ([word for word in done.stdout.splitlines() if word], done.stderr) == (
                offers,
                "",
            ), line


# --- GPU types -----------------------------------------------------------------------------------


MIXED = (
    "{a100: {per_node: 4, time: {default: 30m, max: 1d}, qos: x}, h100: {per_node: 8, time: "
    "{default: 5m}}}"
)


def mixed(hpcrun: Hpcrun) -> Path:
    """A file that extends a profile with GPU types, two of which have a time.default of their
    own.
    """
    write(
        own(hpcrun, "base"),
        f"extends: base/slurm\ngpu:\n  types: {MIXED[:-1]}, l40s: {{per_node: 2}}}}\n",
    )
    return write(own(hpcrun, "dev"), "extends: base\n")


def test_set_and_new_with_a_value_that_gpu_types_override_change_it_for_them_too(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    path = mixed(hpcrun)

    def set_(*words: str) -> str:
        return hpcrun("profile", "set", "dev", *words, check=True).stderr

    def types(name: str = "dev") -> dict[str, Any]:
        return dict(shown(hpcrun, name)["gpu"]["types"])

    said_so = "hpcrun: time.default now applies to GPU types a100, h100 too, which had their own\n"
    assert set_("time.default=2h", "gpu.type=h100") == said_so
    for words in ((), ("--gpus", "a100:1"), ("--gpus", "l40s:1"), ("--gpus", "0")):
        with subtests.test(words=words):
            plan = hpcrun("submit", "-P", "dev", *words, "--dry-run", "--json", "true", check=True)
            assert json.loads(plan.stdout)["plan"]["walltime_s"] == 7200
    assert types()["a100"]["time"] == {"max": 86400}
    assert set_("time.default=3h", "partition=gpu") == ""
    for words in (
        ("time.default=4h", "gpu.types.h100.time.default=1h"),
        ("gpu.types.h100.time.default=1h", "time={default: 6h}"),
    ):
        set_(*words)
        assert types()["h100"]["time"] == {"default": 3600}
    assert "h100: {per_node" not in path.read_text()
    hpcrun("profile", "unset", "dev", "time.default", "partition", check=True)
    assert types()["a100"] == types("base")["a100"]
    assert "null" not in path.read_text()
    hpcrun("profile", "new", "long", "--from", "base", "time.default=2h", check=True)
    assert "default" not in types("long")["h100"].get("time", {})


def test_a_gpu_type_that_a_profile_cannot_have_is_refused_where_it_is_written(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    path = mixed(hpcrun)
    says = "profile 'dev' has no GPUs of type 'h1000'"
    error = refused(hpcrun("profile", "set", "dev", "gpu.type=h1000"))
    assert f"gpu.type: {says}; did you mean 'h100'? there are: a100, h100, l40s\n" in error
    assert path.read_text() == "extends: base\n"
    env = {"EDITOR": editor(hpcrun, "echo 'gpu: {type: h1000}' >> \"$1\""), "VISUAL": None}
    assert says in refused(hpcrun("profile", "edit", "dev", env=env))
    write(path, "extends: base\ngpu:\n  type: h1000\n")
    for command in (
        ("profile", "validate", "dev"),
        ("doctor", "-P", "dev"),
        ("submit", "-P", "dev", "true"),
    ):
        with subtests.test(command=command):
            done = hpcrun(*command)
            assert done.returncode != 0
            assert f"{path}:3: gpu.type: {says}" in done.stdout + done.stderr
    # the profile's own values are of this type
    write(path, "extends: base\ngpu:\n  type: h1000\n  per_node: 4\n")
    hpcrun("profile", "validate", "dev", check=True)
