"""The tree builder against a heap, and the properties that the engine relies on."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
import pytest
import torch
from sglang_ddtree.ops import Tree, build_tree

SHAPES = [(1, 1, 1), (1, 5, 5), (7, 1, 7), (7, 8, 3), (7, 8, 16), (15, 8, 63), (5, 3, 127), (3, 13, 40)]


def draft(seed: int, batch: int, depths: int, topk: int, grain: float | None = None):
    rng = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(batch, depths, topk + 2, generator=rng).log_softmax(-1)
    log_probs = log_probs.sort(-1, descending=True).values[..., :topk].contiguous()
    if grain:
        log_probs = (log_probs / grain).round() * grain
    token_ids = torch.rand(batch, depths, 100, generator=rng).argsort(-1)[..., :topk].contiguous()
    return log_probs, token_ids, torch.randint(0, 100, (batch,), generator=rng)


def heap_tree(log_probs, token_ids, root: int, budget: int):
    """One request by a heap of (score, parent), in float32: lists of token, parent, depth and score."""
    depths, topk = log_probs.shape
    table = log_probs.numpy()
    nodes = [(root, -1, 0, np.float32(0))]
    heap = []

    def offer(parent: int, rank: int):
        _, _, depth, score = nodes[parent]
        if depth < depths and rank < topk and table[depth, rank] > -np.inf:
            candidate = np.float32(score + table[depth, rank])
            heapq.heappush(heap, (-candidate, parent, rank))

    offer(0, 0)
    while heap and len(nodes) <= budget:
        cost, parent, rank = heapq.heappop(heap)
        depth = nodes[parent][2]
        nodes.append((int(token_ids[depth, rank]), parent, depth + 1, -cost))
        offer(parent, rank + 1)
        offer(len(nodes) - 1, 0)
    nodes += [(root, -1, 0, -np.inf)] * (budget + 1 - len(nodes))
    return zip(*nodes, strict=True)


def assert_equals_heap(tree: Tree, log_probs, token_ids, root_ids, budget: int):
    for request in range(len(root_ids)):
        expected = heap_tree(log_probs[request], token_ids[request], int(root_ids[request]), budget)
        for name, got, want in zip(Tree._fields, tree, expected, strict=True):
            assert got[request].tolist() == [float(x) if name == "score" else x for x in want], (
                request,
                name,
            )


@pytest.mark.parametrize(("depths", "topk", "budget"), SHAPES)
@pytest.mark.parametrize("grain", [None, 0.5], ids=["distinct", "ties"])
def test_equals_the_heap(depths, topk, budget, grain):
    inputs = draft(budget, 12, depths, topk, grain)
    assert_equals_heap(build_tree(*inputs, budget), *inputs, budget)


@pytest.mark.parametrize("batch", [1, 2, 3, 31, 160])
def test_requests_do_not_influence_each_other(batch):
    log_probs, token_ids, root_ids = draft(batch, batch, 7, 8)
    tree = build_tree(log_probs, token_ids, root_ids, 16)
    for request in {0, batch // 2, batch - 1}:
        one = slice(request, request + 1)
        alone = build_tree(log_probs[one], token_ids[one], root_ids[one], 16)
        assert all(torch.equal(field[one], expected) for field, expected in zip(tree, alone, strict=True))


def test_an_empty_batch_has_an_empty_tree():
    tree = build_tree(torch.empty(0, 7, 8), torch.empty(0, 7, 8).long(), torch.empty(0).long(), 16)
    assert tree.token.shape == (0, 17)


@pytest.mark.parametrize("grain", [None, 0.5], ids=["distinct", "ties"])
def test_a_smaller_budget_gives_a_prefix(grain):
    inputs = draft(1, 8, 7, 8, grain)
    large = build_tree(*inputs, 127)
    for budget in (1, 5, 16, 31, 63):
        small = build_tree(*inputs, budget)
        assert all(torch.equal(s, big[:, : budget + 1]) for s, big in zip(small, large, strict=True))


@pytest.mark.parametrize("grain", [None, 0.5], ids=["distinct", "ties"])
def test_a_parent_precedes_its_children_one_depth_above(grain):
    tree = build_tree(*draft(2, 50, 7, 8, grain), 63)
    nodes = torch.arange(1, 64)
    parent = tree.parent[:, 1:].long()
    assert bool(((parent >= 0) & (parent < nodes)).all())
    assert torch.equal(tree.depth[:, 1:], tree.depth.gather(1, parent) + 1)


def test_the_nodes_are_the_most_likely_paths():
    log_probs, token_ids, root_ids = draft(3, 20, 4, 4)
    tree = build_tree(log_probs, token_ids, root_ids, 30)
    for request in range(20):
        scores = []
        for length in range(1, 5):
            for path in itertools.product(range(4), repeat=length):
                score = np.float32(0)
                for depth, rank in enumerate(path):
                    score += log_probs[request, depth, rank].numpy()
                scores.append(float(score))
        assert tree.score[request, 1:].tolist() == sorted(scores, reverse=True)[:30]


def test_siblings_carry_distinct_tokens():
    tree = build_tree(*draft(4, 10, 7, 8), 63)
    for parents, tokens in zip(tree.parent.tolist(), tree.token.tolist(), strict=True):
        assert len(set(zip(parents, tokens, strict=True))) == 64


def test_ties_go_to_the_older_parent():
    # All paths score 0, so that only the age of the parent decides.
    tree = build_tree(torch.zeros(1, 3, 2), torch.tensor([[[1, 2], [3, 4], [5, 6]]]), torch.tensor([9]), 9)
    assert tree.parent.tolist() == [[-1, 0, 0, 1, 1, 2, 2, 3, 3, 4]]
    assert tree.token.tolist() == [[9, 1, 2, 3, 4, 3, 4, 5, 6, 5]]


def test_top_1_is_the_chain():
    log_probs, token_ids, root_ids = draft(5, 4, 7, 1)
    tree = build_tree(log_probs, token_ids, root_ids, 10)
    assert tree.parent.tolist() == [[-1, 0, 1, 2, 3, 4, 5, 6, -1, -1, -1]] * 4
    assert torch.equal(tree.token[:, 1:8], token_ids[:, :, 0])


def test_slots_without_a_candidate_are_pads():
    log_probs = torch.full((1, 2, 3), -torch.inf)
    log_probs[0, 0, :2] = torch.tensor([-1.0, -2.0])
    tree = build_tree(log_probs, torch.arange(6).reshape(1, 2, 3), torch.tensor([42]), 4)
    assert tree.token.tolist() == [[42, 0, 1, 42, 42]]
    assert tree.parent.tolist() == [[-1, 0, 0, -1, -1]]
    assert tree.depth.tolist() == [[0, 1, 1, 0, 0]]
    assert tree.score.tolist() == [[0.0, -1.0, -2.0, -torch.inf, -torch.inf]]


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_a_poisoned_request_has_pads_only_and_harms_no_other(poison):
    log_probs, token_ids, root_ids = draft(6, 3, 7, 8)
    expected = build_tree(log_probs, token_ids, root_ids, 16)
    log_probs[1, 6, 7] = poison
    tree = build_tree(log_probs, token_ids, root_ids, 16)
    assert tree.parent[1].tolist() == [-1] * 17
    assert tree.score[1].tolist() == [0.0] + [-torch.inf] * 16
    for field, want in zip(tree, expected, strict=True):
        assert torch.equal(field[0], want[0])
        assert torch.equal(field[2], want[2])


def test_out_is_written_and_returned():
    inputs = draft(7, 5, 7, 8)
    out = Tree.empty(5, 17, "cpu")
    for field in out:
        field.fill_(77)
    assert build_tree(*inputs, 16, out=out) is out
    assert all(torch.equal(got, want) for got, want in zip(out, build_tree(*inputs, 16), strict=True))


@pytest.mark.parametrize("budget", [0, 256])
def test_a_budget_out_of_range_is_refused(budget):
    with pytest.raises(ValueError, match="budget is"):
        build_tree(*draft(8, 1, 7, 8), budget)


def test_a_table_of_the_wrong_kind_is_refused():
    log_probs, token_ids, root_ids = draft(9, 2, 7, 8)
    with pytest.raises(ValueError, match="float32 and int64"):
        build_tree(log_probs.double(), token_ids, root_ids, 8)
    with pytest.raises(ValueError, match="shapes"):
        build_tree(log_probs, token_ids[:, :-1], root_ids, 8)
    with pytest.raises(ValueError, match="log_probs is not contiguous"):
        build_tree(log_probs.transpose(0, 1), token_ids.transpose(0, 1), root_ids, 8)
    with pytest.raises(ValueError, match=r"top-k of 1\.\.255"):
        build_tree(torch.zeros(1, 1, 256), torch.zeros(1, 1, 256).long(), root_ids[:1], 8)
