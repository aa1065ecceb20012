"""Best-first tree construction, one warp per request."""

# ruff: noqa: N803 - constants of a kernel are in capitals

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..types import Tree
from .lanes import lane_count

ORDER_OF_DEAD = tl.constexpr(-0x7F800001)  # _flip of the bits of -inf


@triton.jit
def _flip(bits):
    # Maps float32 bits to int32 that sort as the floats do, and back.
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _table_is_usable(table_ptr, SIZE: tl.constexpr):
    # Also brings the whole table into the L1 cache, before the dependent look-ups of the loop need it.
    unusable = tl.zeros([128], tl.int32)
    for start in range(0, SIZE, 128):
        at = start + tl.arange(0, 128)
        value = tl.load(table_ptr + at, mask=at < SIZE, other=0.0)
        unusable = tl.where(value < float("inf"), unusable, 1)
    return tl.max(unusable, 0) == 0


@triton.jit
def _build_kernel(
    log_prob_ptr,
    token_id_ptr,
    root_ptr,
    token_ptr,
    parent_ptr,
    depth_ptr,
    score_ptr,
    L: tl.constexpr,
    K: tl.constexpr,
    W: tl.constexpr,
    N: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    table_ptr = log_prob_ptr + request * (L * K)
    dead = float("-inf")
    lane = tl.arange(0, N)

    # Lane = node; `candidate` is the score of its first child that is not yet linked, `next_rank` that rank.
    parent = tl.full([N], -1, tl.int32)
    depth = tl.zeros([N], tl.int32)
    rank = tl.zeros([N], tl.int32)
    next_rank = tl.zeros([N], tl.int32)
    score = tl.where(lane == 0, 0.0, dead)
    usable = _table_is_usable(table_ptr, L * K)
    candidate = tl.where((lane == 0) & usable, score + tl.load(table_ptr), dead)

    for node in range(1, W):
        # The maximum of the 64-bit key (score, older lane, ...), as two 32-bit reductions of the hardware.
        order = _flip(candidate.to(tl.int32, bitcast=True))
        best = tl.max(order, 0)
        payload = ((N - 1 - lane) << 16) | (depth << 8) | next_rank
        pick = tl.max(tl.where(order == best, payload, -1), 0)
        from_lane = N - 1 - (pick >> 16)
        row = (pick >> 8) & 255
        column = pick & 255
        best_score = _flip(best).to(tl.float32, bitcast=True)
        live = best > ORDER_OF_DEAD

        has_sibling = live & (column + 1 < K)
        has_child = live & (row + 1 < L)
        sibling = tl.load(table_ptr + row * K + column + 1, mask=has_sibling, other=dead)
        child = tl.load(table_ptr + (row + 1) * K, mask=has_child, other=dead)

        is_parent = live & (lane == from_lane)
        candidate = tl.where(is_parent, score + sibling, candidate)
        next_rank = tl.where(is_parent, column + 1, next_rank)

        is_new = live & (lane == node)
        parent = tl.where(is_new, from_lane, parent)
        depth = tl.where(is_new, row + 1, depth)
        rank = tl.where(is_new, column, rank)
        score = tl.where(is_new, best_score, score)
        candidate = tl.where(is_new, best_score + child, candidate)

    linked = parent >= 0
    drafted = tl.load(token_id_ptr + request * (L * K) + (depth - 1) * K + rank, mask=linked, other=0)
    token = tl.where(linked, drafted, tl.load(root_ptr + request))
    at = request * W + lane
    in_tree = lane < W
    tl.store(token_ptr + at, token, mask=in_tree)
    tl.store(parent_ptr + at, parent, mask=in_tree)
    tl.store(depth_ptr + at, depth, mask=in_tree)
    tl.store(score_ptr + at, score, mask=in_tree)


def build_tree(
    log_probs: torch.Tensor,
    token_ids: torch.Tensor,
    root_ids: torch.Tensor,
    budget: int,
    out: Tree | None = None,
) -> Tree:
    """See :func:`sglang_ddtree.ops.build_tree`."""
    batch, depths, topk = log_probs.shape
    width = budget + 1
    out = Tree.empty(batch, width, log_probs.device) if out is None else out
    _build_kernel[(batch,)](
        log_probs,
        token_ids,
        root_ids,
        out.token,
        out.parent,
        out.depth,
        out.score,
        L=depths,
        K=topk,
        W=width,
        N=lane_count(width),
        num_warps=1,
    )
    return out
