"""Runs side by side: what differs between them, and what came of it."""
