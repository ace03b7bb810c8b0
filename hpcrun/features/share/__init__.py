"""A run as one page to send."""
