"""The environment of the ranks: hpcrun's variables, and what the script has changed.

hpcrun's variables are those that hpcrun adds.
"""

from __future__ import annotations

import binascii
import os
import stat
import sys

from . import records, tracker_environment

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each rank to import
if TYPE_CHECKING:
    from collections.abc import Mapping

MANAGED = "HPCRUN_MANAGED"
"""Set if the job may be warned or requeued."""
CONTAINER = "HPCRUN_CONTAINER"
"""Set in a container, to the runtime that made it."""
FOR_TORCHRUN = "HPCRUN_FOR_TORCHRUN"
"""The variables for this job's torchrun only: a program may start another torchrun."""
SAMPLE = "HPCRUN_SAMPLE_S"
SAMPLE_S = 10.0
"""The seconds between two samples of the use of a node, 0 for none; and without --sample."""
PER_WRITE = 6
"""The samples that a node writes at a time."""
ALLOCATOR = "PYTORCH_ALLOC_CONF"
MEMORY_SHARE = "per_process_memory_fraction:"
PACKED = "HPCRUN_PACKED"
"""Set in an element that shares its task with others."""
SRUN_FAILED = 69
"""The exit status of srun if Slurm failed, not a task (SLURM_EXIT_ERROR): EX_UNAVAILABLE of
sysexits(3).
"""
GPUS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL")
"""The variables with the GPUs of a task, which Slurm sets: of Nvidia, AMD and Intel, slurm.conf(5).
"""
MOST_JOINED = 64 << 10
"""Characters of the small files that are joined: hpcrun status reads the exit record."""
CAME = "HPCRUN_CAME_"
HOST_SUFFIX = "HPCRUN_HOST_SUFFIX"
"""The profile's fabric.host_suffix."""
COMPILED = "HPCRUN_COMPILED"
"""The variable with the folder of compiled files of this node."""
INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
"""The variable with the folder of torch.compile."""
_TEMPORARY = ("TMPDIR", "TEMP", "TMP")
_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""Where Python looks for a folder of temporary files, and for the name of the user, in this order:
tempfile.gettempdir() and getpass.getuser(), from which torch makes the folder's name
(torch/_inductor/runtime/cache_dir_utils.py).
"""
_OWN = ("HPCRUN_", "SLURM_")
_OF_BASH = ("PWD", "OLDPWD", "SHLVL", "_")


def warn_of_foreign_folder() -> None:
    """Say that another user owns the folder of torch.compile on this node: torch does not look.

    It holds programs and pickles, so its owner can run code in this job.
    """
    if INDUCTOR in os.environ:
        return
    place = _first_set(_TEMPORARY) or "/tmp"
    path = os.path.join(place, f"torchinductor_{_first_set(_NAMES)}")
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return
    if owner != os.getuid():
        where = f"{os.environ['HPCRUN_NODE']}: {path} belongs to another user (uid {owner})"
        records.say(f"{where}, who can run code in this job; set {INDUCTOR} to another folder")


def _first_set(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def be_node() -> None:
    """Set the name of this node.

    A task of srun gets the name from Slurm; the nodes of one machine get their names from the job.
    """
    env = os.environ
    if "SLURMD_NODENAME" in env and "HPCRUN_NODE_ADDR" not in env:
        env["HPCRUN_NODE"] = env["SLURMD_NODENAME"]
        env["HPCRUN_NODE_ADDR"] = address_of(env["HPCRUN_NODE"])
        env["HPCRUN_NODE_RANK"] = env["SLURM_NODEID"]
    if env.get("SLURM_EXIT_ERROR") == str(SRUN_FAILED):
        del env["SLURM_EXIT_ERROR"]  # for this job's srun, not for an srun that the program calls


def address_of(node: str) -> str:
    """Return the name of a node in the network between the nodes."""
    return node + os.environ.get(HOST_SUFFIX, "")


def prepare(came: int | None, *, managed: bool) -> None:
    """Add to the environment of this process what the ranks of the job get.

    Args:
        came: a descriptor with the original environment of the job: base64 of ``NAME=value``, each
            ended by NUL.
        managed: the job may be warned or requeued.
    """
    before = _before(came)
    _begin(before, ("HPCRUN_STAGE", "MASTER_ADDR", "MASTER_PORT"), managed=managed)
    _equip()
    if came is not None:
        os.environ.update(changes(before, os.environ))


def prepare_script(came: int | None, *, managed: bool) -> dict[str, str]:
    """Return the environment of a person's batch script; the arguments are those of ``prepare``.

    It is the environment that Slurm has given to the job, with what the person has set for the job,
    and without HPCRUN_*.
    """
    before = _before(came)
    _begin(before, ("HPCRUN_STAGE",), managed=managed)
    with open("/proc/self/environ", "rb") as file:  # Python may add LC_CTYPE to os.environ
        now = _parse(file.read())
    env = {}
    for name, value in now.items():
        if name not in _OF_BASH and not name.startswith("HPCRUN_"):
            env[name] = value
    for name in _OF_BASH:
        if name in before:
            env[name] = before[name]
    os.environ.pop("SLURM_EXPORT_ENV", None)  # for the script's srun, not for hpcrun's
    if came is not None:
        os.environ.update(changes(before, env))
    return env


def equip(added: list[str]) -> None:
    """Add to the environment of a script's launch what its ranks get.

    Args:
        added: further variables, ``NAME=VALUE``. What the script has set stays.
    """
    before = dict(os.environ)
    for variable in added:
        name, _, value = variable.partition("=")
        os.environ.setdefault(name, value)
    _equip()
    os.environ.update(changes(before, os.environ))


def _before(came: int | None) -> dict[str, str]:
    """Return the original environment of the job; nothing if it is not known."""
    if came is None:
        return {}
    with open(came, "rb") as file:
        return _parse(binascii.a2b_base64(file.read()))


def _begin(before: Mapping[str, str], inherited: tuple[str, ...], *, managed: bool) -> None:
    """Begin the job: in its own environment, and with the folders of its attempt.

    Args:
        before: the original environment of the job.
        inherited: variables that an enclosing job may have set, in which this job was submitted by
            hand; they go if this job has not changed them.
        managed: the job may be warned or requeued.
    """
    _close_log()
    env = os.environ
    env.pop(MANAGED, None)
    env.pop("HPCRUN_NODE_ADDR", None)
    for name in inherited:
        if before.get(name) == env.get(name):
            env.pop(name, None)
    if managed:
        env[MANAGED] = "1"
    renew(env["HPCRUN_ATTEMPT_DIR"])


def _equip() -> None:
    """Add hpcrun_runtime and labels for trackers. What the user or the profile has set stays."""
    env = os.environ
    runtime = os.path.join(env["HPCRUN_RUN_DIR"], "programs", "runtime")
    if os.path.exists(os.path.join(runtime, "hpcrun_runtime.py")):
        paths = [env["PYTHONPATH"]] if env.get("PYTHONPATH") else []
        env["PYTHONPATH"] = ":".join([*paths, runtime])
    _adapt_to_torch()
    tracker_environment.label()


def _adapt_to_torch() -> None:
    """Change the variables that an older torch refuses, or has under another name."""
    env = os.environ
    limits = env.get(ALLOCATOR, "").split(",")
    accepted = [limit for limit in limits if not limit.startswith(MEMORY_SHARE)]
    if accepted != limits and _has_torch_before([2, 10]):
        env[ALLOCATOR] = ",".join(accepted)
        records.say("--pack-memory has no effect on torch before 2.10")
    if "TORCH_FR_BUFFER_SIZE" in env and _has_torch_before([2, 8]):
        env.setdefault("TORCH_NCCL_TRACE_BUFFER_SIZE", env["TORCH_FR_BUFFER_SIZE"])


def _close_log() -> None:
    """Let no other user write the log of the batch script.

    Slurm makes this log with the umask of the job.
    """
    run = os.path.realpath(os.environ["HPCRUN_RUN_DIR"])
    for number in (1, 2):
        try:
            if os.readlink(f"/proc/self/fd/{number}").startswith(run + os.sep):
                os.fchmod(number, stat.S_IMODE(os.fstat(number).st_mode) & 0o755)
        except OSError:  # it is closed, or on a file system without modes
            continue


def flight() -> str:
    """Return the folder of the dumps of torch's flight recorder.

    Each role has its own folder, since its ranks count from 0.
    """
    return os.path.join(records.attempt_dir(), "flight", os.environ.get("HPCRUN_ROLE", ""))


def renew(folder: str) -> None:
    """Make the folders of an attempt, and set the new paths in the variables.

    Variables with paths in the folder of the attempt before get paths in the new folder.
    """
    for name in ("flight", records.STOP):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    os.environ.update(moved(os.environ, records.attempt_dir(), folder))


def moved(env: Mapping[str, str], before: str, folder: str) -> dict[str, str]:
    """Return an environment with the paths in one folder replaced by those in another."""
    result = dict(env)
    for name, path in env.items():
        if (path + os.sep).startswith(before + os.sep):
            result[name] = folder + path[len(before) :]
    return result


def tidy() -> None:
    """Tidy the folder of an attempt whose ranks have ended.

    The small files of a sweep go into the exit record.
    """
    if _has_children():
        return  # Slurm is about to end this process, and the ranks still write
    folder = records.attempt_dir()
    of_roles = [f"flight/{name}" for name in records.names_in(os.path.join(folder, "flight"))]
    for name in (*of_roles, "flight", records.STOP):
        try:
            os.rmdir(os.path.join(folder, name))
        except OSError:  # it is not empty, or there is none
            continue
    records.remove(os.path.join(folder, "heartbeat"))
    ended = records.read("exit")
    if ended is None or "_" not in os.environ["HPCRUN_JOB_ID"]:
        return
    files = _small_files(folder)
    if records.write("exit", {**ended, "files": files}):
        for name in files:
            os.unlink(os.path.join(folder, name))


def _has_children() -> bool:
    """Whether this process has a child, which may have ended."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _small_files(folder: str) -> dict[str, str]:
    """Return name → text of the small files of an attempt, as many as may be joined."""
    names = [name for name in os.listdir(folder) if _is_small(name)]
    texts = {name: records.read_text(name) for name in names}
    files = {}
    size = 0
    for name in sorted(texts, key=lambda name: len(texts[name])):
        text = texts[name]
        if text and size + len(text) <= MOST_JOINED:
            files[name] = text
            size += len(text)
    return files


