#!/usr/bin/env python3
"""Healthy means that a real completion came back: a wedged scheduler leaves the port open.

A completion counts for a minute, in which only the port is asked: on a small machine one every few seconds would
take the cores from those who are served. With the argument `now` a completion is asked for in any case.

Environment: PORT (default 30000), HEALTH_TIMEOUT seconds (default 20: a busy server queues the request), API_KEY of the
server. HEALTH=listening is for a node of an instance over several hosts that has not the first rank: it answers health
checks alone, and only once its ranks are up.
"""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

TOKENS = 4
STAMP = Path("/tmp/healthy")
FRESH_SECONDS = 60


def check(port: int, timeout_s: float, now: bool = False) -> str:
    """One line for the log; raises what `probe` raises, and then the next check asks for a completion again."""
    if os.environ.get("HEALTH") == "listening":
        return listen(port, timeout_s, "/health")
    fresh = not now and STAMP.exists() and time.time() - STAMP.stat().st_mtime < FRESH_SECONDS
    ask = listen if fresh else probe
    try:
        found = ask(port, timeout_s)
    except (OSError, ValueError):
        STAMP.unlink(missing_ok=True)
        raise
    if ask is probe:
        STAMP.touch()
    return found


def asked(port: int, path: str, body: bytes | None = None) -> urllib.request.Request:
    """A request to this server, with its key where it has one."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    return urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=headers)


def listen(port: int, timeout_s: float, path: str = "/model_info") -> str:
    """Whether anything answers on the port at all."""
    with urllib.request.urlopen(asked(port, path), timeout=timeout_s):
        return f"healthy: {path} answers"


def probe(port: int, timeout_s: float) -> str:
    """Ask for a few tokens; returns one line for the log.

    Raises:
        ValueError: the answer is not a completion of that many tokens.
        OSError: no answer, or an HTTP error.
    """
    sampling = {"max_new_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    body = {"text": "One, two, three,", "sampling_params": sampling}
    with urllib.request.urlopen(asked(port, "/generate", json.dumps(body).encode()), timeout=timeout_s) as response:
        answer = json.load(response)
    text, tokens = answer.get("text"), answer.get("meta_info", {}).get("completion_tokens")
    if not text or tokens != TOKENS:
        raise ValueError(f"asked for {TOKENS} tokens, got {tokens} and the text {text!r}")
    return f"healthy: {text!r}"


def main() -> int:
    try:
        port, timeout_s = int(os.environ.get("PORT", "30000")), float(os.environ.get("HEALTH_TIMEOUT", "20"))
        print(check(port, timeout_s, now=sys.argv[1:] == ["now"]))
    except (OSError, ValueError) as error:
        print(f"unhealthy: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
