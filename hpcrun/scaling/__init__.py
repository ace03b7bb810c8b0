"""Speed-up: what more GPUs bring, by arithmetic beforehand and by measurement afterwards."""
