"""Compaction of the accepted nodes' KV rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class KVMover:
    """See :class:`sglang_ddtree.ops.KVMover`."""

    def __init__(self, buffers: Sequence[torch.Tensor]):
        # Bytes, because not every KV dtype can be indexed on every device.
        self._buffers = [buffer.view(torch.uint8) for buffer in buffers]

    def __call__(self, slots: torch.Tensor, accepted_index: torch.Tensor, commit_lens: torch.Tensor) -> None:
        # No path is longer than the tree is wide, though a block may be.
        longest = min(slots.shape[1], accepted_index.shape[1])
        index = accepted_index[:, :longest]
        depths = torch.arange(longest, device=slots.device)
        moved = (depths < commit_lens[:, None]) & (index != depths)
        source = slots.gather(1, index.clamp(min=0).long())[moved]
        destination = slots[:, :longest][moved]
        for buffer in self._buffers:
            # Indexing copies every source before a row is written, which equals the ascending order.
            buffer[destination] = buffer[source]
