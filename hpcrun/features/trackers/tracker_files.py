"""The runs of wandb, MLflow and Aim that a run of hpcrun made, and the upload of wandb's runs.

The upload is for wandb runs that were offline. The module knows the runs from the logs of the ranks
and from files in the run's folder. The module imports nothing of a tracker and asks nothing over
the network. Jobs write the logs, so that the module takes only http and https addresses without
user names, and only printable paths. The upload is ``wandb sync`` by the run's own Python.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

from hpcrun.actions.hooks import Hooks
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import PlanError
from hpcrun.files.foreign_folder import ForeignFolder, is_foreign
from hpcrun.files.reading import open_regular, read_text
from hpcrun.files.writing import flocked, for_oneself
from hpcrun.job.run_paths import RunFolder
from hpcrun.machine.process import Completed, leave_running, run_command
from hpcrun.runs.attempt import Attempt, attempts, last_attempt, ranks
from hpcrun.runs.elements import all_elements
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore

# how many ranks, the first, and how many attempts, the newest, are read
MOST_RANKS = 16
MOST_ATTEMPTS = 64
_EACH_END = 256 << 10  # bytes of the beginning of a log and of its end: there trackers write
_MOST_NAMES = 5000
_LONGEST_URL = 2000
_WANDB = "wandb"
_MLFLOW = "MLflow"
_AIM = "Aim"
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
_SAYS = re.compile(
    rb"wandb: Run data is saved locally in (?P<folder>/[^\r\n]{1,4095})"
    rb"|wandb: [^\r\n]{0,300}?View run (?:[^\r\n]{0,300}? )?at:? (?P<wandb>http[!-~]{1,2000})"
    rb"|View run [^\r\n]{0,300}? at: (?P<mlflow>http[!-~]{1,2000})"
    rb"|Syncing: (?P<synced>http[!-~]{1,2000})"  # older versions of wandb sync
)
_WANDB_FOLDER = re.compile(r"(?P<offline>offline-)?run-\d{8}_\d{6}-(?P<id>[\w.-]{1,128})", re.ASCII)
# the longest time for one upload: of the media of a long training there may be many gigabytes
SYNC_S = 6 * 3600.0
_ASKS_S = 30.0
_MOST_AT_ONCE = 200
_LONGEST_ERROR = 300
_ERROR = re.compile(r"(Error|panic|wandb: ERROR): |wandb: ERROR (?!Find )")
# Before any other import, that of json too: a file of the current folder would be imported in the
# module's place.
NOT_FROM_HERE = "import sys; sys.path[:] = filter(None, sys.path); "
_HAS_MODULE = (
    f"{NOT_FROM_HERE}import importlib.util; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
)
_OF_A_JOB = frozenset(
    ["WANDB_MODE", "WANDB_DISABLED", "WANDB_SILENT", "WANDB_QUIET", "WANDB_RUN_ID", "WANDB_RESUME"]
)
"""wandb's variables that are meant for a job, and would keep ``wandb sync`` from uploading what it
is given.
"""


@dataclass(frozen=True, slots=True)
class TrackerRun:
    """A run of a tracker."""

    tracker: str
    attempt: int
    rank: int
    id: str | None = None
    url: str | None = None
    folder: Path | None = None  # what the tracker wrote on disk: a folder, or a database
    offline: bool = False  # wandb wrote it to disk only
    synced: bool = False  # it was offline, and has been uploaded

    @property
    def place(self) -> str:
        """Its page, else what is on disk."""
        if self.url:
            return self.url
        text = f"run {self.id}"
        if self.folder is None:
            return text
        if self.offline or self.synced:
            text += ", offline"
        if self.synced:
            text += ", uploaded"
        folder = self.folder
        if self.tracker == _WANDB:
            folder = folder.parent  # wandb's folder is named by the id, which stands before it
        return f"{text} in {folder}"


def page_url(text: str) -> str | None:
    """Return an http or https address that a browser may open, None for any other text."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    plain = text.isascii() and text.isprintable() and not set(text) & set(" \"'`<>\\^{|}")
    is_page = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
    if is_page and plain and len(text) <= _LONGEST_URL:
        return text
    return None


