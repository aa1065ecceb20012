"""Best-first tree construction, vectorised over the batch."""

from __future__ import annotations

import torch

from ..types import Tree


def build_tree(
    log_probs: torch.Tensor,
    token_ids: torch.Tensor,
    root_ids: torch.Tensor,
    budget: int,
    out: Tree | None = None,
) -> Tree:
    """See :func:`sglang_ddtree.ops.build_tree`."""
    batch, _, topk = log_probs.shape
    width = budget + 1
    device = log_probs.device
    out = Tree.empty(batch, width, device) if out is None else out
    table, stride = _padded_table(log_probs), topk + 1

    out.parent.fill_(-1)
    out.depth.zero_()
    out.score.fill_(-torch.inf)
    out.score[:, 0] = 0.0
    candidate = torch.full_like(out.score, -torch.inf)
    candidate[:, :1] = out.score[:, :1] + table[:, :1]
    next_rank = torch.zeros((batch, width), dtype=torch.int64, device=device)
    rank = torch.zeros_like(next_rank)
    older_first = torch.arange(width - 1, -1, -1, device=device)

    for node in range(1, width):
        key = (_ordered(candidate) << 32) + older_first
        parent = key.argmax(1, keepdim=True)
        score = candidate.gather(1, parent)
        row = out.depth.gather(1, parent).long()
        column = next_rank.gather(1, parent)
        live = score > -torch.inf

        out.parent[:, node : node + 1] = torch.where(live, parent, -1)
        out.depth[:, node : node + 1] = torch.where(live, row + 1, 0)
        out.score[:, node : node + 1] = score
        rank[:, node : node + 1] = column

        # Column K of row 0 is padding: an exhausted frontier must stay exhausted.
        sibling = torch.where(live, row * stride + column + 1, topk)
        child = torch.where(live, (row + 1) * stride, topk)
        candidate.scatter_(1, parent, out.score.gather(1, parent) + table.gather(1, sibling))
        candidate[:, node : node + 1] = score + table.gather(1, child)
        next_rank.scatter_(1, parent, column + 1)

    out.token.copy_(_tokens(out, rank, token_ids, root_ids))
    return out


def _padded_table(log_probs: torch.Tensor) -> torch.Tensor:
    """Log-probabilities with one more row and column of -inf, so that no look-up leaves the table."""
    usable = (log_probs < torch.inf).flatten(1).all(1)
    usable_log_probs = log_probs.masked_fill(~usable[:, None, None], -torch.inf)
    return torch.nn.functional.pad(usable_log_probs, (0, 1, 0, 1), value=-torch.inf).flatten(1)


def _ordered(values: torch.Tensor) -> torch.Tensor:
    """Signed integers that sort as the float32 values do."""
    bits = values.view(torch.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()


def _tokens(tree: Tree, rank: torch.Tensor, token_ids: torch.Tensor, root_ids: torch.Tensor) -> torch.Tensor:
    linked = tree.parent >= 0
    place = (tree.depth.long() - 1) * token_ids.shape[2] + rank
    drafted = token_ids.flatten(1).gather(1, place.where(linked, torch.zeros_like(place)))
    return torch.where(linked, drafted, root_ids[:, None])
