"""The version of hpcrun, and where it runs, in a file that imports nothing."""

__version__ = "0.1.0"
NOT_ON_WINDOWS = "hpcrun does not run on Windows: use it in WSL (wsl --install), or on the cluster"
