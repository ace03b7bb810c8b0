"""Servers on this machine that receive messages: HTTP for webhooks, ntfy and chats, SMTP for
mail.
"""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    """What a server has received: the path and the body of each request, or the text of each
    mail.
    """

    port: int = 0
    messages: list[tuple[str, str]] = field(default_factory=list)
    status: int = 200
    hangs_s: float = 0.0
    location: str = ""

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.messages]

    def titles(self) -> list[str]:
        """The titles of JSON messages."""
        return [json.loads(text)["title"] for text in self.texts]

    def bodies(self) -> list[str]:
        return [json.loads(text)["message"] for text in self.texts]


class _Threads(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


@contextmanager
def http_server(
    status: int = 200,
    hangs_s: float = 0.0,
    host: str = "127.0.0.1",
    port: int = 0,
    location: str = "",
) -> Iterator[Received]:
    """A webhook on this machine that answers with a status, after some seconds; or that
    redirects.
    """
    received = Received(status=status, hangs_s=hangs_s, location=location)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
            received.messages.append((self.path, body))
            time.sleep(received.hangs_s)
            with suppress(OSError):  # nobody waits any more
                self.send_response(received.status)
                if received.location:
                    self.send_header("Location", received.location)
                self.end_headers()
                self.wfile.write(b"{}")

        do_PUT = do_GET = do_POST

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    with _serving(ThreadingHTTPServer((host, port), Handler), received):
        yield received


@contextmanager
def smtp_server() -> Iterator[Received]:
    """A mail server on this machine that accepts every mail."""
    received = Received()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 test ESMTP\r\n")
            while line := self.rfile.readline().decode():
                word = line.split()[0].upper() if line.split() else ""
                if word == "DATA":
                    self.wfile.write(b"354 go on\r\n")
                    received.messages.append(("mail", "".join(iter(self._line, ".\r\n"))))
                self.wfile.write(b"221 bye\r\n" if word == "QUIT" else b"250 ok\r\n")
                if word == "QUIT":
                    return

        def _line(self) -> str:
            return self.rfile.readline().decode()

    with _serving(_Threads(("127.0.0.1", 0), Handler), received):
        yield received


@contextmanager
def _serving(server: socketserver.TCPServer, received: Received) -> Iterator[None]:
    received.port = server.server_address[1]
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    ).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
