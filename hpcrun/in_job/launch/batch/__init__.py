"""A person's own batch script as a job: the launches in it, and what stands in their place."""
