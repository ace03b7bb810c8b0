"""hpcrun login and ``hpcrun --on HOST``: commands that run on a cluster, typed on a laptop."""

ATTACHED = "HPCRUN_ATTACHED"
"""Set for a command that another host has started over ssh: it ends if that connection is gone."""
FOLDER = "hpcrun-code"
"""The folder of projects, below the home there."""
