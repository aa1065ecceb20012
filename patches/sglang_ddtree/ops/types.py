"""Results of the tree operations, and their allocation."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Tree(NamedTuple):
    """Draft trees of ``b`` requests, ``W`` nodes each; node 0 is the root and parent index < child index.

    token:  int64 ``[b, W]``
    parent: int32 ``[b, W]``, -1 for the root and for pads
    depth:  int32 ``[b, W]``, 0 for the root and for pads
    score:  float32 ``[b, W]``, cumulative log-probability; 0 for the root, -inf for pads
    """

    token: torch.Tensor
    parent: torch.Tensor
    depth: torch.Tensor
    score: torch.Tensor

    @classmethod
    def empty(cls, batch: int, width: int, device: torch.device | str) -> Tree:
        """Uninitialised trees, to be passed as ``out=``."""
        shape = (batch, width)
        return cls(
            token=torch.empty(shape, dtype=torch.int64, device=device),
            parent=torch.empty(shape, dtype=torch.int32, device=device),
            depth=torch.empty(shape, dtype=torch.int32, device=device),
            score=torch.empty(shape, dtype=torch.float32, device=device),
        )


class Accepted(NamedTuple):
    """Outcome of one verification of ``b`` requests with block size ``D``.

    index:        int32 ``[b, D]``, node at each depth of the accepted path, 0 first, -1 past its end
    commit_lens:  int32 ``[b]``, nodes on the path, the root included = tokens committed, the bonus included
    bonus:        int64 ``[b]``, the target's token after the path
    out_tokens:   int64 ``[b, D]``, accepted tokens, then the bonus, then zeros
    new_seq_lens: int64 ``[b]``, ``seq_lens + commit_lens``
    """

    index: torch.Tensor
    commit_lens: torch.Tensor
    bonus: torch.Tensor
    out_tokens: torch.Tensor
    new_seq_lens: torch.Tensor

    @classmethod
    def empty(cls, batch: int, block_size: int, device: torch.device | str) -> Accepted:
        """Uninitialised results, to be passed as ``out=``."""
        return cls(
            index=torch.empty((batch, block_size), dtype=torch.int32, device=device),
            commit_lens=torch.empty(batch, dtype=torch.int32, device=device),
            bonus=torch.empty(batch, dtype=torch.int64, device=device),
            out_tokens=torch.empty((batch, block_size), dtype=torch.int64, device=device),
            new_seq_lens=torch.empty(batch, dtype=torch.int64, device=device),
        )

    def rows(self, width: int) -> torch.Tensor:
        """Rows of the path's nodes among all nodes ``[b * W, ...]``; int64 ``[b, D]``, the root's past its end."""
        first = torch.arange(0, len(self.index) * width, width, device=self.index.device)
        return self.index.clamp(min=0).long() + first[:, None]


def empty_finalized(batch: int, width: int, device: torch.device | str) -> tuple[torch.Tensor, torch.Tensor]:
    """Uninitialised ``(positions, ancestors)`` of :func:`sglang_ddtree.ops.finalize`."""
    positions = torch.empty((batch, width), dtype=torch.int64, device=device)
    ancestors = torch.empty((batch, width, width), dtype=torch.bool, device=device)
    return positions, ancestors
