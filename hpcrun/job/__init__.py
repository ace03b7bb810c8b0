"""What a job is: request, profile, plan, script, state. Pure functions and records, no I/O."""
