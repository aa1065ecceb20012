"""A server with an API key answers nobody without it."""

import pytest

from .client import Server
from .verdict import expect

PATHS = ("/v1/chat/completions", "/generate")


def test_api_key(target, server, pytestconfig, evidence):
    if pytestconfig.getoption("--api-key-file") is None:
        pytest.skip("no key is named with --api-key-file: everyone who reaches this server may use it")
    body = {"model": server.model, "messages": [{"role": "user", "content": "Hello"}], "text": "Hello", "max_tokens": 1}
    for key, what in ((None, "without a key"), ("not-the-key", "with a wrong key")):
        for path in PATHS:
            status = Server(server.base_url, key).send("POST", path, json=body).status_code
            expect(
                status == 401,
                f"status 401 from {path} {what}",
                str(status),
                "a server started without --api-key, or a proxy that adds the key for everyone",
            )
    evidence.say(f"401 without a key and with a wrong one, at {' and '.join(PATHS)}")
