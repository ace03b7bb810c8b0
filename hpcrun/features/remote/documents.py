"""The shapes of the JSON documents of ``hpcrun login`` and ``hpcrun fetch``."""

from __future__ import annotations

from hpcrun.views.shapes import Documents, Shape, SometimesThere

_LOGIN: Shape = {
    "kind": "login",
    "host": str,
    "connected": bool,
    # not with --close
    "hpcrun": SometimesThere(str | None),
    "version": SometimesThere(str | None),
    "warning": SometimesThere(str | None),
}
_FETCH: Shape = {
    "kind": "fetch",
    "host": str,
    "run_id": str,
    "folder": str,
    "files": int,
    "bytes": int,
}
DOCUMENTS: Documents = {"login": (_LOGIN,), "fetch": (_FETCH,)}
