"""How sure a measured figure is: bootstrap intervals of medians, and a sign test for each claim of faster.

Only numpy and the standard library: a machine with a GPU has them beside the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import median

import numpy as np

LEVEL = 0.95
RESAMPLES = 2000
SIGNIFICANT = 0.05


def interval(values: Sequence[float], seed: int = 0) -> list[float] | None:
    """Percentile bootstrap (low, high) of the median at LEVEL; None for fewer than two values."""
    if len(values) < 2:
        return None
    return _bounds(_medians(values, _draws(len(values), np.random.default_rng(seed))))


def interval_of(samples: Sequence[dict], measure: str, seed: int = 0) -> list[float] | None:
    """The interval of one measure of samples; None where a sample lacks it."""
    values = [row[measure] for row in samples]
    return None if None in values else interval(values, seed)


def claim(ours: Sequence[float], base: Sequence[float], seed: int = 0) -> dict:
    """What samples that took turns say about ours over base, where more is better.

    ratio: of the medians, with its bootstrap interval over the pairs. wins, losses: of the pairs; ties count for
    neither. p: of the two-sided sign test. verdict: faster or slower only when p is below SIGNIFICANT and the interval
    leaves out 1, otherwise undecided.
    """
    if len(ours) != len(base) or not ours:
        raise ValueError(f"{len(ours)} samples cannot be paired with {len(base)}")
    wins, losses = (sum(sign * (a - b) > 0 for a, b in zip(ours, base, strict=True)) for sign in (1, -1))
    p, bounds, verdict = sign_test(wins, losses), None, "undecided"
    if len(ours) > 1:
        draws = _draws(len(ours), np.random.default_rng(seed))
        bounds = _bounds(_medians(ours, draws) / _medians(base, draws))
    if p < SIGNIFICANT and bounds:
        verdict = "faster" if bounds[0] > 1 else "slower" if bounds[1] < 1 else "undecided"
    ratio = round(median(ours) / median(base), 4)
    return {"ratio": ratio, "interval": bounds, "wins": wins, "losses": losses, "p": round(p, 5), "verdict": verdict}


def claim_apart(ours: Sequence[float], base: Sequence[float], seed: int = 0) -> tuple[float, list[float] | None]:
    """Ratio of the medians of samples that were taken at different times, with its bootstrap interval."""
    bounds, source = None, np.random.default_rng(seed)
    if len(ours) > 1 and len(base) > 1:
        bounds = _bounds(_medians(ours, _draws(len(ours), source)) / _medians(base, _draws(len(base), source)))
    return round(median(ours) / median(base), 4), bounds


def sign_test(wins: int, losses: int) -> float:
    """Two-sided p of so uneven a count where either is as likely as the other."""
    total = wins + losses
    tail = sum(comb(total, k) for k in range(min(wins, losses) + 1)) / 2**total
    return min(1.0, 2 * tail)


def _draws(size: int, source: np.random.Generator) -> np.ndarray:
    """Indices [RESAMPLES, size] of samples drawn with replacement."""
    return source.integers(0, size, (RESAMPLES, size))


def _medians(values: Sequence[float], draws: np.ndarray) -> np.ndarray:
    return np.median(np.asarray(values)[draws], axis=1)


def _bounds(drawn: np.ndarray) -> list[float]:
    tail = 50 * (1 - LEVEL)
    return [round(float(value), 4) for value in np.percentile(drawn, (tail, 100 - tail))]
