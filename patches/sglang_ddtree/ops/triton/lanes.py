"""Tile sizes shared by the kernels."""

from __future__ import annotations

import triton


def lane_count(width: int) -> int:
    """Tile length for ``width`` nodes: a power of two, at least a full warp.

    A reduction over fewer lanes than a warp would not use the hardware's integer reduction.
    """
    return max(32, triton.next_power_of_2(width))
