"""The in-place KV move against a move into a copy."""

from __future__ import annotations

import pytest
import torch
from sglang_ddtree.ops import KVMover, move_kv

SLOTS = 400


def random_paths(seed: int, batch: int, width: int, block_size: int):
    """Distinct slots, strictly increasing accepted nodes and their number, of each request."""
    rng = torch.Generator().manual_seed(seed)
    slots = torch.randperm(SLOTS, generator=rng)[: batch * width].reshape(batch, width)
    index = torch.full((batch, block_size), -1, dtype=torch.int32)
    commit_lens = torch.randint(1, min(width, block_size) + 1, (batch,), generator=rng).int()
    for request, length in enumerate(commit_lens.tolist()):
        nodes = torch.randperm(width - 1, generator=rng)[: length - 1].sort().values + 1
        index[request, :length] = torch.cat([torch.zeros(1), nodes]).int()
    return slots, index, commit_lens


def moved(buffer: torch.Tensor, slots, index, commit_lens) -> torch.Tensor:
    result = buffer.clone()
    for request, length in enumerate(commit_lens.tolist()):
        for k in range(1, length):
            result[slots[request, k]] = buffer[slots[request, index[request, k]]]
    return result


def buffers() -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    return [
        torch.randn(SLOTS, 3, 64, generator=rng),
        torch.randn(SLOTS, 2, 5, generator=rng).half(),
        torch.randn(SLOTS, 1, 288, generator=rng).bfloat16(),
        torch.randint(0, 256, (SLOTS, 33), generator=rng).to(torch.uint8),
        torch.randn(SLOTS, 4, 8, generator=rng).to(torch.float8_e4m3fn),
        torch.randn(SLOTS, generator=rng),
    ]


def equal_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


@pytest.mark.parametrize(("width", "block_size"), [(17, 8), (6, 16), (64, 16), (8, 8), (2, 2)])
def test_rows_move_as_they_would_into_a_copy(width, block_size):
    case = random_paths(width, 6, width, block_size)
    pool = buffers()
    expected = [moved(buffer, *case) for buffer in pool]
    move_kv(pool, *case)
    assert all(equal_bits(got, want) for got, want in zip(pool, expected, strict=True))


def test_a_row_that_is_read_and_later_overwritten_keeps_its_old_content():
    # Node k+1 moves to k: every row but the ends is first a source, then a destination.
    pool = [torch.arange(8.0)[:, None].repeat(1, 4)]
    index = torch.tensor([[0, 2, 3, 4, 5, 6, 7, -1]]).int()
    move_kv(pool, torch.arange(8)[None], index, torch.tensor([7]).int())
    assert pool[0][:, 0].tolist() == [0, 2, 3, 4, 5, 6, 7, 7]


def test_a_mover_serves_many_steps_and_batch_sizes():
    pool = buffers()
    mover = KVMover(pool)
    for step, batch in enumerate((1, 6, 3)):
        case = random_paths(step, batch, 17, 8)
        expected = [moved(buffer, *case) for buffer in pool]
        mover(*case)
        assert all(equal_bits(got, want) for got, want in zip(pool, expected, strict=True))


def test_rows_may_be_apart():
    wide = torch.randn(SLOTS, 2, 6)
    untouched = wide[:, 1].clone()
    case = random_paths(5, 6, 17, 8)
    expected = moved(wide[:, 0], *case)
    move_kv([wide[:, 0]], *case)
    assert torch.equal(wide[:, 0], expected)
    assert torch.equal(wide[:, 1], untouched)


def test_slots_of_a_wider_table_are_read_in_place():
    slots, index, commit_lens = random_paths(6, 6, 17, 8)
    table = torch.cat([slots, torch.full((6, 3), -1)], 1)
    pool = torch.randn(SLOTS, 4)
    expected = moved(pool, slots, index, commit_lens)
    move_kv([pool], table[:, :17], index, commit_lens)
    assert torch.equal(pool, expected)


def test_buffers_that_cannot_be_moved_are_refused():
    with pytest.raises(ValueError, match="no KV buffer"):
        KVMover([])
    with pytest.raises(ValueError, match="contiguous rows"):
        KVMover([torch.zeros(8, 4), torch.zeros(8, 4, 3).transpose(1, 2)])
    with pytest.raises(ValueError, match=r"slots is torch\.int32"):
        KVMover([torch.zeros(8, 4)])(torch.zeros(1, 4).int(), torch.zeros(1, 4).int(), torch.ones(1).int())
