"""One file per action: each takes its ports and a request, and returns a result.

Nothing here prints or exits.
"""
