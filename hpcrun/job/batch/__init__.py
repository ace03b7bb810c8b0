"""Reads an existing sbatch script as text: statements → what they mean → a request. Nothing of it is ever run."""
