"""The program inside a job: ``job`` in the batch script's place, ``node`` once per node, ``rank``
around each rank.

It uses only the standard library of Python 3.9 or later, and imports nothing else of hpcrun:
``submit`` keeps a copy of this folder in the runs folder, and the script starts it with the job's
own Python (``python -I -S -B .../launch/__main__.py job ...``). The rest of hpcrun reads only the
files that it writes.
"""
