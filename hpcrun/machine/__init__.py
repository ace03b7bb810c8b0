"""This machine: its processes, its terminal, its GPUs and Pythons."""
