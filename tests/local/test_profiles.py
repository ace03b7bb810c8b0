"""The profile commands, as a person types them: layers, editing in a terminal, mistakes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Completed, Hpcrun, answer, at_end, fill, full_disk, trust
from tests.unit.given import write


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
    return [path.name for path in folder.iterdir() if path.name.startswith(".")] if folder.exists() else []


# --- layers ---------------------------------------------------------------------------------------------------


def test_each_layer_lies_over_the_one_below(hpcrun: Hpcrun) -> None:
    site, project = hpcrun.folder / "site", hpcrun.folder / ".hpcrun"
    write(site / "profiles/a100.yaml", "extends: a100\npartition: site\nqos: site\naccount: site\nconstraint: site\n")
    write(own(hpcrun), "extends: a100\nqos: user\naccount: user\nconstraint: user\n")
    write(project / "profiles/a100.yaml", "extends: a100\naccount: project\nconstraint: project\n")
    trust(hpcrun, project)
    file = write(hpcrun.folder / "mine.yaml", "extends: a100\nconstraint: file\n")
    found = shown(hpcrun, "./mine.yaml")
    assert found["gpu"]["type"] == "a100"
    assert [found[key] for key in ("partition", "qos", "account", "constraint")] == ["site", "user", "project", "file"]
    (hpcrun.folder / "train.py").touch()
    dry = ("submit", "-P", str(file), "--dry-run")
    script = hpcrun(*dry, "train.py", env={"SBATCH_QOS": "env", "SBATCH_ACCOUNT": "env"}, check=True).stdout
    assert "#SBATCH --qos=env" in script
    script = hpcrun(*dry, "-A", "flag", "train.py", env={"SBATCH_ACCOUNT": "env"}, check=True).stdout
    assert "#SBATCH --account=flag" in script
    assert "#SBATCH --constraint=file" in script
    folders = hpcrun("profile", "path", check=True).stdout.splitlines()
    order = [line.split()[1] for line in folders if line.startswith("profiles")]
    assert order[:3] == [str(path) for path in (project / "profiles", own(hpcrun).parent, site / "profiles")]


def test_a_configured_time_and_account_lie_between_profile_and_environment(hpcrun: Hpcrun) -> None:
    write(hpcrun.folder / "site/config.yaml", "profile: a100\ntime: 2h\naccount: site\n")
    write(hpcrun.home / ".config/hpcrun/config.yaml", "account: user\n")
    (hpcrun.folder / "train.py").touch()

    def script(*args: str, **env: str) -> str:
        return hpcrun("submit", "--dry-run", *args, "train.py", env=env, check=True).stdout

    assert "#SBATCH --time=02:00:00" in script()
    assert "#SBATCH --account=user" in script()
    assert "#SBATCH --time=00:30:00" in script(SBATCH_TIMELIMIT="30")
    assert "#SBATCH --account=env" in script(SBATCH_ACCOUNT="env")
    assert "#SBATCH --time=03:00:00" in script("--time", "3h", SBATCH_TIMELIMIT="30")
    write(own(hpcrun, "short"), "extends: a100\ntime: {max: 1h}\n")
    assert "#SBATCH --time=01:00:00" in script("-P", "short")
    # a job on this machine goes on until it ends, as before
    assert json.loads(script("-P", "local", "--json"))["plan"]["walltime_s"] is None


def test_use_sets_the_default_and_keeps_every_other_line(hpcrun: Hpcrun) -> None:
    config = hpcrun.home / ".config/hpcrun/config.yaml"
    done = hpcrun("profile", "use", "a100", check=True)
    assert done.stdout == f"written  {config}\ndefault  a100\n"
    assert config.read_text() == "profile: a100\n"
    write(config, "# mine\nprofile: v100 # for now\nruns: /scratch/me # large\n")
    assert hpcrun("profile", "use", "h100", check=True).stdout == f"changed  {config}\ndefault  h100\n"
    assert config.read_text() == "# mine\nprofile: h100 # for now\nruns: /scratch/me # large\n"
    assert any(line.split()[:2] == ["*", "h100"] for line in hpcrun("profile", "list", check=True).stdout.splitlines())
    assert "did you mean 'h100'?" in refused(hpcrun("profile", "use", "h10"))
    hidden = hpcrun("profile", "use", "h100", env={"HPCRUN_PROFILE": "local"}, check=True)
    assert hidden.stderr == "hpcrun: HPCRUN_PROFILE sets the profile local here, and takes precedence\n"
    write(config, "acount: x\n")
    before = config.read_text()
    assert "acount: unknown key" in refused(hpcrun("profile", "use", "h100"))
    assert config.read_text() == before


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
    for origin in document["origins"].values():  # each line does say the value's last key, or is an item of a list
        assert Path(origin["file"]).read_text().splitlines()[origin["line"] - 1].strip()


def test_origins_fit_eighty_columns(hpcrun: Hpcrun) -> None:
    write(own(hpcrun), "extends: a100\nenv: {A_RATHER_LONG_NAME_OF_A_VARIABLE: and a value that is longer than long}\n")
    table = hpcrun.screen("profile", "show", "a100", "--origin").split("\r\n\r\n")[0].splitlines()
    assert all(len(line) <= 80 for line in table)
    assert any(re.search(r"shipped: \S+\.yaml:\d+$", line.rstrip()) for line in table)


# --- set and unset --------------------------------------------------------------------------------------------


def test_set_makes_a_copy_that_extends_and_keeps_what_is_written_in_it(hpcrun: Hpcrun) -> None:
    assert hpcrun("profile", "set", "a100", "partition=long", "gpu.per_node=8", check=True).stdout.startswith("written")
    path = own(hpcrun)
    path.write_text("# mine\n" + path.read_text() + "# the end\n")
    lists = ("modules=[cuda/12.6]", "modules+=nccl")
    words = ("env.NCCL_DEBUG=null", "sbatch.exclusive=true", "env.A=true")
    hpcrun("profile", "set", "a100", *lists, *words, check=True)
    found = shown(hpcrun)
    assert (found["partition"], found["gpu"]["per_node"], found["gpu"]["type"]) == ("long", 8, "a100")
    assert found["modules"] == ["cuda/12.6", "nccl"]
    assert (found["sbatch"], found["env"]["A"]) == ({"exclusive": True}, "true")
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
    assert shown(hpcrun, "mine") == hpcrun.document("profile", "show")["profile"]
    hpcrun("profile", "edit", env={"EDITOR": "sed -i s/high/low/"}, check=True)
    assert shown(hpcrun, "mine")["qos"] == "low"
    assert "hint: hpcrun profile set a100 KEY=VALUE" in refused(hpcrun("profile", "set", "a100"), 2)


def test_set_extends_a_list_of_the_profile_below_and_takes_text_as_it_was_typed(hpcrun: Hpcrun) -> None:
    write(hpcrun.folder / "site/profiles/big.yaml", "modules: [site]\n")
    hpcrun("profile", "set", "big", "modules+=mine", "setup+=[ -d /x ] && echo y", check=True)
    assert shown(hpcrun, "big")["modules"] == ["site", "mine"]
    assert shown(hpcrun, "big")["setup"] == ["[ -d /x ] && echo y"]
    typed = ("extends=[local, a100]", "account=0042", "constraint=[a|b]", "env.A=a: b # c", "description=")
    hpcrun("profile", "set", "a100", *typed, check=True)
    found = shown(hpcrun)
    assert (found["account"], found["constraint"], found["env"]["A"]) == ("0042", "[a|b]", "a: b # c")
    assert "extends: [local, a100]" in own(hpcrun).read_text()


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (["set", "a100", "gpu.typ=x"], 3, "unknown key 'gpu.typ'; did you mean 'gpu.type'?"),
        (["set", "a100", "modules=[x"], 2, "not a list"),
        (["set", "a100", "sbatch.output=/x"], 3, "hpcrun sets --output itself"),
        (["set", "a100", "partition"], 2, "'partition' is not KEY=VALUE"),
        (["set", "a100", "=x"], 2, "is not KEY=VALUE"),
        (["set", "a100", "time.default=90"], 2, "time.default=90 has no unit\nhint: write 90m for minutes"),
        (["set", "a100", "time.max=30m"], 3, "time: default 01:00:00 is longer than max 00:30:00"),
        (["set", "a10", "partition=x"], 3, "did you mean 'a100'?"),
        (["unset", "a100", "partition"], 3, "nothing to remove"),
        (["new", "a/b", "--from", "a100"], 2, "cannot be a profile's name"),
        (["new", "_x", "--from", "a100"], 2, "cannot be a profile's name"),
        (["new", "x"], 2, "--from detected"),
        (["new", "x", "--from", "a10"], 3, "did you mean 'a100'?"),
        (["new", "x", "--from", "a100", "gpu.per_node=many"], 3, "gpu.per_node"),
        (["diff", "a100", "h10"], 3, "did you mean"),
        (["validate", "./none.yaml"], 3, "no such file"),
    ],
)
def test_what_cannot_be_leaves_nothing_behind(hpcrun: Hpcrun, args: list[str], status: int, says: str) -> None:
    assert says in refused(hpcrun("profile", *args), status)
    assert leftovers(hpcrun) == []
    assert not own(hpcrun).exists()
    assert not own(hpcrun, "x").exists()


def test_a_broken_file_is_not_made_worse(hpcrun: Hpcrun) -> None:
    path = write(own(hpcrun), "extends: a100\npartition: x\npartition: y\n")
    assert f"{path}:3: the key 'partition' appears twice here" in refused(hpcrun("profile", "set", "a100", "qos=x"))
    write(path, "extends: a100\npartitoin: x\n")
    said = refused(hpcrun("profile", "set", "a100", "qos=x"))
    assert f"{path}:2: unknown key 'partitoin'" in said
    assert path.read_text() == "extends: a100\npartitoin: x\n"
    hpcrun("profile", "unset", "a100", "partitoin", check=True)  # which puts it right


def test_a_profile_of_the_project_hides_the_copy_and_that_is_said(hpcrun: Hpcrun) -> None:
    project = write(hpcrun.folder / ".hpcrun/profiles/a100.yaml", "extends: a100\n")
    only = write(hpcrun.folder / ".hpcrun/profiles/ours.yaml", "extends: a100\n")
    trust(hpcrun, hpcrun.folder)
    assert f"{project} takes precedence" in hpcrun("profile", "set", "a100", "qos=x", check=True).stderr
    assert str(only) in refused(hpcrun("profile", "set", "ours", "qos=x"))
    hpcrun("profile", "set", str(only), "qos=x", check=True)
    assert only.read_text() == "extends: a100\nqos: x\n"
    assert shown(hpcrun, "ours")["qos"] == "x"  # what hpcrun has written itself stays trusted


def test_two_sets_at_once_lose_nothing(hpcrun: Hpcrun) -> None:
    write(own(hpcrun), "extends: a100\n")
    argvs = [hpcrun.argv("profile", "set", "a100", f"env.V{number}=x") for number in range(6)]
    programs = [subprocess.Popen(argv, env=hpcrun.environ, cwd=hpcrun.folder, stdout=-3) for argv in argvs]
    assert [program.wait(60) for program in programs] == [0] * 6
    assert {f"V{number}" for number in range(6)} <= set(shown(hpcrun)["env"])
    assert leftovers(hpcrun) == []


def test_a_full_disk_leaves_the_old_file(hpcrun: Hpcrun) -> None:
    with full_disk(own(hpcrun).parent) as disk:
        own(hpcrun).write_text("extends: a100\n")
        fill(disk)
        said = refused(hpcrun("profile", "set", "a100", "qos=x"))
        assert "cannot be saved: No space left on device; the file is unchanged" in said
        assert own(hpcrun).read_text() == "extends: a100\n"
        edited = hpcrun("profile", "edit", "a100", env={"EDITOR": "sed -i s/a100/h100/", "TMPDIR": str(hpcrun.folder)})
        assert "cannot be saved: No space left on device" in refused(edited)
        (draft,) = re.findall(r"your text is saved in (\S+)", edited.stderr)
        assert Path(draft).read_text() == "extends: h100\n"
        assert own(hpcrun).read_text() == "extends: a100\n"
        assert sorted(path.name for path in disk.iterdir()) == ["a100.yaml", "filler"]


def test_a_profile_only_another_user_may_read(hpcrun: Hpcrun) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can run as another user")
    path = write(own(hpcrun), "extends: a100\n")
    path.chmod(0o600)
    for folder in (*path.parents[:4], hpcrun.folder):
        folder.chmod(0o755)
    probe = "import sys; from pathlib import Path; from hpcrun.profiles.load import load_profile\n" \
        "from hpcrun.errors import ProfileError\nimport os; os.setuid(65534)\n" \
        "try: load_profile(sys.argv[1], [])\nexcept ProfileError as e: print(e.message, '|', e.hint)"  # fmt: skip
    # pytest's folders are closed to others: the file is opened from within
    done = subprocess.run([sys.executable, "-c", probe, "./a100.yaml"], cwd=path.parent, capture_output=True, text=True)
    assert done.stdout == "a100.yaml: you may not read it | its owner can allow it: chmod a+r a100.yaml\n", done.stderr


# --- validate, diff, schema -----------------------------------------------------------------------------------


def test_validate_tells_all_mistakes_of_all(hpcrun: Hpcrun) -> None:
    mine = write(own(hpcrun, "mine"), "extends: a100\ngpu: {typ: x}\ntime: {max: soon}\n")
    other = write(hpcrun.folder / "other.yaml", "partition: x\nqos: true\n")
    done = hpcrun("profile", "validate", "mine", "a100", "./other.yaml")
    assert done.returncode == 3
    assert done.stdout.splitlines() == ["error  mine", "ok     a100", "error  ./other.yaml"]
    assert {line.split(": ")[0] for line in done.stderr.splitlines() if ".yaml:" in line} == {
        f"{mine}:2", f"{mine}:3", "other.yaml:2"
    }  # fmt: skip
    found = hpcrun.document("profile", "validate", "mine")["profiles"][0]["mistakes"]
    assert [(item["file"], item["line"], item["key"]) for item in found] == [
        (str(mine), 2, "gpu.typ"), (str(mine), 3, "time.max")
    ]  # fmt: skip
    mine.unlink()
    other.unlink()
    assert hpcrun("profile", "validate", check=True).stderr == ""


def test_validate_refuses_a_variable_s_impossible_value_and_remarks_on_a_doubtful_one(hpcrun: Hpcrun) -> None:
    mine = write(own(hpcrun, "mine"), "extends: l40s\nenv:\n  NCCL_IB_RETRY_CNT: 13\n  NCCL_TIMEOUT: 60\n")
    done = hpcrun("profile", "validate", "mine")
    assert (done.returncode, done.stdout) == (3, "error  mine\n")
    wrong, remark, hint = done.stderr.splitlines()
    assert wrong.startswith(f"{mine}:3: env.NCCL_IB_RETRY_CNT=13: this value cannot be; it takes 0 to 7")
    assert remark.startswith(f"warning: {mine}:4: env.NCCL_TIMEOUT=60: no program reads this variable")
    assert hint == "hint: hpcrun profile env NCCL_IB_RETRY_CNT explains it"
    (found,) = hpcrun.document("profile", "validate", "mine")["profiles"]
    assert [(item["line"], item["key"]) for item in found["mistakes"]] == [(3, "env.NCCL_IB_RETRY_CNT")]
    assert [(item["line"], item["key"]) for item in found["remarks"]] == [(4, "env.NCCL_TIMEOUT")]
    write(mine, "extends: l40s\nenv: {NCCL_P2P_LEVEL: NVL}\n")  # a remark alone fails nothing
    done = hpcrun("profile", "validate", "mine", check=True)
    assert done.stdout == "ok     mine\n"
    assert done.stderr.startswith(f"warning: {mine}:2: env.NCCL_P2P_LEVEL=NVL: harmful on this GPU")


def test_diff_shows_what_differs_once_read(hpcrun: Hpcrun) -> None:
    write(own(hpcrun, "mine"), "extends: a100\ntime: {max: 48h}\npartition: long\nqos: x\n")
    lines = hpcrun("profile", "diff", "a100", "mine", check=True).stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["KEY", "a100", "mine"],
        ["partition", "gpu", "long"],
        ["qos", "-", "x"],
    ]
    found = hpcrun.document("profile", "diff", "a100", "mine")["differences"]
    assert found == [{"key": "partition", "values": ["gpu", "long"]}, {"key": "qos", "values": [None, "x"]}]
    assert "have the same values" in hpcrun("profile", "diff", "a100", "a100", check=True).stderr


# --- new ------------------------------------------------------------------------------------------------------


def test_new_takes_values_without_a_terminal(hpcrun: Hpcrun) -> None:
    done = hpcrun("profile", "new", "mine", "--from", "a100", "partition=long", "gpu.per_node=8", check=True)
    assert str(own(hpcrun, "mine")) in done.stdout
    found = shown(hpcrun, "mine")
    assert (found["partition"], found["gpu"]["per_node"], found["gpu"]["type"]) == ("long", 8, "a100")
    assert "#   account" in own(hpcrun, "mine").read_text()
    assert "already exists" in refused(hpcrun("profile", "new", "mine", "--from", "h100"), 2)


def test_new_that_is_interrupted_writes_nothing(hpcrun: Hpcrun) -> None:
    terminal = hpcrun.terminal("profile", "new", "mine")
    terminal.expect("Which profile is closest")
    terminal.sendintr()
    status, said = at_end(terminal)
    assert (status, said.splitlines()[-1]) == (130, "hpcrun: interrupted")
    assert not own(hpcrun, "mine").exists()


def test_new_asks_on_a_terminal(hpcrun: Hpcrun) -> None:
    terminal = hpcrun.terminal("profile", "new", "mine")
    for question, text in (
        ("Which profile is closest", "h100"), ("description", "Ours"), ("partition", "long"), ("account", ""),
        ("qos", ""), (r"gpu\.type", ""), (r"gpu\.per_node", "4"), (r"time\.default", ""), (r"time\.max", "12h"),
    ):  # fmt: skip
        answer(terminal, question, text)
    status, said = at_end(terminal)
    assert status == 0, said
    found = shown(hpcrun, "mine")
    assert (found["description"], found["partition"], found["gpu"]["per_node"]) == ("Ours", "long", 4)
    assert found["time"]["max"] == 12 * 3600
    assert "account" not in found


def test_an_answer_that_is_not_utf_8_is_refused_in_words(hpcrun: Hpcrun) -> None:
    terminal = hpcrun.terminal("profile", "new", "mine", env={"PYTHONIOENCODING": "utf-8:strict"})
    terminal.expect("Which profile is closest")
    terminal.setecho(False)
    os.write(terminal.child_fd, b"\xff\n")
    status, text = at_end(terminal)
    assert (status, "no profile '\\udcff'" in text) == (3, True), text


# --- edit -----------------------------------------------------------------------------------------------------


def editor(hpcrun: Hpcrun, text: str) -> str:
    """An editor: a shell script that is called with the file."""
    return str(hpcrun.program("editor.sh", text))


def test_the_first_edit_makes_a_copy_that_extends_the_shipped_one(hpcrun: Hpcrun) -> None:
    appends = editor(hpcrun, 'cp "$1" seen; echo "partition: mine" >> "$1"')
    done = hpcrun("profile", "edit", "a100", env={"EDITOR": "false", "VISUAL": appends}, check=True)
    assert done.stdout == f"written  {own(hpcrun)}\n"
    assert shown(hpcrun)["partition"] == "mine"
    assert shown(hpcrun)["gpu"]["type"] == "a100"
    seen = (hpcrun.folder / "seen").read_text()
    assert "\nextends: a100\n" in seen
    assert "\n# gpu:\n#   type: a100\n" in seen


def test_an_edit_that_changes_nothing_writes_nothing(hpcrun: Hpcrun) -> None:
    write(hpcrun.folder / "site/profiles/a100.yaml", "extends: a100\n")
    done = hpcrun("profile", "edit", "a100", env={"EDITOR": "true"}, check=True)
    assert "unchanged" in done.stdout
    assert done.stderr == ""  # no file of one's own that the site's could hide
    assert not own(hpcrun).exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('echo "x: y" >> "$1"; exit 3', "the editor ended with exit status 3; {} is unchanged"),
        ('rm "$1"', "the editor removed the file; {} is unchanged"),
        ('kill -9 $$', "the editor ended with exit status -9; {} is unchanged"),
        ('echo "gpu: {typ: x}" >> "$1"', "{}:2: unknown key 'gpu.typ'; did you mean 'gpu.type'?"),
        (r'printf "\\377" > "$1"', "not UTF-8 text"),
    ],
)  # fmt: skip
def test_an_editor_that_fails_leaves_the_old_file(hpcrun: Hpcrun, text: str, says: str) -> None:
    path = write(own(hpcrun), "extends: a100 # mine\n")
    done = hpcrun("profile", "edit", "a100", env={"EDITOR": editor(hpcrun, text)})
    assert says.replace("{}", str(path)) in refused(done)
    assert path.read_text() == "extends: a100 # mine\n"
    assert leftovers(hpcrun) == []


def test_an_editor_that_is_not_there(hpcrun: Hpcrun) -> None:
    assert "cannot be started" in refused(hpcrun("profile", "edit", "a100", env={"EDITOR": "/no/such"}), 2)
    assert "there is no profile 'nothing'" in refused(hpcrun("profile", "edit", "nothing", env={"EDITOR": "true"}))
    assert "there is no terminal" in refused(hpcrun("profile", "edit", "a100"), 2)
    assert "No closing quotation" in refused(hpcrun("profile", "edit", "a100", env={"EDITOR": "vi '"}), 2)


def test_a_file_that_changed_meanwhile_is_not_overwritten(hpcrun: Hpcrun) -> None:
    path = write(own(hpcrun), "extends: a100\n")
    both = editor(hpcrun, f'echo "qos: other" >> {path}; echo "qos: mine" >> "$1"')
    done = hpcrun("profile", "edit", "a100", env={"EDITOR": both, "TMPDIR": str(hpcrun.folder)})
    assert "was changed by another program while you edited it" in refused(done)
    (draft,) = re.findall(r"your text is saved in (\S+)", done.stderr)
    assert Path(draft).read_text() == "extends: a100\nqos: mine\n"
    assert path.read_text() == "extends: a100\nqos: other\n"


def test_a_mistake_is_shown_at_its_line_in_the_editor_and_can_be_put_right(hpcrun: Hpcrun) -> None:
    path = write(own(hpcrun), "extends: a100\nqos: x\n")
    # a mistake at first; the second time what it saw is kept, and the mistake corrected
    once = 'if grep -q "hpcrun:" "$1"; then cp "$1" seen; sed -i "s/typ:/type:/" "$1"; else'
    errs = editor(hpcrun, f'{once} printf "gpu:\\n  typ: mine\\n" >> "$1"; fi')
    terminal = hpcrun.terminal("profile", "edit", "a100", env={"EDITOR": errs})
    terminal.expect("a100.yaml:4: unknown key 'gpu.typ'; did you mean 'gpu.type'")
    terminal.expect(r"\(e\)dit again or \(q\)uit")
    assert path.read_text() == "extends: a100\nqos: x\n"
    terminal.sendline("e")
    status, said = at_end(terminal)
    assert status == 0, said
    assert (hpcrun.folder / "seen").read_text() == (
        "extends: a100\nqos: x\ngpu:\n#!! hpcrun: unknown key 'gpu.typ'; did you mean 'gpu.type'?\n  typ: mine\n"
    )
    assert path.read_text() == "extends: a100\nqos: x\ngpu:\n  type: mine\n"


@pytest.mark.parametrize("answer", ["q\n", "\x03"])
def test_one_can_leave_with_a_mistake_and_the_file_as_it_was(hpcrun: Hpcrun, answer: str) -> None:
    path = write(own(hpcrun), "extends: a100\n")
    terminal = hpcrun.terminal("profile", "edit", "a100", env={"EDITOR": editor(hpcrun, 'echo "x: y" >> "$1"')})
    terminal.expect(r"\(q\)uit")
    terminal.send(answer)
    status, said = at_end(terminal)
    assert status == (3 if answer == "q\n" else 130), said
    assert "Traceback" not in said
    assert path.read_text() == "extends: a100\n"


@pytest.mark.needs("vi")
def test_a_real_editor_of_the_whole_screen(hpcrun: Hpcrun) -> None:
    """vi, found without $EDITOR."""
    path = write(own(hpcrun), "extends: a100\n")
    terminal = hpcrun.terminal("profile", "edit", "a100", size=(24, 80))
    terminal.expect("extends")
    terminal.send("opartition: vi\x1b:wq\r")
    status, said = at_end(terminal)
    assert status == 0, said
    assert path.read_text() == "extends: a100\npartition: vi\n"


# --- completion -----------------------------------------------------------------------------------------------


def completed(hpcrun: Hpcrun, line: str, env: dict[str, str | None] | None = None) -> list[str]:
    words = line.split(" ")
    env = {**(env or {}), "_HPCRUN_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    program = Path(hpcrun.venv) / "bin" / "hpcrun"
    start = "import sys; from hpcrun.cli.main import main; sys.argv = ['hpcrun']; main()"
    argv = [str(program)] if program.exists() else [sys.executable, "-c", start]
    done = hpcrun.run(*argv, env=env, check=False)
    assert done.stderr == ""
    return [word for word in done.stdout.splitlines() if word]


def test_completion_of_partitions(hpcrun: Hpcrun) -> None:
    env = hpcrun.shims(sinfo='echo "$*" >&2; printf "gpu\\nlong\\ngpu\\ngpu-dev\\n"')
    sinfo = hpcrun.folder / "bin/sinfo"
    assert completed(hpcrun, "hpcrun submit -P a100 -p gp", env) == ["gpu", "gpu-dev"]
    assert completed(hpcrun, "hpcrun where --partition gpu,lo", env) == ["gpu,long"]
    write(sinfo, "#!/bin/sh\necho gpu; exit 1\n")
    assert completed(hpcrun, "hpcrun submit -p gp", env) == []
    write(sinfo, "#!/bin/sh\nexec sleep 60\n")
    start = time.monotonic()
    assert completed(hpcrun, "hpcrun submit -p gp", env) == []
    assert 2 <= time.monotonic() - start < 30
    sinfo.unlink()
    assert completed(hpcrun, "hpcrun submit -p gp", {"PATH": f"{hpcrun.venv}/bin"}) == []


def test_completion(hpcrun: Hpcrun) -> None:
    write(own(hpcrun, "mine"), "extends: a100\n")
    hpcrun("submit", "-P", "local", "--gpus", "0", "-J", "trial", "--wait", "true", check=True)
    assert completed(hpcrun, "hpcrun submit --profile mi") == ["mine"]
    assert completed(hpcrun, "hpcrun profile show a10")[0] == "a100"
    assert completed(hpcrun, "hpcrun profile set a100 part") == ["partition="]
    assert {"gpu.type=", "gpu.per_node="} <= set(completed(hpcrun, "hpcrun profile set a100 gpu."))
    assert completed(hpcrun, "hpcrun profile set a100 gp") == ["gpu."]
    assert completed(hpcrun, "hpcrun profile unset a100 gpu.ty") == ["gpu.type", "gpu.types."]
    for command in ("status", "logs", "cancel"):
        assert completed(hpcrun, f"hpcrun {command} tri") == ["trial"]
    write(hpcrun.home / ".config/hpcrun/config.yaml", "broken\n")
    assert completed(hpcrun, "hpcrun profile show mi") == ["mine"]  # which needs no configuration
    assert completed(hpcrun, "hpcrun profile show nothing") == []


MIXED = "{a100: {per_node: 4, time: {default: 30m, max: 1d}, qos: x}, h100: {per_node: 8, time: {default: 5m}}}"


def mixed(hpcrun: Hpcrun) -> Path:
    """A file that extends a profile with GPU types, two of which have a time.default of their own."""
    write(own(hpcrun, "base"), f"extends: base/slurm\ngpu:\n  types: {MIXED[:-1]}, l40s: {{per_node: 2}}}}\n")
    return write(own(hpcrun, "dev"), "extends: base\n")


def test_set_and_new_with_a_value_that_gpu_types_override_change_it_for_them_too(hpcrun: Hpcrun) -> None:
    path = mixed(hpcrun)
    done = hpcrun("profile", "set", "dev", "time.default=2h", "gpu.type=h100", check=True)
    assert done.stderr == "hpcrun: time.default now applies to GPU types a100, h100 too, which had their own\n"
    for words in ((), ("--gpus", "a100:1"), ("--gpus", "l40s:1"), ("--gpus", "0")):
        plan = hpcrun("submit", "-P", "dev", *words, "--dry-run", "--json", "true", check=True)
        assert json.loads(plan.stdout)["plan"]["walltime_s"] == 7200
    assert shown(hpcrun, "dev")["gpu"]["types"]["a100"]["time"] == {"max": 86400}
    assert hpcrun("profile", "set", "dev", "time.default=3h", "partition=gpu", check=True).stderr == ""
    hpcrun("profile", "set", "dev", "time.default=4h", "gpu.types.h100.time.default=1h", check=True)
    assert shown(hpcrun, "dev")["gpu"]["types"]["h100"]["time"] == {"default": 3600}
    hpcrun("profile", "set", "dev", "gpu.types.h100.time.default=1h", "time={default: 6h}", check=True)
    assert "h100: {per_node" not in path.read_text()
    assert shown(hpcrun, "dev")["gpu"]["types"]["h100"]["time"] == {"default": 3600}
    hpcrun("profile", "unset", "dev", "time.default", "partition", check=True)
    assert shown(hpcrun, "dev")["gpu"]["types"]["a100"] == shown(hpcrun, "base")["gpu"]["types"]["a100"]
    assert "null" not in path.read_text()
    hpcrun("profile", "new", "long", "--from", "base", "time.default=2h", check=True)
    assert "default" not in shown(hpcrun, "long")["gpu"]["types"]["h100"].get("time", {})


def test_a_gpu_type_that_a_profile_cannot_have_is_refused_where_it_is_written(hpcrun: Hpcrun) -> None:
    path = mixed(hpcrun)
    says = "profile 'dev' has no GPUs of type 'h1000'"
    error = refused(hpcrun("profile", "set", "dev", "gpu.type=h1000"))
    assert f"gpu.type: {says}; did you mean 'h100'? there are: a100, h100, l40s\n" in error
    assert path.read_text() == "extends: base\n"
    env = {"EDITOR": editor(hpcrun, "echo 'gpu: {type: h1000}' >> \"$1\""), "VISUAL": None}
    assert says in refused(hpcrun("profile", "edit", "dev", env=env))
    write(path, "extends: base\ngpu:\n  type: h1000\n")
    for command in (("profile", "validate", "dev"), ("doctor", "-P", "dev"), ("submit", "-P", "dev", "true")):
        done = hpcrun(*command)
        assert done.returncode != 0
        assert f"{path}:3: gpu.type: {says}" in done.stdout + done.stderr
    write(path, "extends: base\ngpu:\n  type: h1000\n  per_node: 4\n")  # the profile's own values are of this type
    hpcrun("profile", "validate", "dev", check=True)
