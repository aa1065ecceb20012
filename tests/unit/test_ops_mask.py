"""The flat verify mask against one built row by row."""

from __future__ import annotations

import pytest
import torch
from sglang_ddtree.ops import write_mask_tails

UNWRITTEN = 7


def random_case(width: int, lengths: list[int], gap: int):
    """Ancestor rows, lengths, offsets with ``gap`` unused bytes before each request, and the total size."""
    rng = torch.Generator().manual_seed(width)
    ancestors = torch.rand(len(lengths), width, width, generator=rng) < 0.5
    offsets, end = [], 0
    for length in lengths:
        offsets.append(end + gap)
        end = offsets[-1] + width * (length + width)
    return ancestors, torch.tensor(lengths), torch.tensor([*offsets, end]), end + gap


@pytest.mark.parametrize("gap", [0, 5])
@pytest.mark.parametrize("fill_prefix", [False, True])
@pytest.mark.parametrize("width", [2, 9, 17])
def test_tails_are_ancestor_rows_and_nothing_else_changes(width, fill_prefix, gap):
    ancestors, seq_lens, indptr, size = random_case(width, [0, 1, 40, 3, 129], gap)
    expected = torch.full((size,), UNWRITTEN, dtype=torch.uint8)
    for request, length in enumerate(seq_lens.tolist()):
        for node in range(width):
            start = int(indptr[request]) + node * (length + width)
            if fill_prefix:
                expected[start : start + length] = 1
            expected[start + length : start + length + width] = ancestors[request, node]

    mask = torch.full((size,), UNWRITTEN, dtype=torch.uint8)
    write_mask_tails(mask, indptr, seq_lens, ancestors, fill_prefix=fill_prefix)
    assert torch.equal(mask, expected)


def test_bool_masks_and_narrow_lengths_give_the_same():
    ancestors, seq_lens, indptr, size = random_case(9, [4, 0, 11], 0)
    expected = torch.zeros(size, dtype=torch.uint8)
    write_mask_tails(expected, indptr, seq_lens, ancestors, fill_prefix=True)
    mask = torch.zeros(size, dtype=torch.bool)
    write_mask_tails(mask, indptr.int(), seq_lens.int(), ancestors.to(torch.uint8), fill_prefix=True)
    assert torch.equal(mask, expected.bool())


def test_a_short_mask_is_refused():
    ancestors, seq_lens, indptr, size = random_case(9, [4, 0], 0)
    with pytest.raises(IndexError):
        write_mask_tails(torch.zeros(size - 1, dtype=torch.uint8), indptr, seq_lens, ancestors)


def test_a_mask_of_the_wrong_kind_is_refused():
    ancestors, seq_lens, indptr, size = random_case(9, [4, 0], 0)
    with pytest.raises(ValueError, match=r"mask is torch\.int64"):
        write_mask_tails(torch.zeros(size, dtype=torch.int64), indptr, seq_lens, ancestors)
    with pytest.raises(ValueError, match="flat mask"):
        write_mask_tails(torch.zeros(size, dtype=torch.uint8), indptr[:1], seq_lens, ancestors)
