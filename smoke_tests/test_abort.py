"""A client that hangs up in mid-stream frees what its request held."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from . import fresh, slots
from .verdict import expect

# The requests would run on for this long if nothing ended them: half a minute on a fast server, minutes on a slow one.
TOKENS = 8000


def test_abort(target, server, expected, evidence):
    if slots.in_use(server) is None:
        pytest.skip("the server does not say at /v1/loads what it runs")
    if slots.used_by_others(server):
        pytest.skip("other clients keep the server busy: whose slots are in use cannot be told")
    at_once = target.concurrency
    room = server.context_length()
    ids = server.chat_ids(expected.coherence.ask)
    # Half of the context for each request, as the KV memory need not hold the whole of it for all.
    tokens = min(TOKENS, room // 2 - len(ids))
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda _: server.abandon(ids, max_new_tokens=tokens, ignore_eos=True), range(at_once)))
    began = time.monotonic()
    requests, used = slots.settled(server)
    seconds = time.monotonic() - began
    evidence.say(f"{at_once} abandoned requests of {tokens} tokens gone after {seconds:.1f} s", freed_seconds=seconds)
    expect(
        (requests, used) == (0, 0),
        f"no request and no KV token in use {slots.FREED_WITHIN_S} s after {at_once} clients hung up",
        f"{requests} requests and {used} tokens",
        "aborted requests that run on to their end, or whose KV of drafts is never given back",
    )
    fresh.completion(server, expected.questions["known"][0].ask)
