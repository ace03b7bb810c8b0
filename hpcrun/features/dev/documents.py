"""The shape of the JSON document of ``hpcrun dev``."""

from __future__ import annotations

from hpcrun.views.shapes import Documents, SometimesThere

DOCUMENTS: Documents = {
    "dev": (
        {
            "kind": "dev",
            "run": str,
            "job": str,
            "user": str,
            "host_key": str,
            "folder": str,
            "program": [str],
            "relay": [str],
            "ends_s": float,
            "node": str | None,
            "local": str | None,
            "cwd": str | None,
            # with --ssh and --code: the host for ssh, and the words of the command
            "name": SometimesThere(str),
            "ssh": SometimesThere([str]),
        },
    )
}
