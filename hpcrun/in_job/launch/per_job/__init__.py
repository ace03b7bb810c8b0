"""What runs once for a job, besides the ranks' own way: no rank imports it."""
