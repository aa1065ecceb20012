"""Tree part of the flat verify mask, a block of rows per program."""

# ruff: noqa: N803 - constants of a kernel are in capitals

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .lanes import lane_count

ROWS = 8
PREFIX_BLOCK = 512


@triton.jit
def _mask_kernel(
    mask_ptr,
    indptr_ptr,
    seq_len_ptr,
    ancestor_ptr,
    W: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    FILL_PREFIX: tl.constexpr,
    PREFIX_BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, N)
    in_tree = row < W
    prefix = tl.load(seq_len_ptr + request).to(tl.int64)
    row_ptr = mask_ptr + tl.load(indptr_ptr + request).to(tl.int64) + row * (prefix + W)

    inside = in_tree[:, None] & (column < W)[None, :]
    ancestor_at = (request * W + row)[:, None] * W + column[None, :]
    ancestor = tl.load(ancestor_ptr + ancestor_at, mask=inside, other=0)
    tl.store(row_ptr[:, None] + prefix + column[None, :], ancestor, mask=inside)

    if FILL_PREFIX:
        ones = tl.full([ROWS, PREFIX_BLOCK], 1, tl.uint8)
        for start in range(0, prefix, PREFIX_BLOCK):
            at = start + tl.arange(0, PREFIX_BLOCK)
            tl.store(row_ptr[:, None] + at[None, :], ones, mask=in_tree[:, None] & (at < prefix)[None, :])


def write_mask_tails(
    mask: torch.Tensor,
    mask_indptr: torch.Tensor,
    seq_lens: torch.Tensor,
    ancestors: torch.Tensor,
    fill_prefix: bool = False,
) -> None:
    """See :func:`sglang_ddtree.ops.write_mask_tails`."""
    batch, width, _ = ancestors.shape
    _mask_kernel[(batch, triton.cdiv(width, ROWS))](
        mask.view(torch.uint8),
        mask_indptr,
        seq_lens,
        ancestors.view(torch.uint8),
        W=width,
        N=lane_count(width),
        ROWS=ROWS,
        FILL_PREFIX=fill_prefix,
        PREFIX_BLOCK=PREFIX_BLOCK,
        num_warps=4,
    )
