"""The target's choice at every node: argmax, or a sample ("sample and walk").

Sampling one token per node and walking the tree by match is lossless: along the accepted path every token was
drawn from the target's own distribution at that node, and whether the tree holds it decides only how far the
step goes. Temperature, top-k, top-p, min-p and seeds work as without speculation because the engine's own
sampler draws the token, with the node's position.
"""

import dataclasses

import torch

from sglang_ddtree import compat

_PER_REQUEST = ("temperatures", "top_ps", "top_ks", "min_ps", "sampling_seed")


def choose_tokens(sampler, logits: torch.Tensor, info, positions: torch.Tensor) -> torch.Tensor:
    """Token that the target chooses after each node.

    Args:
        sampler: the engine's sampler.
        logits: [b * W, V]; changed in place.
        info: the batch's sampling parameters, or None for greedy.
        positions: int64 [b, W], position of each node's own token.

    Returns:
        int64 [b, W]
    """
    requests, width = positions.shape
    if info is None or info.is_all_greedy:
        return logits.argmax(dim=-1).view(requests, width)
    info = per_node(info, width)
    probs = torch.softmax(logits.div_(info.temperatures), dim=-1)
    simple = not (info.need_top_p_sampling or info.need_top_k_sampling or info.need_min_p_sampling)
    tokens = compat.sampled_tokens(sampler, probs, info, positions.reshape(-1), simple)
    return tokens.long().view(requests, width)


def per_node(info, width: int):
    """Sampling parameters with one row per node instead of one per request."""
    rows = {}
    for name in _PER_REQUEST:
        values = getattr(info, name)
        rows[name] = None if values is None else values.repeat_interleave(width, dim=0)
    return dataclasses.replace(info, **rows)
