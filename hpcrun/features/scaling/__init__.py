"""How many GPUs are worth it: plan, scale, report."""
