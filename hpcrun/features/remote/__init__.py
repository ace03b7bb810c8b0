"""hpcrun login and ``hpcrun --on HOST``: commands that run on a cluster, typed on a laptop."""
