"""Tree part of the flat verify mask."""

from __future__ import annotations

import torch


def write_mask_tails(
    mask: torch.Tensor,
    mask_indptr: torch.Tensor,
    seq_lens: torch.Tensor,
    ancestors: torch.Tensor,
    fill_prefix: bool = False,
) -> None:
    """See :func:`sglang_ddtree.ops.write_mask_tails`."""
    batch, width, _ = ancestors.shape
    device = ancestors.device
    mask = mask.view(torch.uint8)
    prefix = seq_lens.long()[:, None, None]
    nodes = torch.arange(width, device=device)
    row_start = mask_indptr[:batch].long()[:, None, None] + nodes[:, None] * (prefix + width)
    mask[row_start + prefix + nodes] = ancestors.view(torch.uint8)
    if fill_prefix:
        for starts, length in zip(row_start.flatten(1).tolist(), seq_lens.tolist(), strict=True):
            for start in starts:
                mask[start : start + length] = 1
