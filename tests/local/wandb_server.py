"""A stand-in for a server of wandb: the real `wandb sync` and `wandb.init` take it for one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "0123456789" * 4
"""A key for it: wandb checks the length."""


@dataclass
class Sink:
    """A stand-in for a server of wandb: it takes what is uploaded, and answers as far as wandb
    insists.
    """

    url: str = ""
    upserted: list[str] = field(default_factory=list)
    uploads: list[str] = field(default_factory=list)

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        query, given = body.get("query", ""), body.get("variables") or {}
        project = {"id": "p", "name": "p", "entity": {"id": "e", "name": "me"}}
        if "upsertBucket" in query:
            self.upserted.append(given["name"])
            bucket = {
                "id": "x",
                "name": given["name"],
                "displayName": "d",
                "config": "{}",
                "project": project,
            }
            return {"upsertBucket": {"bucket": {**bucket, "historyLineCount": 0}, "inserted": True}}
        if "createRunFiles" in query:
            files = [{"name": name, "uploadUrl": f"{self.url}/files"} for name in given["files"]]
            return {"createRunFiles": {"runID": "x", "uploadHeaders": [], "files": files}}
        if "viewer" in query:
            viewer = {
                "id": "u",
                "entity": "me",
                "username": "me",
                "flags": "{}",
                "teams": {"edges": []},
            }
            return {"viewer": viewer, "serverInfo": {"features": []}}
        if "file_stream" in path:
            self.uploads.append(path)
        return {}


@contextmanager
def wandb_server() -> Iterator[Sink]:
    sink = Sink()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body: dict[str, Any] = {}
            with suppress(ValueError):  # telemetry is no JSON
                body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
            answer = json.dumps({"data": sink.answer(self.path, body)}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_PUT = do_POST

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sink.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield sink
        server.shutdown()
