"""One file per verb: each takes its ports and a request, and returns a result. Nothing here prints or exits."""
