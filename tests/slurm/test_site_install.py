"""An installation that root owns, used through its module by somebody with their own Python."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.version import __version__
from tests.harness import Cluster, Hpcrun, wait_for, writable_by_others
from tests.site_install import LMOD, PAGE, Site, next_version

pytestmark = [pytest.mark.slurm, pytest.mark.needs(LMOD)]

OLD = __version__
NEW = "99.0.0"
SENTENCE = "More than 4 GPUs: write to help@alpha.example."
CONFIG = f"""\
profile: alpha
comment_jobs: true
limits: {{gpus_per_job: 4}}
notify: [mailto:ops@alpha.example]
locked:
  limits: '{SENTENCE}'
  notify: Messages stay here.
"""
PROFILE = "extends: detected\ngpu: {type: v100}\n"
"""``--gpus 2`` means this type: the cluster has several."""
WAITS = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]):\n    time.sleep(0.2)\n"
JOB = ("submit", "--gpus", "1", "--time", "10m")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two versions of an installation; the second has records with one field more."""
    root = Path(tempfile.mkdtemp(prefix="hpcrun-site-", dir="/tmp"))
    root.chmod(0o755)
    made = Site(root)
    made.install(OLD)
    made.install(NEW, next_version(tmp_path_factory.mktemp("next"), NEW))
    made.config.write_text(CONFIG)
    (root / "etc/profiles/alpha.yaml").write_text(PROFILE)
    yield made
    shutil.rmtree(root)


@pytest.fixture
def person(as_researcher: Hpcrun) -> Hpcrun:
    """A person with the training script of these tests."""
    as_researcher.write("train.py", WAITS)
    return as_researcher


def status(site: Site, person: Hpcrun, module: str) -> dict[str, object]:
    """What a version says of the last run."""
    done = site.hpcrun(person, "status", "last", "--json", module=module)
    (run,) = json.loads(done.stdout)["runs"]
    return dict(run)


def state(site: Site, person: Hpcrun, module: str, *states: str) -> bool:
    """Whether a version says that the last run is in one of these states."""
    return status(site, person, module)["state"] in states


def test_only_root_can_change_the_installation(site: Site, person: Hpcrun) -> None:
    (site.root / "wheels").chmod(0o700)
    assert writable_by_others(site.root) == []
    done = person.run("touch", str(site.root / NEW / "bin/hpcrun"), check=False)
    assert "Permission denied" in done.stderr


@pytest.mark.parametrize("kind", ["modules", "tcl_modules"])
def test_the_module_brings_two_programs_and_no_python(
    site: Site, person: Hpcrun, kind: str
) -> None:
    shows = 'type -p hpcrun python; echo "$MANPATH"'
    line = f'source {LMOD}; module use "$0"; module load hpcrun; {shows}'
    done = person.run("bash", "-c", line, str(getattr(site, kind)), env={"MANPATH": "/somewhere:"})
    program, python, manpath = done.stdout.splitlines()
    assert program == f"{site.root}/{NEW}/bin/hpcrun"
    assert python == f"{person.venv}/bin/python"
    assert manpath.startswith(f"{site.root}/{NEW}/share/man:/somewhere:")


def test_a_training_runs_with_the_profile_of_the_site_and_ones_own_python(
    site: Site, person: Hpcrun
) -> None:
    listed = site.hpcrun(person, "profile", "list").stdout
    assert re.search(r"alpha .*\bsite\b", listed)
    example = str(person.checkout / "examples/digits_ddp.py")
    done = site.hpcrun(person, "submit", "--gpus", "2", "--wait", example, "--epochs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 node × 2 v100 GPUs" in done.stdout
    assert f"{person.venv}/bin/python" in done.stdout
    assert f"{site.root}/{NEW}/venv" not in done.stdout
    assert "loss" in site.hpcrun(person, "logs").stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--gpus", "8", "--nodes", "2"), SENTENCE),
        (("--notify", "json://else/where"), "Messages stay here."),
        (("--mail-user", "me@home.example"), "Messages stay here."),
    ],
    ids=["limits", "notify", "mail"],
)
def test_a_locked_key_is_refused_with_the_sentence_of_the_site(
    site: Site, person: Hpcrun, words: tuple[str, ...], sentence: str
) -> None:
    profile = "extends: alpha\nnotify: [json://else/where]\ndescription: my own\n"
    person.write("home/.config/hpcrun/profiles/mine.yaml", profile)
    done = site.hpcrun(person, *JOB, "-P", "mine", *words, "train.py")
    assert done.returncode == 4, done.stderr
    assert "the site has locked" in done.stderr
    assert done.stderr.endswith(f"hint: {sentence}\n")
    assert not person.run("squeue", "--noheader", "--me").stdout.strip()


