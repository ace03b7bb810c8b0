"""Profiles of clusters: detected, shown, edited; the variables that they set."""
