"""What runs inside a job: ``job`` in the batch script's place, ``node`` once per node, ``rank`` around each rank.

Standard library only, Python 3.9 or later, and no import of the rest of hpcrun: ``submit`` puts this folder into the
run's folder, and the script starts it with the job's own Python (``python -I -S -B .../launch/__main__.py
job ...``). The rest of hpcrun knows it by the files that it writes.
"""
