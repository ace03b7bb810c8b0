"""The pages that are made from the program: ``python -m dev.reference``, and ``--check``."""
