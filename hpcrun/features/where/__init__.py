"""Which partition starts a job first."""
