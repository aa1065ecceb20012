"""Constrained output: each node's choice is limited by the grammar's state after the node's own path.

Grammars live on the host, so a step with one waits for the drafter's tokens. The copy starts before the verify
pass and the masks are filled while it runs; steps without a grammar never come here.
"""

import torch


class TreeOnHost:
    """Host copy of a batch's trees, started at once and waited for when it is read."""

    def __init__(self, tree):
        self.parts = [_to_host(part) for part in (tree.token, tree.parent)]
        self.done = torch.cuda.Event() if tree.token.is_cuda else None
        if self.done:
            self.done.record()

    def lists(self) -> tuple[list[list[int]], list[list[int]]]:
        """Tokens and parents of each request's nodes."""
        if self.done:
            self.done.synchronize()
        tokens, parents = (part.tolist() for part in self.parts)
        return tokens, parents


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cuda:
        return tensor
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)


class GrammarMask:
    """Which tokens each node may choose, packed 32 to an integer; `apply` forbids the others."""

    def __init__(self, grammars, tree: TreeOnHost, vocab_size: int):
        """
        Args:
            grammars: one per request, in the state after its root; None where a request has none. At least one
                is not None.
            tree: the trees of the same requests.
            vocab_size: V.
        """
        tokens, parents = tree.lists()
        self.grammar = next(grammar for grammar in grammars if grammar is not None)
        width = len(tokens[0])
        self.bits = self.grammar.allocate_vocab_mask(vocab_size, batch_size=len(tokens) * width, device="cpu")
        for request, grammar in enumerate(grammars):
            if grammar is not None:
                rows = self.bits[request * width : (request + 1) * width]
                _fill(grammar, tokens[request], _children(parents[request]), rows)

    def apply(self, logits: torch.Tensor) -> None:
        """Forbid in place; `logits` [b, W, V] contiguous."""
        bits = self.bits.to(logits.device, non_blocking=True)
        self.grammar.apply_vocab_mask(logits=logits.view(-1, logits.shape[-1]), vocab_mask=bits)


def _children(parents: list[int]) -> list[list[int]]:
    children = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    return children


def _fill(grammar, tokens: list[int], children: list[list[int]], rows: torch.Tensor) -> None:
    """Fill the rows of all nodes that the grammar can reach, and leave the grammar as it was.

    Rows of the others and of nodes at which the grammar has ended stay as allocated: everything is allowed.
    """
    words = rows.numpy()

    def visit(node: int) -> None:
        if grammar.is_terminated():
            return
        grammar.fill_vocab_mask(rows, node)
        for child in children[node]:
            token = tokens[child]
            if int(words[node, token >> 5]) >> (token & 31) & 1:
                grammar.accept_token(token)
                visit(child)
                grammar.rollback(1)

    visit(0)
