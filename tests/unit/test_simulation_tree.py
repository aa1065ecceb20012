"""The simulation's tree builder against brute force."""

import itertools
import math
import random

import pytest

from tests.simulation.tree import Node, best_first_tree


def random_marginals(rng: random.Random, depth: int, top_k: int) -> list[list[float]]:
    """Log-probabilities [depth][top_k] of a drafter that leaves some mass outside its top-k."""
    rows = []
    for _ in range(depth):
        weights = [rng.expovariate(1.0) ** 2 + 1e-9 for _ in range(top_k + 2)]
        rows.append(sorted((math.log(w / sum(weights)) for w in weights), reverse=True)[:top_k])
    return rows


def path(nodes: list[Node], index: int) -> tuple[int, ...]:
    ranks = []
    while index:
        ranks.append(nodes[index].rank)
        index = nodes[index].parent
    return tuple(reversed(ranks))


def best_paths(marginals: list[list[float]], budget: int) -> list[tuple[int, ...]]:
    """The most probable paths of any depth, best first, by looking at all of them."""
    paths = []
    for depth in range(1, len(marginals) + 1):
        paths += itertools.product(*(range(len(row)) for row in marginals[:depth]))
    paths.sort(key=lambda ranks: -sum(row[r] for row, r in zip(marginals, ranks, strict=False)))
    return paths[:budget]


SHAPES = [(1, 1), (1, 4), (2, 2), (3, 3), (4, 2), (4, 3), (5, 2)]


@pytest.mark.parametrize(("depth", "top_k"), SHAPES)
def test_tree_is_the_best_paths_in_order(depth, top_k):
    rng = random.Random(depth * 10 + top_k)
    for _ in range(10):
        marginals = random_marginals(rng, depth, top_k)
        for budget in (1, 2, 3, 7, 8, 15, 16, 31):
            nodes = best_first_tree(marginals, budget)
            assert [path(nodes, i) for i in range(1, len(nodes))] == best_paths(marginals, budget)


@pytest.mark.parametrize("seed", range(3))
def test_smaller_budget_is_a_prefix(seed):
    marginals = random_marginals(random.Random(seed), depth=7, top_k=8)
    largest = best_first_tree(marginals, 64)
    for budget in range(1, 64):
        assert best_first_tree(marginals, budget) == largest[: budget + 1]


@pytest.mark.parametrize("seed", range(3))
def test_nodes_are_well_formed(seed):
    marginals = random_marginals(random.Random(seed), depth=7, top_k=4)
    nodes = best_first_tree(marginals, 31)
    assert nodes[0] == Node(parent=-1, depth=0, rank=0, score=0.0)
    assert len(nodes) == 32
    for index, node in enumerate(nodes[1:], start=1):
        assert 0 <= node.parent < index
        assert node.depth == nodes[node.parent].depth + 1
        assert node.score == pytest.approx(nodes[node.parent].score + marginals[node.depth - 1][node.rank])


def test_one_candidate_per_depth_is_the_chain():
    nodes = best_first_tree([[-0.5], [-2.0], [-0.1]], budget=8)
    assert [(n.parent, n.depth, n.rank) for n in nodes[1:]] == [(0, 1, 0), (1, 2, 0), (2, 3, 0)]


def test_ends_when_every_path_is_taken():
    assert len(best_first_tree([[-1.0, -2.0], [-1.0, -2.0]], budget=100)) == 1 + 2 + 4


def test_of_equal_scores_the_child_of_the_older_node_is_first():
    # Behind node 1 the root's second child and node 1's first child both score -2.
    nodes = best_first_tree([[-1.0, -2.0], [-1.0, -1.5]], budget=3)
    assert [(n.parent, n.rank) for n in nodes[1:]] == [(0, 0), (0, 1), (1, 0)]


def test_rows_need_not_be_of_one_length():
    nodes = best_first_tree([[-0.1, -3.0, -3.5], [-0.2]], budget=5)
    assert [path(nodes, i) for i in range(1, 6)] == [(0,), (0, 0), (1,), (1, 0), (2,)]
