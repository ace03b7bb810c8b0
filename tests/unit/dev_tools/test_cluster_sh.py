"""dev/cluster.sh believes, runs and deletes nothing that another user could have put where its
folder should be.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import CLUSTER_SH, SYSTEM_PATH, Completed
from tests.unit.profiles.hostile import ATTACKER

pytestmark = pytest.mark.skipif(
    os.getuid() != 0, reason="only root starts a cluster, or gives a folder away"
)


def env_of(folder: Path) -> Completed:
    """What `dev/cluster.sh env` says of a folder: the harmless command, with the check that all
    others make first.
    """
    env = {"PATH": SYSTEM_PATH, "HPCRUN_CLUSTER_DIR": str(folder)}
    return subprocess.run([CLUSTER_SH, "env"], env=env, capture_output=True, text=True)


def cluster_folder(path: Path) -> Path:
    (path / "etc").mkdir(parents=True)
    (path / "etc/slurm.conf").touch()
    (path / "made-by-hpcrun").touch()
    return path


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("c")


def give(path: Path) -> None:
    os.chown(path, ATTACKER, ATTACKER, follow_symlinks=False)


def link(path: Path) -> None:
    path.rename(path.with_name("x"))
    path.symlink_to("x")


@pytest.mark.parametrize("above", [0o700, 0o1777])
def test_a_folder_of_root_is_the_cluster_s_below_a_sticky_one_too(short: Path, above: int) -> None:
    short.chmod(above)
    folder = cluster_folder(short / "c")
    assert env_of(folder).stdout == f"export SLURM_CONF={folder}/etc/slurm.conf\n"


@pytest.mark.parametrize(
    ("hostile", "says"),
    [
        (give, "belongs to another user (uid 65533)"),
        (lambda path: give(path.parent), "belongs to another user (uid 65533)"),
        (link, "is a link"),
        (lambda path: path.chmod(0o777), "others can write to"),
        (lambda path: path.chmod(0o775), "others can write to"),
        (lambda path: path.chmod(0o1777), "others can write to"),
        (lambda path: path.parent.chmod(0o777), "others can write to"),
    ],
    ids=["given", "given above", "link", "0777", "0775", "sticky", "0777 above"],
)
def test_a_folder_in_which_others_have_a_say_is_refused(
    short: Path, hostile: Callable[[Path], None], says: str
) -> None:
    hostile(cluster_folder(short / "c"))
    done = env_of(short / "c")
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


# Namespaces of its own: the user, processes and bridge are not those of a cluster that runs beside
# the test.
APART = ("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc")
STALE = """set -e
cp -a /etc "$1/etc"
mount --bind "$1/etc" /etc
mount -t tmpfs none /run
mount -t tmpfs none /home
userdel researcher 2>/dev/null || true
useradd --create-home researcher
mkdir -m 755 /run/hpcrun-clusters && touch /run/hpcrun-clusters/made
"$2" down
! id researcher && test ! -e /run/hpcrun-clusters/made
"""


def test_down_removes_the_user_of_a_cluster_whose_folder_is_gone(short: Path) -> None:
    env = {"PATH": SYSTEM_PATH, "HPCRUN_CLUSTER_DIR": str(short / "c")}
    call = [*APART, "bash", "-c", STALE, "stale", str(short), str(CLUSTER_SH)]
    result = subprocess.run(call, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
