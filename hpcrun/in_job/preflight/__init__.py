"""The programs of a preflight.

They run inside a job with that job's Python: the standard library, torch, each other.

``hpcrun submit`` copies them into the run folder: ``node.py`` runs once on every node and starts
``rank.py`` for each GPU; ``judge.py`` reads the nodes' reports, and imports ``grade_checks.py``.
"""
