"""What torch's flight recorder kept of a job that hung: which ranks came to which collective."""
