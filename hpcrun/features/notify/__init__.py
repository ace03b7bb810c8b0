"""Messages about runs."""
