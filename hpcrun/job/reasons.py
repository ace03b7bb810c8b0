"""Slurm's reasons for a job that waits, in plain words, with what a person can do.

The words are those of src/common/job_state_reason.c (job_reason_codes.shtml), 19.05 to 26.05; some have text behind
them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits.

    Attributes:
        short: a few words for a table.
        advice: what to do, as a sentence.
    """

    short: str
    advice: str


# The first pattern that matches the whole of Slurm's word decides.
_REASONS: tuple[tuple[str, str, str], ...] = (
    # --- the ordinary wait
    ("None|Reason", "not looked at yet", "Slurm has not considered it yet: a minute or so."),
    (
        "Priority",
        "other jobs come first",
        "Wait. A shorter --time lets it slip into gaps; `sprio -j JOB` shows its priority.",
    ),
    (
        "Resources|Nodes required for job are DOWN.*",
        "next in line, nothing is free",
        "Wait, or ask for fewer nodes; `sinfo -R` shows nodes that are out of use; `hpcrun where` compares profiles.",
    ),
    ("Dependency", "waits for another job", "Wait for it; `hpcrun status --verbose` names it."),
    (
        "DependencyNeverSatisfied",
        "what it waits for went otherwise",
        "It will never start: hpcrun cancel, and submit it again with another --after.",
    ),
    ("BeginTime", "not before its begin time", "Wait: a job that is started again has to wait about two minutes."),
    ("JobArrayTaskLimit", "as many elements run as --max-parallel allows", "Wait, or raise --max-parallel."),
    ("Licenses", "licences are in use", "Wait until some are given back; `scontrol show lic` shows how many are left."),
    (
        "Prolog|Cleaning|SchedDefer|Schedule|SchedulingDefer|NodeDown|FrontEndDown|BurstBuffer.*",
        "Slurm prepares or cleans up",
        "Wait; ask the administrators where it takes more than some minutes.",
    ),
    # --- held
    ("JobHeldUser", "held by you", "`scontrol release JOB` lets it start."),
    ("JobHeldAdmin", "held by an administrator", "Ask them why; only they can release it."),
    ("JobHoldMaxRequeue", "started again too often", "See why it fails (hpcrun logs), then `scontrol release JOB`."),
    (
        "JobLaunchFailure|launch failed requeued held|.*RaisedSignal.*",
        "could not be started on its nodes, held",
        "Tell the administrators which node it was, then `scontrol release JOB`.",
    ),
    # --- nodes
    (
        "ReqNodeNotAvail.*[Rr]eserved for maintenance.*",
        "would run into a maintenance",
        "A shorter --time ends before it begins.",
    ),
    (
        "ReqNodeNotAvail.*",
        "nodes it needs are down, drained or reserved",
        "Ask for no node by name, or for others; `sinfo -R` says why they are out of use.",
    ),
    (
        "BadConstraints|Constraints",
        "no node has what --constraint asks for",
        "`sinfo -o '%N %f'` shows the features there are.",
    ),
    ("Reservation", "its reservation has not begun", "`scontrol show reservation` says when it does."),
    (
        "ReservationDeleted|ReservationInvalid|InvalidReservation",
        "its reservation is gone",
        "Submit it again without, or with another.",
    ),
    # --- partition
    (
        "PartitionTimeLimit",
        "asks for more time than the partition allows",
        "It never starts so: a shorter --time, or another --partition (`sinfo -o '%P %l'`).",
    ),
    (
        "PartitionNodeLimit|PartitionConfig",
        "asks for more nodes than the partition allows",
        "It never starts so: fewer --nodes, or another --partition (`scontrol show partition`).",
    ),
    (
        "PartitionDown|PartitionInactive",
        "the partition is closed",
        "Choose another --partition, or ask the administrators.",
    ),
    (
        "AccountNotAllowed|InvalidAccount|QOSNotAllowed|InvalidQOS",
        "its account or QOS may not run here",
        "`sacctmgr show assoc user=$USER` lists yours; submit it again with --account or --qos.",
    ),
    # --- limits of a QOS or an account
    (
        ".*RunMinutes.*",
        "your running jobs have the allowed time reserved",
        "Wait for them, or ask for a shorter --time.",
    ),
    (
        ".*(Minutes|Billing).*",
        "the budget of the account or QOS is used up",
        "Ask for more, or use another --account; `sshare` shows it.",
    ),
    (
        "QOSMaxJobsPerUserLimit|MaxJobsPerUser|QOSMaxJobsPerUser",
        "as many of your jobs run as the QOS allows",
        "Wait for one of them, or use another --qos.",
    ),
    (
        "QOSMaxSubmitJobPerUserLimit",
        "as many of your jobs are submitted as the QOS allows",
        "Wait for one of them to end.",
    ),
    (
        "QOSMax.*PerUser.*",
        "your running jobs use what the QOS allows a user",
        "Wait for them, ask for fewer GPUs, CPUs or less memory, or use another --qos.",
    ),
    (
        "QOSMaxWallDurationPerJobLimit",
        "asks for more time than the QOS allows a job",
        "It never starts so: a shorter --time, or another --qos.",
    ),
    (
        "QOSMax.*Per(Job|Node).*|QOSMaxNodePerJobLimit",
        "asks for more than the QOS allows a job",
        "It never starts so: ask for less, or use another --qos (`sacctmgr show qos`).",
    ),
    ("QOSMin.*", "asks for less than the QOS demands", "Use another --qos; this one is for larger jobs."),
    ("QOSGrp.*", "all users of the QOS together have reached its limit", "Wait for their jobs, or use another --qos."),
    ("QOS.*", "a limit of the QOS", "`sacctmgr show qos` shows the limits; wait for your other jobs or ask for less."),
    (
        "Assoc(iation)?Grp.*",
        "the jobs of your account have reached its limit",
        "Wait for them, or use another --account.",
    ),
    (
        "AssocMaxWall.*|AssocMax.*PerJob.*",
        "asks for more than your account allows a job",
        "It never starts so: ask for less.",
    ),
    (
        "Assoc.*|Max.*PerAccount.*|AccountingPolicy|Association.*",
        "a limit of your account",
        "`sacctmgr show assoc user=$USER` shows the limits; wait for your other jobs or ask for less.",
    ),
    ("MaxMemPerLimit", "asks for more memory than is allowed", "It never starts so: a smaller --mem."),
    ("DeadLine", "cannot end before its deadline", "It never starts so: submit it again without --deadline."),
    (
        "NvidiaImexChannels|MpiPortsBusy",
        "ports or channels of the nodes are used up",
        "Wait; ask the administrators where it takes long.",
    ),
)


def explain_reason(word: str) -> Reason | None:
    """Return what Slurm's reason means, None for one that is not known."""
    for pattern, short, advice in _REASONS:
        if re.fullmatch(pattern, word):
            return Reason(short, advice)
    return None
