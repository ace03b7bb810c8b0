"""What sbatch reads: a person's batch script, its directives, the variables of its environment."""
