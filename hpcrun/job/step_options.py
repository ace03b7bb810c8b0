"""The options of the ranks' srun and torchrun: the profile's, with those that were typed laid over them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from hpcrun.errors import UsageError
from hpcrun.job.directives import normalise_key
from hpcrun.job.launch_options import Options, Program, check_option
from hpcrun.job.profile import Profile
from hpcrun.job.request import JobRequest
from hpcrun.job.shape import Shape


def srun_options(request: JobRequest, profile: Profile, shape: Shape) -> Options:
    """Return the options of the srun that starts the ranks: the profile's, overridden by the request's.

    Raises:
        UsageError: the local scheduler has no srun, or ranks would not see their GPUs.
    """
    if profile.scheduler != "slurm":
        if request.srun:
            raise UsageError(f"--srun {request.srun[0]}: profile {profile.name!r} runs on this machine, without srun",
                             hint="leave it out, or choose a Slurm profile with --profile")  # fmt: skip
        return ()
    options = _laid_over("srun", profile.srun, request.srun)
    check_binding("srun", options, shape)
    return tuple(options.items())


def check_binding(of: Literal["sbatch", "srun"], options: Mapping[str, str | None], shape: Shape) -> None:
    """Refuse an option that hides GPUs of the node from a rank: a rank uses the GPU with the number LOCAL_RANK.

    Raises:
        UsageError: a rank would see only some of the GPUs.
    """
    for key in ("gpu-bind", "tres-bind"):
        value = options.get(key) or "none"
        if shape.gpus_per_node and shape.tasks_per_node > 1 and "none" not in value:
            raise UsageError(
                f"{'srun ' if of == 'srun' else ''}--{key}={value} would show each of the {shape.tasks_per_node} ranks "
                "of a node only some of its GPUs",
                hint=f"leave it out, or --{of} {key}={'gres/gpu:' if key == 'tres-bind' else ''}none",
            )


def torchrun_options(request: JobRequest, profile: Profile, shape: Shape) -> Options:
    """Return torchrun's options: the profile's, overridden by the request's; none if torchrun starts no ranks.

    Raises:
        UsageError: the request has such options, but another launcher.
    """
    if shape.launcher == "torchrun":
        return tuple(_laid_over("torchrun", profile.torchrun, request.torchrun).items())
    if request.torchrun:
        raise UsageError(f"--torchrun {request.torchrun[0]} has no effect with --launcher {shape.launcher}",
                         hint="leave it out, or add --launcher torchrun")  # fmt: skip
    return ()


def step_words(options: Options) -> tuple[str, ...]:
    """Return the options of the ranks' srun besides its sizes: hpcrun's own, overridden by others."""
    return _words({"wait": "0", "export": "ALL", "kill-on-bad-exit": "1", **dict(options)})


def torchrun_words(options: Options, nodes: int) -> tuple[str, ...]:
    """Return torchrun's options besides its sizes.

    A job on one node needs no port, unless an endpoint is given. On several nodes Slurm has numbered the nodes, which
    the static rendezvous takes as they are. c10d's nodes agree on numbers of their own, and ask each other once a
    second; only it lets nodes join again, which torchrun's own restarts need.
    """
    asked = {"max-restarts": "0", **dict(options)}
    own: dict[str, str | None]
    if (asked["max-restarts"] != "0" and nodes > 1) or any(name.startswith("rdzv-") for name in asked):
        own = {"rdzv-backend": "c10d"}
    else:
        own = {"standalone": None} if nodes == 1 else {"rdzv-backend": "static"}
    return _words({**own, **asked})


def option_words(options: Options) -> tuple[str, ...]:
    """Return options as words of a command line."""
    return _words(dict(options))


def _words(options: Mapping[str, str | None]) -> tuple[str, ...]:
    return tuple(f"--{name}" if value is None else f"--{name}={value}" for name, value in options.items())


def _laid_over(program: Program, theirs: Mapping[str, str | bool], asked: tuple[str, ...]) -> dict[str, str | None]:
    options = {normalise_key(key): None if value is True else str(value) for key, value in theirs.items()}
    for item in asked:
        key, equals, text = item.partition("=")
        value = text if equals else None
        options[check_option(program, key, value, f"--{program} {item}")] = value
    return options
