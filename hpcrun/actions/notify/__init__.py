"""Messages about runs: which are due, what they say of a run, and sending them."""
