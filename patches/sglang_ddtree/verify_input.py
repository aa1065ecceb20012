"""Input of the target's verify pass."""

from dataclasses import dataclass

import torch
from sglang.srt.speculative.dflash_info import DFlashVerifyInput


@dataclass
class DDTreeVerifyInput(DFlashVerifyInput):
    """`draft_token` int64 [b * W] and `positions` int64 [b * W] of the nodes, plus who sees whom.

    ancestors: bool [b, W, W], row i is true at node i and at every node above it.
    """

    ancestors: torch.Tensor | None = None
