"""Compiled files: what compilers make in one job, kept for the next job of the same program."""
