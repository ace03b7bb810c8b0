"""The command line: parse, call one action, show the result. The only room that prints and exits.

Any function here may raise HpcrunError: ``main`` prints it.
"""
