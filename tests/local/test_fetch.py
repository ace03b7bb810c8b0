"""Files of a host that come to this machine, with a real sshd: hpcrun fetch, and what commands
write there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.harness import REPO, Completed, Hpcrun, wait_for
from tests.local.recorded import Recorded, record, replace_fields
from tests.remote import laptop, login_node_of

pytestmark = pytest.mark.needs("sshd", "rsync")


@pytest.fixture
def there(hpcrun: Hpcrun) -> Recorded:
    """A run on the host: logs, metrics, a script, a checkpoint, and what is not a file."""
    run = record(hpcrun, ranks=2)
    for rank in range(2):
        run.log(f"rank {rank} trains\n", rank)
        for step in range(2):
            values = {"time": 1.7e9 + step, "step": step, "loss": 0.5}
            with (run.attempt() / f"rank-{rank}.metrics").open("a") as metrics:
                metrics.write(json.dumps(values) + "\n")
    (run.folder / "script.sh").write_text("#!/bin/sh\n")
    (run.folder / "code.diff").write_text("+lr = 0.1\n")
    (run.folder / "programs").symlink_to("/")
    (run.attempt() / "rank-7.out").symlink_to("/etc/passwd")
    os.mkfifo(run.attempt() / "rank-8.out")
    checkpoints = run.folder / "elements/0/checkpoints"
    checkpoints.mkdir()
    (checkpoints / "last.pt").write_bytes(b"weights")
    return run


@pytest.fixture
def here(hpcrun: Hpcrun, tmp_path: Path) -> Iterator[Hpcrun]:
    with (
        login_node_of(hpcrun, user="root") as far,
        laptop(tmp_path / "laptop", far=far) as person,
    ):
        data = hpcrun.home / ".local/share/hpcrun"
        data.mkdir(parents=True)
        (data / "runs").symlink_to(hpcrun.runs)
        person("login", "far", check=True)
        yield person


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_run_comes_home(here: Hpcrun, there: Recorded) -> None:
    done = here("--on", "far", "fetch", "last", "--json", check=True)
    document = json.loads(done.stdout)
    folder = here.folder / there.folder.name
    assert document["folder"] == str(folder)
    ranks = "elements/0/attempts/0/rank-"
    assert files_of(folder) == [
        "code.diff",
        *(f"{ranks}{rank}.{kind}" for rank in range(2) for kind in ("metrics", "out")),
        "run.json",
        "script.sh",
    ]


def files_of_laptop(here: Hpcrun) -> list[str]:
    """The files below the laptop's folder, without those of ssh and of hpcrun itself."""
    return [name for name in files_of(here.folder) if not name.startswith(("home/", "runs/"))]


def fetch(here: Hpcrun, *words: str, check: bool = True) -> Completed:
    return here("--on", "far", "fetch", *words, check=check)


def test_patterns_add_files_and_what_is_here_stays(here: Hpcrun, there: Recorded) -> None:
    fetch(here, "last", "checkpoints/last.pt", "--out", "--option")
    folder = here.folder / "--option"
    assert "elements/0/checkpoints/last.pt" in files_of(folder)
    (folder / "script.sh").write_text("mine\n")
    (there.attempt() / "rank-0.err").write_text("new\n")
    again = fetch(here, "last", "-o", "--option")
    assert again.stdout == f"written  {folder} (1 file, 4B)\n"
    assert (folder / "script.sh").read_text() == "mine\n"
    assert fetch(here, "last", "-o", "--option").stdout.startswith("nothing to copy")
    fetch(here, "last", "-o", "--option", "--force")
    assert (folder / "script.sh").read_text() == "#!/bin/sh\n"
    refused = fetch(here, "last", "-o", "home", check=False)
    assert f"{here.home} contains files that are not of {there.folder.name}" in refused.stderr
    assert not list(here.folder.glob("*.part"))
    missing = fetch(here, "last", "*.ckpt", "*.pt", check=False)
    assert (missing.returncode, "no file matches '*.ckpt'" in missing.stderr) == (6, True)
    empty = fetch(here, "last", "/", check=False)
    assert (empty.returncode, "is empty" in empty.stderr) == (2, True)


