"""wandb, MLflow, Aim, TensorBoard."""
