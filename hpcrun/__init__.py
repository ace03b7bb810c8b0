"""hpcrun takes a PyTorch training script from a laptop to a multi-node Slurm job with one command."""

__version__ = "0.1.0"