def is_local(url: str) -> bool:
    """Whether an address is of this machine, so that a browser elsewhere needs a tunnel."""
    host = urlsplit(url).hostname or ""
    return host == "localhost" or host.startswith("127.") or host == "::1"


def tracker_runs(
    run: Run, folder: Path, element: int = 0, *, most_attempts: int = MOST_ATTEMPTS
) -> list[TrackerRun]:
    """Return the runs of trackers that an element of a run made.

    The runs of the element's newest attempt come first.
    """
    begun = list(islice(attempts(folder, element), most_attempts))
    if not begun:
        return []
    logged: list[TrackerRun] = []
    for attempt in begun:
        logged += _of_logs(attempt)
    runs = _with_synced_pages(logged, folder)
    if is_foreign(folder):
        # the working folder, and the folders that logs name, may be anywhere
        return [each for each in runs if each.url]
    for place in (working_folder(run, folder), RunFolder(folder).element(element).checkpoints):
        runs += _of_mlflow(place, run.run_id, element, begun[0])
        runs += _of_aim(place, begun)
    return runs


def env_of(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the variables of a run's plan; secrets have no value there."""
    for pair in run.plan.get("env") or ():
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            continue
        name, value = pair
        if isinstance(name, str) and isinstance(value, str):
            yield name, value


def working_folder(run: Run, folder: Path) -> Path:
    """Return the folder in which a run's program started."""
    snapshot = run.plan.get("snapshot")
    if isinstance(snapshot, dict):
        return RunFolder(folder).code / str(snapshot.get("folder", "."))
    workdir = run.plan.get("workdir")
    return Path(run.cwd or ".", workdir if isinstance(workdir, str) else "")


# --- from logs -----------------------------------------------------------------------------------


def _of_logs(attempt: Attempt) -> Iterator[TrackerRun]:
    for rank in ranks(attempt.folder)[:MOST_RANKS]:
        for stream in ("err", "out"):
            log = attempt.folder.rank_log(rank, stream)
            with suppress(OSError), open_regular(log, links=False) as file:
                yield from parse_log(_ends(file), attempt.number, rank)


def _ends(file: BinaryIO) -> bytes:
    size = os.fstat(file.fileno()).st_size
    begin = file.read(_EACH_END)
    if size <= _EACH_END:
        return begin
    file.seek(max(_EACH_END, size - _EACH_END))
    return begin + b"\n" + file.read(_EACH_END)


def parse_log(text: bytes, attempt: int, rank: int) -> list[TrackerRun]:
    """Return the runs that wandb and MLflow name in a log, each once."""
    runs: list[TrackerRun] = []
    folders: set[Path | None] = set()
    urls: set[str | None] = set()
    for match in _SAYS.finditer(_COLOUR.sub(b"", text)):
        if match["folder"]:
            new = _of_folder(match["folder"], attempt, rank)
            if new and new.folder not in folders:
                folders.add(new.folder)
                runs.append(new)
            continue
        address = match["wandb"] or match["mlflow"] or match["synced"]
        url = page_url(address.decode("ascii"))
        if url is None or url in urls:
            continue
        urls.add(url)
        tracker = _MLFLOW if match["mlflow"] else _WANDB
        if tracker == _WANDB and _lacks_page(runs):
            runs[-1] = replace(runs[-1], url=url)
            continue
        tracker_id = url.rpartition("/runs/")[2]
        runs.append(TrackerRun(tracker, attempt, rank, id=tracker_id or None, url=url))
    return runs


def _lacks_page(runs: Sequence[TrackerRun]) -> bool:
    """Return whether the last of these runs is one of wandb that has no page yet."""
    return bool(runs) and runs[-1].tracker == _WANDB and runs[-1].url is None


def _of_folder(name: bytes, attempt: int, rank: int) -> TrackerRun | None:
    path = Path(os.fsdecode(name.rstrip()))
    match = _WANDB_FOLDER.fullmatch(path.name)
    if match is None or not str(path).isprintable():
        return None
    offline = match["offline"] is not None
    synced = False
    if ForeignFolder.path:
        offline = False
    with suppress(OSError):  # no such path is possible, or it cannot be read
        synced = offline and _is_uploaded(path)
    return TrackerRun(_WANDB, attempt, rank, match["id"], None, path, offline, synced)


def _is_uploaded(path: Path) -> bool:
    """Return whether ``wandb sync`` has marked the folder of a wandb run as uploaded."""
    return any(path.glob("run-*.wandb.synced"))


def _with_synced_pages(runs: list[TrackerRun], folder: Path) -> list[TrackerRun]:
    """Return the runs, with the pages that ``wandb sync`` named for those that were offline."""
    if not any(each.offline for each in runs):
        return runs
    try:
        with open_regular(RunFolder(folder).tracker_sync("log"), links=False) as file:
            uploaded = parse_log(_ends(file), 0, 0)
    except OSError:
        return runs
    pages = {}
    for each in uploaded:
        if each.url:
            tracker_id = each.url.rstrip("/").rpartition("/")[2]
            pages[tracker_id] = each.url
    with_pages = []
    for each in runs:
        if each.offline:
            with_pages.append(replace(each, url=pages.get(each.id or "")))
        else:
            with_pages.append(each)
    return with_pages


# --- from files in the working folder ------------------------------------------------------------


def _of_mlflow(place: Path, run_id: str, element: int, newest: Attempt) -> Iterator[TrackerRun]:
    """Yield the MLflow runs in a folder's database or file store that have the tag of this run."""
    database = place / "mlflow.db"
    stores = ((database, _rows(database, run_id)), (place / "mlruns", _tagged(place, run_id)))
    for store, rows in stores:
        for mlflow_id, of_element in rows:
            if of_element in (None, str(element)):
                yield TrackerRun(_MLFLOW, newest.number, 0, mlflow_id, folder=store)


def _rows(database: Path, run_id: str) -> list[tuple[str, str | None]]:
    """Return id and element of the runs in a database that have the tag of a run.

    The result is empty if the database cannot be read.
    """
    if not database.is_file():
        return []
    import sqlite3  # few runs have a database

    query = (
        "select r.run_uuid, e.value from tags t join runs r on r.run_uuid = t.run_uuid left join "
        "tags e "
        "on e.run_uuid = t.run_uuid and e.key = 'hpcrun.element' "
        "where t.key = 'hpcrun.run' and t.value = ? order by r.start_time desc limit "
        f"{MOST_ATTEMPTS}"
    )
    address = f"file:{quote(str(database.absolute()))}?mode=ro"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True, timeout=1)) as opened:
        rows = opened.execute(query, (run_id,))
        return [(str(mlflow_id), element) for mlflow_id, element in rows]
    return []


