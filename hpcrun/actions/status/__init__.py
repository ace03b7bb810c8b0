"""The state of runs: one query to the scheduler, and one decision from all records."""
