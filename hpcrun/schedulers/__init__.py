"""Who runs a job: Slurm, or this machine. One protocol, two adapters."""
