"""What hpcrun can do besides submitting jobs and showing them: a folder each, none is needed."""
