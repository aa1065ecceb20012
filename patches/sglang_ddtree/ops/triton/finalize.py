"""Positions and ancestor rows, a block of rows per program."""

# ruff: noqa: N803 - constants of a kernel are in capitals

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..types import Tree, empty_finalized
from .lanes import lane_count

ROWS = 16


@triton.jit
def _finalize_kernel(
    parent_ptr,
    depth_ptr,
    seq_len_ptr,
    position_ptr,
    ancestor_ptr,
    W: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, N)
    in_tree = row < W
    parents_ptr = parent_ptr + request * W
    node_at = request * W + row

    depth = tl.load(depth_ptr + node_at, mask=in_tree, other=0)
    seq_len = tl.load(seq_len_ptr + request).to(tl.int64)
    tl.store(position_ptr + node_at, seq_len + depth, mask=in_tree)

    node = row
    seen = node[:, None] == column[None, :]
    for _ in range(tl.max(depth, 0)):
        # At the root, at a pad and past the tree `node` becomes or stays -1, which is no column.
        node = tl.load(parents_ptr + node, mask=in_tree & (node >= 0), other=-1)
        seen = seen | (node[:, None] == column[None, :])
    at = node_at[:, None] * W + column[None, :]
    tl.store(ancestor_ptr + at, seen.to(tl.uint8), mask=in_tree[:, None] & (column < W)[None, :])


def finalize(
    tree: Tree,
    seq_lens: torch.Tensor,
    out: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`sglang_ddtree.ops.finalize`."""
    batch, width = tree.parent.shape
    positions, ancestors = empty_finalized(batch, width, tree.parent.device) if out is None else out
    _finalize_kernel[(batch, triton.cdiv(width, ROWS))](
        tree.parent,
        tree.depth,
        seq_lens,
        positions,
        ancestors.view(torch.uint8),
        W=width,
        N=lane_count(width),
        ROWS=ROWS,
        num_warps=4,
    )
    return positions, ancestors
