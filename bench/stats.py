"""How sure a measured figure is: bootstrap intervals of medians, and a sign test for each claim of faster."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np
from scipy.stats import binomtest, bootstrap

LEVEL = 0.95
RESAMPLES = 2000
SIGNIFICANT = 0.05


def interval(values: Sequence[float], seed: int = 0) -> list[float] | None:
    """Bootstrap interval (low, high) of the median at LEVEL; None for fewer than two values."""
    if len(values) < 2:
        return None
    if len(set(values)) == 1:  # nothing to resample
        return [values[0], values[0]]
    return _bounds(bootstrap((values,), np.median, axis=-1, **_OPTIONS, rng=np.random.default_rng(seed)))


def claim(ours: Sequence[float], base: Sequence[float], seed: int = 0) -> dict:
    """What samples that took turns say about ours over base, where more is better.

    ratio: of the medians, with its paired bootstrap interval. wins, losses: of the pairs; ties count for neither.
    p: of the two-sided sign test. verdict: faster or slower only when p is below SIGNIFICANT and the interval leaves
    out 1, otherwise undecided.
    """
    if len(ours) != len(base) or not ours:
        raise ValueError(f"{len(ours)} samples cannot be paired with {len(base)}")
    wins, losses = (sum(sign * (a - b) > 0 for a, b in zip(ours, base, strict=True)) for sign in (1, -1))
    p = float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0
    bounds = _ratio_interval(ours, base, seed, paired=True) if len(ours) > 1 else None
    verdict = "undecided"
    if p < SIGNIFICANT and bounds:
        verdict = "faster" if bounds[0] > 1 else "slower" if bounds[1] < 1 else "undecided"
    ratio = round(median(ours) / median(base), 4)
    return {"ratio": ratio, "interval": bounds, "wins": wins, "losses": losses, "p": round(p, 5), "verdict": verdict}


def claim_apart(ours: Sequence[float], base: Sequence[float], seed: int = 0) -> tuple[float, list[float] | None]:
    """Ratio of the medians of samples that were taken at different times, with its bootstrap interval."""
    enough = len(ours) > 1 and len(base) > 1
    return round(median(ours) / median(base), 4), _ratio_interval(ours, base, seed, paired=False) if enough else None


_OPTIONS = {"confidence_level": LEVEL, "n_resamples": RESAMPLES, "method": "percentile", "vectorized": True}


def _ratio_interval(ours: Sequence[float], base: Sequence[float], seed: int, paired: bool) -> list[float]:
    def ratio(a, b, axis=-1):
        return np.median(a, axis=axis) / np.median(b, axis=axis)

    return _bounds(bootstrap((ours, base), ratio, paired=paired, **_OPTIONS, rng=np.random.default_rng(seed)))


def _bounds(found) -> list[float]:
    low, high = found.confidence_interval
    return [round(float(low), 4), round(float(high), 4)]
