"""The pictures of the docs: what hpcrun prints on a terminal, taken from real commands on the
development cluster.
"""
