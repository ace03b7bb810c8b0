"""--warm in jobs of real processes on this machine; tests/slurm/test_warm.py has several nodes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch.compiled import archive
from hpcrun.in_job.launch.compiled.node import VARIABLES
from tests.harness import wait_for
from tests.launch.jobs import LAUNCH, job

# a compiler that finds its file, or makes it, under a name of its own as Inductor does
COMPILE = """
import os, pathlib, sys, time
made = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "fxgraph/ab/key", str(os.getpid()))
print("warm" if any(made.parent.glob("*")) else "cold", made, flush=True)
if not any(made.parent.glob("*")):
    made.parent.mkdir(parents=True)
    made.with_name("a.lock").touch()
    made.write_bytes(b"program")
    made.chmod(0o755)
time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""


class Kept:
    """Jobs of one program in one runs folder."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self._jobs = 0

    def start(self, *arguments: str, program: str = COMPILE, **more: Any) -> Any:
        """Start a job with --warm, whose name counts from one."""
        self._jobs += 1
        folder = self.runs / f"run-{self._jobs}"
        folder.mkdir(parents=True)
        (folder / "program.py").write_text(program)
        job_id = f"L{os.getpid()}0{self._jobs}"
        more["env"] = {
            "HPCRUN_RUN_DIR": str(folder),
            "HPCRUN_JOB_ID": job_id,
            **more.get("env", {}),
        }
        more["options"] = ["--warm=program", *more.get("options", ())]
        command = [sys.executable, str(folder / "program.py"), *(arguments or ("0", "0"))]
        return job(folder, command, **more)

    def out(self, *arguments: str, **more: Any) -> str:
        """Run a job, and return what its first rank prints."""
        with self.start(*arguments, **more) as running:
            running.end()
            return str(running.out())

    def generations(self) -> list[Path]:
        """The generations on the shared storage, the oldest first."""
        return sorted(self.runs.glob(".compiled/*/*"))

    def archive(self) -> Path:
        """The archive of the only generation."""
        (generation,) = self.generations()
        (path,) = generation.glob("*.tar.gz")
        return path


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch sets the variable of its folder itself, in the process of another test."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def left_on_disk() -> list[Path]:
    """The folders that jobs of this process have left."""
    return list(Path("/tmp").glob(f"hpcrun-compiled-L{os.getpid()}0*"))


def test_the_next_job_starts_warm(kept: Kept) -> None:
    cold = kept.out()
    warm = kept.out()
    assert cold.startswith("cold ")
    assert warm.startswith("warm ")
    assert left_on_disk() == []


def test_what_is_saved_has_plain_files_and_no_locks(kept: Kept) -> None:
    kept.out()
    with tarfile.open(kept.archive()) as tar:
        (member,) = tar
    assert os.path.dirname(member.name) == "inductor/fxgraph/ab/key"
    assert member.mode & 0o777 == 0o755


def test_a_warm_job_saves_nothing(kept: Kept) -> None:
    kept.out()
    kept.out()
    assert len(kept.generations()) == 1


def test_a_job_that_compiles_nothing_saves_nothing(kept: Kept) -> None:
    kept.out(program="print()")
    assert kept.generations() == []
    assert left_on_disk() == []


def test_nodes_with_the_same_files_save_one_set(kept: Kept) -> None:
    kept.out(nodes=2)
    (generation,) = kept.generations()
    assert len(list(generation.glob("*.set"))) == 2
    assert len(list(generation.glob("*.tar.gz"))) == 1


def test_each_node_has_what_the_nodes_of_a_pipeline_have_compiled(kept: Kept) -> None:
    stages = COMPILE.replace('"fxgraph/ab/key"', '"fxgraph/ab/" + os.environ["HPCRUN_NODE_RANK"]')
    kept.out(program=stages, nodes=2)
    list_all = """
import os, pathlib
print(sorted(os.listdir(os.environ["TORCHINDUCTOR_CACHE_DIR"] + "/fxgraph/ab")))
"""
    with kept.start(program=list_all, nodes=2) as running:
        assert running.end() == 0
        assert [running.out(node) for node in (0, 1)] == ["['0', '1']\n"] * 2


@pytest.mark.parametrize("by", ["shell", "script"])
def test_a_variable_that_a_person_has_set_stays(kept: Kept, tmp_path: Path, by: str) -> None:
    own = str(tmp_path / "own")
    noted = {"HPCRUN_PUT_TORCHINDUCTOR_CACHE_DIR": own} if by == "script" else {}
    out = kept.out(env={"TORCHINDUCTOR_CACHE_DIR": own, **noted})
    assert out.startswith(f"cold {own}/")
    assert kept.generations() == []


def test_a_profile_can_name_further_variables(kept: Kept) -> None:
    show = 'import os; print(os.environ["VLLM_CACHE_ROOT"])'
    out = kept.out(program=show, options=["--warm-variable=VLLM_CACHE_ROOT"])
    assert out.endswith("/files/vllm_cache_root\n")


def test_the_folder_of_a_node_is_private(kept: Kept) -> None:
    show = """
