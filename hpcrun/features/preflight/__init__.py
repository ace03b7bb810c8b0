"""Checks of nodes before a training."""
