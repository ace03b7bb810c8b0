"""The program inside a job: ``job``, ``node`` and ``rank``.

``job`` runs in the place of the batch script, ``node`` once per node, and ``rank`` around each
rank.

It uses only the standard library of Python 3.9 or later, and imports nothing else of hpcrun:
``submit`` keeps a copy of this folder in the runs folder, and the script starts it with the job's
own Python (``python -I -S -B .../launch/__main__.py job ...``). The rest of hpcrun reads only the
files that it writes.
"""