def _is_small(name: str) -> bool:
    if name in ("hosts", "versions"):
        return True
    return name.startswith(("node-", "rank-")) and name.endswith((".start", ".exit", ".use"))


def _has_torch_before(version: list[int]) -> bool:
    """Return whether the job's Python has an older torch than this version.

    Before 2.8 the flight recorder has another variable.
    """
    import glob
    import re

    # without site, sys.prefix is that of the base Python
    prefix = os.path.dirname(os.path.dirname(sys.executable))
    packages = os.path.join(glob.escape(prefix), "lib*", "python3*", "*-packages")
    for path in glob.glob(os.path.join(packages, "torch-*.dist-info")):
        numbers = re.findall(r"\d+", os.path.basename(path))[:2]
        if [int(number) for number in numbers] < version:
            return True
    return False


def _parse(text: bytes) -> dict[str, str]:
    variables = {}
    for item in text.split(b"\0"):
        name, equals, value = os.fsdecode(item).partition("=")
        if equals:
            variables[name] = value
    return variables


def changes(came: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return variables that record the changes in an environment, with the original values.

    ``hpcrun submit`` inside this job passes on the original values (machine/clean_environment.py).
    """
    noted = {}
    for name in {*came, *now}:
        if came.get(name) == now.get(name):
            continue
        if name.startswith(_OWN) or name in _OF_BASH or "%" in name:
            continue
        if name in came:
            noted[CAME + name] = came[name]
        if name in now:
            noted[tracker_environment.PUT + name] = now[name]
    return noted
