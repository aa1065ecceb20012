"""The accept walk against a walk by hand."""

from __future__ import annotations

import pytest
import torch
from sglang_ddtree.ops import Accepted, Tree, accept, build_tree


def random_case(seed: int, batch: int, depths: int, topk: int, budget: int):
    """Trees over a vocabulary of 12 tokens and target choices that the trees often hold."""
    rng = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(batch, depths, 12, generator=rng).log_softmax(-1)
    log_probs, token_ids = (x[..., :topk].contiguous() for x in log_probs.sort(-1, descending=True))
    tree = build_tree(log_probs, token_ids, torch.zeros(batch, dtype=torch.int64), budget)
    target = torch.randint(0, 12, (batch, budget + 1), generator=rng)
    for request, parents in enumerate(tree.parent.tolist()):
        for node in range(budget, 0, -1):
            if parents[node] >= 0 and torch.rand((), generator=rng) < 0.7:
                target[request, parents[node]] = tree.token[request, node]
    return tree, target, torch.randint(1, 1000, (batch,), generator=rng)


def walk(tree: Tree, target: torch.Tensor, request: int, block_size: int) -> list[int]:
    path = [0]
    while len(path) < block_size:
        wanted = int(target[request, path[-1]])
        children = [
            node
            for node in range(tree.token.shape[1])
            if int(tree.parent[request, node]) == path[-1] and int(tree.token[request, node]) == wanted
        ]
        if not children:
            break
        path.append(children[0])
    return path


def assert_path(result: Accepted, request: int, path: list[int], target, seq_lens, block_size: int):
    tokens = [int(target[request, node]) for node in path]
    rest = block_size - len(path)
    assert result.index[request].tolist() == path + [-1] * rest
    assert result.commit_lens[request] == len(path)
    assert result.bonus[request] == tokens[-1]
    assert result.out_tokens[request].tolist() == tokens + [0] * rest
    assert result.new_seq_lens[request] == seq_lens[request] + len(path)


@pytest.mark.parametrize(
    ("depths", "topk", "budget"), [(1, 4, 3), (7, 8, 8), (7, 1, 12), (15, 4, 5), (15, 8, 63), (4, 3, 100)]
)
def test_equals_a_walk_by_hand(depths, topk, budget):
    tree, target, seq_lens = random_case(budget, 40, depths, topk, budget)
    result = accept(tree, target, seq_lens, depths + 1)
    lengths = set()
    for request in range(40):
        path = walk(tree, target, request, depths + 1)
        assert_path(result, request, path, target, seq_lens, depths + 1)
        lengths.add(len(path))
    assert max(lengths) > 1  # else the case would show nothing


def test_a_whole_chain_is_accepted():
    tokens = torch.arange(1, 8).reshape(1, 7, 1)
    tree = build_tree(torch.zeros(1, 7, 1), tokens, torch.tensor([0]), 7)
    target = torch.arange(1, 9).reshape(1, 8)
    result = accept(tree, target, torch.tensor([5]), 8)
    assert_path(result, 0, list(range(8)), target, torch.tensor([5]), 8)


def test_nothing_accepted_commits_the_bonus():
    tree = build_tree(torch.zeros(1, 7, 1), torch.arange(7).reshape(1, 7, 1), torch.tensor([0]), 7)
    target = torch.full((1, 8), 99)
    result = accept(tree, target, torch.tensor([5]), 8)
    assert_path(result, 0, [0], target, torch.tensor([5]), 8)


def test_a_pad_is_never_accepted_though_it_carries_the_target_token():
    log_probs = torch.full((1, 3, 2), -torch.inf)
    tree = build_tree(log_probs, torch.zeros(1, 3, 2).long(), torch.tensor([6]), 4)
    result = accept(tree, torch.full((1, 5), 6), torch.tensor([2]), 4)
    assert result.index.tolist() == [[0, -1, -1, -1]]
    assert result.out_tokens.tolist() == [[6, 0, 0, 0]]


def test_of_equal_siblings_the_lowest_is_taken():
    tree = build_tree(torch.zeros(1, 1, 3), torch.tensor([[[4, 4, 4]]]), torch.tensor([0]), 3)
    assert accept(tree, torch.full((1, 4), 4), torch.tensor([0]), 2).index.tolist() == [[0, 1]]


def test_the_walk_ends_at_the_block_size():
    tree = build_tree(torch.zeros(1, 7, 1), torch.arange(1, 8).reshape(1, 7, 1), torch.tensor([0]), 7)
    target = torch.arange(1, 9).reshape(1, 8)
    result = accept(tree, target, torch.tensor([0]), 4)
    assert_path(result, 0, [0, 1, 2, 3], target, torch.tensor([0]), 4)


def test_out_is_written_and_returned():
    tree, target, seq_lens = random_case(3, 6, 7, 8, 16)
    out = Accepted.empty(6, 8, "cpu")
    for field in out:
        field.fill_(77)
    assert accept(tree, target, seq_lens, 8, out=out) is out
    assert all(torch.equal(a, b) for a, b in zip(out, accept(tree, target, seq_lens, 8), strict=True))


def test_choices_that_are_not_contiguous_are_refused():
    tree, target, seq_lens = random_case(4, 6, 7, 8, 16)
    with pytest.raises(ValueError, match="target_tokens is not contiguous"):
        accept(tree, target.repeat(1, 2)[:, :17], seq_lens, 8)
