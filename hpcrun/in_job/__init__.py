"""Programs that travel into jobs: the launch of ranks, the checks of nodes, the probe of stacks."""
