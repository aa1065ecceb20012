"""Positions and ancestor rows of a tree."""

from __future__ import annotations

import torch

from ..types import Tree, empty_finalized


def finalize(
    tree: Tree,
    seq_lens: torch.Tensor,
    out: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`sglang_ddtree.ops.finalize`."""
    batch, width = tree.parent.shape
    device = tree.parent.device
    positions, ancestors = empty_finalized(batch, width, device) if out is None else out
    torch.add(seq_lens[:, None], tree.depth, out=positions)

    nodes = torch.arange(width, device=device)
    seen = ancestors.view(torch.uint8)
    seen.copy_(nodes[:, None] == nodes)
    parent = tree.parent.long()
    above = parent
    while bool((above >= 0).any()):
        seen |= above[:, :, None] == nodes
        # A finished walk stays at -1.
        above = torch.where(above >= 0, parent.gather(1, above.clamp(min=0)), above)
    return positions, ancestors
