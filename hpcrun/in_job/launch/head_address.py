"""The address by which a node reaches the head node of its job, and torchrun's options for it.

A node is known to the others by its name in Slurm, with the suffix of the profile for a site whose
fast network has names of its own. Where a name does not resolve, the node's address in Slurm's
configuration (NodeAddr) may.

Each node, and each task of ``--launcher srun``, imports this module: socket, dataclasses and
slurm_requests would take as long as all else that it imports.
"""

from __future__ import annotations

import os
from _socket import getaddrinfo

from . import rank_environment, records


def options_of_torchrun(torchrun: list[str]) -> list[str]:
    """Set the variables of torchrun's options for this node; return torchrun's command line.

    Options on the command line and existing variables have priority.

    c10d's is_host is set explicitly: torch guesses it from host names, which fails if a node has
    several. With an endpoint from the user, torch has to guess. The local address is set, too: then
    rank 0's address is Slurm's name of the node, not a name that only the node itself can resolve.
    """
    env = os.environ
    given = {
        "PET_RDZV_ID": f"{env['HPCRUN_JOB_ID']}.{env['HPCRUN_ATTEMPT']}",
        "PET_LOCAL_ADDR": env["HPCRUN_NODE_ADDR"],
    }
    endpoint = f"{env['HPCRUN_HEAD_ADDR']}:{env['HPCRUN_PORT']}"
    has_endpoint = any(option.startswith("--rdzv-endpoint=") for option in torchrun)
    if "--rdzv-backend=static" in torchrun:
        given["PET_RDZV_ENDPOINT"] = endpoint
        given["PET_NODE_RANK"] = env["HPCRUN_NODE_RANK"]
    elif "PET_RDZV_ENDPOINT" not in env and not has_endpoint:
        is_host = f"is_host={int(env['HPCRUN_NODE'] == env['HPCRUN_HEAD'])}"
        given["PET_RDZV_ENDPOINT"] = endpoint
        given["PET_RDZV_CONF"] = is_host
        torchrun = [_with_conf(option, is_host) for option in torchrun]
    env[rank_environment.FOR_TORCHRUN] = " ".join(name for name in given if name not in env)
    env.update({**given, **env})
    return torchrun


def _with_conf(option: str, is_host: str) -> str:
    return f"{option},{is_host}" if option.startswith("--rdzv-conf=") else option


def find_head(*, is_needed: bool = True) -> bool:
    """Replace the addresses of the head node and of this node by ones that this node can resolve.

    Args:
        is_needed: say which addresses of the head node do not resolve.

    Returns:
        Whether the head node has one.
    """
    env = os.environ
    node = env["HPCRUN_NODE"]
    here = first_resolved(env["HPCRUN_NODE_ADDR"], node)
    if here.address:
        env["HPCRUN_NODE_ADDR"] = here.address
    head = first_resolved(env["HPCRUN_HEAD_ADDR"], env["HPCRUN_HEAD"])
    if head.address:
        if head.failed and is_needed:
            names = " and ".join(head.failed)
            records.say(f"{node} cannot resolve {names}: it uses {head.address} for rank 0")
        env["HPCRUN_HEAD_ADDR"] = head.address
        return True
    if is_needed:
        first = head.failed[0]
        others = "".join(f", nor {name}" for name in head.failed[1:])
        problem = f"{node} cannot resolve {first}, the host of rank 0{others}"
        records.say(f"{problem}; try --exclude={node}, or set fabric.host_suffix in the profile")
    return False


class Resolved:
    """The first address of a node that resolves, empty if none does, and those that do not."""

    def __init__(self, address: str, failed: list[str]) -> None:
        self.address = address
        self.failed = failed


def first_resolved(address: str, node: str) -> Resolved:
    """Try an address of a node, then its name in Slurm, then its address in Slurm."""
    failed: list[str] = []
    for name in dict.fromkeys((address, node)):
        if _resolves(name):
            return Resolved(name, failed)
        failed.append(name)
    from .slurm_requests import node_address  # few nodes need it

    known = node_address(node)
    if known and known not in failed and _resolves(known):
        return Resolved(known, failed)
    failed.append(f"Slurm's NodeAddr ({known or 'not shown'})")
    return Resolved("", failed)


def _resolves(name: str) -> bool:
    # bytes: for a str, Python would import the rules of international names
    host = name.encode("utf-8", "surrogateescape")
    try:
        getaddrinfo(host, None)
    except (OSError, ValueError):
        return False
    return True
