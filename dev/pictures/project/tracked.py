"""Fits a line by gradient descent and tells three trackers of it, as the pictures of the docs
show.
"""

import argparse

import mlflow
import wandb
from torch.utils.tensorboard import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()

slope = 0.0
writer = SummaryWriter(f"tb/lr-{args.lr:g}")
with wandb.init(project="lines", config=vars(args)) as run, mlflow.start_run():
    for step in range(20):
        slope -= args.lr * (slope - 2)
        loss = (slope - 2) ** 2
        run.log({"loss": loss})
        mlflow.log_metric("loss", loss, step=step)
        writer.add_scalar("loss", loss, step)
writer.close()
