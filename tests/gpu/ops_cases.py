"""Seeded random inputs of the tree operations, shared by the kernel tests and the benchmark."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sglang_ddtree.ops import Tree

KINDS = ("smooth", "smooth", "ties", "ties", "short", "short", "dead", "nan")


@dataclass(frozen=True)
class Draft:
    """Drafter output: ``log_probs`` and ``token_ids`` ``[b, L, K]``, ``root_ids`` ``[b]``."""

    log_probs: torch.Tensor
    token_ids: torch.Tensor
    root_ids: torch.Tensor


def draft(rng: torch.Generator, batch: int, depths: int, topk: int) -> Draft:
    """A draft on CPU whose requests are each of a random kind.

    smooth: distinct log-probabilities; ties: coarse ones, so that most comparisons tie; short: each depth's
    list ends early in -inf; dead: nothing but -inf; nan: one entry is NaN.
    """
    log_probs = torch.randn(batch, depths, topk + 3, generator=rng).mul(2).log_softmax(-1)
    log_probs = log_probs.sort(-1, descending=True).values[..., :topk].contiguous()
    kinds = torch.randint(0, len(KINDS), (batch,), generator=rng).tolist()
    for table, name in zip(log_probs, (KINDS[kind] for kind in kinds), strict=True):
        if name == "ties":
            table.mul_(2).round_().div_(2)
        elif name == "short":
            kept = torch.randint(0, topk + 1, (depths, 1), generator=rng)
            table.masked_fill_(torch.arange(topk) >= kept, -torch.inf)
        elif name == "dead":
            table.fill_(-torch.inf)
        elif name == "nan":
            table[-1, -1] = torch.nan
    token_ids = torch.rand(batch, depths, 64 + topk, generator=rng).argsort(-1)[..., :topk].contiguous()
    return Draft(log_probs, token_ids, torch.randint(0, 64, (batch,), generator=rng))


def target_tokens(rng: torch.Generator, tree: Tree, follow: float = 0.8) -> torch.Tensor:
    """int64 ``[b, W]``: at each node the token of a child, of each with probability ``follow``, else any."""
    batch, width = tree.token.shape
    chosen = torch.randint(0, 64, (batch, width), generator=rng)
    # The child written last wins; the order is random, so that the choice is not always the first child.
    for node in (torch.randperm(width - 1, generator=rng) + 1).tolist():
        parent = tree.parent[:, node].long()
        taken = ((parent >= 0) & (torch.rand(batch, generator=rng) < follow)).nonzero()[:, 0]
        chosen[taken, parent[taken]] = tree.token[taken, node]
    return chosen


def mask_indptr(seq_lens: torch.Tensor, width: int) -> torch.Tensor:
    """int64 ``[b + 1]``: offsets of the requests' masks, one after the other."""
    sizes = width * (seq_lens.long() + width)
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def accepted_paths(rng: torch.Generator, batch: int, width: int, block_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """``index`` int32 ``[b, D]`` and ``commit_lens`` int32 ``[b]`` of random strictly increasing paths."""
    longest = min(width, block_size)
    commit_lens = torch.randint(1, longest + 1, (batch,), generator=rng)
    index = torch.full((batch, block_size), -1)
    for request, length in enumerate(commit_lens.tolist()):
        # Half of the paths lie close together, so that rows written are rows read one step before.
        span = width if request % 2 else min(width, length + 1)
        nodes = torch.randperm(span - 1, generator=rng)[: length - 1].sort().values + 1
        index[request, 0] = 0
        index[request, 1:length] = nodes
    return index.int(), commit_lens.int()


def scattered_slots(rng: torch.Generator, batch: int, width: int, slots: int) -> torch.Tensor:
    """int64 ``[b, W]``: distinct slots in random order."""
    return torch.randperm(slots, generator=rng)[: batch * width].reshape(batch, width)
