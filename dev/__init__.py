"""What developers run: the Slurm cluster of this machine, and the pictures of the docs."""
