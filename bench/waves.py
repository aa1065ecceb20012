"""Requests in waves: sent together, answered together, so that the steps of a full batch can be told apart."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.servers import Endpoint
from bench.steps import Answer, Wave

WARM_UP_TOKENS = 16


def waves_for(prompts: Sequence[list[int]], concurrency: int, least: int = 2) -> list[list[list[int]]]:
    """Prompts in waves of `concurrency`: every prompt at least once, and at least `least` waves."""
    count = max(least, -(-len(prompts) // concurrency))
    total = [prompts[i % len(prompts)] for i in range(count * concurrency)]
    return [total[i : i + concurrency] for i in range(0, len(total), concurrency)]


def run_wave(server: Endpoint, prompts: list[list[int]], max_new_tokens: int, speculative: bool) -> Wave:
    """Answer the prompts twice, with one token (which is prefill alone) and with all that were asked for."""
    prefills = server.generate(prompts, 1)
    start = time.perf_counter()
    replies = server.generate(prompts, max_new_tokens)
    wall_s = time.perf_counter() - start
    pairs = zip(replies, prefills, strict=True)
    answers = [Answer.of(reply["meta_info"], prefill["meta_info"], speculative) for reply, prefill in pairs]
    return Wave(tuple(answers), wall_s, tuple(tuple(reply["output_ids"]) for reply in replies))
