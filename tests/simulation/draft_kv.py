"""The drafter's KV as a server must hold it, and how far off a saved one is."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.simulation.pair import Pair, greedy_answer

KV_TOKENS = 40
KV_TOLERANCE = 1e-3
# The last step may commit tokens beyond the end, and under overlap scheduling one more step may run.
OVERRUN = 16


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference in units of the largest expected value."""
    return float((found - expected).abs().max() / expected.abs().max())


def compare_draft_kv(file: Path, pair: Pair, ids: list[int], tokens: list[int]) -> dict[str, float | int]:
    """KV saved by the probe after a request of `ids`, against KV of the known answer's hidden states.

    Raises AssertionError when the answer or the committed length is not the known answer's.
    """
    saved = torch.load(file)
    known = greedy_answer(pair, ids, len(tokens) + OVERRUN, ignore_eos=True)
    assert tokens == list(known.tokens[: len(tokens)]), "the served answer is not the known one"
    # The last token is the root of the next step: its KV does not exist yet.
    committed = saved["committed"]
    assert len(ids) + len(tokens) - 1 <= committed <= len(ids) + len(known.tokens)
    assert len(saved["keys"]) == len(saved["values"]) == pair.drafter.num_layers
    errors = [
        relative_error(saved[name][layer].cpu(), rows[:, :committed].transpose(0, 1))
        for layer, expected in enumerate(known.context)
        for name, rows in zip(("keys", "values"), expected, strict=True)
    ]
    return {"committed_tokens": committed, "layers": len(known.context), "largest_relative_error": max(errors)}
