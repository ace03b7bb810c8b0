"""doctor: look at all that a job needs. ``check_up`` asks and joins; each other file judges one thing, purely."""
