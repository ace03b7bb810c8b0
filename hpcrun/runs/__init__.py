"""The run folders, their records and their logs."""
