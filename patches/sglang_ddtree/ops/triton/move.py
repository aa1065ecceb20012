"""Compaction of the accepted nodes' KV rows: one launch for all buffers."""

# ruff: noqa: N803 - constants of a kernel are in capitals

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

TILE_BYTES = 4096
_UNITS = {8: tl.int64, 4: tl.int32, 2: tl.int16, 1: tl.int8}


@triton.jit(do_not_specialize=["slot_stride", "index_stride"])
def _move_kernel(
    tile_ptr,
    slot_ptr,
    index_ptr,
    commit_len_ptr,
    slot_stride,
    index_stride,
    UNIT: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    tile = tl.program_id(0)
    request = tl.program_id(1).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    first_ptr = tl.load(tile_ptr + tile * 3).to(tl.pointer_type(UNIT))
    row_stride = tl.load(tile_ptr + tile * 3 + 1)
    in_row = column < tl.load(tile_ptr + tile * 3 + 2)
    slots_ptr = slot_ptr + request * slot_stride
    nodes_ptr = index_ptr + request * index_stride

    # A thread owns its columns in every row: what an earlier step reads and a later one overwrites is read
    # and written by one thread in program order, so the warps need no barrier.
    for k in range(1, tl.load(commit_len_ptr + request)):
        node = tl.load(nodes_ptr + k)
        if node != k:
            source = tl.load(slots_ptr + node) * row_stride
            destination = tl.load(slots_ptr + k) * row_stride
            row = tl.load(first_ptr + source + column, mask=in_row)
            tl.store(first_ptr + destination + column, row, mask=in_row)


class KVMover:
    """See :class:`sglang_ddtree.ops.KVMover`."""

    def __init__(self, buffers: Sequence[torch.Tensor]):
        self._buffers = list(buffers)  # the table holds raw addresses: keep the memory alive
        unit = _common_unit(self._buffers)
        longest_row = max(_row_bytes(buffer) for buffer in self._buffers) // unit
        self._unit = _UNITS[unit]
        self._columns = min(TILE_BYTES // unit, max(32, triton.next_power_of_2(longest_row)))
        self._tiles = _tile_table(self._buffers, unit, self._columns)

    def __call__(self, slots: torch.Tensor, accepted_index: torch.Tensor, commit_lens: torch.Tensor) -> None:
        _move_kernel[(self._tiles.shape[0], slots.shape[0])](
            self._tiles,
            slots,
            accepted_index,
            commit_lens,
            slots.stride(0),
            accepted_index.stride(0),
            UNIT=self._unit,
            COLUMNS=self._columns,
            num_warps=min(4, self._columns // 32),
        )


def _row_bytes(buffer: torch.Tensor) -> int:
    return buffer[:1].numel() * buffer.element_size()


def _stride_bytes(buffer: torch.Tensor) -> int:
    return buffer.stride(0) * buffer.element_size()


def _common_unit(buffers: Sequence[torch.Tensor]) -> int:
    """The widest integer, in bytes, to which every address, row stride and row size is aligned."""
    numbers = [n for b in buffers for n in (b.data_ptr(), _stride_bytes(b), _row_bytes(b))]
    return next(unit for unit in _UNITS if all(number % unit == 0 for number in numbers))


def _tile_table(buffers: Sequence[torch.Tensor], unit: int, columns: int) -> torch.Tensor:
    """int64 ``[tiles, 3]``: address in row 0, row stride in units, columns left in the row."""
    rows = []
    for buffer in buffers:
        stride, length = _stride_bytes(buffer) // unit, _row_bytes(buffer) // unit
        for start in range(0, length, columns):
            rows.append((buffer.data_ptr() + start * unit, stride, length - start))
    return torch.tensor(rows, dtype=torch.int64, device=buffers[0].device)
