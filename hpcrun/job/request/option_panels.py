"""The panels of the options of a job: a command takes those that mean something to it.

Panels with the same title are one panel in ``--help``.
"""

from __future__ import annotations

from hpcrun.job.request.options import OptionPanel

PROGRAM = OptionPanel(None)
"""The script of a job, and its arguments."""
SIZE = OptionPanel("Resources")
"""How many nodes and GPUs the job has."""
RANKS = OptionPanel("Resources")
"""How many ranks a node has."""
RESOURCES = OptionPanel("Resources")
"""What the job has besides: time, CPUs and memory."""
IDLE_LIMIT = OptionPanel("Resources")
"""When a job that computes nothing is ended."""
PROFILE = OptionPanel("Placement")
PLACEMENT = OptionPanel("Placement")
"""Where Slurm runs the job."""
LAUNCHER = OptionPanel("Launch")
LAUNCH = OptionPanel("Launch")
"""How the ranks of a program of the user start."""
ENVIRONMENT = OptionPanel("Launch")
"""What is there when a program starts: Python, variables, modules and data."""
CONTAINER = OptionPanel("Launch")
MODULE = OptionPanel("Launch")
WRAP = OptionPanel("Launch")
ROLES = OptionPanel("Launch")
SWEEPS = OptionPanel("Sweeps")
REQUEUE = OptionPanel("Requeue")
RESTARTS = OptionPanel("Requeue")
"""What happens after a node failure, with the nodes that this needs."""
SNAPSHOT = OptionPanel("Snapshot")
NAME_AND_MAIL = OptionPanel("Submission")
"""The name of the job, and the messages about it."""
