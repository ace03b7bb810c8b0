"""The names under which TensorBoard shows runs, and its arguments."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

from hpcrun.features.trackers.tensorboard import (
    LinkedRuns,
    chosen_runs,
    common_name,
    element_name,
    free_port,
    tensorboard_arguments,
    tensorboard_url,
)
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.store import RunStore
from tests.unit.builders import run


def test_an_element_is_named_by_its_parameters() -> None:
    assert element_name(3, (("lr", "0.1"), ("model", "small"))) == "3-lr=0.1,model=small"
    assert element_name(0, (("path", "../../etc"), ("x", "a\nb\x1b[2J$(reboot)"))) == (
        "0-path=.._.._etc,x=a_b__2J__reboot_"
    )


def test_a_file_of_several_elements_is_shown_once() -> None:
    assert common_name(["lr-0a1b/3-lr=1"]) == "lr-0a1b/3-lr=1"
    assert common_name(["lr-0a1b/3-lr=1", "lr-0a1b/4-lr=2"]) == "lr-0a1b"
    assert common_name(["lr-0a1b/3-lr=1", "train-ffff"]) == "several-runs"


def test_a_port_that_is_in_use_is_not_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert free_port(other.getsockname()[1]) is None
    assert free_port(None)


def test_only_this_machine_reaches_it_and_only_who_knows_the_address() -> None:
    assert tensorboard_url(6006, "s3cret") == "http://127.0.0.1:6006/s3cret/"
    arguments = tensorboard_arguments(Path("/tmp/x/runs"), 6006, "s3cret")
    assert {"--host=127.0.0.1", "--path_prefix=/s3cret", "--load_fast=false"} < set(arguments)


def test_elements_are_kept_apart_where_their_files_are(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    sweep = {"sweep": {"indices": "0-1", "first": 0}}
    of_sweep = replace(
        run("20260101-120000-lr-0a1b", name="lr", plan=sweep),
        cwd=str(tmp_path),
        request={"sweep": [[["lr", "1"]], [["lr", "2"]]]},
    )
    store.create(of_sweep, "#!/bin/bash\n")
    event = "events.out.tfevents.1700000010.node1.4711.0"
    for index in (0, 1):
        element = RunFolder(store.folder(of_sweep.run_id)).element(index)
        folder = element.attempt(0).path
        folder.mkdir(parents=True)
        (folder / "start").write_text(
            json.dumps({"job_id": "7", "host": "node1", "started": 1_700_000_000})
        )
    checkpoints = RunFolder(store.folder(of_sweep.run_id)).element(0).checkpoints
    for place in (checkpoints / "tb", tmp_path / "shared"):
        place.mkdir(parents=True)
        (place / event).write_text("")
    links = LinkedRuns(tmp_path / "links", chosen_runs(of_sweep, None), store)
    links.update()
    links.update()
    assert links.counts == {"lr-0a1b": 1, "lr-0a1b/0-lr=1": 1}
    linked = sorted(
        str(path.parent.relative_to(links.links)) for path in links.links.rglob("events*")
    )
    assert linked == ["lr-0a1b/0-lr=1/checkpoints/tb", "lr-0a1b/shared"]
    assert [chosen.name for chosen in chosen_runs(of_sweep, 1)] == ["lr-0a1b/1-lr=2"]
