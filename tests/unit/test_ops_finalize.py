"""Positions and ancestor rows against a walk to the root."""

from __future__ import annotations

import pytest
import torch
from sglang_ddtree.ops import Tree, build_tree, finalize


def random_tree(seed: int, batch: int, width: int) -> Tree:
    """Trees of any shape, the last nodes of every second request pads."""
    rng = torch.Generator().manual_seed(seed)
    tree = Tree.empty(batch, width, "cpu")
    tree.token.zero_()
    tree.score.zero_()
    tree.parent.fill_(-1)
    tree.depth.zero_()
    for request in range(batch):
        used = width if request % 2 == 0 else int(torch.randint(1, width + 1, (), generator=rng))
        for node in range(1, used):
            parent = int(torch.randint(max(0, node - 4), node, (), generator=rng))
            tree.parent[request, node] = parent
            tree.depth[request, node] = tree.depth[request, parent] + 1
    return tree


@pytest.mark.parametrize("width", [2, 4, 9, 17, 64, 128])
def test_ancestors_are_the_path_to_the_root(width):
    tree = random_tree(width, 6, width)
    _, ancestors = finalize(tree, torch.zeros(6, dtype=torch.int64))
    for parents, rows in zip(tree.parent.tolist(), ancestors.tolist(), strict=True):
        for node, row in enumerate(rows):
            path, above = set(), node
            while above >= 0:
                path.add(above)
                above = parents[above]
            assert {column for column, seen in enumerate(row) if seen} == path


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_positions_are_length_plus_depth(dtype):
    tree = random_tree(1, 5, 17)
    seq_lens = torch.tensor([0, 1, 5, 1000, 131072], dtype=dtype)
    positions, _ = finalize(tree, seq_lens)
    assert positions.dtype == torch.int64
    assert positions.tolist() == [
        [length + d for d in depths] for length, depths in zip(seq_lens.tolist(), tree.depth.tolist(), strict=True)
    ]


def test_a_pad_sees_itself_only_and_nobody_sees_a_pad():
    log_probs = torch.full((1, 2, 2), -torch.inf)
    log_probs[0, 0, 0] = -1.0
    tree = build_tree(log_probs, torch.zeros(1, 2, 2).long(), torch.tensor([3]), 3)
    positions, ancestors = finalize(tree, torch.tensor([10]))
    assert positions.tolist() == [[10, 11, 10, 10]]
    assert ancestors.int().tolist() == [[[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_out_is_written_and_returned(dtype):
    tree, seq_lens = random_tree(2, 4, 9), torch.arange(4)
    out = torch.full((4, 9), 77), torch.full((4, 9, 9), 1, dtype=dtype)
    positions, ancestors = finalize(tree, seq_lens, out=out)
    assert positions is out[0]
    assert ancestors is out[1]
    expected = finalize(tree, seq_lens)
    assert torch.equal(positions, expected[0])
    assert torch.equal(ancestors.bool(), expected[1])
