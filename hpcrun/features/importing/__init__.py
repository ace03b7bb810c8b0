"""What hpcrun does with a person's own sbatch script."""
