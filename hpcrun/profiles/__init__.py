"""Finds, reads and merges profiles, configuration and template sources."""
