"""The decisions on a job: request and profile become a plan."""
