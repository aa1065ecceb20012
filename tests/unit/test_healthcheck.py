"""The container's health: a real completion at most once a minute, the open port in between."""

import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.unit.loading import load_file

FILE = Path(__file__).resolve().parents[2] / "docker" / "healthcheck.py"


@pytest.fixture
def healthcheck(tmp_path, monkeypatch):
    module = load_file(FILE)
    monkeypatch.setattr(module, "STAMP", tmp_path / "healthy")
    return module


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply({"model_path": "m"})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.reply({"text": " four", "meta_info": {"completion_tokens": self.server.tokens}})

    def reply(self, body):
        self.server.asked.append(self.path)
        self.server.keys.add(self.headers["Authorization"])
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.keys, server.tokens = [], set(), 4
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def check(healthcheck, server):
    return healthcheck.check(server.server_address[1], 5)


def test_a_completion_is_asked_for_first_and_only_the_port_after_it(healthcheck, server):
    assert "four" in check(healthcheck, server)
    check(healthcheck, server)
    assert server.asked == ["/generate", "/model_info"]


def test_a_completion_can_be_asked_for_at_any_time(healthcheck, server):
    check(healthcheck, server)
    healthcheck.check(server.server_address[1], 5, now=True)
    assert server.asked == ["/generate", "/generate"]


def test_after_a_minute_a_completion_is_asked_for_again(healthcheck, server):
    check(healthcheck, server)
    old = time.time() - healthcheck.FRESH_SECONDS - 1
    os.utime(healthcheck.STAMP, (old, old))
    check(healthcheck, server)
    assert server.asked == ["/generate", "/generate"]


def test_a_failure_is_told_and_makes_the_next_check_ask_for_a_completion(healthcheck, server):
    check(healthcheck, server)
    port = server.server_address[1]
    server.shutdown()
    server.server_close()
    with pytest.raises(OSError):
        healthcheck.check(port, 5)
    assert not healthcheck.STAMP.exists()


def test_an_answer_of_another_length_is_no_health(healthcheck, server):
    server.tokens = 3
    with pytest.raises(ValueError, match="asked for 4 tokens, got 3"):
        check(healthcheck, server)
    assert not healthcheck.STAMP.exists()


def test_it_asks_with_the_servers_key(healthcheck, server, monkeypatch):
    monkeypatch.setenv("API_KEY", "sesame")
    check(healthcheck, server)
    check(healthcheck, server)
    assert server.asked == ["/generate", "/model_info"]
    assert server.keys == {"Bearer sesame"}
