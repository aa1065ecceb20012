"""Walk of the target's tokens through the tree, one warp per request."""

# ruff: noqa: N803 - constants of a kernel are in capitals

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..types import Accepted, Tree
from .lanes import lane_count


@triton.jit
def _accept_kernel(
    token_ptr,
    parent_ptr,
    target_ptr,
    seq_len_ptr,
    index_ptr,
    commit_len_ptr,
    bonus_ptr,
    out_token_ptr,
    new_seq_len_ptr,
    W: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
    D_LANES: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, N)
    in_tree = lane < W
    choices_ptr = target_ptr + request * W
    token = tl.load(token_ptr + request * W + lane, mask=in_tree, other=0)
    parent = tl.load(parent_ptr + request * W + lane, mask=in_tree, other=-1)
    choice_above = tl.load(choices_ptr + parent, mask=parent >= 0, other=0).to(tl.int64)
    # The root and pads stay at -1, which no walk reaches.
    chosen_from = tl.where(token == choice_above, parent, -1)

    depth = tl.arange(0, D_LANES)
    index = tl.where(depth == 0, 0, -1)
    node = 0
    for step in range(1, D):
        # A finished walk is at node N, which has no children.
        node = tl.min(tl.where(chosen_from == node, lane, N), 0)
        index = tl.where((depth == step) & (node < N), node, index)

    on_path = index >= 0
    commit_len = tl.sum(on_path.to(tl.int32), 0)
    # The target's choice at a path node is the next node's token; at the last node it is the bonus.
    choice = tl.load(choices_ptr + index, mask=on_path, other=0).to(tl.int64)
    bonus = tl.sum(tl.where(depth == commit_len - 1, choice, 0), 0)
    seq_len = tl.load(seq_len_ptr + request).to(tl.int64)

    in_block = depth < D
    tl.store(index_ptr + request * D + depth, index, mask=in_block)
    tl.store(out_token_ptr + request * D + depth, choice, mask=in_block)
    tl.store(commit_len_ptr + request, commit_len)
    tl.store(bonus_ptr + request, bonus)
    tl.store(new_seq_len_ptr + request, seq_len + commit_len)


def accept(
    tree: Tree,
    target_tokens: torch.Tensor,
    seq_lens: torch.Tensor,
    block_size: int,
    out: Accepted | None = None,
) -> Accepted:
    """See :func:`sglang_ddtree.ops.accept`."""
    batch, width = tree.parent.shape
    out = Accepted.empty(batch, block_size, tree.parent.device) if out is None else out
    _accept_kernel[(batch,)](
        tree.token,
        tree.parent,
        target_tokens,
        seq_lens,
        out.index,
        out.commit_lens,
        out.bonus,
        out.out_tokens,
        out.new_seq_lens,
        W=width,
        N=lane_count(width),
        D=block_size,
        D_LANES=lane_count(block_size),
        num_warps=1,
    )
    return out