def _tagged(place: Path, run_id: str) -> Iterator[tuple[str, str | None]]:
    for tag in islice(_paths(place, "mlruns/*/*/tags/hpcrun.run"), _MOST_NAMES):
        if _tag_text(tag) == run_id:
            yield tag.parents[1].name, _tag_text(tag.with_name("hpcrun.element"))


def _tag_text(tag: Path) -> str | None:
    """Return the value of a tag, None if its file cannot be read."""
    try:
        return read_text(tag, 4096).strip()
    except OSError:
        return None


def _of_aim(place: Path, begun: Iterable[Attempt]) -> Iterator[TrackerRun]:
    """Yield the Aim runs of a repository that began during an attempt.

    Aim reads no variable, and so an Aim run has no tag of the run.
    """
    for identity in islice(_paths(place, ".aim/meta/chunks/*/IDENTITY"), _MOST_NAMES):
        try:
            began_s = identity.stat().st_mtime
        except OSError:
            continue
        attempt = next((each for each in begun if _was_alive(each, began_s)), None)
        if attempt:
            aim_id = identity.parent.name
            yield TrackerRun(_AIM, attempt.number, 0, aim_id, folder=place / ".aim")


def _was_alive(attempt: Attempt, at_s: float) -> bool:
    """Return whether an attempt ran at a time, with a second of tolerance."""
    if at_s < attempt.started_s - 1:
        return False
    return attempt.exit is None or at_s <= attempt.exit.ended_s + 1


