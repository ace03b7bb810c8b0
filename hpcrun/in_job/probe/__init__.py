"""What runs on the nodes of a running job, beside its ranks.

It runs when ``hpcrun explain --stacks`` asks for it.

It uses only the standard library of Python 3.9 or later, and imports nothing else of hpcrun:
``submit`` copies this folder into the run's folder, and a step of its own inside the allocation
starts it (``python -I -S -B .../probe/__main__.py ATTEMPT_FOLDER [PY_SPY]``). The rest of hpcrun
reads only what it prints.
"""
