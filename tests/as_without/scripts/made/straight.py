#!/usr/bin/python3
#SBATCH -p gpu -n1 -t 2
#SBATCH --gres=gpu:1 --job-name=straight
"""A batch script may be one of Python."""

import os
import subprocess

print("flags", os.environ["SLURM_JOB_NAME"], flush=True)
subprocess.run(["srun", "python", "train.py"], check=True)
