"""What is shown is what is sent: --dry-run, render and submit make the same bytes."""

from __future__ import annotations

from pathlib import Path

from tests.harness import Hpcrun

ODD_ARGS = ["a b", "it's", "$HOME", "\udcff\udcc3", "a\nb", "", "--gpus", "9"]
WANTED = ["-P", "local", "--gpus", "0", "--cpus", "1", "--env", "A=b c", "--", "job.py"]
JOB = "import os, sys\nopen('seen', 'wb').write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))\n"


def test_a_dry_run_prints_the_very_bytes_that_are_submitted(hpcrun: Hpcrun) -> None:
    (hpcrun.folder / "job.py").write_text(JOB)
    shown = hpcrun("submit", "--dry-run", *WANTED, *ODD_ARGS, check=True)
    assert list(hpcrun.runs.iterdir()) == []
    hpcrun("submit", "--wait", *WANTED, *ODD_ARGS, check=True)
    (script,) = hpcrun.runs.glob("2*/script.sh")
    assert script.read_bytes() == shown.stdout.encode()
    seen = (hpcrun.folder / "seen").read_bytes().decode(errors="surrogateescape")
    assert seen.split("\0") == ODD_ARGS


def test_a_dry_run_for_slurm_needs_no_slurm(hpcrun: Hpcrun, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (hpcrun.folder / "job.py").write_text(JOB)
    wanted = ["-P", "a100", "--gpus", "4", "--nodes", "2", "job.py"]
    shown = hpcrun(
        "submit", "--dry-run", *wanted, env={"PATH": str(tmp_path / "empty")}, check=True
    )
    assert "#SBATCH --gres=gpu:a100:2\n" in shown.stdout
    assert list(hpcrun.runs.iterdir()) == []