import os, pathlib
files = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parent
print(oct(files.parent.stat().st_mode), oct(files.stat().st_mode))
"""
    assert kept.out(program=show) == "0o40700 0o40700\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_folder_of_torch_that_another_user_owns_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "torchinductor_me"
    foreign.mkdir()
    os.chown(foreign, 65534, 65534)
    with job(tmp_path, ["true"], env={"TMPDIR": str(tmp_path), "LOGNAME": "me"}) as running:
        assert running.end() == 0
    assert f"{foreign} belongs to another user (uid 65534), who can run" in capfd.readouterr().err


def _cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-6] ^= 16  # in the checksum of all
    path.write_bytes(content)


def _rewrite(path: Path, member: tarfile.TarInfo, text: bytes = b"") -> None:
    member.size = len(text)
    with tarfile.open(path, "w:gz", pax_headers={"hpcrun.root": "/before"}) as tar:
        tar.addfile(member, io.BytesIO(text))


def _lead_outside(path: Path) -> None:
    _rewrite(path, tarfile.TarInfo("inductor/../../../../../escaped"))


def _link(path: Path) -> None:
    member = tarfile.TarInfo("inductor")
    member.type = tarfile.SYMTYPE
    member.linkname = "/tmp"
    _rewrite(path, member)


def _open_to_all(path: Path) -> None:
    path.chmod(0o666)


def _replace_by_a_link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


HARMS = [
    pytest.param(_cut, "it is damaged", id="cut"),
    pytest.param(_flip, "it is damaged", id="a bit"),
    pytest.param(_lead_outside, "it has 'inductor/../../../../../escaped'", id="outside"),
    pytest.param(_link, "it has 'inductor'", id="link inside"),
    pytest.param(_open_to_all, "others may have written it", id="writable by others"),
    pytest.param(_replace_by_a_link, "Too many levels of symbolic links", id="link"),
]


@pytest.mark.parametrize(("harm", "reason"), HARMS)
def test_a_bad_archive_is_not_used(
    kept: Kept, harm: Callable[[Path], None], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    kept.out()
    harm(kept.archive())
    out = kept.out(nodes=2)
    log = capfd.readouterr().err
    assert out.startswith("cold ")
    assert "hpcrun: --warm: this attempt starts cold: " in log
    assert reason in log
    assert left_on_disk() == []
    assert not Path("/tmp/escaped").exists()


def test_a_job_after_a_bad_archive_is_warm_again(kept: Kept) -> None:
    kept.out()
    _cut(kept.archive())
    kept.out()
    assert kept.out().startswith("warm ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("of_parent", [0, 1, 2], ids=["generation", "program", "all"])
def test_a_folder_of_another_user_is_not_used(kept: Kept, of_parent: int) -> None:
    kept.out()
    (generation,) = kept.generations()
    folder = [generation, *generation.parents][of_parent]
    os.chown(folder, 65534, 65534)
    assert kept.out().startswith("cold ")


def test_a_program_that_failed_keeps_no_young_file(kept: Kept) -> None:
    kept.out("0", "1")
    assert kept.generations() == []
    assert left_on_disk() == []


def test_a_cancelled_job_keeps_no_young_file(kept: Kept) -> None:
    with kept.start("600", "0") as running:
        running.until("cold")
        running.process.send_signal(signal.SIGTERM)
        assert running.end() == 143
    assert kept.generations() == []
    assert left_on_disk() == []


def test_old_files_of_a_program_that_failed_are_kept(kept: Kept) -> None:
    aged = COMPILE.replace("made.chmod(0o755)", "os.utime(made, (1e9, 1e9))")
    kept.out("0", "1", program=aged)
    assert kept.out().startswith("warm ")


def test_what_a_killed_node_was_saving_is_not_used(kept: Kept) -> None:
    kept.out()
    path = kept.archive()
    path.rename(path.with_name(f"{path.name}.node.1"))
    assert kept.out().startswith("cold ")
    assert kept.out().startswith("warm ")


def test_two_jobs_at_once_do_not_meet(kept: Kept) -> None:
    with kept.start("1", "0") as one, kept.start("1", "0") as two:
        assert (one.end(), two.end()) == (0, 0)
        folders = {running.out().split()[1].partition("/files/")[0] for running in (one, two)}
    assert len(folders) == 2
    assert len(kept.generations()) == 2
    assert kept.out().startswith("warm ")


def test_only_the_last_two_generations_stay(kept: Kept) -> None:
    for number in range(4):
        kept.out(program=COMPILE.replace("key", f"key-{number}"))
    names = [path.name.split(".")[1] for path in kept.generations()]
    assert names == ["run-3", "run-4"]


def test_a_retry_of_a_warm_start_without_a_step_is_cold(
    kept: Kept, capfd: pytest.CaptureFixture[str]
) -> None:
    kept.out()
    crash = COMPILE.replace("sys.exit(", "sys.exit(1 - int(os.environ['HPCRUN_ATTEMPT']) or ")
    again = ["--grace=60", "--restarts=1", "--retry-on-failure"]
    with kept.start(program=crash, options=again) as running:
        assert running.end() == 0
        assert running.out().startswith("warm ")
        retried = running.attempt.parent / "1" / "rank-0.out"
        assert retried.read_text().startswith("cold ")
    assert "attempt 1 started warm and failed before its first step" in capfd.readouterr().err


def test_a_retry_of_a_warm_start_with_steps_is_warm(kept: Kept) -> None:
    kept.out()
    crash = "print('step 12')\n" + COMPILE
    crash = crash.replace("sys.exit(", "sys.exit(1 - int(os.environ['HPCRUN_ATTEMPT']) or ")
    again = ["--grace=60", "--restarts=1", "--retry-on-failure"]
    with kept.start(program=crash, options=again) as running:
        assert running.end() == 0
        retried = running.attempt.parent / "1" / "rank-0.out"
        assert "warm " in retried.read_text()


LISTS = [
    pytest.param('{"k": "BEFORE/A/k"}', '{"k": "AFTER/A/k"}', id="inside"),
    pytest.param('{"k": "/tmp/A/k", "o": "BEFORE/A/o"}', '{"o": "AFTER/A/o"}', id="elsewhere"),
    pytest.param('{"k": "BEFORE/../k"}', "{}", id="above"),
    pytest.param('["k"]', "{}", id="no table"),
    pytest.param("[" * 10000, "{}", id="nested"),
]


@pytest.mark.parametrize(("paths", "moved"), LISTS)
def test_lists_of_triton_name_the_folder_in_which_they_lie(
    tmp_path: Path, paths: str, moved: str
) -> None:
    before = tmp_path / "before"
    after = tmp_path / "after"
    group = before / "A/__grp__k.json"
    group.parent.mkdir(parents=True)
    group.write_text(f'{{"child_paths": {paths.replace("BEFORE", str(before))}}}')
    whole = str(tmp_path / "whole")
    archive.write(whole, str(tmp_path / "aside"), str(before), ["A/__grp__k.json"])
    archive.unpack(whole, str(tmp_path / "part"), str(after))
    text = (tmp_path / "part/A/__grp__k.json").read_text()
    assert text == f'{{"child_paths": {moved.replace("AFTER", str(after))}}}'


def test_an_archive_that_takes_too_long_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    with pytest.raises(TimeoutError):
        archive.write(str(tmp_path / "whole"), str(tmp_path / "aside"), str(tmp_path), ["file"], 0)
    assert os.listdir(tmp_path) == ["file"]


def test_what_no_archive_can_have_is_not_saved(kept: Kept) -> None:
    strange = (
        COMPILE
        + """
