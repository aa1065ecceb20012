"""The server runs the algorithm that it is meant to run, in its fast form."""

import pytest

from .verdict import expect

STEPS, EAGER = "sglang:ddtree_steps_total", "sglang:ddtree_eager_steps_total"
CURE = {
    "tree": "set DDTREE_ALGORITHM=tree",
    "chain": "set DDTREE_ALGORITHM=chain",
    "ar": "set DDTREE_ALGORITHM=ar",
}


def test_algorithm(pytestconfig, target, evidence):
    wanted, facts = pytestconfig.getoption("--expect-algorithm"), target.facts
    if wanted is None:
        pytest.skip(f"the server runs {facts.kind}: name what it is meant to run with --expect-algorithm")
    evidence.say(f"{facts.kind}, as meant")
    expect(
        facts.kind == wanted,
        f"a server that runs {wanted}",
        f"{facts.kind} ({facts.algorithm or 'no speculative algorithm'} in /server_info)",
        f"another instance or other start settings: {CURE[wanted]} and start it again",
    )


def test_eager_steps(target, answered, evidence):
    facts = target.facts
    if facts.algorithm != "DDTREE":
        pytest.skip(f"the server runs {facts.kind}, which has no counter of eager steps")
    after = answered.after
    expect(after is not None, "metrics at /metrics", "none", "a server started without --enable-metrics")
    steps, eager = after.total(STEPS), after.values(EAGER)
    expect(
        answered.grown(STEPS) > 0 and bool(eager),
        f"{STEPS} to grow with each step, and {EAGER}",
        f"{answered.grown(STEPS):.0f} steps more and {len(eager)} counters of eager ones",
        "a plugin of another version",
    )
    evidence.say(f"0 of {steps:.0f} steps eager", steps=int(steps), eager_steps=int(sum(eager)))
    expect(
        sum(eager) == 0,
        f"{EAGER} 0 of {steps:.0f} steps",
        f"{sum(eager):.0f}",
        "batches larger than the largest captured graph: raise --cuda-graph-max-bs to --max-running-requests",
    )
