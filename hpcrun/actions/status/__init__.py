"""The state of runs: one question to the scheduler, and one decision from all that is known."""
