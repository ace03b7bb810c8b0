"""A preflight without Slurm: the nodes are processes of this machine."""

from __future__ import annotations

import json

from tests.harness import Hpcrun, at_end, processes_with, wait_for

TWO = ("-P", "local", "--gpus", "0", "--nodes", "2")


def test_ranks_of_a_node_and_of_all_sum_up(hpcrun: Hpcrun) -> None:
    done = hpcrun("preflight", *TWO, "--launcher", "torchrun", "--nproc-per-node", "2", check=True)
    more, heading, first, second, verdict = done.stdout.splitlines()
    assert more.split() == ["INTRA-NODE", "INTER-NODE"]
    assert heading.startswith("NODE")
    assert first.startswith("local-0")
    assert second.startswith("local-1")
    assert [line.count("GB/s") for line in (first, second)] == [2, 2]
    assert verdict == "all nodes are ok"
    assert "RUNNING" in done.stderr


def test_a_bad_node_is_named_and_the_exit_status_says_so(hpcrun: Hpcrun) -> None:
    python = hpcrun.program(
        "python", f'[ "$HPCRUN_NODE" = local-0 ] && exit 3\nexec {hpcrun.python_word} "$@"'
    )
    done = hpcrun("preflight", *TWO, "--python", str(python), "--json")
    assert done.returncode == 7
    document = json.loads(done.stdout)
    assert document["bad"] == [{"node": "local-0", "why": "its Python ends with status 3"}]
    assert not document["exclude"], "the nodes of a local job are one machine"


def test_a_dry_run_prints_the_script_that_would_be_submitted(hpcrun: Hpcrun) -> None:
    ends_early = (*TWO, "--setup", "false")
    printed = hpcrun("preflight", *ends_early, "--dry-run", check=True).stdout
    assert not list(hpcrun.runs.iterdir())
    done = hpcrun("preflight", *ends_early)
    assert (done.returncode, "failed: set-up command 1 failed" in done.stderr) == (7, True)
    (script,) = hpcrun.runs.glob("*-preflight-*/script.sh")
    assert script.read_text() == printed
    hpcrun.write_script("by-hand.sh", *TWO, "--preflight", "true")
    by_hand = hpcrun.run("bash", "by-hand.sh", check=False)
    assert by_hand.returncode == 1
    assert (
        "hpcrun: the programs of the preflight are put beside the script by hpcrun submit"
        in by_hand.stderr
    )


def test_without_slurm_a_cluster_s_profile_is_refused(hpcrun: Hpcrun) -> None:
    done = hpcrun("preflight", "-P", "a100", env={"PATH": f"{hpcrun.venv}/bin"})
    assert done.returncode == 4
    assert "there is no sbatch on this machine's PATH" in done.stderr


def test_a_python_that_is_not_there_ends_the_job_with_a_word(hpcrun: Hpcrun) -> None:
    done = hpcrun("preflight", *TWO, "--python", "/nowhere/python")
    assert done.returncode == 7
    assert "failed: there is no /nowhere/python on this node" in done.stderr
    assert "hint: hpcrun logs --batch L" in done.stderr


def test_a_rank_that_hangs_is_ended_in_time(hpcrun: Hpcrun) -> None:
    """A torch that never comes, as on a file system that does not answer: nothing waits longer than
    it may.
    """
    hpcrun.write("slow/torch.py", "import time\ntime.sleep(600)\n")
    patience = ("--env", "HPCRUN_PREFLIGHT_S=16", "--env", f"PYTHONPATH={hpcrun.folder}/slow")
    done = hpcrun("preflight", *TWO, *patience)
    assert "import of torch timed out" in done.stdout
    assert done.returncode == 0
    wait_for(lambda: not processes_with(str(hpcrun.runs)), 5, "the job's processes to end")


def test_ctrl_c_cancels_it_and_leaves_no_process(hpcrun: Hpcrun) -> None:
    child = hpcrun.terminal("preflight", *TWO, "--setup", "sleep 300")
    child.expect("RUNNING")
    child.sendintr()
    child.expect(r"interrupted; job L\d+ (was|is being) cancelled")
    assert at_end(child)[0] == 130
    wait_for(lambda: not processes_with(str(hpcrun.runs)), 30, "the job's processes to end")
