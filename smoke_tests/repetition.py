"""How repetitive a sequence of tokens is."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def longest_run(tokens: Sequence[Hashable]) -> int:
    """Length of the longest run of one token repeated, 0 for an empty sequence."""
    longest = run = 0
    previous: object = object()
    for token in tokens:
        run = run + 1 if token == previous else 1
        longest, previous = max(longest, run), token
    return longest


def repeated_share(tokens: Sequence[Hashable], n: int = 4) -> float:
    """Share (0..1) of the n-grams that already occurred earlier in `tokens`; 0.0 when there is no n-gram."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
