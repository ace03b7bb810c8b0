"""The figures, tables and pages of a report."""
