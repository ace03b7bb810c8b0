"""How large a job is: nodes, GPUs, ranks, CPUs, memory, time, container."""