def _paths(place: Path, pattern: str) -> Iterator[Path]:
    try:
        yield from place.glob(pattern)
    except (OSError, ValueError):
        return


# --- the upload ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What became of the offline wandb runs of a run.

    Attributes:
        uploaded, before: folders of those that were uploaded now, and before.
    """

    run: Run
    uploaded: tuple[Path, ...] = ()
    before: tuple[Path, ...] = ()
    running: tuple[int, ...] = ()  # elements that were left out because they have not ended
    pages: tuple[str, ...] = ()
    failure: str | None = None  # what ``wandb sync`` printed where it failed


def sync_wandb(
    run: Run, store: RunStore, element: int | None, env: Mapping[str, str]
) -> SyncResult:
    """Upload the offline wandb runs of a run that are not yet uploaded.

    The upload uses the user's own credentials. The function leaves out elements that have not
    ended: wandb takes a run that was uploaded once for complete.

    Raises:
        PlanError: no Python here has wandb, or another ``hpcrun open --upload`` uploads the runs
            now.
    """
    folder = store.folder(run.run_id)
    with flocked(RunFolder(folder).tracker_sync("lock")) as is_ours:
        if not is_ours:
            raise PlanError(f"the wandb runs of {run.name} are being uploaded by another hpcrun")
        last = store.last_status(run.run_id)
        is_final = last is not None and last.final
        elements = [element] if element is not None else list(all_elements(run).parameters)
        ended = []
        running = []
        for index in elements:
            if is_final or _has_ended(folder, index):
                ended.append(index)
            elif last_attempt(folder, index):
                running.append(index)
        return _sync_ended(run, folder, ended, running, env)


def _sync_ended(
    run: Run, folder: Path, ended: Sequence[int], running: Sequence[int], env: Mapping[str, str]
) -> SyncResult:
    """Upload the offline wandb runs of the elements that have ended.

    Raises:
        PlanError: no Python here has wandb.
    """
    offline = _offline_runs(run, folder, ended)
    before = []
    new = set()
    for path, each in offline:
        if each.synced:
            before.append(path)
        else:
            new.add(path)
    if not new:
        return SyncResult(run, before=tuple(before), running=tuple(running))
    # the oldest first: a continued run is several folders
    todo = sorted(new, key=lambda path: path.name)
    failure = _run_sync(run, folder, todo, env)
    uploaded = tuple(path for path in todo if _is_uploaded(path))
    if failure is None and len(uploaded) < len(todo):
        failure = f"wandb sync did not upload {len(todo) - len(uploaded)} of {len(todo)} runs"
    ids = {each.id for path, each in offline if path in uploaded}
    pages: dict[str, None] = {}  # in the order of the elements, each once
    for index in ended:
        named = [each for each in tracker_runs(run, folder, index) if each.id in ids]
        pages.update({each.url: None for each in named if each.url})
    return SyncResult(run, uploaded, tuple(before), tuple(running), tuple(pages), failure)


def _offline_runs(run: Run, folder: Path, elements: Iterable[int]) -> list[tuple[Path, TrackerRun]]:
    """Return the wandb runs of elements that were offline, each with its folder.

    Folders that are not this user's are left out.
    """
    offline = []
    for index in elements:
        for each in tracker_runs(run, folder, index):
            if each.offline and each.folder and _is_own(each.folder):
                offline.append((each.folder, each))
    return offline


def _run_sync(run: Run, folder: Path, todo: Sequence[Path], env: Mapping[str, str]) -> str | None:
    """Run ``wandb sync`` over these folders; return why it first failed, None if it did not.

    Raises:
        PlanError: no Python here has wandb.
    """
    # `status -v` loads this module, and needs no plan
    from hpcrun.job.plan.job_plan import RUN_MODULE

    python = python_with("wandb", run, env)
    variables = {name: value for name, value in env_of(run) if name == "WANDB_BASE_URL"}
    variables |= {name: value for name, value in env.items() if name not in _OF_A_JOB}
    # for wandb's own logs, which it would otherwise put into the current folder
    variables["WANDB_DIR"] = str(folder)
    log = RunFolder(folder).tracker_sync("log")
    failure = None
    for first in range(0, len(todo), _MOST_AT_ONCE):
        some = todo[first : first + _MOST_AT_ONCE]
        argv = [python, "-c", RUN_MODULE, "wandb", "sync", *map(str, some)]
        # not in the current folder: wandb takes the server, to which it sends the key, from
        # ./wandb/settings
        done = run_command(argv, timeout_s=SYNC_S, env=variables, cwd=folder)
        with open(log, "a", encoding="utf-8", errors="surrogateescape", opener=for_oneself) as file:
            file.write(done.stdout + done.stderr)
        if failure is None and not done.ok:
            failure = _why(done, log)
    return failure


def _is_own(path: Path) -> bool:
    """Return whether a folder belongs to this user.

    A log may name any folder, and the owner of a folder chooses what is uploaded, and where to.
    """
    try:
        return path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _has_ended(folder: Path, element: int) -> bool:
    attempt = last_attempt(folder, element)
    return attempt is not None and attempt.exit is not None and not attempt.exit.again


def _why(done: Completed, log: Path) -> str:
    """Return the line that says why ``wandb sync`` failed.

    Behind this line there may be pages of traceback.
    """
    output = done.stdout + done.stderr
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    if errors:
        reason = errors[0].removeprefix("Error: ")
    else:
        reason = lines[-1] if lines else "it did not end in time"
    return f"wandb sync failed: {reason[:_LONGEST_ERROR]}\nall of its output: {log}"


def python_with(module: str, run: Run, env: Mapping[str, str]) -> str:
    """Return a Python that has a module.

    The function tries the run's own Python, the active environment's, hpcrun's own, and the first
    Python of PATH, in this order.

    Raises:
        PlanError: none of these Pythons has the module.
    """
    tried = list(dict.fromkeys(_pythons(run.plan, env)))
    for python in tried:
        if run_command([python, "-c", _HAS_MODULE, module], timeout_s=_ASKS_S, env=env).ok:
            return python
    raise PlanError(
        f"no {module} in {', '.join(tried)}",
        hint=f"activate an environment with {module}, or install it in one of these: pip install "
        f"{module}",
    )


def _pythons(plan: Mapping[str, Any], env: Mapping[str, str]) -> Iterator[str]:
    python = plan.get("python") or {}
    named = python.get("executable")
    # that of a container is its image's; that of a project's folder, which nobody has activated,
    # only jobs run
    is_of_job = plan.get("container") or python.get("of_project")
    if isinstance(named, str) and os.path.isabs(named) and not is_of_job:
        yield named
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.path.isabs(env.get(name, "")):
            yield os.path.join(env[name], "bin", "python")
    yield sys.executable
    folders = env.get("PATH", "").split(os.pathsep)
    absolute = [folder for folder in folders if os.path.isabs(folder)]
    python3 = shutil.which("python3", path=os.pathsep.join(absolute))
    if python3:
        yield python3


class TrackerHooks(Hooks):
    """The hooks of trackers."""

    def on_end(self, run: Run, folder: Path, env: Mapping[str, str]) -> None:
        """Upload the offline wandb runs of a run, in the background.

        The output goes into the run's folder.
        """
        program = [sys.executable, "-m", "hpcrun", "open", "--upload", run.run_id]
        leave_running(program, cwd=folder, env=env, log=RunFolder(folder).tracker_sync("log"))

    def run_rows(self, item: RunStatus) -> Sequence[tuple[str, str]]:
        """Return label and page of the trackers' runs, each page once."""
        runs = tracker_runs(item.run, item.folder, item.element or 0, most_attempts=1)
        rows = [(each.tracker.lower(), each.place) for each in runs]
        return list(dict.fromkeys(rows))[:4]
