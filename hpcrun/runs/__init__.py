"""What happened: the run folders, their records and their logs."""
