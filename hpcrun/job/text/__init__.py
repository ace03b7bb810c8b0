"""Text that a job is made of: quoting, units, patterns, secrets, the commands of a shell script."""
