"""The examples at the end of each command's ``--help``."""

from __future__ import annotations

# command → what an example does, and the line to type; 70 characters fit a terminal of 80 columns
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "submit": (
        ("4 GPUs on 2 nodes for 2 hours", "hpcrun submit --gpus 4 --nodes 2 --time 2h train.py --lr 1e-3"),
        ("Show the script that would be submitted", "hpcrun submit --dry-run --gpus 1 train.py"),
        ("An array of three jobs, each with its own --lr", "hpcrun submit --gpus 1 --sweep lr=0.1,0.01,0.001 train.py"),
    ),
    "render": (
        ("Write train.sh, then submit it by hand: sbatch train.sh", "hpcrun render --gpus 4 --nodes 2 train.py"),
        ("Replace a script written before", "hpcrun render --gpus 4 --out job.sh --force train.py"),
    ),
    "scale": (
        (
            "Run on 1, 2 and 4 GPUs, global batch 256",
            "hpcrun scale --gpus 1,2,4 --batch-size 256 train.py --bs {batch_size}",
        ),
        (
            "Batch 64 for each GPU (weak scaling)",
            "hpcrun scale --gpus 1,2,4 --weak --batch-size 64 train.py --bs {batch_size}",
        ),
        ("Show how far the newest study is", "hpcrun scale --show last"),
    ),
    "where": (
        ("Compare all profiles for a job of 8 GPUs", "hpcrun where --gpus 8 --time 4h"),
        ("Compare two of them", "hpcrun where --gpus 8 --time 4h -P a100 -P h100"),
    ),
    "plan": (
        (
            "One epoch took 36 minutes on 1 GPU: forecast 2, 4 and 8",
            "hpcrun plan --samples 1.2M --batch-size 256 --epoch-time 36m --gpus 2,4,8",
        ),
        (
            "The same as CSV, for 90 epochs",
            "hpcrun plan --samples 1.2M --batch-size 256 --epoch-time 36m \\\n    --gpus 2,4,8 --epochs 90 --csv",
        ),
    ),
    "status": (
        ("The newest runs, refreshed until Ctrl-C", "hpcrun status --watch"),
        ("All about one run", "hpcrun status -v 4711"),
        ("Failed and pending runs, all of them", "hpcrun status --all --state failed,pending"),
    ),
    "logs": (
        ("Follow rank 0 of the newest run", "hpcrun logs -f"),
        ("Errors of all ranks of job 4711", "hpcrun logs 4711 --all-ranks --grep Error"),
        ("The last 50 lines of ranks 0 to 3", "hpcrun logs 4711 --rank 0-3 -n 50"),
    ),
    "explain": (
        ("The newest run", "hpcrun explain"),
        ("Where each rank of a running job is", "hpcrun explain 4711 --stacks"),
        ("Log files, without a run", "hpcrun explain --log slurm-4711.out"),
    ),
    "metrics": (
        ("Draw all metrics of the newest run", "hpcrun metrics --plot"),
        ("The loss of every rank as CSV", "hpcrun metrics 4711 --metric loss --all-ranks --csv"),
    ),
    "report": (
        ("Report the newest study into report-NAME", "hpcrun report last"),
        ("Report measurements from a table", "hpcrun report --from-csv times.csv --out report"),
    ),
    "gpu": (
        ("The newest run, once", "hpcrun gpu"),
        ("Job 4711, refreshed until Ctrl-C", "hpcrun gpu 4711 --watch"),
    ),
    "shell": (
        ("On the first node of the newest run", "hpcrun shell"),
        ("One command on a node of job 4711", "echo nvidia-smi | hpcrun shell 4711 --node a100-2"),
    ),
    "cancel": (
        ("One run", "hpcrun cancel 4711"),
        ("Element 3 of a sweep", "hpcrun cancel 4711/3"),
        ("All pending runs, after a question", "hpcrun cancel --state pending"),
    ),
    "resubmit": (
        ("Continue the newest run from its checkpoints", "hpcrun resubmit last"),
        ("With more time and another learning rate", "hpcrun resubmit 4711 --time 8h -- --lr 1e-4"),
        ("Only the failed elements of a sweep", "hpcrun resubmit 4711 --failed"),
    ),
    "doctor": (
        ("Check the default profile", "hpcrun doctor"),
        ("Check another profile", "hpcrun doctor --profile a100"),
    ),
    "preflight": (
        ("Check 4 nodes", "hpcrun preflight --nodes 4 --gpus-per-node 8 --profile a100"),
        ("Check one node", "hpcrun preflight --nodelist a100-2 --profile a100"),
    ),
    "nodes": (
        ("List the nodes", "hpcrun nodes"),
        ("Use a100-3 again", "hpcrun nodes forget a100-3"),
        ("Use all of them again", "hpcrun nodes forget"),
    ),
    "clean": (
        ("Runs that ended more than 30 days ago, after a question", "hpcrun clean"),
        ("Failed runs that ended more than 2 days ago", "hpcrun clean --state failed --older-than 2d"),
        ("All but the newest 20", "hpcrun clean --keep 20"),
    ),
    "trust": (
        ("Review and trust the project of this folder", "hpcrun trust"),
        ("List the trusted projects", "hpcrun trust --list"),
        ("Stop trusting this project", "hpcrun trust --revoke"),
    ),
    "profile": (
        ("See the profiles, and the values of one", "hpcrun profile list\n  hpcrun profile show a100"),
        ("Write a profile of this cluster", "hpcrun profile detect --write mycluster"),
    ),
    "profile list": (
        ("List all profiles", "hpcrun profile list"),
        ("The same as JSON", "hpcrun profile list --json"),
    ),
    "profile show": (
        ("All values of a profile", "hpcrun profile show a100"),
        ("With the file and line of each value", "hpcrun profile show a100 --origin"),
    ),
    "profile path": (
        ("List the folders", "hpcrun profile path"),
        ("Use another folder for one command", "HPCRUN_SITE=/proj/hpcrun hpcrun profile path"),
    ),
    "profile new": (
        ("Answer questions", "hpcrun profile new mine"),
        ("Give the values", "hpcrun profile new mine --from a100 --partition gpu --account ab12"),
    ),
    "profile set": (
        ("Change one value", "hpcrun profile set mine gpu.per_node=8"),
        ("Add a module to the list", "hpcrun profile set mine modules+=cuda/12.4"),
    ),
    "profile unset": (
        ("Return to the inherited partition", "hpcrun profile unset mine partition"),
        ("Two keys at once", "hpcrun profile unset mine time.default time.max"),
    ),
    "profile edit": (
        ("Edit your copy of a100", "hpcrun profile edit a100"),
        ("With another editor", "EDITOR=nano hpcrun profile edit a100"),
    ),
    "profile validate": (
        ("All profiles", "hpcrun profile validate"),
        ("One file", "hpcrun profile validate ./mine.yaml"),
    ),
    "profile diff": (
        ("Two profiles", "hpcrun profile diff a100 h100"),
        ("A profile and a file", "hpcrun profile diff a100 ./mine.yaml"),
    ),
    "profile detect": (
        ("Print the profile", "hpcrun profile detect"),
        ("Save it", "hpcrun profile detect --write mycluster"),
    ),
    "profile env": (
        ("What a profile sets, and why", "hpcrun profile env a100"),
        ("One variable", "hpcrun profile env NCCL_SOCKET_IFNAME"),
    ),
    "profile schema": (
        ("Save the schema for an editor", "hpcrun profile schema > profile.schema.json"),
        ("List its keys", "hpcrun profile schema | jq '.properties | keys'"),
    ),
}


def epilog(name: str) -> str:
    """Return the examples of a command, as the end of its help."""
    # the empty line keeps the indentation: typer removes the margin that all lines but the first share
    return "\n".join(["", "Examples:", *(f"  # {what}\n  {line}" for what, line in EXAMPLES[name])])
