"""A server and its clients as roles of one job: Python's HTTP server, and a stand-in of vLLM's
command line.
"""

from __future__ import annotations

import re

import pytest

from tests.harness import Hpcrun
from tests.recipes.conftest import output

pytestmark = [pytest.mark.slurm, pytest.mark.recipes]

JOB = (
    "-P",
    "a100",
    "--gpus",
    "0",
    "--nodes",
    "2",
    "--cpus",
    "2",
    "--mem",
    "2G",
    "--time",
    "5m",
    "--wait",
)
# vLLM needs a GPU: this has the form of its command line, and its /health, which fails until the
# model is loaded
VLLM = """#!/usr/bin/env python3
import argparse, http.server, time
parser = argparse.ArgumentParser(prog="vllm")
serve = parser.add_subparsers(required=True).add_parser("serve")
serve.add_argument("model")
serve.add_argument("--host", default="")
serve.add_argument("--port", type=int, default=8000)
serve.add_argument("--tensor-parallel-size", type=int, default=1)
options, loaded_at = parser.parse_args(), time.monotonic() + 3

class Routes(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if time.monotonic() > loaded_at else 503)
        self.end_headers()
        self.wfile.write(options.model.encode())

http.server.ThreadingHTTPServer((options.host, options.port), Routes).serve_forever()
"""
CLIENT = """
import sys, urllib.request
answer = urllib.request.urlopen(sys.argv[1])
print(answer.status, answer.read().decode().strip())
if "fail" in sys.argv:
    {}["recall"]
"""


def test_an_http_server_and_its_clients(person: Hpcrun) -> None:
    person.write("data/hello", "hello")
    person.write("client.py", CLIENT)
    server = ("--role", "server:1", "python -m http.server {port} --directory data")
    clients = ("--role", "clients:1", "client.py", "{server.url}/hello")
    person("submit", *JOB, *server, *clients, check=True)
    assert "[clients] 200 hello" in output(person)
    table = " ".join(person("status", "last", "-v").stdout.split())
    assert "role server: terminated with exit status 143, on " in table
    assert person("submit", *JOB, *server, *clients, "fail").returncode == 7
    cause = person("explain", "last").stdout.splitlines()[0]
    assert re.fullmatch(
        r"clients( rank 0)? on \S+ failed first: KeyError: 'recall' at client.py:6", cause
    ), cause


def test_clients_of_vllm_wait_until_it_is_healthy(person: Hpcrun) -> None:
    person.program("vllm", VLLM)
    person.write("client.py", CLIENT)
    server = ("--role", "server:1,ready=http:{port}/health", "./vllm serve model --port {port}")
    person(
        "submit",
        *JOB,
        *server,
        "--role",
        "clients:1",
        "client.py",
        "{server.url}/health",
        check=True,
    )
    assert "[clients] 200 model" in output(person)
    never = (
        "--role",
        "server:1,ready=http:{port}/health,timeout=1s",
        "./vllm serve model --port {port}",
    )
    failed = person(
        "submit", *JOB, *never, "--role", "clients:1", "client.py", "{server.url}/health"
    )
    assert failed.returncode == 7
    assert "server" in person("explain", "last").stdout.splitlines()[0]
