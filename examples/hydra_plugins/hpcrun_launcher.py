"""A launcher for Hydra: the jobs of ``--multirun`` are the elements of one array, which hpcrun
submits.

Copy the folder ``hydra_plugins`` beside your program, and choose the launcher there or on the
command line::

    python train.py --multirun hydra/launcher=hpcrun lr=1e-3,1e-4 hydra.launcher.gpus_per_node=1
    hydra.launcher.timeout_min=240

The keys of ``hydra.launcher`` are those of hydra-submitit-launcher and the parameters of
``hpcrun.Executor``: docs/api.md. The outputs of a job are in Hydra's own folder; its log and its
state are those of the element: ``hpcrun status``, ``hpcrun logs RUN/3``, ``hpcrun explain RUN``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, filter_overrides, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

import hpcrun


class HpcrunLauncher(Launcher):  # type: ignore[misc,unused-ignore]
    """Submits the jobs of a sweep as one array, and waits for their results."""

    def __init__(self, options: Any = None, **keys: Any) -> None:
        parameters = OmegaConf.create({**keys, **(options or {})})
        self._options: Any = OmegaConf.to_container(parameters, resolve=True)

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what Hydra knows of the program."""
        self._context, self._function, self._config = hydra_context, task_function, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> list[JobReturn]:
        """Return the results of all jobs; a job that failed raises its error."""
        setup_globals()
        state = Singleton.get_state()  # HydraConfig and others, which Hydra reads in the job
        executor = hpcrun.Executor(**{"name": self._config.hydra.job.name, **self._options})
        with executor.batch():
            jobs = [
                executor.submit(
                    _run, state, self._context, self._function, self._job_config(overrides, number)
                )
                for number, overrides in enumerate(job_overrides, initial_job_idx)
            ]
        for job, overrides in zip(jobs, job_overrides, strict=True):
            print(f"hpcrun: job {job.job_id}: {' '.join(filter_overrides(overrides))}", flush=True)
        return [job.result() for job in jobs]

    def _job_config(self, overrides: Sequence[str], number: int) -> DictConfig:
        """Return the configuration of one job, with the folder that Hydra has chosen for all of
        them now.
        """
        config = self._context.config_loader.load_sweep_config(self._config, list(overrides))
        with open_dict(config):
            config.hydra.job.num, config.hydra.job.id = number, str(number)
            config.hydra.sweep.dir = str(self._config.hydra.sweep.dir)
        return config


def _run(
    state: Any, context: HydraContext, function: TaskFunction, config: DictConfig
) -> JobReturn:
    """Run one job in its allocation; raise its error, so that the element has failed."""
    Singleton.set_state(state)
    setup_globals()
    result = run_job(
        function,
        config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
        hydra_context=context,
    )
    result.return_value  # noqa: B018  # it raises what the job has raised
    return result


# a dict: Hydra runs this file without an entry in sys.modules, which dataclasses need
_CONFIG = {"_target_": f"{__name__}.HpcrunLauncher", "options": {}}
# hpcrun knows the keys, and names the nearest one of a key that is misspelt
_NODE = OmegaConf.create(_CONFIG, flags={"struct": False})
ConfigStore.instance().store(group="hydra/launcher", name="hpcrun", node=_NODE)
