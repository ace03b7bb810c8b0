"""What the jobs of a user have used, by Slurm's accounting."""
