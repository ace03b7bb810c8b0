"""The effect of more GPUs: forecast by arithmetic, and measured in studies."""
