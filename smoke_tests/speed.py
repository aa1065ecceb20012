"""Compares recorded arms: their speeds, and where their answers part."""

from __future__ import annotations

import pytest

from .verdict import expect

# Two runs of one server differ by about so much.
NOISE = 0.03
SLOW = {
    "chain": "lower DDTREE_BUDGET, or set DDTREE_ALGORITHM=chain for this load",
    "ar": "lower DDTREE_BLOCK_SIZE, or set DDTREE_ALGORITHM=ar for this load",
}


def compare(kind, than, target, expected, arms, evidence):
    """Raises ProbeError when `kind` is slower than `than` although the pair claims speed."""
    speeds = {k: arms[k].tokens_per_second for k in ("tree", "chain", "ar") if k in arms}
    seen = ", ".join(f"{k} {speed:.1f}" for k, speed in speeds.items())
    seen = f"{seen} tok/s at {target.concurrency} at once"
    evidence.say(seen, tokens_per_second=speeds)
    if kind not in speeds or than not in speeds:
        pytest.skip(f"{seen}: no {kind if kind not in speeds else than} is recorded at this concurrency")
    if not expected.claims_speed:
        pytest.skip(f"{seen}: the pair {expected.name} claims no speed")
    budget = f" (budget {arms[kind].budget})"
    expect(
        speeds[kind] >= speeds[than] * (1 - NOISE),
        f"{kind}{budget} to be faster than {than} with its {speeds[than]:.1f} tok/s at {target.concurrency} at once",
        f"{speeds[kind]:.1f}",
        f"a verify pass too wide for this load: {SLOW[than]}",
    )


def parted(one: list[int], other: list[int]) -> int:
    """Index of the first token in which both differ."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
