"""The keys of ``config.yaml`` and what they mean, for its schema; ``config.py`` reads the file."""

from __future__ import annotations

from pydantic import BaseModel


class LimitsSection(BaseModel):
    """Limits on the cost of jobs. The smallest of all files holds; a larger job needs a person."""

    gpus_per_job: float
    """GPUs of one job."""
    gpu_hours_per_job: float
    """GPU-hours of all that one command submits, with requeues."""
    gpu_hours_per_day: float
    """GPU-hours that your runs have used in 24 hours and still reserve."""


class PartitionSection(BaseModel):
    """Limits on one job in a partition; the smallest of all files holds."""

    time: str
    """Time limit of a job: 1h."""
    nodes: float
    """Nodes of a job."""
    gpus: float
    """GPUs of a job."""


class LockedSection(BaseModel):
    """Keys of the site that no project and no person overrides, each with a sentence for them."""

    limits: str
    """Sentence for whoever submits more than the site's limits allow."""
    partition_limits: str
    """Sentence for whoever submits more than the site allows in a partition."""
    notify: str
    """Sentence for whoever sends messages elsewhere than the site does."""
    comment_jobs: str
    """Sentence for whoever turns the site's comment of jobs on or off."""


class ConfigFile(BaseModel):
    """The defaults of a site, a person or a project."""

    profile: str
    """Profile of a command without --profile and HPCRUN_PROFILE."""
    runs: str
    """Folder of the runs, without HPCRUN_RUNS; a relative path starts at this file's folder."""
    time: str
    """Time limit of a Slurm job without --time and SBATCH_TIMELIMIT; overrides the profile's."""
    account: str
    """Account of a job without --account and SBATCH_ACCOUNT; overrides the profile's."""
    metrics: dict[str, str]
    """Numbers that `hpcrun metrics` finds in the logs, as NAME: REGULAR EXPRESSION; overrides the
    profile's.
    """
    notify: list[str]
    """Destinations of messages about runs, besides the profile's (--notify)."""
    notify_on: list[str]
    """Events to send messages about (--notify-on); overrides the profile's."""
    notify_waiting: str
    """Time after which a message says that a job is still pending: 2h; overrides the profile's."""
    wandb_sync: bool
    """Whether a command that learns that a run has ended uploads its offline wandb runs."""
    on: str
    """Host on which commands run (--on)."""
    limits: LimitsSection
    partition_limits: dict[str, PartitionSection]
    """Limits on each job, by partition."""
    comment_jobs: bool
    """Whether the comment of each job names the version of hpcrun and the run, for accounting."""
    locked: LockedSection
    """Keys that only this file sets, for the configuration of a site."""
