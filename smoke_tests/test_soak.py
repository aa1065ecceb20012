"""For as long as asked, under full load with clients that hang up, every answer stays what it was."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from . import fresh, slots
from .company import ask, company, expect_as_alone, other_than_alone
from .speculation import scrape
from .test_engine import EAGER
from .verdict import expect

# The slowest minute of a healthy server, as a share of its first one.
SLOWEST_SHARE = 0.5


@pytest.mark.soak
def test_soak(pytestconfig, target, server, expected, questions, sequential, evidence):
    at_once, ends = target.concurrency, time.monotonic() + 60 * pytestconfig.getoption("--soak-minutes")
    asked = company(questions, max(4 * at_once, len(questions)))
    ids = server.chat_ids(expected.coherence.ask)
    speeds, differing, total = [], [], 0
    with ThreadPoolExecutor(at_once) as pool:
        while not speeds or time.monotonic() < ends:
            began = time.monotonic()
            # Clients that hang up come among those that stay.
            leaving = [pool.submit(server.abandon, ids, max_new_tokens=256, ignore_eos=True) for _ in range(at_once)]
            answers = list(pool.map(lambda i: ask(server, asked[i], streamed=i % 3 == 2), range(len(asked))))
            for gone in leaving:
                gone.result()
            speeds.append(sum(a.completion_tokens for a in answers) / (time.monotonic() - began))
            differing += other_than_alone(list(zip(asked, answers, strict=True)), sequential)
            total += len(answers)
    evidence.say(
        f"{total} answers in {len(speeds)} rounds, {len(differing)} differ, "
        f"{min(speeds):.1f} to {max(speeds):.1f} tok/s",
        answers=total,
        differing=len(differing),
        slowest_tokens_per_second=min(speeds),
        fastest_tokens_per_second=max(speeds),
    )
    likely = "state of aborted requests that is left to those after them"
    expect_as_alone(expected, total, differing, sequential, likely)
    expect(
        min(speeds) >= speeds[0] * SLOWEST_SHARE,
        f"no round slower than half of the first with its {speeds[0]:.1f} tok/s",
        f"{min(speeds):.1f}",
        "a GPU that throttles, a cache that fills, or slots that are never given back",
    )
    expect_clean(server)
    fresh.completion(server, expected.questions["known"][0].ask)


def expect_clean(server):
    """Nothing is left of the load. Raises ProbeError for requests or KV in use, or eager steps."""
    left = slots.settled(server)
    expect(left in (None, (0, 0)), "no request and no KV token in use", f"{left}", "a leak of slots")
    metrics = scrape(server)
    eager = metrics.total(EAGER) if metrics else 0
    expect(eager == 0, "no eager steps", f"{eager:.0f}", "batches larger than the largest captured graph")
