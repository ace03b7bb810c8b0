"""hpcrun login."""

from __future__ import annotations

from hpcrun.cli.context import make_context
from hpcrun.cli.options import argument, flag
from hpcrun.cli.output import JsonOption, Outcome, Outcomes, note, stdout


def login(
    host: str = argument("HOST", "Host of ~/.ssh/config, or USER@HOST.", default=...),
    install: bool = flag("--install", "Install this version of hpcrun on the host."),
    close: bool = flag("--close", "Close the connection."),
    _json: JsonOption = False,
) -> Outcomes:
    """Connect to a cluster, for commands with --on HOST.

    It asks for a password or a one-time code if the host wants one; no other
    command of hpcrun does. The connection stays open for eight hours of disuse.
    """
    from hpcrun.features.remote.connection import connection_to
    from hpcrun.features.remote.install import install_hpcrun
    from hpcrun.features.remote.login import connect, find_hpcrun

    make_context()
    connection = connection_to(host)
    if close:
        closed = connection.close()
        words = f"closed the connection to {host}" if closed else f"there was no connection to {host}"
        yield Outcome(lambda: [stdout([words])], lambda: {"kind": "login", "host": host, "connected": False})
        return
    connection = connect(host)
    remote, warning = find_hpcrun(connection)
    if install:
        install_hpcrun(connection, remote.path)
        remote, warning = find_hpcrun(connection)
    where = f"hpcrun {remote.version}: {remote.hpcrun}" if remote.hpcrun else "no hpcrun there"
    next_line = (
        f"next       hpcrun --on {host} status" if remote.hpcrun else f"next       hpcrun login {host} --install"
    )
    yield note([warning])
    yield Outcome(
        lambda: [stdout([f"connected  {host}", f"there      {where}", next_line])],
        lambda: {
            "kind": "login",
            "host": host,
            "connected": True,
            "hpcrun": remote.hpcrun or None,
            "version": remote.version or None,
            "warning": warning,
        },
    )