def test_only_the_named_element_of_a_sweep_comes(here: Hpcrun, there: Recorded) -> None:
    plan = {"sweep": {"elements": 2, "indices": "0-1", "first": 0}}
    request = {"sweep": [[["lr", "1"]], [["lr", "2"]]]}
    replace_fields(there.folder / "run.json", plan=plan, request=request)
    other = there.folder / "elements/1/attempts/0"
    other.mkdir(parents=True)
    (other / "rank-0.out").write_text("other\n")
    (other / "last.pt").write_bytes(b"weights")
    fetch(here, "last/1", "last.pt")
    names = files_of(here.folder / there.folder.name)
    assert "elements/1/attempts/0/rank-0.out" in names
    assert not [name for name in names if name.startswith("elements/0")]


def test_a_run_on_this_machine_is_named(hpcrun: Hpcrun) -> None:
    run = record(hpcrun)
    refused = hpcrun("fetch", "last")
    assert refused.stderr.startswith(f"hpcrun: the run is on this machine: {run.folder}\n")


def test_more_than_a_gigabyte_needs_consent(here: Hpcrun, there: Recorded) -> None:
    large = there.folder / "elements/0/checkpoints/large.pt"
    large.touch()
    os.truncate(large, 3 << 30)
    refused = fetch(here, "last", "large.pt", check=False)
    assert refused.returncode == 2
    assert "3.0G on far" in refused.stderr
    assert "hint: hpcrun --on far fetch --yes last large.pt" in refused.stderr
    terminal = here.terminal("--on", "far", "fetch", "last", "*.pt")
    terminal.expect("3.0G from far\\? \\[y/N\\]")
    terminal.sendline("n")
    terminal.expect("nothing was copied")
    terminal.close()
    assert not list(here.folder.glob("2026*"))


def test_ctrl_c_leaves_nothing_that_looks_whole(here: Hpcrun, there: Recorded) -> None:
    large = there.folder / "elements/0/checkpoints/large.pt"
    large.touch()
    os.truncate(large, 1 << 29)
    words = here.argv("--on", "far", "fetch", "last", "large.pt")
    process = subprocess.Popen(
        words, cwd=here.folder, env=here.environ, start_new_session=True, stderr=subprocess.PIPE
    )
    part = here.folder / f"{there.folder.name}.part"
    wait_for(lambda: list(part.rglob(".large.pt.*")), 20, "the copy to begin")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert f"interrupted; the files that have arrived are in {part}".encode() in errors
    assert not (here.folder / there.folder.name).exists()
    assert not list(part.rglob("*large.pt*"))
    os.truncate(large, 5)
    fetch(here, "last", "large.pt")
    assert "elements/0/checkpoints/large.pt" in files_of(here.folder / there.folder.name)
    assert not part.exists()


def test_a_log_that_grows_comes_as_it_was(here: Hpcrun, there: Recorded) -> None:
    log = there.log("line\n" * 4_000_000)
    stop = Event()

    def write() -> None:
        with log.open("a") as file:
            while not stop.wait(0.001):
                file.write("line\n" * 1000)

    writer = Thread(target=write)
    writer.start()
    try:
        fetch(here, "last")
    finally:
        stop.set()
        writer.join()
    text = (here.folder / there.folder.name / "elements/0/attempts/0/rank-0.out").read_bytes()
    assert len(text) >= 20_000_000
    assert log.read_bytes().startswith(text)


def test_what_a_command_writes_comes_home(
    here: Hpcrun, there: Recorded, subtests: pytest.Subtests
) -> None:
    project = here.folder / "project"
    project.mkdir()
    (project / "sub").mkdir()
    page = project / f"{there.folder.name}.html"
    for words, file in (
        (("share", "last"), page),
        (("share", "last", "--out=sub/page.html"), project / "sub/page.html"),
        (("metrics", "last", "--png", "loss.png"), project / "loss.png"),
        (("share", "--force", "--", "last"), page),
    ):
        with subtests.test(words=words):
            done = here("--on", "far", *words, cwd=project, check=True)
            assert done.stdout.startswith(f"written  {file}")
            assert file.stat().st_size > 1000
    again = here("--on", "far", "share", "last", cwd=project)
    assert again.returncode == 4
    assert f"{page} exists" in again.stderr
    assert len(files_of(project)) == 3
    assert sorted(os.listdir(project)) == sorted([page.name, "loss.png", "sub"])


