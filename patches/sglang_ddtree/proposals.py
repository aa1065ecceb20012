"""The trees grown from the drafter's candidates, eager or inside the drafter's CUDA graph."""

import torch

from sglang_ddtree import ops
from sglang_ddtree.tensor_parallel import Head
from sglang_ddtree.tiers import CHAIN


class TreeProposer:
    """Grows trees into buffers of fixed address, so that it can be captured with the drafter's forward.

    The buffers hold the largest tree, the chain where a tier verifies it, and the root alone.
    """

    def __init__(self, head: Head, settings, max_requests: int):
        self.head = head
        self.settings = settings
        device = head.weight.device
        self.trees = ops.Tree.empty(max_requests, settings.width, device)
        self.chains = path(max_requests, settings.block_size, device)
        self.roots = path(max_requests, 1, device)
        self.has_chain = any(tier.name == CHAIN for tier in settings.tiers())

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
        requests = roots.numel()
        if self.has_chain:
            self.chains.token[:requests, 0] = roots
            self.chains.token[:requests, 1:] = token_ids[:, :, 0]
        return ops.build_tree(log_probs, token_ids, roots, self.settings.budget, out=_first(self.trees, requests))

    def tree(self, tier, requests: int) -> ops.Tree:
        """What a tier verifies of the last call's first requests."""
        if not tier.is_tree:
            return _first(self.chains, requests)
        tree = _first(self.trees, requests)
        if tier.shape.width == self.settings.width:
            return tree
        # Nodes are in the order of linking, so the tree of a smaller budget comes first in the larger one.
        return ops.Tree(*(part[:, : tier.shape.width].contiguous() for part in tree))

    def root(self, tokens: torch.Tensor) -> ops.Tree:
        """Trees that are only their root, int64 [b]."""
        return _first(self.roots, tokens.numel())._replace(token=tokens[:, None])


def path(requests: int, length: int, device) -> ops.Tree:
    """Trees without branches; their tokens are not set."""
    path = ops.Tree.empty(requests, length, device)
    path.depth.copy_(torch.arange(length, device=device))
    torch.sub(path.depth, 1, out=path.parent)
    path.score.zero_()
    return path


def _first(tree: ops.Tree, requests: int) -> ops.Tree:
    return ops.Tree(*(part[:requests] for part in tree))
