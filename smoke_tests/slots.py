"""What the server holds for requests that run or wait."""

from __future__ import annotations

import time

from .client import Server

FREED_WITHIN_S = 30


def in_use(server: Server) -> tuple[int, int] | None:
    """Requests that run or wait, and the KV tokens they use, over all replicas; None where it is not served."""
    reply = server.send("GET", "/v1/loads")
    if reply.status_code != 200:
        return None
    replicas = reply.json()["loads"]
    requests = sum(r["num_running_reqs"] + r["num_waiting_reqs"] for r in replicas)
    return requests, sum(r["num_used_tokens"] for r in replicas)


def settled(server: Server) -> tuple[int, int] | None:
    """What is in use as soon as that is nothing, or after FREED_WITHIN_S seconds.

    A health check is a request too, so a single look would not tell.
    """
    deadline = time.monotonic() + FREED_WITHIN_S
    while True:
        found = in_use(server)
        if found in (None, (0, 0)) or time.monotonic() > deadline:
            return found
        time.sleep(0.3)