def test_a_locked_key_of_ones_own_file_is_not_used(site: Site, person: Hpcrun) -> None:
    person.write("home/.config/hpcrun/config.yaml", "notify: [mailto:me@home.example]\n")
    done = site.hpcrun(person, *JOB, "--dry-run", "train.py")
    assert "notify is not used: it is locked in" in done.stderr
    assert "Messages stay here." in done.stderr
    assert "#SBATCH --mail-user=ops@alpha.example" in done.stdout


def test_accounting_counts_the_jobs_of_hpcrun(site: Site, person: Hpcrun, cluster: Cluster) -> None:
    own = ("--sbatch", 'comment=mine; "mine"')
    site.hpcrun(person, *JOB, *own, "--wait", "--gpus", "0", "true")
    run = status(site, person, "hpcrun")
    comment = f'hpcrun {NEW} {run["run_id"]}; mine; "mine"'
    asked = ("sacct", "-nXP", "-o", "Comment", "-j", str(run["job_id"]))
    wait_for(lambda: cluster.slurm(*asked).strip() == comment, 60, "the comment in accounting")
    (line,) = re.findall("^sacct .*$", PAGE.read_text("utf-8"), re.MULTILINE)

    def counted() -> dict[str, str]:
        """The jobs that came through hpcrun, by user."""
        return dict(each.split() for each in person.run("bash", "-c", line).stdout.splitlines())

    wait_for(lambda: "researcher" in counted(), 60, "the job in the list of the page")
    before = counted()
    person.run("sbatch", "--output=/dev/null", "--comment=by hand", "--wait", "--wrap=true")
    assert counted() == before


def test_a_job_outlives_the_version_that_submitted_it(site: Site, person: Hpcrun) -> None:
    old, new = f"hpcrun/{OLD}", f"hpcrun/{NEW}"
    end = person.folder / "end"
    site.hpcrun(person, *JOB, "train.py", str(end), module=old)
    wait_for(lambda: state(site, person, new, "RUNNING"), 120, "the job to run")
    noted = site.hpcrun(person, "note", "last", "by the new version", module=new)
    assert noted.returncode == 0, noted.stderr
    (site.root / OLD).rename(site.root / "removed")
    try:
        end.touch()
        wait_for(lambda: state(site, person, new, "COMPLETED", "FAILED"), 120, "the job to end")
    finally:
        (site.root / "removed").rename(site.root / OLD)
    for module in (old, new):
        run = status(site, person, module)
        assert (run["state"], run["note"]) == ("COMPLETED", "by the new version")


def test_an_old_version_keeps_what_a_new_one_recorded(site: Site, person: Hpcrun) -> None:
    old, new = f"hpcrun/{OLD}", f"hpcrun/{NEW}"
    site.hpcrun(person, *JOB, "train.py", "/dev/null", module=new)
    wait_for(lambda: state(site, person, old, "COMPLETED"), 120, "the job to end")
    noted = site.hpcrun(person, "note", "last", "by the old version", module=old)
    assert noted.returncode == 0, noted.stderr
    run = status(site, person, new)
    assert run["note"] == "by the old version"
    record = json.loads((person.runs / str(run["run_id"]) / "run.json").read_text())
    assert (record["of_next"], record["note"]) == ("kept", "by the old version")
    again = site.hpcrun(person, "resubmit", "last", "--wait", module=old)
    assert again.returncode == 0, again.stderr
