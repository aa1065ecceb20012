"""What the server holds for requests that run or wait."""

from __future__ import annotations

import time

from . import speculation
from .client import Server

FREED_WITHIN_S = 30
QUIET_WITHIN_S = 5


def in_use(server: Server) -> tuple[int, int] | None:
    """Requests that run or wait, and the KV tokens they use, over all replicas; None where it is not served."""
    reply = server.send("GET", "/v1/loads")
    if reply.status_code != 200:
        return None
    replicas = reply.json()["loads"]
    requests = sum(r["num_running_reqs"] + r["num_waiting_reqs"] for r in replicas)
    return requests, sum(r["num_used_tokens"] for r in replicas)


def settled(server: Server, within_s: float | None = None) -> tuple[int, int] | None:
    """What is in use as soon as that is nothing, or after `within_s` seconds, by default FREED_WITHIN_S.

    A health check is a request too, so a single look would not tell.
    """
    deadline = time.monotonic() + (FREED_WITHIN_S if within_s is None else within_s)
    while True:
        found = in_use(server)
        if found in (None, (0, 0)) or time.monotonic() > deadline:
            return found
        time.sleep(0.3)


def used_by_others(server: Server) -> bool:
    """Whether other clients keep the server busy: requests that nobody serves any more get no tokens."""
    before = speculation.scrape(server)
    left = settled(server, QUIET_WITHIN_S)
    after = speculation.scrape(server)
    if left in (None, (0, 0)):
        return False
    counter = "sglang:realtime_tokens_total"
    return before is None or after is None or after.total(counter) > before.total(counter)
