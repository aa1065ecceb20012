"""The drafter's candidates and the tree grown from them, eager or inside the drafter's CUDA graph."""

import torch

from sglang_ddtree import ops


def top_candidates(hidden: torch.Tensor, lm_head: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Candidates of each depth under the drafter's own marginal.

    Args:
        hidden: [b, L, H], the drafter's states after the root.
        lm_head: [V, H], the target's head, which the drafter borrows.
        top_k: K.

    Returns:
        log_probs: float32 [b, L, K], descending.
        token_ids: int64 [b, L, K].
    """
    logits = torch.matmul(hidden.to(lm_head.dtype), lm_head.T).float()
    values, ids = logits.topk(top_k, dim=-1)
    return values - logits.logsumexp(dim=-1, keepdim=True), ids


class TreeProposer:
    """Grows trees into buffers of fixed address, so that it can be captured with the drafter's forward."""

    def __init__(self, lm_head: torch.Tensor, settings, max_requests: int):
        self.lm_head = lm_head
        self.settings = settings
        self.trees = ops.Tree.empty(max_requests, settings.width, lm_head.device)

    def __call__(self, hidden: torch.Tensor, input_ids: torch.Tensor) -> ops.Tree:
        """Trees of the drafter's blocks.

        Args:
            hidden: [b * D, H].
            input_ids: int64 [b * D], the root first in each block.
        """
        block = self.settings.block_size
        hidden = hidden.view(-1, block, hidden.shape[-1])[:, 1:]
        roots = input_ids.view(-1, block)[:, 0].contiguous()
        log_probs, token_ids = top_candidates(hidden, self.lm_head, self.settings.top_k)
        return ops.build_tree(log_probs, token_ids, roots, self.settings.budget, out=self.first(roots.numel()))

    def first(self, requests: int) -> ops.Tree:
        """The trees of the last call's first requests."""
        return ops.Tree(*(part[:requests] for part in self.trees))
