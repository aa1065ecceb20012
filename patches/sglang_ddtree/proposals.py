"""The trees grown from the drafter's candidates, eager or inside the drafter's CUDA graph."""

import torch

from sglang_ddtree import ops
from sglang_ddtree.tensor_parallel import Head


class TreeProposer:
    """Grows trees into buffers of fixed address, so that it can be captured with the drafter's forward."""

    def __init__(self, head: Head, settings, max_requests: int):
        self.head = head
        self.settings = settings
        self.trees = ops.Tree.empty(max_requests, settings.width, head.weight.device)

    def __call__(self, hidden: torch.Tensor, input_ids: torch.Tensor) -> ops.Tree:
        """Trees of the drafter's blocks.

        Args:
            hidden: [b * D, H].
            input_ids: int64 [b * D], the root first in each block.
        """
        block = self.settings.block_size
        hidden = hidden.view(-1, block, hidden.shape[-1])[:, 1:]
        roots = input_ids.view(-1, block)[:, 0].contiguous()
        log_probs, token_ids = self.head.candidates(hidden, self.settings.top_k)
        return ops.build_tree(log_probs, token_ids, roots, self.settings.budget, out=self.first(roots.numel()))

    def first(self, requests: int) -> ops.Tree:
        """The trees of the last call's first requests."""
        return ops.Tree(*(part[:requests] for part in self.trees))
