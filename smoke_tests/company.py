"""Who is asked together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def company(asked: Sequence[T], count: int) -> list[T]:
    """`count` of `asked`: all in turn, each round from another start, so that their company changes."""
    starts = (i % len(asked) for i in itertools.count())
    rounds = (itertools.chain(asked[start:], asked[:start]) for start in starts)
    return list(itertools.islice(itertools.chain.from_iterable(rounds), count))
