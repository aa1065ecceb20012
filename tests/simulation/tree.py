"""The draft tree as a best-first search over per-depth candidates, in plain Python."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

ROOT = 0


class Node(NamedTuple):
    """Index of the parent, depth (root 0), rank among the depth's candidates, log-probability of the path."""

    parent: int
    depth: int
    rank: int
    score: float


def best_first_tree(logprobs: Sequence[Sequence[float]], budget: int) -> list[Node]:
    """The `budget` most probable paths of a product of per-depth marginals.

    `logprobs[d][r]` is the log-probability of the candidate of rank `r` at depth `d + 1`, each row sorted
    downwards. Returns the root followed by at most `budget` nodes in the order they were taken (fewer only
    when the candidates form a smaller tree). A smaller budget gives a prefix of the same list. Of equal
    scores the child of the older node is taken first.
    """
    nodes = [Node(parent=-1, depth=0, rank=0, score=0.0)]
    # Each node waits with one candidate only, its next untaken child: a lower rank cannot score higher.
    frontier = [(-logprobs[0][0], ROOT, 0)]
    while frontier and len(nodes) <= budget:
        negated, parent, rank = heapq.heappop(frontier)
        depth = nodes[parent].depth + 1
        siblings = logprobs[depth - 1]
        nodes.append(Node(parent, depth, rank, -negated))
        if rank + 1 < len(siblings):
            heapq.heappush(frontier, (-(nodes[parent].score + siblings[rank + 1]), parent, rank + 1))
        if depth < len(logprobs):
            heapq.heappush(frontier, (negated - logprobs[depth][0], len(nodes) - 1, 0))
    return nodes
