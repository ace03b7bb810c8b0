"""The examples at the end of each command's ``--help``."""

from __future__ import annotations

from hpcrun.cli.commands import GROUPS

Example = tuple[str, str]
"""What it does, and the line to type; 70 characters fit a terminal of 80 columns."""
_EXAMPLES: tuple[Example, ...] = (
    ("4 GPUs on 2 nodes for 2 hours", "hpcrun submit --gpus 4 --nodes 2 --time 2h train.py --lr 1e-3"),
    ("Write the script that would be submitted to a file", "hpcrun submit --dry-run --gpus 1 train.py >train.sh"),
    ("An array of three jobs, each with its own --lr", "hpcrun submit --gpus 1 --sweep lr=0.1,0.01,0.001 train.py"),
    ("Show what submit makes of train.sbatch", "hpcrun import train.sbatch"),
    ("Show it for a script with an argument", "hpcrun import train.sbatch config.yaml"),
    (
        "Run on 1, 2 and 4 GPUs, global batch 256",
        "hpcrun scale run --gpus 1,2,4 --batch-size 256 train.py --bs {batch_size}",
    ),
    (
        "Batch 64 for each GPU (weak scaling)",
        "hpcrun scale run --gpus 1,2,4 --weak --batch-size 64 train.py {batch_size}",
    ),
    ("Show how far the newest study is", "hpcrun scale run --show last"),
    ("Compare all profiles for a job of 8 GPUs", "hpcrun where --gpus 8 --time 4h"),
    ("Compare two of them", "hpcrun where --gpus 8 --time 4h -P a100 -P h100"),
    (
        "One epoch took 36 minutes on 1 GPU: forecast 2, 4 and 8",
        "hpcrun scale plan --samples 1M --batch-size 256 --epoch-time 36m -G 2,4,8",
    ),
    (
        "A second measurement, 0.27 s a step on 2 GPUs, narrows the range",
        "hpcrun scale plan --samples 1M --batch-size 256 --epoch-time 36m \\\n    --also 2:256=0.27s/step --gpus 2,4,8",
    ),
    ("From the newest scaling study", "hpcrun scale plan --from last"),
    ("The newest runs, refreshed until Ctrl-C", "hpcrun status --watch"),
    ("All about one run", "hpcrun status -v 4711"),
    ("The load of its GPUs, refreshed until Ctrl-C", "hpcrun status 4711 --gpus --watch"),
    ("All runs, live; ? shows the keys", "hpcrun top"),
    ("Only runs with these words: the filter of key /", "hpcrun top --filter 'train failed'"),
    ("Follow rank 0 of the newest run", "hpcrun logs -f"),
    ("Errors of all ranks of job 4711", "hpcrun logs 4711 --all-ranks --grep Error"),
    ("The last 50 lines of ranks 0 to 3", "hpcrun logs 4711 --rank 0-3 -n 50"),
    ("The newest run", "hpcrun explain"),
    ("Where each rank of a running job is", "hpcrun explain 4711 --stacks"),
    ("Log files, without a run", "hpcrun explain --log slurm-4711.out"),
    ("Draw all metrics of the newest run", "hpcrun metrics --plot"),
    ("The loss of every rank as CSV", "hpcrun metrics 4711 --metric loss --all-ranks --csv"),
    ("The elements of the newest sweep, best first", "hpcrun sweep"),
    ("By accuracy, largest first, as CSV", "hpcrun sweep 4711 --sort accuracy:max --csv"),
    ("The command of the element with the smallest loss", "hpcrun sweep 4711 --best loss"),
    ("Report the newest study into report-NAME", "hpcrun scale report last"),
    ("Report measurements from a table", "hpcrun scale report --from-csv times.csv --out report"),
    ("GPU-hours, success and waits, week by week", "hpcrun history"),
    ("By project, since a day", "hpcrun history --by project --since 2026-10-01"),
    ("With all your jobs of the last 30 days, as a figure", "hpcrun history --since 30d --all-jobs --plot use.pdf"),
    ("Write the newest run to RUN.html, to send to others", "hpcrun share"),
    ("Element 3 of a sweep, to a file of this name", "hpcrun share 4711/3 -o report.html"),
    ("Without logs, and without script and changed code", "hpcrun share 4711 --no-logs --no-code"),
    ("The page of the newest run in wandb or MLflow", "hpcrun open"),
    ("TensorBoard over two runs", "hpcrun open --tensorboard 4711 4712"),
    ("Upload the offline wandb runs of the newest run", "hpcrun open --upload"),
    ("On the first node of the newest run", "hpcrun shell"),
    ("One command on a node of job 4711", "echo nvidia-smi | hpcrun shell 4711 --node a100-2"),
    ("One run", "hpcrun cancel 4711"),
    ("Element 3 of a sweep", "hpcrun cancel 4711/3"),
    ("All pending runs, after a question", "hpcrun cancel --state pending"),
    ("Let others go first", "hpcrun hold 4711"),
    ("The elements of a sweep that have not started", "hpcrun hold lr"),
    ("Let a job that was held start", "hpcrun release 4711"),
    ("One element of a sweep", "hpcrun release lr/3"),
    ("Continue the newest run from its checkpoints", "hpcrun resubmit last"),
    ("With more time and another learning rate", "hpcrun resubmit 4711 --time 8h -- --lr 1e-4"),
    ("Only the failed elements of a sweep", "hpcrun resubmit 4711 --failed"),
    ("Answer questions", "hpcrun init"),
    ("Without a terminal", "hpcrun init --yes --account lab --gpu-type a100"),
    ("See what it would write", "hpcrun init --dry-run"),
    ("Check the default profile", "hpcrun doctor"),
    ("Check another profile", "hpcrun doctor --profile a100"),
    ("Check 4 nodes", "hpcrun preflight --nodes 4 --gpus-per-node 8 --profile a100"),
    ("Check one node", "hpcrun preflight --nodelist a100-2 --profile a100"),
    ("List the nodes", "hpcrun nodes"),
    ("Use a100-3 again", "hpcrun nodes forget a100-3"),
    ("Use all of them again", "hpcrun nodes forget"),
    ("Runs that ended more than 30 days ago, after a question", "hpcrun clean"),
    ("Failed runs that ended more than 2 days ago", "hpcrun clean --state failed --older-than 2d"),
    ("All but the newest 20", "hpcrun clean --keep 20"),
    ("Review and trust the project of this folder", "hpcrun profile trust"),
    ("List the trusted projects", "hpcrun profile trust --list"),
    ("Stop trusting this project", "hpcrun profile trust --revoke"),
    ("Send a test message to a topic of ntfy", "hpcrun notify --test ntfys://ntfy.sh/my-runs"),
    ("Test the configured destinations from a compute node", "srun -n1 hpcrun notify --test"),
    ("Send what the last run could not send", "hpcrun notify last"),
    ("List all profiles", "hpcrun profile list"),
    ("The same as JSON", "hpcrun profile list --json"),
    ("All values of a profile", "hpcrun profile show a100"),
    ("With the file and line of each value", "hpcrun profile show a100 --origin"),
    ("List the folders", "hpcrun profile path"),
    ("Use another folder for one command", "HPCRUN_SITE=/proj/hpcrun hpcrun profile path"),
    ("Answer questions", "hpcrun profile new mine"),
    ("Give the values", "hpcrun profile new mine --from a100 --partition gpu --account ab12"),
    ("Change one value", "hpcrun profile set mine gpu.per_node=8"),
    ("Add a module to the list", "hpcrun profile set mine modules+=cuda/12.4"),
    ("Return to the inherited partition", "hpcrun profile unset mine partition"),
    ("Two keys at once", "hpcrun profile unset mine time.default time.max"),
    ("Edit your copy of a100", "hpcrun profile edit a100"),
    ("With another editor", "EDITOR=nano hpcrun profile edit a100"),
    ("Use a profile without -P from now on", "hpcrun profile use mycluster"),
    ("Use the detected profile again", "hpcrun profile use detected"),
    ("All profiles", "hpcrun profile validate"),
    ("One file", "hpcrun profile validate ./mine.yaml"),
    ("Two profiles", "hpcrun profile diff a100 h100"),
    ("A profile and a file", "hpcrun profile diff a100 ./mine.yaml"),
    ("Print the profile", "hpcrun profile detect"),
    ("Save it", "hpcrun profile detect --write mycluster"),
    ("What a profile sets, and why", "hpcrun profile env a100"),
    ("One variable", "hpcrun profile env NCCL_SOCKET_IFNAME"),
    ("Save the schema for an editor", "hpcrun profile schema > profile.schema.json"),
    ("List its keys", "hpcrun profile schema | jq '.properties | keys'"),
)
EXAMPLES: dict[str, list[Example]] = {
    "scale": [
        ("Measure an epoch on 1, 2 and 4 GPUs", "hpcrun scale run --gpus 1,2,4 train.py --bs {batch_size}"),
        ("Report how many GPUs are worth it", "hpcrun scale report last"),
    ],
    "profile": [
        ("See the profiles, and the values of one", "hpcrun profile list\n  hpcrun profile show a100"),
        ("Write a profile of this cluster without questions", "hpcrun profile detect --write mysite"),
    ],
}
"""Of each command and each group."""
for what, line in _EXAMPLES:
    group, *others = line.rpartition("hpcrun ")[2].split()
    EXAMPLES.setdefault(f"{group} {others[0]}" if group in GROUPS else group, []).append((what, line))


def epilog(name: str) -> str:
    """Return the examples of a command, as the end of its help."""
    # the empty line keeps the indentation: typer removes the margin that all lines but the first share
    return "\n".join(["", "Examples:", *(f"  # {what}\n  {line}" for what, line in EXAMPLES[name])])
