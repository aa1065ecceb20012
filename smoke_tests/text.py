"""How coherent a piece of text is: repetition, mixture of scripts, entropy."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measures:
    """tokens: how many. longest_run: in tokens. repeated_share, foreign_share: 0..1. entropy: bits per token."""

    tokens: int
    longest_run: int
    repeated_share: float
    foreign_share: float
    entropy: float

    def __str__(self) -> str:
        return (
            f"{self.tokens} tokens, longest run {self.longest_run}, {self.repeated_share:.0%} of 4-grams repeated, "
            f"{self.foreign_share:.0%} foreign letters, {self.entropy:.1f} bits per token"
        )


def measure(tokens: Sequence[Hashable], text: str, script: str) -> Measures:
    """script: the Unicode name of the script that the letters should have, such as LATIN or CYRILLIC."""
    return Measures(
        tokens=len(tokens),
        longest_run=longest_run(tokens),
        repeated_share=repeated_share(tokens),
        foreign_share=foreign_share(text, script),
        entropy=entropy(tokens),
    )


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


def foreign_share(text: str, script: str) -> float:
    """Share (0..1) of the letters, and of characters that cannot be decoded, that are not of `script`."""
    letters = [c for c in text if c.isalpha() or c == "\ufffd"]
    foreign = [c for c in letters if not unicodedata.name(c, "").startswith(script)]
    return len(foreign) / len(letters) if letters else 0.0


def entropy(tokens: Sequence[Hashable]) -> float:
    """Shannon entropy of the tokens' frequencies in bits per token; 0.0 for an empty sequence."""
    counts = Counter(tokens).values()
    return -sum(n / len(tokens) * math.log2(n / len(tokens)) for n in counts) if tokens else 0.0
