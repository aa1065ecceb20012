"""Walk of the target's tokens through the tree."""

from __future__ import annotations

import torch

from ..types import Accepted, Tree


def accept(
    tree: Tree,
    target_tokens: torch.Tensor,
    seq_lens: torch.Tensor,
    block_size: int,
    out: Accepted | None = None,
) -> Accepted:
    """See :func:`sglang_ddtree.ops.accept`."""
    batch, width = tree.parent.shape
    device = tree.parent.device
    out = Accepted.empty(batch, block_size, device) if out is None else out
    nodes = torch.arange(width, device=device)
    parent = tree.parent.long()
    # The parent of the root and of pads is -1, which no walk reaches.
    chosen = tree.token == target_tokens.gather(1, parent.clamp(min=0))

    out.index.fill_(-1)
    out.index[:, 0] = 0
    node = torch.zeros(batch, dtype=torch.int64, device=device)
    for depth in range(1, block_size):
        children = chosen & (parent == node[:, None])
        # A finished walk is at node W, which has no children.
        node = torch.where(children, nodes, width).amin(1)
        out.index[:, depth] = torch.where(node < width, node, -1)

    on_path = out.index >= 0
    torch.sum(on_path, 1, dtype=torch.int32, out=out.commit_lens)
    # The target's choice at a path node is the next node's token; at the last node it is the bonus.
    choices = target_tokens.gather(1, out.index.clamp(min=0).long())
    out.out_tokens.copy_(choices.where(on_path, torch.zeros_like(choices)))
    out.bonus.copy_(out.out_tokens.gather(1, out.commit_lens[:, None].long() - 1)[:, 0])
    torch.add(seq_lens, out.commit_lens, out=out.new_seq_lens)
    return out
