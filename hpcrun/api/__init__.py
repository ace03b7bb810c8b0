"""Functions as jobs, runs as tables: beside ``cli`` the other place that reads the environment and builds adapters."""
