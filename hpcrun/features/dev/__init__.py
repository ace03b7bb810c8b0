"""hpcrun dev: a shell, ssh, an editor and Jupyter on a node of a job."""

PROGRAM = "hpcrun_dev"
"""The module that runs in the job: the script of such a run."""