def test_pictures_of_several_runs_come_home(
    here: Hpcrun, hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    script = "for step in range(3): print('step', step, 'loss', {lr} / (step + 1))"
    job = ("submit", "-P", "local", "-G", "0", "--wait", "--sweep", "lr=1,2")
    hpcrun(*job, "-J", "swept", "python3", "-c", script, check=True)
    record(hpcrun, scheduler="slurm")
    for words in (
        ("compare", "swept/0", "swept/1", "--png", "two.png"),
        ("sweep", "swept", "--png", "swept.png"),
        ("history", "--since", "9999d", "--plot", "past.png"),
    ):
        with subtests.test(words=words):
            done = here("--on", "far", *words, cwd=here.folder, check=True)
            picture = here.folder / words[-1]
            assert f"written  {picture}" in done.stdout
            assert picture.read_bytes().startswith(b"\x89PNG")


ANSWERS = [
    "",
    "[]",
    "{" * 9999,
    '{"error": 7}',
    '{"runs": 3}',
    '{"runs": [3]}',
    '{"runs": [{}]}',
    *(
        json.dumps({"runs": [{"run_id": run_id, "folder": folder}]})
        for run_id, folder in [
            ("20260102-030405-train-0a1b", "--option"),
            ("20260102-030405-train-0a1b", "runs"),
            ("20260102-030405-train-0a1b", "/runs\n/x"),
            ("20260102-030405-train-0a1b", 7),
            ("../20260102-030405-train-0a1b", "/"),
            ("20260102-030405-a/../../b-0a1b", "/"),
            ("20260102-030405-\x1b]0;x\x07-0a1b", "/"),
            ("--option", "/"),
            (None, "/"),
        ]
    ),
]


def test_an_answer_that_names_no_run_writes_nothing(
    here: Hpcrun, hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    hpcrun.program("there/hpcrun", f"cat {hpcrun.folder}/answer")
    before = files_of_laptop(here)
    for answer in ANSWERS:
        with subtests.test(answer=answer[:80]):
            hpcrun.write("answer", answer)
            refused = fetch(here, "last", check=False)
            assert refused.returncode == 5
            assert refused.stderr.startswith("hpcrun: far: ")
            assert "\x1b" not in refused.stderr
            assert files_of_laptop(here) == before


FILE = 0o100644
HOSTILE = [
    ("../rank-0.out", FILE, "unsafe pathname"),
    ("elements/0/attempts/0/../../../../../rank-0.out", FILE, "unsafe pathname"),
    ("/tmp/rank-0.out", FILE, "unsafe pathname"),
    ("elements/0/attempts/0/rank-\n\x1b[2J.out", FILE, "rejecting"),
    ("elements/0/attempts/0/rank-\x9b2J.out", FILE, "rejecting"),
    (".bashrc", FILE, "rejecting"),
    ("run.json", 0o120777, "cannot be copied"),
    ("run.json", 0o010666, "cannot be copied"),
    ("run.json", 0o060666, "cannot be copied"),
    ("run.json", FILE, "far sends more than was expected"),
]


def test_a_hostile_rsync_writes_nothing(
    here: Hpcrun, there: Recorded, hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    program = hpcrun.program("evil/rsync", f'exec python3 {hpcrun.folder}/evil/answer.py "$@"')
    hpcrun.write("evil/answer.py", (REPO / "tests/data/hostile_rsync.py").read_text())
    hpcrun.write("home/.bashrc", f"PATH={program.parent}:$PATH\n")
    before = files_of_laptop(here)
    for name, mode, words in HOSTILE:
        with subtests.test(name=name, mode=mode):
            files = [(".", 0o040755, 0), (name, mode, 10)]
            hpcrun.write("evil/list.json", json.dumps(files))
            refused = fetch(here, "last", check=False)
            assert refused.returncode == 5
            assert words in refused.stderr
            assert "bug" not in refused.stderr
            assert "\x1b" not in refused.stderr
            assert files_of_laptop(here) == before


def test_a_hostile_command_cannot_choose_a_name(here: Hpcrun, hpcrun: Hpcrun) -> None:
    program = "touch .bashrc evil.html '20260102-030405-x-0a1b.html'; ln -s / sub.html; echo done"
    hpcrun.program("there/hpcrun", program)
    before = files_of_laptop(here)
    here("--on", "far", "share", "last", check=True)
    name = "20260102-030405-x-0a1b.html"
    assert files_of_laptop(here) == sorted([*before, name])


def test_an_rsync_that_checks_no_names_is_refused(here: Hpcrun, there: Recorded) -> None:
    here.program("bin/rsync", "echo 'rsync  version 3.2.3  protocol version 31'")
    refused = fetch(here, "last", check=False)
    assert refused.returncode == 4
    assert "rsync  version 3.2.3 does not check the names that a host sends" in refused.stderr
    page = here("--on", "far", "share", "last", check=True)
    assert "files stay on far" in page.stderr
    assert page.stdout.startswith("written  far:/")
