"""The schedulers: Slurm, or this machine. One protocol, two adapters."""
