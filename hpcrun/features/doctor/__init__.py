"""Checks of this machine, the cluster and a profile."""
