"""What hpcrun can do besides submitting jobs and saying what became of them: a folder each, and
none is needed.
"""
