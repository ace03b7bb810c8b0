"""The table of a sweep."""
