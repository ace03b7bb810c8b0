"""The Python API: functions as jobs, and runs as tables.

Besides ``cli`` only ``api`` reads the environment.
"""