os.link(made, made.with_name("linked"))
os.mkfifo(made.with_name("fifo"))
made.with_name("link").symlink_to(made)
made.with_name("new\\nline").touch()
"""
    )
    strange = strange.replace("sys.exit(int(sys.argv[2]))", "")
    kept.out(program=strange)
    assert kept.out().startswith("warm ")


# prints what it begins with, and leaves a process that writes a file when the program has ended
LEAVES_A_WRITER = """
import os, pathlib, subprocess, sys, time
folder = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
folder.mkdir(exist_ok=True)
print(sorted(path.name for path in folder.glob("*")), flush=True)
folder.joinpath("whole").touch()
folder.joinpath("unreadable").touch(mode=0)
write = "import sys, time; file = open(sys.argv[1], 'wb', 0); file.write(b'A'); time.sleep(8)"
cut = folder / "cut"
env = {} if sys.argv[1] == "hidden" else None
pipe = subprocess.DEVNULL
argv = [sys.executable, "-c", write, str(cut)]
subprocess.Popen(argv, env=env, start_new_session=True, stdout=pipe, stderr=pipe)
while not cut.exists() or not cut.stat().st_size:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("writer", ["of the tree", "hidden"])
def test_a_file_that_a_process_is_writing_at_the_end_is_not_saved(kept: Kept, writer: str) -> None:
    assert kept.out(writer, program=LEAVES_A_WRITER) == "[]\n"
    assert kept.out(writer, program=LEAVES_A_WRITER) == "['whole']\n"


def test_a_program_may_make_folders_deeper_than_python_recurses(kept: Kept) -> None:
    deep = """
import os
os.makedirs(os.environ["TORCHINDUCTOR_CACHE_DIR"])
os.chdir(os.environ["TORCHINDUCTOR_CACHE_DIR"])
for _ in range(1100):
    os.mkdir("d")
    os.chdir("d")
open("file", "w")
"""
    with kept.start(program=deep) as running:
        assert running.end() == 0
    assert left_on_disk() == []


def test_a_folder_in_which_others_can_move_things_has_no_compiled_files(
    kept: Kept, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    disk.chmod(0o777)
    env = {"HPCRUN_STAGE_DIR": str(disk)}
    show = 'import os; print(os.environ["TORCHINDUCTOR_CACHE_DIR"])'
    assert not kept.out(program=show, env=env).startswith(str(disk))
    disk.chmod(0o1777)
    assert kept.out(program=show, env=env).startswith(str(disk))


def test_nothing_is_kept_where_others_can_write(
    kept: Kept, capfd: pytest.CaptureFixture[str]
) -> None:
    kept.runs.chmod(0o777)
    show = 'import os; print(os.environ.get("TORCHINDUCTOR_CACHE_DIR"))'
    assert kept.out(program=show) == "None\n"
    assert f"others may write to {kept.runs}; keep runs in a folder of" in capfd.readouterr().err


def test_ranks_of_one_node_save_once_at_the_end_of_the_last(kept: Kept) -> None:
    """As with --launcher srun, where no process stands above the ranks of a node."""
    both = 'for id in 0 1; do SLURM_PROCID=$id SLURM_LOCALID=$id "$@" & done; wait'
    tasks = ["env", "SLURM_NTASKS=2", "SLURM_NTASKS_PER_NODE=2", "bash", "-c", both, "bash"]
    kept.out("2", "0", chain=[*tasks, *LAUNCH, "rank", "--task", "--"])
    (generation,) = kept.generations()
    assert len(list(generation.glob("*.tar.gz"))) == 1
    assert left_on_disk() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_full_shared_disk_keeps_the_generation_before(
    kept: Kept, capfd: pytest.CaptureFixture[str]
) -> None:
    shared = kept.runs / ".compiled"
    shared.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k,mode=700", "tmpfs", str(shared)]
    subprocess.run(mount, check=True)
    try:
        kept.out()
        large = COMPILE.replace("key", "more").replace('b"program"', "os.urandom(300_000)")
        kept.out(program=large)
        assert "cannot save compiled files: [Errno 28] No space left" in capfd.readouterr().err
        assert kept.out().startswith("warm ")
        assert not list(shared.rglob("*.tar.gz.*"))
    finally:
        subprocess.run(["umount", str(shared)], check=True)


def test_a_job_that_is_killed_while_it_saves(kept: Kept) -> None:
    large = COMPILE.replace('b"program"', "os.urandom(100_000_000)")
    with kept.start(program=large) as running:
        wait_for(lambda: list(kept.runs.glob(".compiled/*/*/*.tar.gz.*")), 60, "the archive")
        for pid in running.processes():
            os.kill(pid, signal.SIGKILL)
    assert kept.out().startswith("cold ")
    assert kept.out().startswith("warm ")
    (left,) = left_on_disk()
    os.utime(left, (1e9, 1e9))  # an hour later
    kept.out()
    assert left_on_disk() == []


def test_files_are_saved_while_the_program_runs(kept: Kept) -> None:
    """A long training may end by a kill: its files are saved once nothing new has come."""
    aged = COMPILE.replace("made.chmod(0o755)", "os.utime(made, (1e9, 1e9))")
    with kept.start("600", "0", program=aged) as running:
        saved = lambda: list(kept.runs.glob(".compiled/*/*/*.tar.gz"))  # noqa: E731
        wait_for(saved, 60, "the archive")
        running.process.send_signal(signal.SIGTERM)
        running.end()
    assert kept.out().startswith("warm ")


@pytest.mark.parametrize("what", ["", "/.."], ids=["its files", "the whole folder"])
def test_a_program_may_remove_its_compiled_files(kept: Kept, what: str) -> None:
    remove = f"""
import os, shutil
shutil.rmtree(os.path.realpath(os.environ["TORCHINDUCTOR_CACHE_DIR"] + "/..{what}"))
"""
    with kept.start(program=remove) as running:
        assert running.end() == 0
    assert left_on_disk() == []
